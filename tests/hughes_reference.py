"""Plain NumPy version of Hughes' crowd model, written from the equations: the tests' oracle.

`python hughes_reference.py` (some minutes) writes data/hughes_golden.npz: the paper's corridor
after 70 s.
"""

from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parent / "data" / "hughes_golden.npz"


def eikonal(slowness, dx, dy, zero, walls):
    """Smallest T >= 0 of the upwind scheme by plain iteration over all cells at once.

    slowness (..., nx, ny); zero, walls: (nx + 2, ny + 2) masks with a frame; T = 0 where `zero`.
    """
    T = np.full(slowness.shape[:-2] + zero.shape, np.inf)
    T[..., zero] = 0.0
    free = ~(walls | zero)[1:-1, 1:-1]
    inner = (..., slice(1, -1), slice(1, -1))
    while True:
        a = np.minimum(T[..., :-2, 1:-1], T[..., 2:, 1:-1])
        b = np.minimum(T[..., 1:-1, :-2], T[..., 1:-1, 2:])
        one_sided = np.minimum(a + dx * slowness, b + dy * slowness)
        # ((T - a)/dx)^2 + ((T - b)/dy)^2 = s^2, valid where its root is above both
        with np.errstate(invalid="ignore"):
            A, B = 1 / dx**2, 1 / dy**2
            root = np.sqrt((A + B) * slowness**2 - A * B * (a - b) ** 2)
            both = (A * a + B * b + root) / (A + B)
            valid = np.isfinite(both) & (both >= np.maximum(a, b))
        new = np.minimum(T[inner], np.where(valid, both, one_sided))
        new = np.where(free, new, T[inner])
        if np.array_equal(new, T[inner]):
            return T
        T[inner] = new


def potential(rho, free, doors, dx, dy, law):
    v_max, rho_max, min_speed = law
    walls = np.pad(~free, 1, constant_values=True)
    zero = np.zeros_like(walls)
    zero[-1, 1:-1] = doors
    speed = np.maximum(v_max * (1 - rho / rho_max), min_speed)
    return eikonal(1 / speed, dx, dy, zero, walls & ~zero)


def step(rho, free, doors, dx, dy, dt, law):
    """One step of rho (..., nx, ny)."""
    v_max, rho_max, _ = law
    nx, ny = free.shape
    phi = potential(rho, free, doors, dx, dy, law)

    # differences across faces, 0 across walls; x-face i is left of cell i, face nx the exit
    open_x = np.zeros((nx + 1, ny), bool)
    open_x[1:nx] = free[1:] & free[:-1]
    open_x[nx] = doors
    open_y = np.zeros((nx, ny + 1), bool)
    open_y[:, 1:ny] = free[:, 1:] & free[:, :-1]
    with np.errstate(invalid="ignore"):
        Dx = np.where(open_x, phi[..., 1:, 1:-1] - phi[..., :-1, 1:-1], 0.0)
        Dy = np.where(open_y, phi[..., 1:-1, 1:] - phi[..., 1:-1, :-1], 0.0)
    Dx, Dy = np.nan_to_num(Dx), np.nan_to_num(Dy)  # inf - inf where nothing reaches the exit

    # gradient at x-faces 1 .. nx, the ghost column beyond the exit being flat
    slope_y = Dy[..., :-1] + Dy[..., 1:]
    beside = np.concatenate([slope_y[..., 1:, :], np.zeros_like(slope_y[..., :1, :])], axis=-2)
    gx, gy = Dx[..., 1:, :] / dx, (slope_y + beside) / 4 / dy
    n_x = -gx / np.maximum(np.hypot(gx, gy), 1e-300)
    # gradient at y-faces 1 .. ny-1
    slope_x = Dx[..., :-1, :] + Dx[..., 1:, :]
    gx, gy = (slope_x[..., 1:] + slope_x[..., :-1]) / 4 / dx, Dy[..., 1:-1] / dy
    n_y = -gy / np.maximum(np.hypot(gx, gy), 1e-300)

    def q(r):
        return r * v_max * (1 - r / rho_max)

    demand, supply = q(np.minimum(rho, rho_max / 2)), q(np.maximum(rho, rho_max / 2))

    def flux(n, D, S, D_next, S_next):
        return np.where(n > 0, n * np.minimum(D, S_next), n * np.minimum(D_next, S))

    D_next, S_next = np.roll(demand, -1, axis=-2), np.roll(supply, -1, axis=-2)
    right = flux(n_x, demand, supply, D_next, S_next)
    left = np.roll(right, 1, axis=-2)
    up = np.zeros(rho.shape[:-1] + (ny + 1,))
    up[..., 1:-1] = flux(n_y, demand[..., :-1], supply[..., :-1], demand[..., 1:], supply[..., 1:])
    return rho - dt / dx * (right - left) - dt / dy * (up[..., 1:] - up[..., :-1])


def run(rho, n_steps, free, doors, dx, dy, dt, law=(1.0, 5.0, 1e-3)):
    for _ in range(n_steps):
        rho = step(rho, free, doors, dx, dy, dt, law)
    return rho


def paper_corridor():
    """free, doors, x, y of the paper's 200 x 50 cells."""
    x, y = np.meshgrid((np.arange(200) + 0.5) * 0.1, (np.arange(50) + 0.5) * 0.1, indexing="ij")
    free = np.ones((200, 50), bool)
    free[100:110, 20:30] = False
    return free, np.ones(50, bool), x, y


def paper_bumps():
    """Two initial densities: integral 1, and persons per m^2 (crowded enough for shocks)."""
    free, _, x, y = paper_corridor()
    bump = 2.0 * np.exp(-((x - 3.1) ** 2) / (2 * 1.7**2) - (y - 2.2) ** 2 / (2 * 1.9**2)) * free
    return np.stack([bump / (bump.sum() * 0.01), bump])


if __name__ == "__main__":
    free, doors, _, _ = paper_corridor()
    final = run(paper_bumps(), 2800, free, doors, 0.1, 0.1, 0.025)
    GOLDEN.parent.mkdir(exist_ok=True)
    np.savez_compressed(GOLDEN, final=final)
