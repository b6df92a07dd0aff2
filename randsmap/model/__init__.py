"""Models of a solution manifold: an encoder and a decoder together, and what is built upon them."""

from randsmap._interface.callers import public
from randsmap.model._errors import calibrate, reconstruction_errors
from randsmap.model._forecast import LatentForecast
from randsmap.model._manifold import ManifoldModel
from randsmap.model._manifold import sampled as sampled  # for the command line
from randsmap.model._parametric import ParametricModel
from randsmap.model._quantile import QuantileRegistration
from randsmap.model._sampled import SampledModel, sample_cells, stencil
from randsmap.model._sampled import latent_map as latent_map  # for JAX and PyTorch
from randsmap.model._shift import ShiftRegistration

__all__ = [
    "LatentForecast",
    "ManifoldModel",
    "ParametricModel",
    "QuantileRegistration",
    "SampledModel",
    "ShiftRegistration",
    "calibrate",
    "reconstruction_errors",
    "sample_cells",
    "stencil",
]
public(globals())
