"""Models of a solution manifold: an encoder and a decoder together, and what is built upon them."""

from randsmap.model._manifold import ManifoldModel
from randsmap.model._parametric import ParametricModel
from randsmap.model._shift import ShiftRegistration

__all__ = ["ManifoldModel", "ParametricModel", "ShiftRegistration"]
