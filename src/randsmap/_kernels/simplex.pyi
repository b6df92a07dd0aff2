import numpy as np

def latent(Y: np.ndarray, y: np.ndarray, neighbor: np.ndarray, weights: np.ndarray) -> None: ...
def encoder(
    rows: np.ndarray,
    offset: np.ndarray,
    values: np.ndarray,
    Y: np.ndarray,
    y: np.ndarray,
    neighbor: np.ndarray,
    row: np.ndarray,
    weights: np.ndarray,
) -> None: ...
def encode(
    rows: np.ndarray, offset: np.ndarray, values: np.ndarray, row: np.ndarray, a: np.ndarray, psi: np.ndarray
) -> None: ...
def mix(F: np.ndarray, neighbor: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None: ...
