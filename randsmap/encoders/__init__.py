"""Encoders: from fields to latent coordinates (paper, Sec. 3 and App. A, C)."""

from randsmap._interface.callers import public
from randsmap.encoders._diffusion_maps import DiffusionMaps
from randsmap.encoders._dimension import estimate_n_components
from randsmap.encoders._isomap import Isomap
from randsmap.encoders._pod import POD

__all__ = ["DiffusionMaps", "Isomap", "POD", "estimate_n_components"]
public(globals())
