"""Decoders: from latent coordinates back to fields, as scikit-learn multi-output regressors."""

from randsmap._interface.callers import public
from randsmap.decoders._auto import FAMILIES, AutoDecoder
from randsmap.decoders._auto import check_families as check_families  # for the command line
from randsmap.decoders._blended import BlendedDecoder
from randsmap.decoders._conservative import ConservativeRegressor
from randsmap.decoders._kernel import DoubleDiffusionMapsDecoder, KernelDecoder
from randsmap.decoders._knn import KNNDecoder
from randsmap.decoders._random_features import RANDSMAPDecoder, RFNNDecoder
from randsmap.maps.extrapolation import ExtrapolationWarning
from randsmap.maps.frozen import MAX_BYTES as MAX_BYTES  # for models
from randsmap.maps.frozen import FrozenDecoder, FrozenModel, get_include
from randsmap.maps.frozen import library_path as library_path  # for the command line

__all__ = [
    "RFNNDecoder",
    "RANDSMAPDecoder",
    "KNNDecoder",
    "DoubleDiffusionMapsDecoder",
    "KernelDecoder",
    "ConservativeRegressor",
    "BlendedDecoder",
    "AutoDecoder",
    "FAMILIES",
    "ExtrapolationWarning",
    "FrozenDecoder",
    "FrozenModel",
    "get_include",
]
public(globals())
