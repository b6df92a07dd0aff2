"""Values that are tried where none are given."""

from __future__ import annotations

import numpy as np

_RANGES = {"slope": (0.5, 50.0), "length_scale": (0.05, 2.0), "max_frequency": (0.5, 50.0)}


def default_values(parameter: str, n_values: int = 10) -> list[float]:
    """Values to try for a parameter of a feature map or kernel, equal ratios apart.

    They span what fits latent coordinates of unit spread, such as those of `DiffusionMaps`.

    Parameters
    ----------
    parameter : {"slope", "length_scale", "max_frequency"}
    n_values : int, default=10

    Returns
    -------
    list of float

    Raises
    ------
    ValueError
        If there is no range for that parameter.

    Examples
    --------
    >>> from randsmap.tuning import default_values
    >>> [round(value, 3) for value in default_values("slope", 3)]
    [0.5, 5.0, 50.0]
    """
    if parameter not in _RANGES:
        raise ValueError(f"parameter must be one of {', '.join(map(repr, _RANGES))}, got {parameter!r}")
    return np.geomspace(*_RANGES[parameter], n_values).tolist()
