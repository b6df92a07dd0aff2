"""Several threads at once: the pool, and decoders, encoders and kernels that they share, give the bits that one gives.

`tools/sanitize.sh --threads` runs this file under the thread sanitizer, which finds a race whatever it does to the
numbers: calls overlap, and nothing here waits but at the start.
"""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import randsmap
from randsmap import (
    POD,
    BlendedDecoder,
    DiffusionMaps,
    DoubleDiffusionMapsDecoder,
    FourierFeatures,
    KernelDecoder,
    KNNDecoder,
    ManifoldModel,
    RANDSMAPDecoder,
    project_bounds,
)
from randsmap._linalg.distances import gaussian_kernel, squared_distances
from randsmap._linalg.neighbors import NeighborIndex
from randsmap.datasets import LWRSolver, solve_eikonal

from helpers import random_problem

pytestmark = [pytest.mark.kernels, pytest.mark.filterwarnings("ignore::randsmap.ExtrapolationWarning")]

THREADS, ROUNDS = 4, 3
M = 300
MASS = {"invariants": "mass"}
Y, F = random_problem(150, M, 2, seed=3, constant={4: 0.002})
X = np.random.default_rng(0).uniform(-0.2, 1.2, size=(400, 2))
FEATURES = FourierFeatures(0.5, n_features=200)
DECODERS = {
    "random features": RANDSMAPDecoder(FEATURES, random_state=0),
    "bounds": RANDSMAPDecoder(FEATURES, random_state=0, bounds="nonnegative"),
    "kernel": KernelDecoder("matern", nu=2.5, degree=1, **MASS),
    "harmonics": DoubleDiffusionMapsDecoder(rank=8, **MASS),
    "k-NN": KNNDecoder(6),
    "blend": BlendedDecoder([KernelDecoder(), KernelDecoder("matern")], **MASS),
}


def at_once(compute, n_threads=THREADS, rounds=ROUNDS):
    """`compute()` by several threads that begin together; each must return the bits that one alone returns."""
    expected = compute()
    start, wrong = threading.Barrier(n_threads), []

    def work():
        try:
            start.wait()
            for _ in range(rounds):
                for ours, theirs in zip(compute(), expected, strict=True):
                    assert np.array_equal(ours, theirs)
        except BaseException as error:
            wrong.append(error)
            start.abort()

    threads = [threading.Thread(target=work) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


@pytest.fixture(params=[1, 3])
def pool(request):
    """With threads of the package's own, and without.

    BLAS has one: its bits are promised for a fixed number of its threads, and calls that overlap change that number,
    for the lowest limit of all that are under way holds.
    """
    randsmap.set_num_threads(request.param)
    with threadpool_limits(1, user_api="blas"):
        yield
    randsmap.set_num_threads(None)


@pytest.mark.parametrize("name", DECODERS)
def test_one_decoder_serves_many_threads(name, pool):
    decoder = DECODERS[name].fit(Y, F)
    V, U = np.ones(2), np.ones(M)

    def compute():
        few, derivatives = X[:5], () if name == "k-NN" else (decoder.jvp(X[:20], V), decoder.vjp(X[:20], U))
        cells = decoder.predict(few, cells=[1, 5, 9])
        return [decoder.predict(X), decoder.predict(few[:1]), cells, *derivatives]

    at_once(compute)


@pytest.mark.parametrize("options", [{}, {"precision": "float32"}, {"kind": "table", "tol": 1e-3}], ids=str)
@pytest.mark.parametrize("bounds", [None, "nonnegative"])
def test_one_frozen_model_serves_many_threads(options, bounds, pool):
    decoder = RANDSMAPDecoder(FEATURES, random_state=0, bounds=bounds)
    frozen = ManifoldModel(DiffusionMaps(2), decoder).fit(F).freeze(**options)
    Z = frozen.transform(F)

    def compute():
        return [
            frozen.predict(Z),
            frozen.predict(Z[:1]),
            frozen.predict(Z[:9], invariant_values=np.full(9, 1.5)),
            frozen.jvp(Z[:20], np.ones(2)),
            frozen.vjp(Z[:20], np.ones(M)),
            frozen.transform(F[:40]),
        ]

    at_once(compute)


def test_encoders_serve_many_threads(pool):
    maps, pod = DiffusionMaps(2).fit(F), POD(4, **MASS).fit(F)
    at_once(
        lambda: [maps.transform(F), maps.jacobian(F[:3]), pod.transform(F), pod.inverse_transform(pod.transform(F))]
    )


def test_kernels_serve_many_threads(pool):
    features, index = FEATURES.fit(Y), NeighborIndex(Y)
    rng = np.random.default_rng(0)
    Z, slowness, roads = rng.normal(size=(300, 40)), rng.uniform(1, 3, (20, 30, 20)), rng.uniform(0, 1, (8, 200))
    solver = LWRSolver(200, domain=(0.0, 200.0), v_max=1.0, dt=0.5)

    def compute():
        return [
            features.transform(X),
            squared_distances(Z),
            gaussian_kernel(Z, epsilon=5.0),
            *index.query(X, 7),
            project_bounds(Z, upper=0.2),
            solve_eikonal(slowness, 0.1, exits="right"),
            solver.solve(roads, 20.0).fields,
        ]

    at_once(compute)


def test_fits_do_not_disturb_one_another(pool):
    at_once(lambda: [RANDSMAPDecoder(FEATURES, random_state=0).fit(Y, F).coef_], rounds=1)
