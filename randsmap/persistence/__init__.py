"""Model files: fitted models on disk, exact to the bit, safe to load from anyone."""

from randsmap._interface.callers import public
from randsmap.persistence._model_files import load, save

__all__ = ["load", "save"]
public(globals())
