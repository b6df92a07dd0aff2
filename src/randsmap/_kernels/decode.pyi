import numpy as np

FEW: int

class Projection:
    def __init__(
        self,
        C: np.ndarray,
        m: np.ndarray,
        W: np.ndarray,
        R: np.ndarray,
        index: np.ndarray,
        value: np.ndarray,
        bounds: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    ) -> None: ...
    def project(self, F: np.ndarray, values: np.ndarray | None = None) -> int: ...

def dots(C: np.ndarray, F: np.ndarray, value: np.ndarray, scale: np.ndarray) -> None: ...
def decode(
    activation: int,
    Y: np.ndarray,
    W: np.ndarray,
    b: np.ndarray,
    scale: float,
    A: np.ndarray,
    projection: Projection | None,
    out: np.ndarray,
) -> int: ...
def decode_features(Z: np.ndarray, A: np.ndarray, projection: Projection | None, out: np.ndarray) -> int: ...
