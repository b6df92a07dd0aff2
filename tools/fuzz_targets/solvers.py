"""Solvers: the eikonal equation, traffic and crowds, turned images, sparse systems, ridge regressions."""

from __future__ import annotations

import math
import warnings

import numpy as np
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning

import randsmap
from randsmap import FourierFeatures, HughesSolver, LWRSolver, SigmoidFeatures, solve_eikonal
from randsmap._linalg import large_graphs
from randsmap._linalg.distances import polynomial_tail
from randsmap._linalg.dual import Dual
from randsmap._linalg.large_graphs import SparseCholesky, step_coordinates
from randsmap._linalg.ridge import RidgeFactor
from randsmap._linalg.rows import FeatureRows

import hughes_reference
from fuzz_targets.inputs import EPS, WIDE, laid_out, quiet, refused, same_bits, size, spoiled, within
from oracles import by_plain_iteration, numpy_step, rotated_by_scipy


# -- Eikonal equation ------------------------------------------------------------------------------
def eikonal(rng):
    """solve_eikonal, both methods, against plain iteration: 1e-12. A field an input."""
    n, nx, ny = size(rng, (1, 9)), size(rng, (1, 13)), size(rng, (1, 13))
    slowness = np.exp(rng.choice([0.0, 0.3, 3.0]) * rng.standard_normal((n, nx, ny))) * 10.0 ** rng.integers(-40, 40)
    if rng.integers(4) == 0:
        slowness = slowness[0, 0, 0] * rng.integers(1, 4, slowness.shape)  # ties
    obstacles = rng.random((nx, ny)) < rng.choice([0.0, 0.2, 0.5])
    sources = (rng.random((nx, ny)) < rng.choice([0.0, 0.1])) & ~obstacles
    exits = {side for side in ("left", "right", "bottom", "top") if rng.random() < 0.3}
    if not exits and not sources.any():
        exits = {"right"}
    spacing = (0.1, float(rng.choice([0.1, 0.25, 0.03, 1e-4, 100.0])))
    options = {"exits": exits, "obstacles": obstacles}
    if rng.integers(15) == 0:
        bad = slowness.copy()
        bad[..., ~obstacles] = rng.choice([np.nan, np.inf, 0.0, -1.0])
        if not obstacles.all():
            refused(lambda: solve_eikonal(bad, spacing, sources, **options), "slowness must be positive and finite")
        return 1
    slowness[:, obstacles] = rng.choice([np.nan, 1.0])  # not read
    marched = solve_eikonal(laid_out(rng, slowness), spacing, sources, **options)
    swept = solve_eikonal(slowness, spacing, sources, method="sweeping", **options)
    slowness[:, obstacles] = 1.0
    unit = np.median(slowness)  # the reference squares and inverts
    plain = by_plain_iteration(slowness / unit, spacing, sources, exits, obstacles) * unit
    for T, method in ((marched, "marching"), (swept, "sweeping")):
        assert np.array_equal(np.isinf(T), np.isinf(plain)), f"{method}: other cells are reached"
        reached = np.isfinite(plain)
        within(T[reached], plain[reached], 1e-12 * plain[reached], method)
    k = int(rng.integers(n))
    out = np.full((nx, ny), np.nan)
    solve_eikonal(slowness[k], spacing, sources, out=out, **options)
    assert same_bits(out, marched[k]), "a field alone has other bits"
    return n


