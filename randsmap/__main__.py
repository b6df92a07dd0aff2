"""`python -m randsmap`: the `randsmap` command."""

import sys

from randsmap.cli import main

if __name__ == "__main__":
    sys.exit(main())
