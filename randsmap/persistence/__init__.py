"""Model files: fitted models on disk, exact to the bit, safe to load from anyone."""

from randsmap.persistence._model_files import load, save

__all__ = ["load", "save"]