# -- Traffic ---------------------------------------------------------------------------------------
def traffic(rng):
    """LWRSolver: the scheme in NumPy to round-off, every bit of the mass kept. A road an input."""
    n, cells, steps = size(rng, (1, 5)), size(rng, (2, 20), (21, 70), (500, 520)), size(rng, (1, 4))
    rho_max = 2.0 ** rng.integers(-30, 30)
    courant = float(rng.choice([0.01, 0.4, 0.9, 1.0]))
    solver = LWRSolver(cells, domain=(0.0, float(cells)), v_max=1.0, rho_max=rho_max, dt=courant)
    # multiples of a quantum that the solver need not round: ratios of jumps do not overflow
    q = np.rint(rng.uniform(0, 1, (n, cells)) * 2**30) / 2**30
    kind = rng.integers(4)
    if kind == 1:
        q[rng.random(q.shape) < 0.4] = rng.choice([0.0, 0.5, 1.0])
    elif kind == 2:
        q = rng.integers(0, 5, q.shape) / 4
    elif kind == 3:
        q[:] = q[:, :1]
    q[:, 0] = np.maximum(q[:, 0], 0.25)  # the largest decides on the quantum
    q *= rho_max
    if rng.integers(20) == 0:
        refused(lambda: solver.solve(spoiled(rng, q), 1.0), "initial must be finite")
        refused(lambda: solver.solve(q + rho_max, 1.0), "initial densities must lie between 0 and rho_max")
        return 1
    times = courant * np.arange(steps + 1)
    fields = solver.solve(laid_out(rng, q), times[-1], times=times).fields
    assert fields.shape == (n, steps + 1, cells) and np.array_equal(fields[:, 0], q)
    if courant <= 0.4:  # beyond, the scheme itself overshoots
        assert (fields >= 0).all() and (fields <= q.max(axis=1)[:, None, None] * (1 + 8 * EPS)).all(), "extrema"
    for road, run in zip(q, fields):
        expected, mass = road, math.fsum(road)
        for k in range(1, steps + 1):
            with quiet():
                expected = numpy_step(expected, courant, rho_max)
            # a step's own round-off, and what it makes of that of the steps before
            within(run[k], expected, (2.0**k - 1) * 16 * EPS * rho_max, f"step {k}")
            overshot = run[: k + 1].max() > 1.05 * road.max()
            assert overshot or math.fsum(run[k]) == mass, "mass"
    return n


# -- Crowds ----------------------------------------------------------------------------------------
def crowd(rng):
    """HughesSolver against the independent solver of the tests, and the mass. A density an input."""
    n, nx, ny, steps = size(rng, (1, 9)), size(rng, (2, 12)), size(rng, (1, 9)), size(rng, (1, 3))
    obstacles = rng.random((nx, ny)) < rng.choice([0.0, 0.15])
    obstacles[:, rng.integers(ny)] = False
    dx, dy = 0.1, float(rng.choice([0.1, 0.06]))
    dt = 0.9 / (2 * (1 / dx + 1 / dy))
    solver = HughesSolver((nx, ny), lengths=(nx * dx, ny * dy), dt=dt, obstacles=obstacles)
    rho = rng.uniform(0, 5, (n, nx, ny)) * ~obstacles
    even = rng.integers(3) == 0
    if even:
        rho[rng.random(rho.shape) < 0.4] = rng.choice([0.0, 5.0])
        rho *= ~obstacles
    flat = rho.reshape(n, -1)
    if rng.integers(20) == 0:
        refused(lambda: solver.solve(spoiled(rng, flat), dt), "initial must be finite")
        refused(lambda: solver.solve(flat + 6.0, dt), "between 0 and rho_max", "obstacle")
        return 1
    fields = solver.solve(laid_out(rng, flat), steps * dt).fields[:, 0]
    assert (fields >= 0).all() and (fields[:, obstacles.ravel()] == 0).all()
    mass = flat.sum(axis=1)
    within(fields.sum(axis=1), mass, steps * nx * ny * EPS * mass, "mass")
    if not even:  # cells that are equally dense have faces without a gradient: their direction is round-off
        laws = solver.v_max, solver.rho_max, solver.min_speed
        expected = hughes_reference.run(rho, steps, ~obstacles, solver.exit, solver.dx, solver.dy, dt, laws)
        within(fields, expected.reshape(n, -1), 1e-11 * solver.rho_max, "a step")
    return n


