"""Decoders: from latent coordinates back to fields, as scikit-learn multi-output regressors."""

from randsmap.decoders._knn import KNNDecoder

__all__ = ["KNNDecoder"]
