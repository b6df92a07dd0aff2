"""Speed of randsmap beside its peers and beside what the machine allows, in one table.

    pip install '.[peers]'
    python benchmarks/peers/compare.py                      # everything that is installed
    python benchmarks/peers/compare.py --pyclaw PYTHON --datafold PYTHON
    python benchmarks/peers/compare.py --markdown           # at two levels, into docs/speed.md and docs/speed-tables.md
    python benchmarks/peers/compare.py --only kernel --markdown -        # some rows of it, printed
    python benchmarks/peers/compare.py --check              # nightly: exit status 1 where rows miss their goals

Every row runs its sides in turn (ours, peer, limit, ours, peer, limit, ...) and quotes medians, so that a
machine whose speed drifts does not favour one. Rows of one thread are in processor time, which other programs
disturb little; those of two need a machine to themselves. "limit" is the time of the bare operation that bounds the
work (named in the row), measured in the same turns; "of limit" is limit / ours. Peers that do not install
beside a current NumPy live in environments of their own, and give the seconds of the clock: `--pyclaw` and
`--datafold` name their Python (pip install clawpack; pip install datafold).

--markdown and --check measure at the machine's own instruction level and at the next lower one, each group of rows in
a process of its own; BLAS is held to the level, too (RANDSMAP_CPU, OPENBLAS_CORETYPE), NumPy's own loops are not.
Goals are those of AVX2 and above, so --check leaves the baseline out. It measures groups with a miss once more and
counts what missed twice. It is of use on a quiet machine only.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy.linalg import blas, lapack
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent))

import transcription  # noqa: E402

import randsmap  # noqa: E402
from randsmap._linalg.distances import fill_pairs, kernel_scale  # noqa: E402

HERE = Path(__file__).parent


# -- timing ------------------------------------------------------------------------------------------


def timed(call, least=None):
    """Seconds of one call, over as many calls as `least` seconds take; of one thread in processor time.

    The first call after the pause wakes the other core of a virtual machine, which takes 5 to 10 ms: on two threads
    short calls are timed after it, as a loop makes them.
    """
    alone = randsmap.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    least = (0.02 if alone else 0.1) if least is None else least
    time.sleep(0.15)  # OpenBLAS's workers spin that long after a call and would slow the next side
    start = clock()
    seconds = call()  # a remote peer returns its own seconds
    elapsed = clock() - start
    if isinstance(seconds, float):
        return seconds
    more = int(least / max(elapsed, 1e-7))
    if more:
        start = clock()
        for _ in range(more):
            call()
        elapsed = (clock() - start) / more
    return elapsed


def medians(sides, turns):
    """Median seconds of each side (None stays None), the sides run in turn after a warm-up."""
    for side in sides:
        if side is not None:
            side()
    samples = [[timed(side) if side else None for side in sides] for _ in range(turns)]
    return [None if column[0] is None else float(np.median(column)) for column in zip(*samples)]


@contextmanager
def threads(n):
    before = randsmap.get_num_threads()
    randsmap.set_num_threads(n)
    try:
        with threadpool_limits(n):
            yield
    finally:
        randsmap.set_num_threads(before)


class Remote:
    """A peer in another Python: worker.py there runs one job a line and answers with its seconds."""

    def __init__(self, python, job):
        self.process = subprocess.Popen(
            [python, str(HERE / "worker.py"), job], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{python}: the peer's environment cannot run '{job}'")

    def __call__(self):
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# -- rows --------------------------------------------------------------------------------------------
# Each row function yields dictionaries: work, peer name, goals, sides (ours, peer, limit), limit name,
# threads, and optionally elements (then ns an element of ours is shown). Goals: "ratio" (peer / ours) and
# "limit" (limit / ours) are at least that; "ns" (an element), "seconds" and "over" (seconds more than the
# peer's) at most.


def rows_features(options):
    rng = np.random.default_rng(0)
    Y, n, P = rng.normal(size=(2000, 2)), 2000, 2000
    fourier = randsmap.FourierFeatures(0.5, n_features=P, random_state=0).fit(Y)
    W, b, out = fourier.weights_, fourier.offsets_, np.empty((n, P))
    from randsmap._kernels import features, vecmath

    activation, weights, offsets, scale = fourier.activation_parameters()
    flat = (Y @ W + b).ravel()
    result = np.empty_like(flat)
    yield dict(
        work="feature matrix 2000 x 2000, d = 2",
        peer="np.cos(Y @ W + b)",
        goals=dict(ratio=15),
        sides=(
            lambda: features.features(activation, Y, weights, offsets, scale, out),
            lambda: np.cos(Y @ W + b),
            lambda: vecmath.cos(flat, result),
        ),
        limit="own cos loop over as many elements",
        threads=1,
        elements=n * P,
    )
    yield dict(
        work="the same through transform(out=)",
        peer="transform into new memory",
        goals=dict(ratio=1),
        sides=(lambda: fourier.transform(Y, out=out), lambda: fourier.transform(Y), lambda: vecmath.cos(flat, result)),
        limit="own cos loop over as many elements",
        threads=1,
        elements=n * P,
    )


def rows_kernel(options):
    from sklearn.metrics.pairwise import rbf_kernel

    X = np.random.default_rng(0).normal(size=(2000, 400))
    XT, epsilon = np.asfortranarray(X.T), 30.0
    out, C = np.empty((2000, 2000)), np.zeros((2000, 2000), order="F")
    for n_threads, ratio in ((1, 1.5), (2, 2.3)):
        yield dict(
            work="Gaussian kernel 2000 x 400",
            peer="sklearn rbf_kernel",
            goals=dict(ratio=ratio, limit=1 / 1.4),
            sides=(
                lambda: fill_pairs(X, None, kernel_scale(epsilon), out),
                lambda: rbf_kernel(X, gamma=1 / epsilon**2),
                lambda: blas.dsyrk(1.0, XT, trans=1, c=C, overwrite_c=1),
            ),
            limit="dsyrk",
            threads=n_threads,
        )


def study_data():
    F = randsmap.datasets.make_lwr(random_state=0).data
    order = np.random.default_rng(0).permutation(len(F))
    return (
        np.ascontiguousarray(F[order[:2000]]),
        np.ascontiguousarray(F[order[2000:4000]]),
        np.ascontiguousarray(F[order[4000:]]),
    )


def rows_fit(options):
    from sklearn.linear_model import Ridge

    F, _, _ = study_data()
    Y = randsmap.DiffusionMaps(2, alpha=0.0).fit_transform(F)
    features = randsmap.SigmoidFeatures(11.0, n_features=2000, random_state=0).fit(Y)
    Phi = np.hstack([np.ones((2000, 1)), features.transform(Y)])
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(11.0, n_features=2000), random_state=0)
    ridge = Ridge(alpha=1e-3, fit_intercept=False, solver="cholesky")
    rhs = np.asfortranarray(Phi.T @ F)
    gram = np.asfortranarray(Phi.T @ Phi + 1e-3 * np.eye(2001))
    PhiF = np.asfortranarray(Phi)

    def bare():
        blas.dsyrk(1.0, PhiF, trans=1)
        blas.dgemm(1.0, PhiF, F, trans_a=1)
        c, _ = lapack.dpotrf(gram)
        lapack.dpotrs(c, rhs)

    for n_threads, limit in ((1, 0.95), (2, 0.90)):
        yield dict(
            work="exact fit n = P = 2000, M = 400",
            peer="sklearn Ridge(cholesky) on the given matrix",
            goals=dict(ratio=1 / 1.1, limit=limit),
            sides=(lambda: decoder.fit(Y, F), lambda: ridge.fit(Phi, F), bare),
            limit="dsyrk + dgemm + dpotrf + dpotrs",
            threads=n_threads,
        )
    yield dict(
        work="exact fit n = P = 2000, M = 400",
        peer="paper's SVD form in NumPy, matrix given",
        goals=dict(ratio=8),
        sides=(lambda: decoder.fit(Y, F), lambda: transcription.fit_svd(Phi, F), bare),
        limit="dsyrk + dgemm + dpotrf + dpotrs",
        threads=2,
        turns=3,
    )


def condat_library(folder):
    """Condat's method in plain C for this processor, compiled here; None without a C compiler."""
    import ctypes
    import shutil

    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        print("bounds: no C compiler for Condat's method", file=sys.stderr)
        return None
    path = Path(folder) / "condat.so"
    subprocess.run(
        [compiler, "-O3", "-march=native", "-shared", "-fPIC", "-o", str(path), str(HERE / "condat.c")], check=True
    )
    condat = ctypes.CDLL(str(path)).condat
    pointer, size = ctypes.c_void_p, ctypes.c_ssize_t
    condat.argtypes = [pointer, pointer, size, size, ctypes.c_double, pointer]
    condat.restype = None
    return condat


