"""Linear algebra that the estimators share: least squares, leading modes, distances, neighbours."""
