"""Traffic flow: the Lighthill-Whitham-Richards equation (paper, Sec. 5, Case Study 1)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from randsmap import _parallel
from randsmap._interface import validation
from randsmap._io.progress import ProgressBar, if_asked
from randsmap._kernels import traffic
from randsmap.datasets import _times
from randsmap.datasets._common import Output, RandomState, fill_output, random_streams

if TYPE_CHECKING:
    from sklearn.utils import Bunch

__all__ = ["LWRSolver", "make_lwr"]

# Cell updates in one call of the kernel (some 20 ms): between calls Ctrl-C is seen.
_UPDATES_PER_CALL = 20_000_000
_EPS = np.finfo(np.float64).eps


class LWRSolver:
    """Finite-volume solver of the LWR traffic equation on a periodic road.

    Solves rho_t + (v_max rho (1 - rho / rho_max))_x = 0 (paper, Case Study 1) by the
    high-resolution Godunov scheme in wave-propagation form [1]_: Roe flux with entropy fix and a
    Lax-Wendroff correction limited by van Leer's function, with a fixed time step. It is the scheme
    of PyClaw's classic solver with the Riemann solver ``traffic_1D`` (order 2, van Leer), and
    agrees with it to round-off.

    Parameters
    ----------
    n_cells : int, default 400
        Number of cells, at least 2.
    domain : (float, float), default (-5.0, 5.0)
        Ends of the road; a vehicle that leaves at one end enters at the other.
    v_max : float, default 2.0
        Speed on the empty road, positive.
    rho_max : float, default 1.0
        Density at which traffic stands still, positive.
    dt : float, default 0.005
        Time step, positive. It is never changed; only a step that ends at a requested time between
        two multiples of dt is shorter.

    Attributes
    ----------
    cell_centers : ndarray (n_cells,)
        Positions of the cells' centres.
    dx : float
        Cell width.
    courant : float
        Courant number v_max dt / dx, at most 1; v_max is the largest wave speed of densities
        between 0 and rho_max.

    Raises
    ------
    ValueError, TypeError
        If a parameter is out of range, or the Courant number is above 1 (the message says the
        largest admissible dt).

    Notes
    -----
    *Mass.* Initial densities are rounded to multiples of a quantum, about one ulp of the largest
    density, and face fluxes likewise; all sums of the scheme are then exact. The total of the cells
    is the same number at all times t > 0: ``math.fsum(field)`` does not change in a single bit
    (while no density exceeds the largest initial one by over 5 %). The rounding at the start moves
    each cell by about half an ulp of the largest density at most; nothing is lost after that.

    *Extrema.* For a Courant number up to 0.4 densities stay between the extremes of the initial
    data (to round-off; never below zero). Near 1 the scheme itself overshoots, on rough data by
    some 1e-2 rho_max.

    The field at a time depends neither on the other times requested nor on the other trajectories
    solved with it, and is the same, bit for bit, for any number of threads.

    References
    ----------
    .. [1] R. J. LeVeque, Finite Volume Methods for Hyperbolic Problems, Cambridge, 2002, chapters
       6, 11, 12.

    Examples
    --------
    >>> import numpy as np
    >>> from randsmap.datasets import LWRSolver
    >>> solver = LWRSolver(n_cells=100, dt=0.02)
    >>> rho = np.where(np.abs(solver.cell_centers) < 1, 0.8, 0.1)
    >>> result = solver.solve(rho, 2.0, times=[0.5, 1.0, 2.0])
    >>> result.fields.shape
    (3, 100)
    >>> bool(np.isclose(result.fields[-1].sum(), rho.sum(), rtol=1e-15))
    True
    """

    def __init__(
        self,
        n_cells: int = 400,
        *,
        domain: tuple[float, float] = (-5.0, 5.0),
        v_max: float = 2.0,
        rho_max: float = 1.0,
        dt: float = 0.005,
    ) -> None:
        self.n_cells = validation.check_count(n_cells, "n_cells", low=2)
        start, stop = validation.check_vector(domain, "domain", length=2).tolist()
        if not 0 < stop - start < np.inf:
            raise ValueError(f"domain must be (start, stop) with start < stop, got {domain!r}")
        self.domain = (start, stop)
        self.v_max = validation.check_number(v_max, "v_max", low=0.0, strict_low=True)
        self.rho_max = validation.check_number(rho_max, "rho_max", low=0.0, strict_low=True)
        self.dt = validation.check_number(dt, "dt", low=0.0, strict_low=True)
        self.dx = (stop - start) / self.n_cells
        if self.dx == 0:
            raise ValueError(f"domain must be wide enough for {self.n_cells} cells, got {domain!r}")
        self.courant = self.v_max * self.dt / self.dx
        if not self.courant <= 1 + 4 * _EPS:  # a number that is 1 on paper may come out above it
            raise ValueError(
                f"the Courant number v_max*dt/dx must be at most 1, got {self.courant:g} "
                f"(v_max={self.v_max:g}, dt={self.dt:g}, dx={self.dx:g}); the largest admissible "
                f"dt is {self.dx / self.v_max:.17g}"
            )
        self.cell_centers = start + (np.arange(self.n_cells) + 0.5) * self.dx

    def __repr__(self) -> str:
        return (
            f"LWRSolver(n_cells={self.n_cells}, domain={self.domain}, v_max={self.v_max}, "
            f"rho_max={self.rho_max}, dt={self.dt})"
        )

    def solve(self, initial: ArrayLike, t_end: float, times: ArrayLike | None = None) -> Bunch:
        """Densities at the given times.

        Parameters
        ----------
        initial : array_like (n_cells,) or (n_trajectories, n_cells)
            Densities (cell averages) at time 0, between 0 and rho_max. Not changed.
        t_end : float
            Final time, at least 0.
        times : array_like (n_times,), optional
            Times of the returned fields, ascending, between 0 and t_end; by default t_end alone.

        Returns
        -------
        Bunch
            ``fields``: (n_times, n_cells), or (n_trajectories, n_times, n_cells) for
            two-dimensional `initial`; ``times``: (n_times,), exactly the times requested.

        Raises
        ------
        ValueError, TypeError
            If `initial` has the wrong shape or holds values that are not finite or not in
            [0, rho_max], or the times are negative, not ascending or beyond t_end.

        Notes
        -----
        A time that is a multiple of dt to round-off is reached by whole steps; any other by whole
        steps and one shorter step. At time 0 the initial data are returned as they are.
        """
        from sklearn.utils import Bunch

        cells = self._check_initial(initial)
        t_end = validation.check_number(t_end, "t_end", low=0.0)
        times = np.array([t_end]) if times is None else _times.check_times(times, t_end)
        steps, fractions = _times.steps_to(times, self.dt)
        fields = np.empty((len(cells), len(times), self.n_cells))

        schedule = _Schedule(steps, fractions, self.n_cells)
        _integrate(self, cells, lambda i: (schedule, fields[i]))
        return Bunch(fields=fields[0] if np.ndim(initial) == 1 else fields, times=times)

    def _check_initial(self, initial):
        if np.ndim(initial) == 1:
            cells = validation.check_vector(initial, "initial", length=self.n_cells)[None]
        else:
            cells = validation.check_matrix(initial, "initial", n_columns=self.n_cells)
        for extreme, beyond in (
            (float(cells.min()), cells.min() < 0),
            (float(cells.max()), cells.max() > self.rho_max),
        ):
            if beyond:
                raise ValueError(
                    f"initial densities must lie between 0 and rho_max = {self.rho_max:g}, got {extreme!r}"
                )
        return cells


class _Schedule:
    """The kernel's events for ascending step counts, in calls of bounded length.

    An event: so many steps, then the state into that row (-1: into none).
    """

    def __init__(self, steps, fractions, n_cells):
        self.at_start = np.flatnonzero((steps == 0) & (fractions == 0))
        limit = max(1, _UPDATES_PER_CALL // n_cells)
        self.calls, call, used, reached = [], [], 0, 0
        for row in range(len(self.at_start), len(steps)):
            gap = int(steps[row]) - reached
            reached += gap
            while used + gap > limit:
                call.append((limit - used, 0.0, -1))
                gap -= limit - used
                self.calls.append(_events(call))
                call, used = [], 0
            call.append((gap, fractions[row], row))
            used += gap
        if call:
            self.calls.append(_events(call))


def _events(call):
    steps, fractions, rows = zip(*call)
    return np.array(steps, np.intp), np.array(fractions, np.float64), np.array(rows, np.intp)


def _integrate(solver, initial, job, done=None):
    """Integrate each row of initial; job(i) gives its schedule and the array of its snapshots."""
    stopped = threading.Event()  # tells the other threads of an exception, Ctrl-C for one

    def trajectory(i):
        try:
            schedule, out = job(i)
            out[schedule.at_start] = initial[i]
            shift = _unit(initial[i].max(), solver.rho_max)
            rho_max = float(np.ldexp(solver.rho_max, -shift))
            state, rounding = _quantised(np.ldexp(initial[i], -shift))
            aside = np.empty_like(state)
            for steps, fractions, rows in schedule.calls:
                if stopped.is_set():
                    return
                traffic.run(state, aside, solver.courant, rho_max, rounding, steps, fractions, rows, out)
            if shift:
                later = out[len(schedule.at_start) :]
                np.ldexp(later, shift, out=later)
            if done is not None:
                done()
        except BaseException:
            stopped.set()
            raise

    try:
        _parallel.parallel_for(trajectory, len(initial))
    except BaseException:
        stopped.set()
        raise


def _unit(highest, rho_max):
    """Exponent of the power of two in which densities are measured, so that none is extreme.

    The limiter multiplies differences of densities, which must not over- or underflow. A power of
    two changes no digit; ordinary densities keep their unit.
    """
    exponent = int(np.frexp(highest or rho_max)[1])  # an empty road measures in rho_max
    return max(exponent if abs(exponent) > 200 else 0, int(np.frexp(rho_max)[1]) - 1000)


def _quantised(densities):
    """The kernel's state array, rounded to multiples of a quantum, and its rounding constant.

    The quantum is 2^(e-53) with 2^e just above the largest density, some overshoot allowed for: its
    multiples up to 2^e are doubles. Adding the constant, just above 2^(e-1), to a flux (fluxes
    are not negative) leaves a multiple of the quantum.
    """
    highest = densities.max()
    exponent = int(np.frexp(1.05 * highest)[1])
    state = np.zeros(traffic.GHOSTS_LEFT + len(densities) + traffic.GHOSTS_RIGHT)
    units = np.rint(np.ldexp(densities, 53 - exponent))
    # rounding must not lift the maximum, which may be rho_max
    np.minimum(units, np.floor(np.ldexp(highest, 53 - exponent)), out=units)
    state[traffic.GHOSTS_LEFT : len(state) - traffic.GHOSTS_RIGHT] = np.ldexp(units, exponent - 53)
    return state, np.ldexp(1 + 2.0**-10, exponent - 1)


_DESCR = """\
Traffic density on a periodic road: snapshots of the LWR equation (Case Study 1).

