import numpy as np

PAD_BEFORE: int
PAD_AFTER: int

def rotate(padded: np.ndarray, cosines: np.ndarray, sines: np.ndarray, out: np.ndarray, sums: np.ndarray) -> None: ...