def rows_bounds(options):
    import tempfile

    M = 10000
    rng, x, steps = np.random.default_rng(0), np.linspace(0, 1, M), np.arange(M)
    decoded = np.exp(-(((x - 0.5) / 0.1) ** 2)) + 0.01 * np.sin(40 * x) + 1e-4 * rng.normal(size=M)
    decoded /= decoded.sum()
    normal = rng.normal(size=M)
    hostile = {
        "sorted": np.sort(normal),
        "reverse": np.sort(normal)[::-1],
        "geometric": 0.99**steps,
        "one giant": np.r_[np.zeros(M - 1), 1e6],
        "all equal": np.full(M, 0.7),
        "uniform": rng.random(M),
        "normal": normal,
        "all negative": -rng.random(M),
        "adversarial for Newton": -(100.0 ** (steps // 100 - 50.0)),
    }
    out = np.empty((1, M))

    def by_sorting(z, total):
        s = np.sort(z)[::-1]
        excess = np.cumsum(s) - total
        k = np.flatnonzero(s * np.arange(1, M + 1) > excess)[-1]
        np.maximum(z - excess[k] / (k + 1), 0, out=out[0])

    def row(name, z, total, peer, goals, theirs):
        # what every decoder calls for the rows that it has decoded
        project = randsmap.invariants.AffineInvariants.of(
            np.ones((M, 1)), [total], np.zeros(M, bool), np.zeros(0), None, (np.zeros(M), np.full(M, np.inf))
        ).projection.project

        def ours():
            out[0] = z
            project(out)

        return dict(
            work=f"projection on the simplex, {M} cells, {name}",
            peer=peer,
            goals=goals,
            sides=(ours, theirs, lambda: np.copyto(out[0], z)),
            limit="copying the field",
            threads=1,
            turns=21,
        )

    with tempfile.TemporaryDirectory() as folder:
        condat = condat_library(folder)
        goals = dict(ratio=10, seconds=15e-6)
        yield row("decoder output", decoded, 1.0, "NumPy, by sorting", goals, lambda: by_sorting(decoded, 1.0))
        if condat is None:
            return
        work = np.empty(2 * M)
        for name, z in {"decoder output": decoded, **hostile}.items():
            z, total = np.ascontiguousarray(z), 1e60 if "Newton" in name else 1.0
            yield row(
                name,
                z,
                total,
                "Condat (2016), plain C",
                dict(ratio=0.5),
                lambda z=z, total=total: condat(z.ctypes.data, out.ctypes.data, 1, M, total, work.ctypes.data),
            )


def rows_krylov(options):
    import krylov

    n = P = 5000
    Y, F = krylov.problem(n)
    features = randsmap.FourierFeatures(0.3, n_features=P)
    direct, iterative = (
        randsmap.RANDSMAPDecoder(features, solver=solver, random_state=0) for solver in ("cholesky", "krylov")
    )
    yield dict(
        work="exact fit n = P = 5000, M = 400, smooth fields: Krylov",
        peer="own Cholesky",
        goals=dict(ratio=1),
        sides=(lambda: iterative.fit(Y, F), lambda: direct.fit(Y, F), None),
        limit="",
        threads=2,
        turns=3,
    )


def rows_traffic(options):
    solver = randsmap.LWRSolver()
    F = randsmap.datasets.make_lwr(16, 1, random_state=0, t_end=0.005).data
    steps = 4000
    solve = lambda: solver.solve(F, steps * solver.dt)  # noqa: E731
    remote = Remote(options.pyclaw, "pyclaw") if options.pyclaw else None
    yield dict(
        work="LWR, 16 trajectories x 4000 steps, a trajectory",
        peer="PyClaw (classic, order 2)",
        goals=dict(ratio=100, ns=1.5),
        sides=(lambda: timed(solve, 0) / 16, remote, None),
        limit="",
        threads=1,
        elements=400 * steps,
        turns=3,
    )
    if remote:
        remote.close()

    def one_thread():
        with threads(1):
            return timed(solve)

    yield dict(
        work="LWR, 16 trajectories x 4000 steps",
        peer="one thread",
        goals=dict(ratio=1.7),
        sides=(lambda: timed(solve), one_thread, None),
        limit="",
        threads=2,
        elements=16 * 400 * steps,
        turns=5,
    )


def crowd_fields(n):
    """Slowness (n, 200, 50) of crowds at n places of the paper's corridor; 1 in the last column."""
    x, y = np.meshgrid((np.arange(200) + 0.5) * 0.1, (np.arange(50) + 0.5) * 0.1, indexing="ij")
    centers = np.linspace(3, 15, n)[:, None, None]
    density = 2 * np.exp(-((x - centers) ** 2) / 4 - (y - 2.2) ** 2 / 4)
    density[:, -1] = 0
    return 1 / (1 - density / 5)


def divider_bound(roots, quotients):
    """That many square roots and divisions by NumPy, in blocks that stay in the first-level cache."""
    a, b, out = np.linspace(1, 2, 1000), np.linspace(2, 3, 1000), np.empty(1000)

    def run():
        for _ in range(roots // 1000):
            np.sqrt(a, out=out)
        for _ in range(quotients // 1000):
            np.divide(a, b, out=out)

    return run


def rows_eikonal(options):
    slowness = crowd_fields(1)[0]
    # the peers have no ghost cells: one more column, where their fronts start
    speed = np.vstack([1 / slowness, np.ones((1, 50))])
    start = np.ones((201, 50))
    start[-1] = -1

    def skfmm_exit():
        import skfmm

        skfmm.travel_time(start, speed, dx=0.1, order=1)

    def eikonalfm_point():
        import eikonalfm

        eikonalfm.fast_marching(speed, (200, 25), (0.1, 0.1), 1)

    exit = lambda: randsmap.solve_eikonal(slowness, 0.1, exits="right")  # noqa: E731
    point_slowness = 1 / speed
    point = lambda: randsmap.solve_eikonal(point_slowness, 0.1, [(200, 25)])  # noqa: E731
    yield dict(
        work="eikonal 200 x 50 from an exit",
        peer="scikit-fmm (order 1)",
        goals=dict(ratio=5),
        sides=(exit, skfmm_exit, divider_bound(10000, 0)),
        limit="a root a cell",
        threads=1,
        elements=10000,
        turns=21,
    )
    yield dict(
        work="eikonal 201 x 50 from a point",
        peer="eikonalfm (order 1)",
        goals=dict(ratio=5),
        sides=(point, eikonalfm_point, divider_bound(10000, 0)),
        limit="a root a cell",
        threads=1,
        elements=10050,
        turns=21,
    )
    batch = crowd_fields(64)
    out = np.empty_like(batch)
    yield dict(
        work="eikonal, 64 fields 200 x 50 from an exit",
        peer="own sweeping method",
        goals=dict(seconds=64 * 45e-6),
        sides=(
            lambda: randsmap.solve_eikonal(batch, 0.1, exits="right", out=out),
            lambda: randsmap.solve_eikonal(batch, 0.1, exits="right", method="sweeping", out=out),
            divider_bound(64 * 10000, 0),
        ),
        limit="a root a cell",
        threads=1,
        elements=640000,
    )


def rows_crowd(options):
    solver = randsmap.HughesSolver()
    initial = 5 * (1 - 1 / crowd_fields(16).reshape(16, -1))
    steps, updates = 100, 16 * 100 * 10000
    run = lambda: solver.solve(initial, steps * solver.dt) and None  # noqa: E731
    for n_threads in (1, 2):
        yield dict(
            work="Hughes, 16 trajectories x 100 steps of 200 x 50 cells",
            peer="-",
            goals={},
            sides=(run, None, None if n_threads > 1 else divider_bound(3 * updates, 3 * updates)),
            limit="a cell: 3 roots, 3 divisions" if n_threads == 1 else "",
            threads=n_threads,
            elements=updates,
            turns=3,
        )
    yield dict(
        work="Hughes data set, 80 trajectories x 2800 steps",
        peer="-",
        goals=dict(seconds=20),
        sides=(lambda: timed(lambda: randsmap.datasets.make_hughes(random_state=0) and None, 0), None, None),
        limit="",
        threads=2,
        elements=80 * 2800 * 10000,
        turns=1,
    )


def rows_images(options):
    from scipy.ndimage import rotate

    image, n = randsmap.datasets.head_phantom(), 3600
    out = np.empty((n, image.size))

    def scipy_rotations():
        # a 36th of them; the time does not depend on the angle's place in the list
        return 36 * timed(lambda: [rotate(image, 3.6 * k, order=1, reshape=False) for k in range(n // 36)], 0)

    for n_threads in (1, 2):
        yield dict(
            work="3600 rotations of an image 128 x 128, sum 1",
            peer="scipy.ndimage.rotate",
            goals=dict(ratio=3),
            sides=(
                lambda: randsmap.datasets.make_rotated_images(n, image=image, out=out),
                scipy_rotations,
                lambda: out.fill(0.0),
            ),
            limit="writing the images",
            threads=n_threads,
            elements=n * image.size,
        )


def rows_inference(options):
    F, _, F_test = study_data()
    encoder = randsmap.DiffusionMaps(2, alpha=0.0).fit(F)
    Y = encoder.fit_transform(F)
    Y_test = encoder.transform(F_test)
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(11.0, n_features=2000), random_state=0).fit(Y, F)
    theirs = transcription.DiffusionMaps()
    theirs.fit_transform(F)
    FT = np.asfortranarray(F.T)
    FtestT = np.asfortranarray(F_test.T)
    K = np.empty((2000, 8000), order="F")
    Phi = np.asfortranarray(np.random.default_rng(0).normal(size=(2001, 8000)))
    AT = np.asfortranarray(decoder.coef_.T)
    G = np.empty((400, 8000), order="F")
    out = np.empty((8000, 400))
    remote = Remote(options.datafold, "datafold") if options.datafold else None
    for n_threads, limit in ((1, 0.85), (2, 0.90)):
        yield dict(
            work="encode 8000 fields, n = 2000, M = 400",
            peer="NumPy transcription",
            goals=dict(limit=limit),
            sides=(
                lambda: encoder.transform(F_test),
                lambda: theirs.transform(F_test),
                lambda: blas.dgemm(1.0, FT, FtestT, trans_a=1, c=K, overwrite_c=1),
            ),
            limit="dgemm 8000 x 2000 x 400",
            threads=n_threads,
        )
        yield dict(
            work="decode 8000 latents, P = 2000, M = 400",
            peer="NumPy transcription",
            goals=dict(limit=limit),
            sides=(
                lambda: decoder.predict(Y_test, out=out),
                lambda: (
                    transcription.feature_matrix(Y_test, decoder.features_.weights_, decoder.features_.offsets_)
                    @ decoder.coef_
                ),
                lambda: blas.dgemm(1.0, AT, Phi, c=G, overwrite_c=1),
            ),
            limit="dgemm 8000 x 2001 x 400",
            threads=n_threads,
        )
    if remote:
        yield dict(
            work="encode 8000 fields, n = 2000, M = 400",
            peer="datafold",
            goals=dict(ratio=5),
            sides=(lambda: encoder.transform(F_test), remote, None),
            limit="",
            threads=2,
            turns=3,
        )
        remote.close()


def rows_one(options):
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    F, _, _ = study_data()
    Y = randsmap.DiffusionMaps(2, alpha=0.0).fit_transform(F)
    decoder = randsmap.RANDSMAPDecoder(randsmap.FourierFeatures(0.16, n_features=2000), random_state=0).fit(Y, F)
    peer = make_pipeline(RBFSampler(gamma=0.5 / 0.16**2, n_components=2000, random_state=0), Ridge(alpha=1e-3)).fit(
        Y, F
    )
    y, out = Y[:1].copy(), np.empty((1, 400))
    kernel = decoder.linear_map.kernel

    def kernel_only():
        kernel.row(y, out)

    read = decoder.coef_.ravel()
    for work, ours, limit in (
        ("one-row decode, kernel, P = 2000, M = 400", kernel_only, 1 / 1.2),
        ("one-row decode, predict(z, out=out)", lambda: decoder.predict(y, out=out), 1 / 2),
        ("one-row decode, predict(z)", lambda: decoder.predict(y), 1 / 2),
    ):
        yield dict(
            work=work,
            peer="sklearn Pipeline(RBFSampler, Ridge)",
            goals=dict(limit=limit),
            sides=(ours, lambda: peer.predict(y), lambda: read_bound(read)),
            limit="reading A once (dot product)",
            threads=1,
            turns=21,
        )


def read_bound(read):
    """Touch every element of A once, the cheapest way NumPy has: a dot product with itself."""
    return np.dot(read, read) and None


def rows_neighbors(options):
    import faiss
    from pykdtree.kdtree import KDTree

    from randsmap._linalg.neighbors import NeighborIndex

    rng = np.random.default_rng(0)
    clouds = {
        "uniform": (5, lambda n: rng.uniform(size=(n, 2))),
        "clustered": (2.5, lambda n: rng.integers(0, 10, (n, 1)) * [1, 0.7] + 0.01 * rng.normal(size=(n, 2))),
        "log-normal": (2.5, lambda n: rng.lognormal(0, 2, (n, 2))),
        "lattice": (1, lambda n: rng.integers(0, 45, (n, 2)).astype(float)),
    }
    for name, (ratio, draw) in clouds.items():
        points, queries = draw(2000), draw(8000)
        index, tree = NeighborIndex(points), KDTree(points)
        yield dict(
            work=f"k-NN d = 2, n = 2000, 8000 queries, k = 6, {name}",
            peer="pykdtree",
            goals=dict(ratio=ratio),
            sides=(lambda: index.query(queries, 6) and None, lambda: tree.query(queries, k=6) and None, None),
            limit="",
            threads=1,
            turns=21,
        )
    points, queries = rng.normal(size=(5000, 10)), rng.normal(size=(20000, 10))
    index, flat = NeighborIndex(points), faiss.IndexFlatL2(10)
    flat.add(points.astype(np.float32))
    single = queries.astype(np.float32)
    yield dict(
        work="k-NN d = 10, n = 5000, 20000 queries, k = 10",
        peer="faiss flat, float32",
        goals=dict(ratio=2),
        sides=(lambda: index.query(queries, 10) and None, lambda: flat.search(single, 10) and None, None),
        limit="",
        threads=1,
    )
    points, queries = rng.uniform(size=(1_000_000, 3)), rng.uniform(size=(1_000_000, 3))
    yield dict(
        work="k-NN d = 3, n = 1e6, 1e6 queries, k = 6, build included",
        peer="pykdtree",
        goals=dict(ratio=1),
        sides=(
            lambda: NeighborIndex(points).query(queries, 6) and None,
            lambda: KDTree(points).query(queries, k=6) and None,
            None,
        ),
        limit="",
        threads=1,
        turns=1,
    )


def rows_manifold_decoders(options):
    F, _, F_test = study_data()
    encoder = randsmap.DiffusionMaps(2, alpha=0.0).fit(F)
    Y, Y_test = encoder.transform(F), encoder.transform(F_test)
    knn = randsmap.KNNDecoder(6, objective="encoder", encoder=encoder).fit(Y, F)
    points = Y_test[:1000]
    yield dict(
        work="k-NN decoder through the encoder, 1000 points, k = 6",
        peer="-",
        goals=dict(ns=1e5),
        sides=(lambda: knn.predict(points), None, None),
        limit="",
        threads=1,
        elements=len(points),
        turns=3,
    )
    if options.datafold:
        ddm = randsmap.DoubleDiffusionMapsDecoder(epsilon_scale=0.6, rank=100).fit(Y, F)
        for job, work, ours in (
            ("ddm_fit", "DDM fit, n = 2000, M = 400, r = 100", lambda: ddm.fit(Y, F)),
            ("ddm_predict", "DDM predict, 8000 points", lambda: ddm.predict(Y_test)),
        ):
            remote = Remote(options.datafold, job)
            yield dict(
                work=work,
                peer="datafold geometric harmonics",
                goals=dict(ratio=3),
                sides=(ours, remote, None),
                limit="",
                threads=2,
                turns=5,
            )
            remote.close()


def rows_jacobian(options):
    for M in (400, 16384):
        for d in (2, 10):
            rng = np.random.default_rng(0)
            Y, F = rng.uniform(size=(60, d)), rng.dirichlet(np.ones(M), size=60)
            decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(5.0, n_features=2000), random_state=0).fit(Y, F)
            x, field, J = Y[:1], np.empty((1, M)), np.empty((1, M, d))
            W, b, A = decoder.features_.weights_, decoder.features_.offsets_, decoder.coef_[1:]
            sigmoid = lambda t: 1 / (1 + np.exp(-t))  # noqa: E731

            def plain(x=x, W=W, b=b, A=A):
                s = sigmoid(x @ W + b)[0]
                ((W * (s * (1 - s))) @ A).T.copy()

            predict = lambda: decoder.predict(x, out=field)  # noqa: E731
            yield dict(
                work=f"Jacobian of one point, P = 2000, M = {M}, d = {d}",
                peer="NumPy, sigmoid written out",
                goals=dict(ratio=1.5 if d == 10 else 1, limit=1 / (3 * d)),
                sides=(lambda: decoder.jacobian(x, out=J), plain, predict),
                limit="decode of the point",
                threads=1,
                turns=15,
            )
        cells = np.arange(20) * (M // 20)
        yield dict(
            work=f"decode of 20 cells of one point, P = 2000, M = {M}, d = 10",
            peer="the whole decode",
            goals=dict(ratio=1),
            sides=(lambda: decoder.predict(x, cells=cells), predict, None),
            limit="",
            threads=1,
            turns=15,
        )


def rows_study(options):
    F, F_validation, F_test = study_data()
    slopes = np.linspace(1, 20, 10)

    def ours():
        encoder = randsmap.DiffusionMaps(2, alpha=0.0)
        Y = encoder.fit_transform(F)
        Y_validation, Y_test = encoder.transform(F_validation), encoder.transform(F_test)
        decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(), random_state=0)
        result = randsmap.tune(decoder, {"features__slope": slopes.tolist()}, Y, F, Y_validation, F_validation)
        return randsmap.metrics.relative_l2(F_test, result.best_decoder_.predict(Y_test)).mean() and None

    for form, ratio, turns in (("cholesky", 2, 3), ("svd", 8, 1)):
        yield dict(
            work="traffic study, one feature map, P = N, tuning included",
            peer=f"NumPy transcription, {form} form",
            goals=dict(ratio=ratio),
            sides=(ours, lambda form=form: transcription.study(F, F_validation, F_test, form, slopes) and None, None),
            limit="",
            threads=2,
            turns=turns,
        )


def rows_tuning(options):
    from sklearn.base import clone

    from randsmap.tuning import _search as tuning

    rng = np.random.default_rng(0)
    n, n_cells = 720, 16384
    Y = rng.uniform(size=(2 * n, 2))
    F = np.sin(5 * Y @ rng.normal(size=(2, 200))) @ rng.normal(size=(200, n_cells))
    F += 100 - F.mean(axis=1, keepdims=True)
    Y, Y_validation, F, F_validation = Y[:n], Y[n:], F[:n], F[n:]
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(), random_state=0)
    slopes = np.linspace(1, 20, 10).tolist()

    def direct(slope):
        fitted = clone(decoder).set_params(features__slope=slope).fit(Y, F)
        return fitted, randsmap.metrics.relative_l2(F_validation, fitted.predict(Y_validation)).mean()

    data = (Y, F), (Y_validation, F_validation)
    validation = tuning._Validation(*data, len(slopes), {"features__slope": slopes}, decoder, None)

    def in_coefficients():
        validation.begin([decoder])
        validation.errors(clone(decoder), Y, Y_validation)

    in_coefficients()  # which factors the training fields
    for work, ratio, ours, peer in (
        (
            "validation of one candidate in coefficient space, M = 16384, n = P = 720",
            10,
            in_coefficients,
            lambda: direct(1.0) and None,
        ),
        (
            "`tune` of 10 candidates, factorisation and final fit included",
            12,
            lambda: randsmap.tune(decoder, {"features__slope": slopes}, Y, F, Y_validation, F_validation) and None,
            lambda: [direct(slope) for slope in slopes] and None,
        ),
    ):
        yield dict(
            work=work,
            peer="direct validation",
            goals=dict(ratio=ratio),
            sides=(ours, peer, None),
            limit="",
            threads=2,
            turns=3,
        )


def rows_start(options):
    def run(code):
        def seconds():  # of the clock: the processor time of a child is not this process's
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, cwd=HERE)
            return time.perf_counter() - start

        return seconds

    first_fit = (
        "import numpy as np, randsmap; rng = np.random.default_rng(0); F = rng.uniform(size=(50, 100)); "
        "randsmap.RANDSMAPDecoder(random_state=0).fit(rng.normal(size=(50, 2)), F / F.sum(axis=1, keepdims=True))"
    )
    yield dict(
        work="interpreter, `import randsmap` and a first fit",
        peer="interpreter, `import sklearn`",
        goals=dict(over=0.05),
        sides=(run(first_fit), run("import sklearn"), None),
        limit="",
        threads=1,
    )


ROWS = {name.removeprefix("rows_"): f for name, f in list(globals().items()) if name.startswith("rows_")}


# -- table -------------------------------------------------------------------------------------------


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def figure(seconds):
    if seconds is None:
        return "-"
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if abs(seconds) * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def measure(group, row, turns):
    """What is known of a row once it has run; JSON holds it."""
    from randsmap._kernels import vecmath

    with threads(row["threads"]):
        ours, peer, limit = medians(row["sides"], row.get("turns", turns))
    values = dict(
        ratio=peer and peer / ours,
        limit=limit and limit / ours,
        ns=ours / row["elements"] * 1e9 if "elements" in row else None,
        seconds=ours,
        over=peer and ours - peer,
    )
    known = {key: row[key] for key in ("work", "threads", "peer", "limit", "goals")}
    return dict(
        known, group=group, level=vecmath.cpu_level(), ours=ours, peer_seconds=peer, limit_seconds=limit, values=values
    )


GOALS = {
    "ratio": ">= {:.3g}",
    "limit": ">= {:.2g} of limit",
    "ns": "<= {:g} ns an element",
    "seconds": "<= {}",
    "over": "<= {} more",
}
AT_LEAST = ("ratio", "limit")


def goal(key, value):
    return GOALS[key].format(figure(value) if key in ("seconds", "over") else value)


def goals_of(record):
    return "; ".join(goal(key, value) for key, value in record["goals"].items()) or "-"


def missed(record):
    """Names of the goals that the measured values miss; those without a value are not among them.

    Goals are of processors with AVX2 and better ones: at the level below nothing is missed.
    """
    if record["level"] == "baseline":
        return []
    values = record["values"]
    wanted = [(key, values[key], g) for key, g in record["goals"].items() if values[key] is not None]
    return [key for key, value, g in wanted if (value < g if key in AT_LEAST else value > g)]


def shown(record, key):
    """A value of the table, in bold where it misses its goal."""
    value = record["values"][key]
    if value is None:
        return "-"
    text = figure(value) if key in ("seconds", "over") else f"{value:.3g}" if key == "ns" else f"{value:.2f}"
    return f"**{text}**" if key in missed(record) else text


def print_table(records):
    header = (
        "work",
        "threads",
        "ours",
        "peer",
        "peer's time",
        "ratio",
        "limit",
        "limit's time",
        "of limit",
        "ns/element",
    )
    lines = [
        (
            *(
                r["work"],
                str(r["threads"]),
                shown(r, "seconds"),
                r["peer"],
                figure(r["peer_seconds"]),
                shown(r, "ratio"),
            ),
            *(r["limit"] or "-", figure(r["limit_seconds"]), shown(r, "limit"), shown(r, "ns"), goals_of(r)),
        )
        for r in records
    ]
    widths = [max(map(len, column)) for column in zip((*header, "goal"), *lines)]
    for line in ((*header, "goal"), *lines):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


# -- at several instruction levels -----------------------------------------------------------------------
CORES = {"baseline": "Prescott", "avx2": "Haswell"}  # what OpenBLAS calls a processor of that level
BEGIN, END = "<!-- compare.py --markdown writes this -->", "<!-- to here -->"
# the rows of docs/speed.md, in its order: work, threads, peer
QUOTED = [
    ("one-row decode, predict(z, out=out)", 1, "sklearn Pipeline(RBFSampler, Ridge)"),
    ("decode 8000 latents, P = 2000, M = 400", 1, "NumPy transcription"),
    ("encode 8000 fields, n = 2000, M = 400", 1, "NumPy transcription"),
    ("encode 8000 fields, n = 2000, M = 400", 2, "datafold"),
    ("feature matrix 2000 x 2000, d = 2", 1, "np.cos(Y @ W + b)"),
    ("Gaussian kernel 2000 x 400", 2, "sklearn rbf_kernel"),
    ("exact fit n = P = 2000, M = 400", 1, "sklearn Ridge(cholesky) on the given matrix"),
    ("exact fit n = P = 2000, M = 400", 2, "paper's SVD form in NumPy, matrix given"),
    ("`tune` of 10 candidates, factorisation and final fit included", 2, "direct validation"),
    ("k-NN d = 2, n = 2000, 8000 queries, k = 6, uniform", 1, "pykdtree"),
    ("projection on the simplex, 10000 cells, decoder output", 1, "Condat (2016), plain C"),
    ("eikonal 200 x 50 from an exit", 1, "scikit-fmm (order 1)"),
    ("LWR, 16 trajectories x 4000 steps, a trajectory", 1, "PyClaw (classic, order 2)"),
    ("Jacobian of one point, P = 2000, M = 400, d = 10", 1, "NumPy, sigmoid written out"),
    ("traffic study, one feature map, P = N, tuning included", 2, "NumPy transcription, cholesky form"),
]


def own_levels():
    """The machine's instruction level and the next lower one."""
    environment = {key: value for key, value in os.environ.items() if key != "RANDSMAP_CPU"}
    code = "from randsmap._kernels import vecmath; print(vecmath.cpu_level())"
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=HERE, check=True, text=True, capture_output=True
    )
    levels = ["avx512", "avx2", "baseline"]
    return levels[levels.index(run.stdout.strip()) :][:2]


def at_level(level, group, own, options):
    """Records of a group of rows, measured by a process that is held to the level."""
    environment = {key: value for key, value in os.environ.items() if key not in ("RANDSMAP_CPU", "OPENBLAS_CORETYPE")}
    if level != own:
        environment.update(RANDSMAP_CPU=level, OPENBLAS_CORETYPE=CORES[level])
    command = [sys.executable, __file__, "--json", "--only", group, "--turns", str(options.turns)]
    for name in ("pyclaw", "datafold"):
        if getattr(options, name):
            command += [f"--{name}", getattr(options, name)]
    run = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE)
    if run.returncode:  # its traceback has been shown; the other groups go on
        options.failed.append(f"{group} at {level}")
    return [json.loads(line) for line in run.stdout.splitlines()]


def at_levels(options):
    """Records by level, each group at all levels before the next one."""
    levels = own_levels()
    if not options.markdown:  # to check, levels that have goals
        levels = [level for level in levels if level != "baseline"] or levels
    records = {level: [] for level in levels}
    for group in options.only:
        for level in levels:
            print(f"-- {group}, {level}", file=sys.stderr)
            records[level] += at_level(level, group, levels[0], options)
    return records


def commit():
    """Of the checkout; nothing of an export."""

    def git(*arguments):
        return subprocess.run(["git", "-C", str(HERE), *arguments], text=True, capture_output=True).stdout.strip()

    changes = " with changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    name = git("rev-parse", "--short", "HEAD")
    return f"commit {name}{changes}" if name else f"version {randsmap.__version__}"


def by_work(records):
    """Records by level, of each row (work, threads, peer) that any level has."""
    rows = {}
    for level, of in records.items():
        for r in of:
            rows.setdefault((r["work"], r["threads"], r["peer"]), {})[level] = r
    return rows


def measured(records, options):
    """What machine, when, and with what."""
    import scipy

    return (
        f"Medians of {options.turns} alternating turns, fewer of the longest rows. {datetime.date.today()}, "
        f"{processor()}, {os.cpu_count()} cores, {commit()}, Python {platform.python_version()}, NumPy "
        f"{np.__version__}, SciPy {scipy.__version__}. Ratio is peer / ours. Levels: {', '.join(records)}."
    )


def as_markdown(head, columns, lines):
    return "\n".join([head, "", *(f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *lines))])


