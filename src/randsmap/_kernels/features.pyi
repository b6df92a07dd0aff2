import numpy as np

COSINE: int
LOGISTIC: int
FUSED_DIM: int

def features(activation: int, Y: np.ndarray, W: np.ndarray, b: np.ndarray, scale: float, out: np.ndarray) -> None: ...
