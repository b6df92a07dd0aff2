"""Random feature maps: kernels against NumPy, draws against their laws, scikit-learn's rules."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtri
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

import randsmap
from randsmap import FourierFeatures, MaternFeatures, MonomialFeatures, MultiscaleFourierFeatures, SigmoidFeatures
from randsmap import features as module
from randsmap._kernels import features as kernel

from helpers import python
from oracles import PLAIN, STEEPEST

pytestmark = pytest.mark.kernels

EPS = np.finfo(float).eps
MAPS = {  # P features of t = w . y + b
    FourierFeatures: lambda t, P: np.sqrt(2 / P) * np.cos(t),
    MultiscaleFourierFeatures: lambda t, P: np.sqrt(2 / P) * np.cos(t),
    SigmoidFeatures: lambda t, P: expit(t),
}


def oracle(activation, Y, W, b, scale):
    """Plain NumPy features, and a bound of what rounding may change in them."""
    t = np.asarray(Y, np.longdouble) @ np.asarray(W, np.longdouble) + b
    size = np.abs(Y) @ np.abs(W) + np.abs(b)
    return scale * PLAIN[activation](t), scale * ((len(W) + 2) * EPS * size * STEEPEST[activation] + 4 * EPS)


def problem(n, d, P, seed=0, spread=3.0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)), spread * rng.normal(size=(d, P)), rng.uniform(0, 2 * np.pi, P))


# -- Kernel ----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 20),
    d=st.integers(1, 20),
    P=st.integers(1, 1300),
    seed=st.integers(0, 99),
    activation=st.sampled_from(sorted(PLAIN)),
)
def test_kernel_is_numpys(n, d, P, seed, activation):
    Y, W, b = problem(n, d, P, seed)
    out = np.empty((n, P))
    kernel.features(activation, Y, W, b, 0.3, out)
    value, bound = oracle(activation, Y, W, b, 0.3)
    assert np.all(np.abs(out - value) <= bound)


def test_kernel_at_every_instruction_level(level, tmp_path):
    cases = {f"{activation}/{d}": problem(9, d, 701) for d in (1, 2, 3, 4, 5, 11, 16, 17) for activation in PLAIN}
    np.savez(
        tmp_path / "given.npz",
        **{f"{key}/{part}": array for key, case in cases.items() for part, array in zip("YWb", case)},
    )
    code = """
import numpy as np
from randsmap._kernels import features
given, results = np.load("given.npz"), {}
for key in {k.rsplit("/", 1)[0] for k in given.files}:
    Y, W, b = (given[f"{key}/{part}"] for part in "YWb")
    results[key] = np.empty((len(Y), len(b)))
    features.features(int(key[0]), Y, W, b, 0.3, results[key])