def quoted_table(records, options):
    """Markdown: the rows that a release quotes, with the times of both sides at each level."""
    columns, lines = ["work", "threads", "peer"], []
    for level in records:
        columns += [f"{level}: randsmap", "peer", "ratio"]
    rows = by_work(records)
    for key in QUOTED:
        work, n, peer = key
        cells = [work, str(n), peer]
        for level in records:
            r = rows.get(key, {}).get(level)
            cells += (
                [figure(r["ours"]), figure(r["peer_seconds"]), f"{r['values']['ratio']:#.3g}".rstrip(".")]
                if r
                else ["-"] * 3
            )
        lines.append(cells)
    return as_markdown(measured(records, options), columns, lines)


def whole_table(records, options):
    """Markdown: a line a row with the figures of each level, its limit and its goals."""
    columns, lines = ["work", "threads", "peer", "limit", "goal"], []
    for level in records:
        columns += [f"{level}: ours", "ratio", "of limit"]
    for at in by_work(records).values():
        r = next(iter(at.values()))
        cells = [r["work"], str(r["threads"]), r["peer"], r["limit"] or "-", goals_of(r)]
        for level in records:
            if level not in at:
                cells += ["-"] * 3
                continue
            r = at[level]
            notes = [f"{shown(r, 'ns')} ns an element"] if r["values"]["ns"] else []
            notes += [f"{shown(r, 'over')} more"] if "over" in r["goals"] else []
            cells += [
                shown(r, "seconds") + (f" ({', '.join(notes)})" if notes else ""),
                shown(r, "ratio"),
                shown(r, "limit"),
            ]
        lines.append(cells)
    goals = "Of limit is limit / ours. Values that miss their goals are in bold; goals are of AVX2 and above."
    return as_markdown(f"{measured(records, options)} {goals}", columns, lines)


