import numpy as np

LANES: int
FREE: int
SOURCE: int
WALL: int

def eikonal_work_size(n: int, nx: int, ny: int) -> int: ...
def eikonal(
    slowness: np.ndarray,
    kind: np.ndarray,
    exits: np.ndarray,
    dx: float,
    aspect: float,
    pivot: int,
    sweeping: bool,
    work: np.ndarray,
    out: np.ndarray,
) -> None: ...
def run_work_size(nx: int, ny: int) -> int: ...
def run(
    state: np.ndarray,
    work: np.ndarray,
    kind: np.ndarray,
    exits: np.ndarray,
    open_x: np.ndarray,
    open_y: np.ndarray,
    dx: float,
    dy: float,
    dt: float,
    v_max: float,
    rho_max: float,
    min_speed: float,
    steps: np.ndarray,
    fractions: np.ndarray,
    rows: np.ndarray,
    normalised: bool,
    out: np.ndarray,
) -> None: ...