np.savez("results.npz", **results)
"""
    python(code, level=level, cwd=tmp_path)
    results = np.load(tmp_path / "results.npz")
    for key, case in cases.items():
        value, bound = oracle(int(key[0]), *case, 0.3)
        assert np.all(np.abs(results[key] - value) <= bound), key


@pytest.mark.parametrize("d", [1, 2, 4, 5, 16, 17])
@pytest.mark.parametrize("far", [1e8, 1e12, 1e200])
def test_arguments_beyond_the_reach_of_the_reduction(d, far):
    # integer latents and weights: the argument is exact or its rounding is a known multiple of eps
    Y, W, b = problem(6, d, 900)
    Y[2] *= far
    out = np.empty((6, 900))
    kernel.features(kernel.COSINE, Y, W, b, 1.0, out)
    value, bound = oracle(kernel.COSINE, Y, W, b, 1.0)
    assert np.all(np.abs(out) <= 1)  # a reduction out of its reach gives anything
    assert np.all(np.abs(out - value) <= np.where(bound < 0.1, bound, 2))
    near = np.empty((5, 900))
    kernel.features(kernel.COSINE, np.delete(Y, 2, axis=0), W, b, 1.0, near)
    assert np.array_equal(np.delete(out, 2, axis=0), near)  # only the far row is far


@pytest.mark.parametrize("d", [1, 2, 16, 17])
def test_huge_exact_argument(d):
    Y, W = np.zeros((2, d)), np.zeros((d, 300))
    Y[1, 0], W[0] = 2.0**40, 1.0
    out = np.empty((2, 300))
    kernel.features(kernel.COSINE, Y, W, np.zeros(300), 1.0, out)
    assert np.all(out[0] == 1.0) and np.all(np.abs(out[1] - np.cos(2.0**40)) <= EPS)


def test_phase_alone_beyond_the_reach():
    b = np.array([1e9, 0.0, 3e8])
    out = np.empty((1, 3))
    kernel.features(kernel.COSINE, np.zeros((1, 2)), np.ones((2, 3)), b, 1.0, out)
    assert np.all(np.abs(out - np.cos(b)) <= EPS)


def test_far_sigmoids_saturate():
    Y, W, b = problem(4, 2, 50)
    out = np.empty((4, 50))
    kernel.features(kernel.LOGISTIC, 1e200 * Y, W, b, 1.0, out)
    assert np.array_equal(out, (Y @ W > 0).astype(float))


@pytest.mark.parametrize("d", [2, 7, 17])
def test_rows_of_out_may_be_strided(d):
    Y, W, b = problem(5, d, 40)
    plain = np.empty((5, 40))
    kernel.features(kernel.COSINE, Y, W, b, 1.0, plain)
    wide = np.full((5, 50), 7.0)
    kernel.features(kernel.COSINE, Y, W, b, 1.0, wide[:, 3:43])
    assert np.array_equal(wide[:, 3:43], plain)
    assert (wide[:, :3] == 7).all() and (wide[:, 43:] == 7).all()
    up = np.empty((5, 40))
    kernel.features(kernel.COSINE, Y, W, b, 1.0, up[::-1])
    assert np.array_equal(up[::-1], plain)


def test_empty_arrays():
    for n, P in ((0, 3), (3, 0), (0, 0)):
        kernel.features(kernel.COSINE, np.ones((n, 2)), np.ones((2, P)), np.ones(P), 1.0, np.empty((n, P)))


def test_offsets_do_not_overflow_32_bits():
    # the last row begins beyond 2^31 entries; only its pages of the strided view are touched
    P, stride = 3, (2**31 + 8) // 2
    try:
        base = np.empty(2 * stride + P)
    except MemoryError:
        pytest.skip("no 18 GB of address space")
    out = np.lib.stride_tricks.as_strided(base, (3, P), (8 * stride, 8))
    Y, W, b = problem(3, 2, P)
    kernel.features(kernel.COSINE, Y, W, b, 1.0, out)
    assert np.all(np.abs(out - np.cos(Y @ W + b)) <= 1e-6)


# -- Draws -----------------------------------------------------------------------------------------


class Grid:
    """Stands in for a generator: equidistant phases for each of many normal quantiles."""

    def __init__(self, n_quantiles, n_phases):
        self.quantiles, self.phases = n_quantiles, n_phases

    def standard_normal(self, size):
        normal = ndtri((np.arange(self.quantiles) + 0.5) / self.quantiles)
        return np.repeat(normal, self.phases)[:, None]

    def uniform(self, low, high, size):
        return np.tile(low + (high - low) * np.arange(self.phases) / self.phases, self.quantiles)


@pytest.mark.parametrize("length_scale", [1.0, 0.3, 2.5])
def test_expected_product_of_fourier_features_is_the_gaussian_kernel(length_scale):
    # the mean over the draws by quadrature instead of by sampling: no statistical slack
    grid = Grid(20_000, 4)
    P = grid.quantiles * grid.phases
    m = FourierFeatures(length_scale, n_features=P, random_state=0).fit([[0.0]])
    m.weights_ = np.ascontiguousarray(module.draw_gaussian_frequencies(grid, 1, P, length_scale))
    m.offsets_ = module.draw_phases(grid, P)
    Y = np.array([[-0.4], [0.0], [0.7], [1.0]])
    F = m.transform(Y)
    expected = np.exp(-((Y - Y.T) ** 2) / (2 * length_scale**2))
    # midpoint rule in the quantiles: the two cells at the ends, of probability 1/20000, dominate
    assert np.abs(F @ F.T - expected).max() < 2 / grid.quantiles


@pytest.mark.parametrize("length_scale, d", [(1.0, 1), (0.5, 2), (np.array([0.5, 3.0]), 2)])
def test_fourier_features_estimate_the_kernel_within_their_own_variance(length_scale, d):
    P = 200_000
    Y = np.array([[0.0] * d, [1.0] * d, [0.3] + [-0.2] * (d - 1)])
    F = FourierFeatures(length_scale, n_features=P, random_state=0).fit_transform(Y)
    r2 = (((Y[:, None] - Y[None]) / length_scale) ** 2).sum(axis=-1)
    k = np.exp(-r2 / 2)
    # 2 cos(a) cos(a') = cos(a - a') + cos(a + a'), the last with a uniform phase
    deviation = np.sqrt(((1 + np.exp(-2 * r2)) / 2 - k**2 + 0.5) / P)
    assert np.all(np.abs(F @ F.T - k) <= 5 * deviation)
    assert abs(F[0] @ F[1] - k[0, 1]) < 0.01 and abs(F[0] @ F[0] - 1) < 0.01


@pytest.mark.parametrize("P", [1, 2, 7, 100])
def test_paired_features_are_cosines_and_sines_of_half_the_frequencies(P):
    Y = np.random.default_rng(0).normal(size=(9, 3))
    features = FourierFeatures(0.5, n_features=P, paired=True, random_state=0).fit(Y)
    assert features.weights_.shape == (3, P)
    half = P // 2
    W = features.weights_[:, P - half :]
    assert np.array_equal(W, features.weights_[:, :half])
    Z = features.transform(Y) / np.sqrt(2 / P)
    bound = 10 * EPS * (1 + np.abs(Y) @ np.abs(W))
    assert (np.abs(Z[:, :half] - np.cos(Y @ W)) <= bound).all()
    assert (np.abs(Z[:, P - half :] - np.sin(Y @ W)) <= bound).all()
    if P % 2:
        assert 0 < features.offsets_[half] < 2 * np.pi
    else:
        assert np.allclose((Z**2).sum(axis=1), half, rtol=1e-14)


@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_orthogonal_frequencies(d):
    P = 60_000 // d * d + (d > 1)
    length_scale = np.linspace(0.5, 2, d)
    features = FourierFeatures(length_scale, n_features=P, orthogonal=True, random_state=0)
    W = features.fit(np.zeros((2, d))).weights_ * length_scale[:, None]
    assert W.shape == (d, P)
    groups = W[:, : P // d * d].reshape(d, -1, d).transpose(1, 0, 2)
    lengths = np.linalg.norm(groups, axis=1)
    products = np.einsum("gji,gjk->gik", groups, groups)
    products[:, range(d), range(d)] = 0
    assert (np.abs(products) <= 20 * EPS * lengths[:, :, None] * lengths[:, None, :]).all()
    # each frequency is a standard Gaussian vector: moments within five standard errors
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        assert (np.abs((W**power).mean(axis=1) - moment) < 5 * 10 / np.sqrt(P)).all()
    assert np.abs((W[0] * W[-1]).mean() - (d == 1)) < 5 * 1.5 / np.sqrt(P)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, gain",
    [(dict(paired=True), 1.05), (dict(orthogonal=True), 1.02), (dict(paired=True, orthogonal=True), 1.3)],
    ids=str,
)
def test_options_estimate_the_kernel_without_bias_and_more_precisely(options, gain):
    Y = np.random.default_rng(1).uniform(size=(40, 2))
    K = np.exp(-((Y[:, None] - Y[None]) ** 2).sum(axis=2) / (2 * 0.4**2))

    def estimates(P, **options):
        Z = [FourierFeatures(0.4, n_features=P, random_state=seed, **options).fit_transform(Y) for seed in range(300)]
        return np.array([z @ z.T for z in Z])

    plain, found = estimates(50) - K, estimates(50, **options) - K
    assert np.sqrt((plain**2).mean()) > gain * np.sqrt((found**2).mean())
    deviation = np.sqrt((found**2).mean() / 300)
    assert np.abs(found.mean(axis=0)).max() < 6 * deviation
    odd = estimates(7, **options) - K
    assert np.abs(odd.mean(axis=0)).max() < 6 * np.sqrt((odd**2).mean() / 300)


def test_options_draw_the_same_for_a_seed_at_any_thread_count():
    Y = np.zeros((3, 70))
    reference = None
    for threads in (1, 3):
        randsmap.set_num_threads(threads)
        try:
            W = FourierFeatures(n_features=500, orthogonal=True, paired=True, random_state=5).fit(Y).weights_
        finally:
            randsmap.set_num_threads(None)
        assert reference is None or np.array_equal(W, reference)
        reference = W


@pytest.mark.parametrize("name", ["paired", "orthogonal"])
@pytest.mark.parametrize("value", [1, None, "yes"])
def test_options_must_be_bools(name, value):
    with pytest.raises(TypeError, match=f"{name} must be a bool, got {value!r}"):
        FourierFeatures(**{name: value}).fit(np.zeros((3, 1)))


def test_kernel_estimate_converges_with_slope_minus_one_half():
    Y = np.array([[0.0, 0.0], [1.0, -0.5], [0.2, 0.9]])
    k = np.exp(-((Y[:, None] - Y[None]) ** 2).sum(axis=-1) / 2)
    widths, errors = [64, 256, 1024, 4096, 16384], []
    for P in widths:
        seeds = [FourierFeatures(n_features=P, random_state=s).fit_transform(Y) for s in range(60)]
        errors.append(np.sqrt(np.mean([(F @ F.T - k) ** 2 for F in seeds])))
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    # an RMS of 60 x 6 correlated values scatters by about 8 %, over two decades of P
    assert abs(slope + 0.5) < 0.06


@pytest.mark.parametrize("P, n_scales", [(200_000, 10), (200_003, 7), (100_000, 1)])
def test_multiscale_features_estimate_the_mixture_of_their_scales(P, n_scales):
    m = MultiscaleFourierFeatures(6.0, min_frequency=0.5, n_scales=n_scales, n_features=P, random_state=3)
    Y = np.array([[0.0, 0.0], [0.1, 0.2], [0.7, -0.4]])
    F = m.fit_transform(Y)
    assert m.scales_.shape == (n_scales,) and (0.5 <= m.scales_).all() and (m.scales_ < 6).all()
    share = np.array([P // n_scales + (q < P % n_scales) for q in range(n_scales)]) / P
    r2 = ((Y[:, None] - Y[None]) ** 2).sum(axis=-1)
    mixture = np.einsum("q,qij->ij", share, np.exp(-(m.scales_[:, None, None] ** 2) * r2 / 2))
    assert np.all(np.abs(F @ F.T - mixture) <= 5 * np.sqrt(1.5 / P))  # variance of a term <= 3/2


def test_first_scales_get_what_does_not_divide():
    m = MultiscaleFourierFeatures(5.0, n_scales=4, n_features=100_002, random_state=0)
    m.fit(np.zeros((1, 1)))
    counts = [25_001, 25_001, 25_000, 25_000]
    for scale, part in zip(m.scales_, np.split(m.weights_[0], np.cumsum(counts)[:-1])):
        # standard deviation of a sample of 25000 normals: 1/sqrt(50000) relative
        assert abs(part.std() / scale - 1) < 5 / np.sqrt(50_000)


def test_more_scales_than_features():
    m = MultiscaleFourierFeatures(5.0, n_scales=10, n_features=3, random_state=0).fit([[0.0]])
    assert m.weights_.shape == (1, 3) and m.scales_.shape == (10,)


def test_gaussian_weights_have_inverse_length_scales():
    m = FourierFeatures([0.5, 4.0], n_features=100_000, random_state=0).fit(np.zeros((1, 2)))
    assert np.all(np.abs(m.weights_.std(axis=1) * [0.5, 4.0] - 1) < 5 / np.sqrt(200_000))
    assert (0 <= m.offsets_).all() and (m.offsets_ < 2 * np.pi).all()
    assert abs(m.offsets_.mean() - np.pi) < 5 * np.pi / np.sqrt(3 * 100_000)


def test_sigmoids_are_centred_in_the_bounding_box():
    Y = np.random.default_rng(0).uniform([-3, 10], [5, 11], (40, 2))
    m = SigmoidFeatures(7.0, n_features=20_000, random_state=0).fit(Y)
    assert (-7 <= m.weights_).all() and (m.weights_ < 7).all()
    assert np.all(np.abs(m.weights_.std(axis=1) * np.sqrt(3) / 7 - 1) < 0.02)
    centers = module.draw_centers(np.random.default_rng(1), Y, 20_000)
    low, high = Y.min(axis=0), Y.max(axis=0)
    assert (low <= centers).all() and (centers <= high).all()
    mean = (centers.mean(axis=0) - low) / (high - low)
    assert np.all(np.abs(mean - 0.5) < 5 / np.sqrt(12 * 20_000))
    # one dimension: the inflection point is the centre itself
    m = SigmoidFeatures(7.0, n_features=500, random_state=0).fit(Y[:, :1])
    centers = -m.offsets_ / m.weights_[0]
    assert (centers >= low[0] - 1e-9).all() and (centers <= high[0] + 1e-9).all()
    half = m.transform(centers[:, None])[np.arange(500), np.arange(500)]
    assert np.all(np.abs(half - 0.5) <= 8 * EPS * np.abs(m.offsets_) + EPS)


def test_a_constant_coordinate_has_a_flat_box():
    Y = np.column_stack([np.linspace(0, 1, 9), np.full(9, 0.1)])
    centers = module.draw_centers(np.random.default_rng(0), Y, 1000)
    assert (centers[:, 1] == 0.1).all()
    assert np.isfinite(SigmoidFeatures(random_state=0).fit_transform(Y)).all()
    assert np.isfinite(SigmoidFeatures(random_state=0).fit_transform(Y[:1])).all()


@pytest.mark.parametrize(
    "n_features, n, P",
    [
        (5, 10, 5),
        (np.int32(5), 10, 5),
        (1.0, 10, 10),
        (0.25, 10, 2),
        (0.5, 9, 4),
        (2.0, 7, 14),
        (1e-9, 10, 1),
        (np.float32(0.5), 10, 5),
        (2, 10, 2),
    ],
)
def test_number_of_features(n_features, n, P):
    Y = np.linspace(0, 1, n)[:, None]
    for Map in MAPS:
        assert Map(n_features=n_features).fit_transform(Y).shape == (n, P)


# -- Transformers ----------------------------------------------------------------------------------


@parametrize_with_checks([Map() for Map in MAPS])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.mark.parametrize("Map", MAPS)
@pytest.mark.parametrize("d", [2, 20])
def test_transform_is_the_formula(Map, d):
    Y = np.random.default_rng(0).normal(size=(30, d))
    m = Map(n_features=77, random_state=0).fit(Y)
    F = m.transform(Y)
    activation, W, b, scale = m.activation_parameters()
    assert W is m.weights_ and b is m.offsets_ and W.shape == (d, 77) and b.shape == (77,)
    assert W.flags.c_contiguous and W.dtype == b.dtype == np.float64
    value, bound = oracle(activation, Y, W, b, scale)
    assert np.all(np.abs(F - value) <= bound)
    assert np.allclose(F, MAPS[Map](Y @ W + b, 77), rtol=0, atol=1e-12)


@pytest.mark.parametrize("Map", MAPS)
@pytest.mark.parametrize("d", [2, 20, 100])
def test_bits_do_not_depend_on_threads_or_batch(Map, d, monkeypatch):
    Y = np.random.default_rng(0).normal(size=(700, d))
    m = Map(n_features=900, random_state=0).fit(Y)
    results = []
    try:
        for count in (1, 2, 3):
            randsmap.set_num_threads(count)
            results.append(clone(m).fit(Y).transform(Y))
    finally:
        randsmap.set_num_threads(None)
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])
    alone = np.vstack([m.transform(Y[i : i + 1]) for i in range(0, 700, 100)])
    assert np.array_equal(alone, results[0][::100])


@pytest.mark.parametrize("Map", MAPS)
def test_random_state(Map):
    Y = np.random.default_rng(0).normal(size=(10, 2))
    one, other = Map(random_state=0).fit(Y), Map(random_state=0).fit(Y)
    assert np.array_equal(one.weights_, other.weights_)
    assert np.array_equal(one.offsets_, other.offsets_)
    assert not np.array_equal(one.weights_, Map(random_state=1).fit(Y).weights_)
    assert not np.array_equal(Map().fit(Y).weights_, Map().fit(Y).weights_)
    by_state = Map(random_state=np.random.RandomState(0)).fit(Y)
    assert np.array_equal(one.weights_, by_state.weights_)
    rng = np.random.default_rng(5)
    m = Map(random_state=rng).fit(Y)
    assert m.random_state is rng
    again = Map(random_state=np.random.default_rng(5)).fit(Y)
    assert np.array_equal(m.weights_, again.weights_)
    with pytest.raises(ValueError, match="seed|RandomState"):
        Map(random_state="seed").fit(Y)


@pytest.mark.parametrize("Map", MAPS)
@pytest.mark.parametrize("d", [2, 20])
def test_float32_in_float32_out(Map, d):
    Y = np.random.default_rng(0).normal(size=(50, d)).astype(np.float32)
    m = Map(n_features=300, random_state=0).fit(Y)
    F = m.transform(Y)
    assert F.dtype == np.float32 and m.weights_.dtype == np.float64
    wide = m.transform(Y.astype(np.float64))
    assert wide.dtype == np.float64
    # one rounding of the float64 feature, of size at most 1
    assert np.abs(F - wide).max() <= np.finfo(np.float32).eps / 2 + 1e-12


@pytest.mark.parametrize("Map", MAPS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_features_into_memory_that_is_there(Map, dtype):
    Y = np.random.default_rng(0).normal(size=(40, 2)).astype(dtype)
    m = Map(n_features=30, random_state=0).fit(Y)
    out = np.full((40, 30), np.nan, dtype)
    assert m.transform(Y, out=out) is out
    np.testing.assert_array_equal(out, m.transform(Y))
    other = np.float32 if dtype == np.float64 else np.float64
    for wrong, error, message in (
        (np.empty((40, 30), other), TypeError, np.dtype(dtype).name),
        (np.empty((30, 40), dtype), ValueError, r"shape \(40, 30\)"),
        (np.empty((30, 40), dtype).T, ValueError, "C-contiguous"),
        (np.empty((40, 30), dtype).tolist(), TypeError, "NumPy array"),
    ):
        with pytest.raises(error, match=message):
            m.transform(Y, out=wrong)
    memory = np.zeros(40 * 30 + 80, dtype)
    with pytest.raises(ValueError, match="share memory"):
        m.transform(memory[:80].reshape(40, 2), out=memory[40:1240].reshape(40, 30))


@pytest.mark.parametrize("Map", MAPS)
def test_any_memory_layout_and_type_of_input(Map, tmp_path):
    Y = np.random.default_rng(0).integers(0, 200, (40, 3)).astype(float)
    m = Map(random_state=0, n_features=20).fit(Y)
    expected = m.transform(Y)
    frozen = Y.copy()
    frozen.setflags(write=False)
    np.save(tmp_path / "Y.npy", Y)
    inputs = [
        frozen,
        np.load(tmp_path / "Y.npy", mmap_mode="r"),
        np.asfortranarray(Y),
        np.repeat(Y, 2, 1)[:, ::2],
        np.repeat(Y, 2, 0)[::2],
        Y[::-1].copy()[::-1],
        Y.astype(np.uint8),
        Y.astype(np.int32),
        Y.astype(np.float16),
        Y.tolist(),
    ]
    for Z in inputs:
        assert np.array_equal(m.transform(Z), expected)
        assert np.array_equal(clone(m).fit(Z).weights_, m.weights_)
        assert np.array_equal(clone(m).fit_transform(Z), expected)


def test_float16_is_not_computed_in_float16():
    H = np.array([[0.0], [300.0], [301.0]], np.float16)
    m = FourierFeatures(100.0, n_features=50, random_state=0).fit(H)
    assert m.transform(H).dtype == np.float64
    assert np.array_equal(m.transform(H), m.transform(H.astype(float)))


@pytest.mark.parametrize("Map", MAPS)
def test_wrong_input_is_an_error(Map):
    Y = np.random.default_rng(0).normal(size=(8, 3))
    m = Map(n_features=5, random_state=0).fit(Y)
    before = pickle.dumps(m)
    for bad in (
        np.empty((4, 2)),
        np.zeros(3),
        np.array(1.0),
        np.empty((4, 4)),
        np.empty((0, 3)),
        [[np.nan, 0, 0]],
        [[np.inf, 0, 0]],
        [["a", "b", "c"]],
        [[0, 0], [0]],
        [[1j, 0, 0]],
    ):
        with pytest.raises((TypeError, ValueError)):  # scikit-learn's own for a list of complex
            m.transform(bad)
    for bad in (np.zeros(3), np.array(1.0), np.empty((0, 3)), np.empty((3, 0)), [[np.nan, 0]], [["a"]]):
        with pytest.raises(ValueError):
            m.fit(bad)
    assert pickle.dumps(m) == before
    with pytest.raises(NotFittedError):
        Map().transform(Y)


@pytest.mark.parametrize(
    "Map, parameter, values",
    [
        *[(Map, "n_features", [0, -1, 0.0, -0.5, np.nan, np.inf, True, None, "5", 1j]) for Map in MAPS],
        (
            FourierFeatures,
            "length_scale",
            [
                0,
                -1.0,
                np.nan,
                np.inf,
                True,
                "1",
                None,
                [1.0],
                [1.0, 0.0],
                [1.0, -1.0],
                [1.0, np.nan],
                [[1.0, 1.0]],
                1e-320,
            ],
        ),
        (SigmoidFeatures, "slope", [0, -1.0, np.nan, np.inf, True, "1", None, 1e308]),
        (MultiscaleFourierFeatures, "max_frequency", [0, -1.0, np.nan, np.inf, True, "1", 1e-4, 1e-3]),
        (MultiscaleFourierFeatures, "min_frequency", [-1.0, np.nan, 1.0, 2.0, None]),
        (MultiscaleFourierFeatures, "n_scales", [0, -1, 1.0, True, None]),
    ],
)
def test_wrong_parameters_are_named_and_leave_the_map_as_it_was(Map, parameter, values):
    Y = np.random.default_rng(0).normal(size=(8, 2))
    for value in values:
        m = Map(random_state=0).fit(Y)
        weights, width = m.weights_, m.n_features_in_
        m.set_params(**{parameter: value})
        with pytest.raises((TypeError, ValueError), match=parameter):
            m.fit(np.zeros((5, 2)))
        assert m.weights_ is weights and m.n_features_in_ == width
        with pytest.raises((TypeError, ValueError), match=parameter):
            fresh = Map(**{parameter: value})
            fresh.fit(Y)
        assert not hasattr(fresh, "weights_") and not hasattr(fresh, "n_features_in_")


@pytest.mark.parametrize("Map", MAPS)
def test_the_callers_arrays_are_neither_changed_nor_kept(Map):
    Y = np.random.default_rng(0).normal(size=(8, 2))
    original = Y.copy()
    m = Map(random_state=0).fit(Y)
    F = m.transform(Y)
    assert np.array_equal(Y, original)
    Y[:] = 0
    assert np.array_equal(m.transform(original), F)
    kept = np.array([1.0, 2.0])
    m = FourierFeatures(kept)
    assert m.length_scale is kept
    m.fit(original)
    assert np.array_equal(kept, [1.0, 2.0])


@pytest.mark.parametrize("Map", MAPS)
def test_pickle_gives_the_same_features(Map):
    Y = np.random.default_rng(0).normal(size=(8, 2))
    m = Map(random_state=0).fit(Y)
    assert np.array_equal(pickle.loads(pickle.dumps(m)).transform(Y), m.transform(Y))


@pytest.mark.parametrize("Map", MAPS)
def test_feature_names_and_containers(Map):
    Y = np.random.default_rng(0).normal(size=(8, 2))
    m = Map(n_features=3).fit(Y)
    prefix = Map.__name__.lower()
    assert m.get_feature_names_out().tolist() == [f"{prefix}{k}" for k in range(3)]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(Y, columns=["a", "b"])
    m = Map(n_features=3, random_state=0).set_output(transform="pandas").fit(frame)
    result = m.transform(frame)
    assert list(result.columns) == m.get_feature_names_out().tolist()
    assert m.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError):
        m.transform(frame[["b", "a"]])
    single = m.transform(frame.astype(np.float32))
    assert (single.dtypes == np.float32).all()


def test_docstring_defaults_are_the_real_ones():
    import inspect
    import re

    for Map in MAPS:
        for name, parameter in inspect.signature(Map).parameters.items():
            named = re.search(rf"^ *{name} : .*default=(\S+)$", Map.__doc__, re.MULTILINE)
            assert eval(named.group(1)) == parameter.default


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_features_estimate_the_matern_kernel(nu):
    """Within five standard errors of a mean of P products of size up to 2."""
    X, P = np.array([[0.0, 0.0], [0.3, 0.0], [0.5, -1.0]]), 200_000
    F = MaternFeatures([0.5, 2.0], nu=nu, n_features=P, random_state=0).fit_transform(X)
    r = np.linalg.norm((X[:, None] - X) / [0.5, 2.0], axis=2)
    s = np.sqrt(2 * nu) * r
    exact = {0.5: 1, 1.5: 1 + s, 2.5: 1 + s + s**2 / 3}[nu] * np.exp(-s)
    assert np.abs(F @ F.T - exact).max() < 5 * np.sqrt(2 / P)


def test_matern_weights_share_their_chi_square_draw():
    Z = MaternFeatures(nu=0.5, n_features=100_000, random_state=1).fit(np.zeros((1, 2))).weights_
    # heavy tails in one coordinate go with heavy tails in the other
    big = np.abs(Z[0]) > 50
    assert big.sum() > 100 and np.median(np.abs(Z[1][big])) > 5
    for wrong in (0, -1.0, np.nan, "1"):
        with pytest.raises((TypeError, ValueError), match="nu must"):
            MaternFeatures(nu=wrong).fit([[0.0]])


def test_monomials_are_scikit_learn_s_of_centred_points():
    X = np.random.default_rng(0).normal(loc=5.0, size=(20, 3))
    features = MonomialFeatures(3).fit(X)
    Y = X - X.mean(axis=0)
    expected = PolynomialFeatures(3, include_bias=False).fit(Y)
    assert np.array_equal(features.powers_, expected.powers_)
    assert np.allclose(features.transform(X), expected.transform(Y), rtol=1e-13)
    step = 1e-6
    J = np.stack(
        [(features.transform(X + step * e) - features.transform(X - step * e)) / (2 * step) for e in np.eye(3)], 2
    )
    assert np.allclose(features.jacobian(X), J, atol=1e-7)
    assert len(features.get_feature_names_out()) == len(features.powers_)
    with pytest.raises(ValueError, match="degree"):
        MonomialFeatures(0).fit(X)