def write_between_marks(path, table):
    """Put the table where the last one is; the first one gets a section at the end."""
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    if not begin:
        before, rest = text.rstrip() + "\n\n## At two instruction levels\n\n", END + "\n"
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{path}: {BEGIN} without {END}")
    path.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", encoding="utf-8")


def check(records, options):
    """Names what misses its goal, and again in a second run of its group; the exit status."""

    def misses(of):
        return {(r["level"], r["group"], r["work"], r["threads"], r["peer"], k): r for r in of for k in missed(r)}

    rows = [r for of in records.values() for r in of]
    first, again = misses(rows), []
    for level, group in dict.fromkeys((key[0], key[1]) for key in first):
        print(f"-- {group}, {level}, once more", file=sys.stderr)
        again += at_level(level, group, next(iter(records)), options)
    twice = {key: r for key, r in misses(again).items() if key in first}
    for (level, group, work, n, peer, key), r in twice.items():
        value, wanted = shown(r, key).strip("*"), goal(key, r["goals"][key])
        print(f"{level}: {work}, {n} thread(s), beside {peer}: {key} {value}, goal {wanted} (--only {group})")
    absent = sorted(set(options.only) - {r["group"] for r in rows})
    absent += [f"{r['work']} beside {r['peer']}" for r in rows if any(r["values"][k] is None for k in r["goals"])]
    if absent:
        print(f"not measured: {'; '.join(dict.fromkeys(absent))}")
    below = len({key[:5] for key in twice})
    print(f"{len(rows)} rows, {below} below their goals; {len(first) - len(twice)} goal(s) missed only once")
    return int(bool(twice) or not rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=sorted(ROWS),
        default=list(ROWS),
        metavar="GROUP",
        help=f"groups of rows: {', '.join(ROWS)}",
    )
    parser.add_argument("--turns", type=int, default=7, help="turns a row (default 7)")
    parser.add_argument("--pyclaw", metavar="PYTHON", help="Python of an environment with clawpack")
    parser.add_argument("--datafold", metavar="PYTHON", help="Python of an environment with datafold")
    parser.add_argument(
        "--markdown",
        nargs="?",
        const=str(HERE.parents[1] / "docs"),
        metavar="FOLDER",
        help="write the tables of two instruction levels into FOLDER/speed.md, for rows that a release quotes, and "
        "FOLDER/speed-tables.md, for all (default docs; -: print the latter)",
    )
    parser.add_argument("--check", action="store_true", help="exit status 1 and a list where rows miss their goals")
    parser.add_argument("--json", action="store_true", help="print a JSON object a row")
    options = parser.parse_args()
    options.failed = []
    for python in (options.pyclaw, options.datafold):
        if python and shutil.which(python) is None:
            parser.error(f"there is no program {python}")
    if options.markdown or options.check:
        if options.markdown not in (None, "-") and len(options.only) < len(ROWS):
            parser.error("a table of some rows does not replace the whole one; `--markdown -` prints it")
        tables = {"speed.md": quoted_table, "speed-tables.md": whole_table}
        folder = None if options.markdown == "-" else options.markdown
        pages = {Path(folder, name): table for name, table in tables.items()} if folder else {}
        for path in pages:
            if not path.is_file():
                parser.error(f"there is no file {path}, whose table is replaced; `--markdown -` prints it")
        records = at_levels(options)
        for path, table in pages.items():
            write_between_marks(path, table(records, options))
        if options.markdown == "-":
            print(whole_table(records, options))
        status = check(records, options) if options.check else 0
        if options.failed:
            print(f"failed: {', '.join(options.failed)}", file=sys.stderr)
        return int(bool(status or options.failed))

    from randsmap._kernels import vecmath

    if not options.json:
        print(
            f"processor: {processor()}, {os.cpu_count()} cores; instruction level {vecmath.cpu_level()}; "
            f"Python {platform.python_version()}, NumPy {np.__version__}, randsmap {randsmap.__version__}"
        )
    records = []
    for name in options.only:
        try:
            for row in ROWS[name](options):
                records.append(measure(name, row, options.turns))
                if options.json:
                    print(json.dumps(records[-1]), flush=True)
                else:
                    r = records[-1]
                    print(f"{r['work']}: {figure(r['ours'])}, ratio {shown(r, 'ratio')}", file=sys.stderr)
        except ImportError as error:
            print(f"{name}: the rest is left out, {error}", file=sys.stderr)
    if not options.json:
        print_table(records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
