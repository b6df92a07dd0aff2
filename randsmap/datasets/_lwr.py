"""Traffic flow: the Lighthill-Whitham-Richards equation (paper, Sec. 5, Case Study 1)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Bunch

from randsmap._interface.arrays import LARGEST, SMALLEST, as_array
from randsmap._interface.parameters import check_count, check_number
from randsmap._io.progress import ProgressBar, if_asked
from randsmap._kernels import traffic
from randsmap.datasets import _common

# Cell updates in one call of the kernel (some 20 ms): between calls Ctrl-C is seen.
_UPDATES_PER_CALL = 20_000_000


@_common.documented
@dataclass(eq=False)
class LWRSolver:
    """Finite-volume solver of the LWR traffic equation on a periodic road.

    Solves rho_t + (v_max rho (1 - rho / rho_max))_x = 0 (paper, Case Study 1) by the high-resolution Godunov scheme in
    wave-propagation form (R. J. LeVeque, Finite Volume Methods for Hyperbolic Problems, 2002, chapters 6, 11, 12): Roe
    flux with entropy fix and a Lax-Wendroff correction limited by van Leer's function. Fields agree to round-off with
    PyClaw's classic solver (Riemann solver ``traffic_1D``, order 2, van Leer).

    Parameters
    ----------
    n_cells : int, default 400
        Number of cells, at least 2.
    domain : (float, float), default (-5.0, 5.0)
        Ends of the road.
    v_max, rho_max : float, default=2.0, 1.0
        Speed on the empty road, and density at which traffic stands still (1e-140 to 1e140).
    dt : float, default 0.005
        Time step.

    Attributes
    ----------
    cell_centers, dx : ndarray (n_cells,), float
        Positions of the cells' centres, and the cell width.
    courant : float
        Courant number v_max dt / dx, at most 1; v_max is the largest wave speed of densities between 0 and rho_max.

    {raises}

    Notes
    -----
    Initial densities and face fluxes are rounded to multiples of a quantum, about one ulp of the largest density. All
    sums of the scheme are then exact: ``math.fsum(field)`` is the same number at all times t > 0, while no density
    exceeds the largest initial one by over 5 %. For a Courant number up to 0.4 densities stay between the extremes of
    the initial data (to round-off; never below zero). Near 1 they overshoot, on rough data by some 1e-2 rho_max.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> solver = randsmap.datasets.LWRSolver(n_cells=100, dt=0.02)
    >>> rho = np.where(np.abs(solver.cell_centers) < 1, 0.8, 0.1)
    >>> fields = solver.solve(rho, 2.0, times=[0.5, 1.0, 2.0]).fields
    >>> fields.shape, bool(np.isclose(fields[-1].sum(), rho.sum(), rtol=1e-15))
    ((3, 100), True)
    """

    n_cells: int = 400
    _: KW_ONLY
    domain: tuple[float, float] = (-5.0, 5.0)
    v_max: float = 2.0
    rho_max: float = 1.0
    dt: float = 0.005

    def __post_init__(self) -> None:
        self.n_cells = check_count(self.n_cells, "n_cells", low=2)
        start, stop = as_array(self.domain, "domain", (2,)).tolist()
        self.dx = (stop - start) / self.n_cells
        if not 0 < self.dx < np.inf:
            expected = f"(start, stop) with start < stop, wide enough for {self.n_cells} cells"
            raise ValueError(f"domain must be {expected}, got {self.domain!r}")
        self.domain = (start, stop)
        self.v_max = check_number(self.v_max, "v_max", low=0.0, strict_low=True)
        self.rho_max = check_number(self.rho_max, "rho_max", low=SMALLEST, high=LARGEST)
        self.dt = check_number(self.dt, "dt", low=0.0, strict_low=True)
        self.courant = self.v_max * self.dt / self.dx
        given = {"v_max": self.v_max, "dt": self.dt, "dx": self.dx}
        _common.check_courant(self.courant, "v_max*dt/dx", self.dx / self.v_max, given)
        self.cell_centers = start + (np.arange(self.n_cells) + 0.5) * self.dx

    def solve(self, initial: ArrayLike, t_end: float, times: ArrayLike | None = None) -> Bunch:
        """Densities at the given times.

        {solve}
        """
        cells = _common.check_densities(initial, "initial", self.n_cells, self.rho_max)
        return _common.solve(partial(_integrate, self), cells, t_end, times, self.dt, np.ndim(initial) == 1)


def _integrate(solver, initial, events, out, done=lambda n: None):
    """Integrate each row of initial, see `randsmap.datasets._common`; done(1) is called after each."""
    limit = max(1, _UPDATES_PER_CALL // solver.n_cells)

    def trajectory(alone, stopped):
        (field,), (steps, fractions, rows) = initial[alone], events(alone)
        # the kernel's state is rounded to multiples of a quantum: at time 0 the initial data are returned as they are
        later = (steps > 0) | (fractions > 0)
        out[rows[~later, 0]] = field
        state, rounding = _quantised(field)
        aside = np.empty_like(state)
        for call in _common.bounded_calls(steps[later], fractions[later], rows[later, 0], limit):
            if stopped.is_set():
                return
            traffic.run(state, aside, solver.courant, solver.rho_max, rounding, *call, out)
        done(1)

    _common.run_trajectories(trajectory, len(initial))


def _quantised(densities):
    """The kernel's state array, rounded to multiples of a quantum, and its rounding constant."""
    # The quantum is 2^(e-53) with 2^e just above the largest density, some overshoot allowed for: its multiples up to
    # 2^e are doubles. Adding the constant, just above 2^(e-1), to a flux (fluxes are not negative) leaves a multiple.
    highest = densities.max()
    exponent = int(np.frexp(1.05 * highest)[1])
    state = np.zeros(traffic.GHOSTS_LEFT + len(densities) + traffic.GHOSTS_RIGHT)
    units = np.rint(np.ldexp(densities, 53 - exponent))
    # rounding must not lift the maximum, which may be rho_max
    np.minimum(units, np.floor(np.ldexp(highest, 53 - exponent)), out=units)
    state[traffic.GHOSTS_LEFT : len(state) - traffic.GHOSTS_RIGHT] = np.ldexp(units, exponent - 53)
    return state, np.ldexp(1 + 2.0**-10, exponent - 1)