rho_t + (v_max rho (1 - rho / rho_max))_x = 0 on [-5, 5), v_max = 2, rho_max = 1.
Initial data: bump a exp(-(x - xc)^2 / (2 w^2)) with a ~ U[0.5, 1.5), w ~ U[0.2, 0.8),
xc ~ U[-3, 3), plus Gaussian noise, clipped at 0, cells scaled to sum 1 *before* integration
(densities about 0.02 to 0.05: shocks form late and move right). Snapshots are drawn without
replacement from the states at the multiples of dt, time 0 included. Every row sums to 1.
"""


def make_lwr(
    n_trajectories: int = 100,
    snapshots_per_trajectory: int = 120,
    *,
    random_state: RandomState = None,
    n_cells: int = 400,
    t_end: float = 20.0,
    dt: float = 0.005,
    noise: float = 0.02,
    out: Output = None,
    progress: bool = False,
) -> Bunch:
    """Snapshots of traffic density: the data of the paper's Case Study 1.

    Each trajectory starts from a Gaussian bump a exp(-(x - xc)^2 / (2 w^2)) with a ~ U[0.5, 1.5),
    w ~ U[0.2, 0.8) and xc ~ U[-3, 3); noise N(0, noise^2) is added to every cell, negative
    densities become 0, and the cells are scaled to sum 1. It is integrated by `LWRSolver` with
    v_max = 2, rho_max = 1 on [-5, 5), periodic, and snapshots are drawn without replacement from
    its states. A field's mass is the same double at all times (see `LWRSolver`).

    Parameters
    ----------
    n_trajectories : int, default 100
        Number of trajectories.
    snapshots_per_trajectory : int, default 120
        Number of snapshots of each, at most the number of its states, t_end / dt + 1.
    random_state : None, int, RandomState or Generator
        Seed. Trajectory i has a random stream of its own, so its data do not depend on the number
        of trajectories, nor on the number of threads.
    n_cells : int, default 400
        Number of cells.
    t_end : float, default 20.0
        Final time; the states are those at the multiples of dt up to it.
    dt : float, default 0.005
        Time step.
    noise : float, default 0.02
        Standard deviation of the noise.
    out : ndarray (n, n_cells), or path of a .npy file, optional
        Where to put the data: a C-contiguous float64 array, memory-mapped perhaps, or a file, which
        is written as it is computed and appears when it is complete; ``data`` is then its read-only
        memory map.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    Bunch
        ``data`` (n, n_cells): the snapshots, trajectory by trajectory, in order of time,
        n = n_trajectories * snapshots_per_trajectory, in `out` if given; ``times`` (n,); ``trajectories`` (n,):
        number of the trajectory; ``parameters`` (n_trajectories, 3): a, w, xc; ``cell_centers``
        (n_cells,); ``DESCR``.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range, or dt violates the CFL condition (see `LWRSolver`).

    Examples
    --------
    >>> from randsmap.datasets import make_lwr
    >>> lwr = make_lwr(3, 10, random_state=0)
    >>> lwr.data.shape
    (30, 400)
    >>> float(abs(lwr.data.sum(axis=1) - 1).max()) < 1e-14
    True
    """
    from sklearn.utils import Bunch

    n_trajectories = validation.check_count(n_trajectories, "n_trajectories")
    solver = LWRSolver(n_cells, dt=dt)
    t_end = validation.check_number(t_end, "t_end", low=0.0)
    noise = validation.check_number(noise, "noise", low=0.0)
    last_step = int(_times.steps_to(np.array([t_end]), solver.dt)[0][0])
    n_snapshots = validation.check_count(
        snapshots_per_trajectory, "snapshots_per_trajectory", high=last_step + 1, high_name="the number of states"
    )

    parameters = np.empty((n_trajectories, 3))
    initial = np.empty((n_trajectories, solver.n_cells))
    steps = np.empty((n_trajectories, n_snapshots), np.intp)
    for i, rng in enumerate(random_streams(random_state, n_trajectories)):
        amplitude, width, center = parameters[i] = rng.uniform([0.5, 0.2, -3.0], [1.5, 0.8, 3.0])
        draws = noise * rng.standard_normal(solver.n_cells)
        initial[i] = _initial_bump(solver.cell_centers, amplitude, width, center, draws)
        steps[i] = np.sort(rng.choice(last_step + 1, n_snapshots, replace=False))

    whole = np.zeros(n_snapshots)  # no fraction of a step

    with if_asked(progress), ProgressBar(n_trajectories, "LWR trajectories") as bar:

        def fill(data):
            data = data.reshape(n_trajectories, n_snapshots, solver.n_cells)
            _integrate(solver, initial, lambda i: (_Schedule(steps[i], whole, solver.n_cells), data[i]), bar.update)

        data = fill_output(out, (steps.size, solver.n_cells), fill)
    return Bunch(
        data=data,
        times=(steps * solver.dt).reshape(-1),
        trajectories=np.repeat(np.arange(n_trajectories), n_snapshots),
        parameters=parameters,
        cell_centers=solver.cell_centers,
        DESCR=_DESCR,
    )


def _initial_bump(x, amplitude, width, center, noise):
    """The study's initial density (paper, Case Study 1): noisy bump, clipped at 0, sum 1."""
    density = amplitude * np.exp(-((x - center) ** 2) / (2 * width**2)) + noise
    np.maximum(density, 0.0, out=density)
    return density / density.sum()