# -- Rotated images ----------------------------------------------------------------------------------
def rotations(rng):
    """make_rotated_images against SciPy's rotation. An image an input."""
    shape, n = (size(rng, (2, 9), (10, 40)), size(rng, (2, 9), (10, 40))), size(rng, (1, 9))
    image = rng.random(shape) * (rng.random(shape) < rng.choice([0.3, 1.0]))
    image[shape[0] // 2, shape[1] // 2] = 1.0  # what is never turned away
    rotated = randsmap.datasets.make_rotated_images(n, image=laid_out(rng, image * 10.0 ** rng.integers(-138, 138)))
    within(rotated.data.sum(axis=1), 1.0, (image.size / 8 + 8) * EPS, "sums")
    for x, angle in zip(rotated.data, rotated.angles):
        expected = rotated_by_scipy(image, angle)
        # a coordinate is wrong by a few eps times the size, the value by that times a difference
        within(x.reshape(shape), expected, 16 * EPS * max(shape) * expected.max(), f"rotated by {angle}")
    return n


# -- Sparse systems ----------------------------------------------------------------------------------
def sparse_factors(rng):
    """Sparse Cholesky factors of any graph, dissected anyhow: residuals to round-off. A right-hand side an input."""
    n, p = size(rng, (1, 12), (13, 120)), size(rng, (1, 4))
    joined = np.triu(rng.random((n, n)) < rng.choice([0.0, 2.0, 6.0]) / n, 1)
    A = np.where(joined, rng.normal(size=(n, n)), 0.0)
    A += A.T
    A += np.diag(np.abs(A).sum(axis=1) + 10.0 ** rng.uniform(-6, 1, n))
    units = 10.0 ** rng.uniform(-3, 3, n)
    A *= units[:, None] * units
    sparse = csr_array(A)
    coordinates = rng.normal(size=(n, 2)) if rng.integers(2) else step_coordinates(sparse, 2)
    leaf = large_graphs.PART
    large_graphs.PART = size(rng, (1, 3), (4, 30))
    try:
        cholesky = SparseCholesky(sparse, coordinates)
    finally:
        large_graphs.PART = leaf
    B = rng.normal(size=(n, p))
    cholesky.factor(sparse)
    X = cholesky.solve(B)
    sizes = np.abs(A) @ np.abs(X) + np.abs(B)
    # backward stable in the units that make the diagonal 1, whatever the order (Higham 2002, Thm 10.4)
    scale = np.sqrt(np.diag(A))[:, None]
    bound = 4 * (n + 1) * n * EPS * scale * ((np.abs(X) * scale).max(axis=0) + (np.abs(B) / scale).max(axis=0))
    within(A.astype(WIDE) @ X, B, np.maximum(bound, n * EPS * sizes), "residuals")
    refused(lambda: cholesky.factor(csr_array(-A)), "not positive definite", errors=np.linalg.LinAlgError)
    return p


# -- Ridge regression ------------------------------------------------------------------------------
def regressions(rng):
    """Ridge and kernel systems: the solution of the regularised least-squares problem, by a stable method in extended
    precision, to what each solver promises. A system an input."""
    n, P, M, d = size(rng, (2, 12), (13, 40)), size(rng, (1, 12), (13, 40)), size(rng, (1, 6)), size(rng, (1, 3))
    X, F = rng.normal(size=(n, d)), rng.normal(size=(n, M)) * 10.0 ** rng.integers(-6, 7)
    if rng.integers(4) == 0:
        X = X[rng.integers(n, size=n)]
    regularization = 10.0 ** rng.uniform(-9, 1)
    if rng.integers(4) == 0:
        return _kernel_system(rng, X, F, regularization)
    kind = (FourierFeatures, SigmoidFeatures)[rng.integers(2)]
    features = kind(10.0 ** rng.uniform(-0.5, 1), n_features=P, random_state=0).fit(X)
    bias = bool(rng.integers(2))
    solver = ("auto", "auto", "svd", "krylov", "lowrank")[rng.integers(5)]
    with warnings.catch_warnings(), quiet():  # as public functions call it
        warnings.simplefilter("error")
        try:
            factor = RidgeFactor(FeatureRows(features, X, bias=bias), [regularization], solver)
            A, used, _, _, missed = factor.solve(F, regularization)
        except ConvergenceWarning:  # told: of an iteration that round-off stops
            return 1
    Phi = features.transform(X).astype(WIDE)
    # without the bias' column the rows are less their mean, and so are the fields
    Phi = np.hstack([np.ones((n, 1), WIDE), Phi]) if bias else Phi - Phi.mean(axis=0)
    right = F.astype(WIDE) if bias else F.astype(WIDE) - F.astype(WIDE).mean(axis=0)
    R = _ridge(Phi, right, WIDE(regularization))
    fitted = Phi @ (A if bias else A[1:]).astype(WIDE)
    exact = Phi @ R
    # round-off of the Gram matrix is felt by at most 1e-6 where Cholesky is used, that of Phi by |Phi| / sqrt(lambda)
    norm = np.linalg.norm(Phi.astype(float), 2)
    if used in ("krylov", "lowrank"):
        told = 1e-7 if missed is None else missed
        bound = (told + 50 * EPS * norm**2 / regularization) * np.linalg.norm(right.astype(float))
        within(np.linalg.norm((fitted - exact).astype(float)), 0.0, bound, f"norm of the error ({used})")
        return 1
    relative = 1e-6 if used in ("cholesky", "dual") else max(1e-12, 1e2 * EPS * norm / math.sqrt(regularization))
    # sums of n terms, of each field's column
    bound = relative * math.sqrt(n) * np.linalg.norm(right.astype(float), axis=0)
    within(fitted, exact, np.maximum(bound, relative * np.abs(right).max() * math.sqrt(n)), f"fitted fields ({used})")
    return 1


def _ridge(Phi, F, regularization):
    """argmin |F - Phi R|^2 + lambda |R|^2 by Householder reflections of [Phi; sqrt(lambda) I]."""
    n, p = Phi.shape
    A = np.vstack([Phi, np.sqrt(regularization) * np.eye(p, dtype=WIDE)])
    B = np.vstack([F, np.zeros((p, F.shape[1]), WIDE)])
    for k in range(p):
        v = A[k:, k].copy()
        v[0] += np.copysign(np.sqrt(v @ v), v[0])
        v /= np.sqrt(v @ v)
        A[k:, k:] -= 2 * np.outer(v, v @ A[k:, k:])
        B[k:] -= 2 * np.outer(v, v @ B[k:])
    R = np.zeros((p, F.shape[1]), WIDE)
    for k in range(p - 1, -1, -1):
        R[k] = (B[k] - A[k, k + 1 : p] @ R[k + 1 :]) / A[k, k]
    return R


def _kernel_system(rng, X, F, regularization):
    """(K + lambda I) C + T b = F, T^T C = 0: residuals to round-off, amplified by nothing but |K| |C|."""
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    K = np.exp(-D / (2 * 10.0 ** rng.uniform(-2, 1)))
    T = polynomial_tail(X, int(rng.integers(2)))
    C = F.copy()
    b, solver = Dual(K, T).solve(C, regularization)
    wide = C.astype(WIDE)
    residual = K.astype(WIDE) @ wide + regularization * wide + T.astype(WIDE) @ b - F
    terms = np.abs(K) @ np.abs(C) + regularization * np.abs(C) + np.abs(T) @ np.abs(b) + np.abs(F)
    n = len(X)
    scale = terms.max() * 1e2 * n * EPS
    within(residual, 0.0, scale, f"residual ({solver})")
    # where T spans the fields' space (n <= 1 + d) C is what round-off leaves of F: the first of two subtractions of T's
    # part leaves eps |F|, the second eps^2 |F|, which the regression divides by lambda
    sizes = np.abs(C).sum(axis=0).max() + EPS * np.abs(F).sum(axis=0).max() / regularization
    within(T.T.astype(WIDE) @ wide, 0.0, 1e2 * n * EPS * np.abs(T).max() * sizes, "orthogonality")
    return 1


TARGETS = eikonal, traffic, crowd, rotations, sparse_factors, regressions
