import numpy as np

GHOSTS_LEFT: int
GHOSTS_RIGHT: int

def run(
    state: np.ndarray,
    aside: np.ndarray,
    courant: float,
    rho_max: float,
    rounding: float,
    steps: np.ndarray,
    fractions: np.ndarray,
    rows: np.ndarray,
    out: np.ndarray,
) -> None: ...
