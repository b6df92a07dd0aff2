import numpy as np

PANEL: int
DIRECT_DIM: int
FEW: int

def workspace_size(dim: int, few_rows: bool) -> int: ...
def center(X: np.ndarray, c: np.ndarray, out: np.ndarray, norms: np.ndarray) -> None: ...
def panel(
    index: int,
    X: np.ndarray,
    X_centred: np.ndarray | None,
    X_norms: np.ndarray | None,
    Z: np.ndarray | None,
    Z_centred: np.ndarray | None,
    Z_norms: np.ndarray | None,
    centre: np.ndarray | None,
    scale: float,
    work: np.ndarray,
    out: np.ndarray,
) -> None: ...
def nystrom_panel(
    index: int,
    X: np.ndarray,
    Z_centred: np.ndarray,
    Z_norms: np.ndarray,
    centre: np.ndarray,
    scale: float,
    weights: np.ndarray,
    work: np.ndarray,
    sums: np.ndarray,
) -> None: ...
def reach_panel(
    index: int,
    X: np.ndarray,
    Z_centred: np.ndarray,
    Z_norms: np.ndarray,
    centre: np.ndarray,
    x_reach: np.ndarray,
    z_reach: np.ndarray,
    work: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
) -> int: ...
def symmetric_product(K: np.ndarray, i0: int, i1: int, X: np.ndarray, out: np.ndarray) -> None: ...
def gaussian_rows(D: np.ndarray, i0: int, i1: int, scale: float) -> None: ...
def bracket(D: np.ndarray, i0: int, i1: int, lo: float, hi: float, inside: np.ndarray) -> tuple[int, int]: ...
def multi_gaussian(D: np.ndarray, low: float, high: float) -> None: ...
def multi_gaussian_slope(D: np.ndarray, low: float, high: float) -> None: ...
