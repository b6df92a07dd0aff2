import numpy as np

MAX_LEAF: int

def build(
    X: np.ndarray, depth: int, order: np.ndarray, boxes: np.ndarray, lowest: np.ndarray, split: np.ndarray
) -> None: ...
def assign(
    points: np.ndarray,
    index: np.ndarray,
    depth: int,
    boxes: np.ndarray,
    lowest: np.ndarray,
    split: np.ndarray,
    Q: np.ndarray,
    leaf: np.ndarray,
) -> None: ...

class Grid:
    def __init__(
        self,
        nx: int,
        ny: int,
        x0: float,
        y0: float,
        sx: float,
        sy: float,
        start: np.ndarray,
        points: np.ndarray,
        index: np.ndarray,
        above_x: np.ndarray,
        below_x: np.ndarray,
        above_y: np.ndarray,
        below_y: np.ndarray,
    ) -> None: ...

def cells(grid: Grid, Q: np.ndarray, cell: np.ndarray) -> None: ...
def sort(leaf: np.ndarray, start: np.ndarray, order: np.ndarray) -> None: ...
def tree(
    points: np.ndarray,
    index: np.ndarray,
    depth: int,
    boxes: np.ndarray,
    lowest: np.ndarray,
    split: np.ndarray,
    grid: Grid | None,
    Q: np.ndarray,
    order: np.ndarray,
    distance: np.ndarray,
    neighbor: np.ndarray,
) -> None: ...
def tiles(X: np.ndarray, center: np.ndarray, scale: float, out: np.ndarray) -> None: ...
def flat(
    points: np.ndarray,
    tiles: np.ndarray,
    center: np.ndarray,
    scale: float,
    radius: float,
    Q: np.ndarray,
    distance: np.ndarray,
    neighbor: np.ndarray,
) -> None: ...
