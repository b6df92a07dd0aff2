"""Files that are replaced whole or not at all, and progress bars."""