@_common.documented
def make_lwr(
    n_trajectories: int = 100,
    snapshots_per_trajectory: int = 120,
    *,
    random_state: _common.RandomState = None,
    n_cells: int = 400,
    t_end: float = 20.0,
    dt: float = 0.005,
    noise: float = 0.02,
    out: _common.Output = None,
    progress: bool = False,
) -> Bunch:
    """Densities of road traffic on a periodic road: the data of the paper's Case Study 1.

    Initial densities are bumps a exp(-(x - xc)^2 / (2 w^2)) with a ~ U[0.5, 1.5), w ~ U[0.2, 0.8), xc ~ U[-3, 3), plus
    noise, clipped at 0. They are scaled to sum 1 *before* integration by `LWRSolver` (densities of 0.02 to 0.05: shocks
    form late and move right). Every row sums to 1.

    Parameters
    ----------
    {runs}
    n_cells : int, default 400
        Number of cells.
    {noise}
    {out}

    Returns
    -------
    Bunch
        {snapshots}
        ``parameters`` (n_trajectories, 3): a, w, xc; ``cell_centers`` (n_cells,); ``DESCR``.

    {raises} {example}
    """
    solver = LWRSolver(n_cells, dt=dt)
    noise, x = check_number(noise, "noise", low=0.0), solver.cell_centers

    def draw(rng):
        a, w, xc = parameters = rng.uniform([0.5, 0.2, -3.0], [1.5, 0.8, 3.0])
        bump = a * np.exp(-((x - xc) ** 2) / (2 * w**2)) + noise * rng.standard_normal(len(x))
        bump = np.maximum(bump, 0.0)
        return parameters, bump / bump.sum()

    runs = _common.draw_runs(random_state, n_trajectories, snapshots_per_trajectory, t_end, solver.dt, draw)
    with if_asked(progress), ProgressBar(n_trajectories, "LWR trajectories") as bar:
        integrate, about = partial(_integrate, solver, done=bar.update), make_lwr.__doc__ or ""
        return _common.snapshots_of_runs(integrate, *runs, solver.dt, out, cell_centers=x, DESCR=about)
