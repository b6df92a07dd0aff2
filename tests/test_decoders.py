"""Decoders: conservation, the paper's formulas, scikit-learn's conventions, bad input."""

import inspect
import pickle
import re
from dataclasses import FrozenInstanceError
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import randsmap
from randsmap import _parallel
from randsmap._kernels.features import COSINE
from randsmap._kernels.linear_map import FEATURE_MAP
from randsmap._linalg import ridge as _ridge
from randsmap.decoders import DoubleDiffusionMapsDecoder, KernelDecoder, RANDSMAPDecoder, RFNNDecoder
from randsmap.features import FourierFeatures, MultiscaleFourierFeatures, SigmoidFeatures
from randsmap.maps.linear_map import Basis, LinearMap, TransformerBasis, identity_basis
from randsmap.persistence import save

from helpers import python, random_problem, violation

pytestmark = pytest.mark.kernels

EPS = np.finfo(float).eps
MAPS = [FourierFeatures(0.3), MultiscaleFourierFeatures(8.0), SigmoidFeatures(10.0)]


problem = partial(random_problem, constant={4: 0.0})


def phi(decoder, Y):
    return np.hstack([np.ones((len(Y), 1)), decoder.features_.transform(np.asarray(Y, float))])


# -- Single precision ------------------------------------------------------------------------------
SINGLE = {
    "features": RANDSMAPDecoder(FourierFeatures(0.5, n_features=900), random_state=0, bounds=(0, None)),
    "transformer": RFNNDecoder(PolynomialFeatures(3)),
    "modes": RANDSMAPDecoder(random_state=0, output_rank=8),
    "kernel": KernelDecoder(length_scale=0.5, invariants="mass", bounds=(0, None)),
    "harmonics": DoubleDiffusionMapsDecoder(rank=12),
    "blend": randsmap.BlendedDecoder([KernelDecoder(length_scale=s) for s in (0.3, 0.6)], invariants="mass"),
}


@pytest.mark.parametrize("name", SINGLE)
def test_coefficients_in_single_precision(name, tmp_path):
    Y, F = problem(n=80, M=1000)
    Z = np.random.default_rng(1).uniform(size=(30, 2))
    wide, narrow = (clone(SINGLE[name]).set_params(dtype=dtype).fit(Y, F) for dtype in ("float64", "float32"))
    exact, fields, cells = wide.predict(Z), narrow.predict(Z), np.array([4, 0, 999])
    A = narrow.linear_map.A
    assert A.dtype == np.float32
    assert 2 * A.nbytes == wide.linear_map.A.nbytes

    def same(a, b):
        return 0 < abs(a - b).max() < 1e-5 * abs(b).max()

    assert same(fields, exact)
    assert same(narrow.predict(Z[:5]), exact[:5])
    assert same(narrow.predict(Z, cells=cells), exact[:, cells])
    for values in ((), (np.ones(2),), (F[0],)):
        method = ("jacobian", "jvp", "vjp")[len(values) and 1 + (len(values[0]) > 2)]
        assert same(getattr(narrow, method)(Z, *values), getattr(wide, method)(Z, *values))
    if getattr(narrow, "invariants", None) is not None:
        assert violation(fields, np.ones((1000, 1)), np.ones(1)) < 4 * EPS
        assert (fields[:, 4] == 0).all()
    if getattr(narrow, "bounds", None) is not None:
        assert fields.min() >= 0
    others = [pickle.loads(pickle.dumps(narrow))]
    if name != "transformer":
        save(narrow, tmp_path / "model.npz")
        others.append(randsmap.persistence.load(tmp_path / "model.npz"))
        frozen = narrow.freeze()
        assert frozen.precision == "float32"
        assert (frozen.predict(Z[:5]) == narrow.predict(Z[:5])).all()
        assert frozen.nbytes < 0.75 * wide.freeze().nbytes
    for other in others:
        assert other.dtype == "float32"
        assert (other.predict(Z) == fields).all()
    assert (narrow.set_params(dtype="float64").fit(Y, F).predict(Z) == exact).all()


def test_batches_in_single_precision():
    Y, F = problem(n=3000)
    given = {"latent_scale": None, "random_state": 0, "regularization": 1e-3}
    decoders = [RANDSMAPDecoder(FourierFeatures(0.3, n_features=200), dtype=t, **given) for t in ("float64", "float32")]
    wide, narrow = (decoder.partial_fit(Y[:2048], F[:2048]).partial_fit(Y[2048:], F[2048:]) for decoder in decoders)
    assert narrow.coef_.dtype == np.float32
    assert (narrow.coef_ == wide.coef_.astype(np.float32)).all()
    assert violation(narrow.predict(Y), np.ones((30, 1)), np.ones(1)) < 4 * EPS


def test_coefficients_that_cancel_are_not_rounded():
    Y, F = problem(n=80)
    decoder = KernelDecoder(length_scale=2.0, regularization=1e-10).fit(Y, F)
    before = decoder.predict(Y)
    with pytest.raises(ValueError, match="dtype='float32' decodes .* coefficients cancel"):
        decoder.set_params(dtype="float32").fit(Y, F)
    assert (decoder.predict(Y) == before).all()


@pytest.mark.parametrize("unit", [1e-60, 1e60])
def test_single_precision_names_the_unit_that_it_cannot_hold(unit):
    Y, F = problem(n=80)
    decoder = KernelDecoder(length_scale=0.3, regularization=1e-2, dtype="float32")
    with pytest.raises(ValueError, match="dtype='float32' has no coefficients of .*: change the unit of the fields"):
        decoder.fit(Y, unit * F)
    decoder.fit(Y, 0 * F), decoder.fit(Y, F)


# -- Conservation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("features", MAPS, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("regularization", [0.0, 1e-18, 1e-10, 1e-3, 1.0])
@pytest.mark.parametrize("multiple", [0.25, 1.0, 3.0])
def test_mass_is_exact_near_and_far(features, regularization, multiple):
    Y, F = problem()
    features = clone(features).set_params(n_features=multiple)
    decoder = RANDSMAPDecoder(features, regularization=regularization, random_state=0).fit(Y, F)
    far = 0.5 + 100 * (Y - 0.5)
    latents = np.vstack([Y, far, 1e6 * far])
    fields = decoder.predict(latents)
    C, m = decoder.invariant_matrix_, decoder.invariant_values_
    assert violation(fields, C, m) <= 1e-14
    assert violation(np.vstack([decoder.predict(y[None]) for y in latents]), C, m) <= 1e-14
    assert (fields[:, 4] == 0).all()


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(MAPS),
    st.sampled_from([0.0, 1e-12, 1e-3, 1.0]),
    st.sampled_from([3, 25, 60]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 5),
)
@settings(deadline=None, max_examples=60)
def test_invariants_hold_for_any_matrix(seed, features, regularization, P, single, weighted, q):
    rng = np.random.default_rng(seed)
    n, M = 25, 30
    Y = rng.uniform(size=(n, 2))
    C = rng.normal(size=(M, q)) * 10.0 ** rng.integers(-6, 7, size=q)
    if q > 2:
        C[:, 1], C[:, 2] = 0, 2 * C[:, 0]
    constant = np.arange(7, 9)
    D = C / np.maximum(np.linalg.norm(C, axis=0), 1e-300)
    D[constant] = 0
    Q = np.linalg.qr(D)[0]
    basis = rng.normal(size=(2, M))
    basis -= basis @ Q @ Q.T  # cannot change an invariant
    basis[:, constant] = 0
    F = rng.uniform(1, 2, M) + np.sin(3 * Y) @ basis
    F[:, constant] = [0.75, -3.5]
    if single:
        Y, F = Y.astype(np.float32), F.astype(np.float32)
    V = rng.uniform(0.2, 5, M) if weighted else None
    features = clone(features).set_params(n_features=P)
    decoder = RANDSMAPDecoder(features, regularization=regularization, invariants=C, cell_weights=V, random_state=0)
    decoder.fit(Y, F)
    assert decoder.coef_.dtype == np.float64
    latents = np.vstack([Y, 100 * (Y - 0.5)])
    fields = decoder.predict(latents)
    assert fields.dtype == np.float64
    assert violation(fields, C, decoder.invariant_values_) <= 1e-14
    assert (fields[:, constant] == F[0, constant]).all()


@pytest.mark.parametrize("features", MAPS, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("regularization", [0.0, 1e-3, 1.0])
def test_no_field_is_decoded_worse_than_without_invariants(features, regularization):
    Y, F = problem(200)
    V = np.random.default_rng(1).uniform(0.5, 2, F.shape[1])
    F = F / (F @ V)[:, None]
    plain = RFNNDecoder(features, regularization=regularization, random_state=0).fit(Y[:80], F[:80])
    exact = RANDSMAPDecoder(features, regularization=regularization, cell_weights=V, random_state=0).fit(Y[:80], F[:80])
    before = np.sqrt((V * (plain.predict(Y) - F) ** 2).sum(axis=1))
    after = np.sqrt((V * (exact.predict(Y) - F) ** 2).sum(axis=1))
    A = np.abs(phi(exact, Y)) @ np.abs(exact.coef_)  # round-off is eps times this
    slack = len(exact.coef_) * EPS * np.sqrt((V * A**2).sum(axis=1))
    assert (after <= before + slack).all()


def test_constants_that_are_not_zero_are_assigned_bitwise():
    Y, F = problem()
    F[:, [2, 9]] = [0.1, -1 / 3]
    decoder = RANDSMAPDecoder(random_state=0, invariants=None).fit(Y, F)
    for n in (1, 5, 60):
        fields = decoder.predict(1e3 * Y[:n])
        assert (fields[:, [2, 4, 9]] == [0.1, 0.0, -1 / 3]).all()


def test_without_invariants_only_constant_cells_differ_from_rfnn():
    Y, F = problem()
    plain = RFNNDecoder(random_state=0).fit(Y, F)
    decoder = RANDSMAPDecoder(random_state=0, invariants=None).fit(Y, F)
    assert decoder.invariant_values_.shape == (0,)
    rest = ~decoder.constant_cells_
    assert np.array_equal(decoder.coef_[:, rest], plain.coef_[:, rest])


@pytest.mark.parametrize(
    "decoder",
    [
        RANDSMAPDecoder(SigmoidFeatures(3.0, n_features=41), random_state=0),
        RFNNDecoder(SigmoidFeatures(3.0, n_features=40), random_state=0),
        KernelDecoder(length_scale=0.3),
        DoubleDiffusionMapsDecoder(epsilon=0.4),
    ],
    ids=lambda d: type(d).__name__,
)
def test_coefficients_start_at_a_cache_line_after_fit_and_in_a_loaded_model(decoder, tmp_path):
    """Where they do not, batches of a few points take up to 1.5 times as long."""
    kept = [np.empty(8 * k + 3) for k in range(1, 60)]  # memory is not all of one piece
    fitted = decoder.fit(*random_problem(seed=3, n=60, M=24, d=2))
    del kept[::2]
    save(fitted, tmp_path / "decoder.npz")
    for one in (fitted, randsmap.load(tmp_path / "decoder.npz")):
        assert one.coef_.ctypes.data % 64 == 0
        assert one.coef_.flags.c_contiguous


def test_coefficients_satisfy_the_constraint_at_every_latent_point():
    Y, F = problem()
    A = RANDSMAPDecoder(random_state=0).fit(Y, F).coef_
    bias = np.eye(len(A))[0]
    assert np.abs(A.sum(axis=1) - bias).max() <= 1e-14 * np.abs(A).sum(axis=1).max()


# -- The paper's form ------------------------------------------------------------------------------


def paper_formula(Phi, F, regularization, delta=1e-8):
    """Eq. ShurAfinal0, fields in rows, written as printed."""
    n, M = F.shape
    U, s, Vt = np.linalg.svd(Phi, full_matrices=False)
    keep = s > delta * s[0]
    U, S, V = U[:, keep], np.diag(s[keep]), Vt[keep].T
    eye = np.eye(keep.sum())
    ones_n, ones_M = np.ones((n, 1)), np.ones((M, 1))
    middle = eye + regularization * np.linalg.inv(S @ S)
    inner = (np.eye(n) - U @ middle @ U.T) @ ones_n @ ones_M.T
    return V @ np.linalg.inv(S @ S + regularization * eye) @ S @ U.T @ (F - inner / M)


@pytest.mark.parametrize("features", MAPS, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("n_features", [8, 30, 100])
def test_training_constraint_is_the_papers_formula(features, n_features):
    Y, F = problem()
    features = clone(features).set_params(n_features=n_features)
    decoder = RANDSMAPDecoder(features, constraint="training", random_state=0).fit(Y, F)
    assert decoder.solver_ == "svd" and not decoder.constant_cells_.any()
    Phi = phi(decoder, Y)
    expected = paper_formula(Phi, F, 1e-3)
    # B = Phi^+ 1 is amplified by the truncated condition number, up to 1e8
    s = np.linalg.svd(Phi, compute_uv=False)
    amplification = s[0] / s[s > 1e-8 * s[0]][-1]
    assert np.abs(decoder.coef_ - expected).max() <= 1e3 * EPS * amplification
    assert np.allclose(decoder.predict(Y), Phi @ expected, atol=1e3 * EPS * amplification)


@pytest.mark.parametrize("n_features", [50, 240])
def test_training_constraint_loses_mass_out_of_sample_as_predicted(n_features):
    Y, F = problem(200)
    train, test = slice(0, 60), slice(60, None)
    decoder = RANDSMAPDecoder(FourierFeatures(0.2, n_features=n_features), constraint="training", random_state=0).fit(
        Y[train], 2 * F[train]
    )
    Phi = phi(decoder, Y[train])
    pseudo_bias = np.linalg.pinv(Phi, rcond=1e-8) @ np.ones(len(Phi))
    predicted = (phi(decoder, Y[test]) @ pseudo_bias - 1) * 2
    found = decoder.predict(Y[test]).sum(axis=1) - 2
    assert np.allclose(found, predicted, rtol=1e-6, atol=1e-8 * 2)
    in_sample = np.abs(decoder.predict(Y[train]).sum(axis=1) - 2).max()
    assert in_sample < 1e-6
    if n_features > 60:
        assert np.abs(found).max() > 100 * in_sample


def test_training_constraint_with_several_invariants_and_weights():
    Y, F = problem()
    C = np.stack([np.ones(30), 5 * np.ones(30)], axis=1)
    V = np.linspace(1, 3, 30)
    decoder = RANDSMAPDecoder(invariants=C, cell_weights=V, constraint="training", random_state=0).fit(Y, F)
    assert np.allclose(decoder.predict(Y) @ C, [1, 5], atol=1e-7)


def test_training_constraint_refuses_cholesky():
    with pytest.raises(ValueError, match="needs singular values"):
        RANDSMAPDecoder(constraint="training", solver="cholesky").fit(*problem())


# -- Ill-conditioned systems (rank-deficient features) ---------------------------------------------


@pytest.mark.parametrize("regularization", [0.0, 1e-18, 1e-3])
@pytest.mark.parametrize("P", [1, 2, 50])
def test_duplicate_latents_are_decoded_to_their_mean(regularization, P):
    Y, F = np.array([[0.0], [0.0], [1.0]]), np.array([[1.0, 0], [0, 1], [0.5, 0.5]])
    z = RFNNDecoder(FourierFeatures(n_features=P), regularization=regularization, random_state=0).fit(Y, F).predict(Y)
    assert np.isfinite(z).all() and np.allclose(z[0], z[1])
    if regularization < 1e-3:
        assert np.allclose(z[:2], 0.5, atol=1e-9)
    z = (
        RANDSMAPDecoder(FourierFeatures(n_features=P), regularization=regularization, random_state=0)
        .fit(Y, F)
        .predict(Y)
    )
    assert np.allclose(z.sum(axis=1), 1, atol=1e-15)
    if regularization < 1e-3:
        assert np.allclose(z, 0.5, atol=1e-9)


def test_explicit_cholesky_reports_lambda():
    Y, F = np.zeros((4, 1)), np.ones((4, 2))
    with pytest.raises(np.linalg.LinAlgError, match="= 0"):
        RFNNDecoder(regularization=0.0, solver="cholesky", random_state=0).fit(Y, F)


# -- Decoding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7, 8, 12, 13, 60, 300])
@pytest.mark.parametrize("P", [1, 7, 8, 767, 769, 1600])
def test_a_linear_map_is_the_matrix_product(n, P):
    rng = np.random.default_rng(n)
    Y, W, b = rng.normal(size=(n, 3)), rng.normal(size=(3, P)), rng.normal(size=P)
    A = rng.normal(size=(P + 1, 11))
    Phi = np.hstack([np.ones((n, 1)), 0.5 * np.cos(Y @ W + b)])
    bound = 4 * (P + 8) * EPS * (np.abs(Phi) @ np.abs(A)).max()
    arrays = {"weights": W, "offsets": b}
    basis = Basis(kind=FEATURE_MAP, n_components=3, function=COSINE, scale=0.5, arrays=arrays)
    assert np.abs(LinearMap(basis, A).fields(Y) - Phi @ A).max() <= bound
    assert np.abs(LinearMap(identity_basis(P), A).fields(np.ascontiguousarray(Phi[:, 1:])) - Phi @ A).max() <= bound
    B = rng.normal(size=(P + 1, 4))
    Z = np.hstack([np.ones((n, 1)), Phi @ B])
    bound = 8 * (P + 8) * EPS * (np.abs(Phi) @ np.abs(B) @ np.abs(A[1:5]) + np.abs(A[0])).max() if P >= 4 else np.inf
    if P >= 4:
        assert np.abs(LinearMap(basis, A[:5], combinations=B).fields(Y) - Z @ A[:5]).max() <= bound


@pytest.mark.parametrize("d", [1, 16, 17, 40])
def test_latent_dimension_beyond_the_fused_loops(d):
    Y, F = problem(d=d)
    decoder = RANDSMAPDecoder(FourierFeatures(2.0), random_state=0).fit(Y, F)
    one = np.vstack([decoder.predict(y[None]) for y in Y])
    assert np.allclose(one, decoder.predict(Y), rtol=1e-12, atol=1e-13)
    assert np.allclose(one, phi(decoder, Y) @ decoder.coef_, rtol=1e-10, atol=1e-12)


def test_a_row_does_not_depend_on_the_others_beyond_round_off():
    Y, F = problem(500)
    decoder = RANDSMAPDecoder(SigmoidFeatures(10.0), random_state=0).fit(Y, F)
    together = decoder.predict(Y)
    scale = np.abs(phi(decoder, Y)) @ np.abs(decoder.coef_)
    for part in (slice(0, 1), slice(3, 7), slice(0, 12), slice(5, 18), slice(100, 400)):
        assert (np.abs(decoder.predict(Y[part]) - together[part]) <= 1e-12 * scale[part]).all()
    assert np.array_equal(decoder.predict(Y), together)


@pytest.mark.parametrize("M, P", [(37, 21), (1403, 64)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_up_to_twelve_rows_and_directions_have_the_bits_of_one(M, P, dtype):
    Y, F = problem(M=M)
    decoder = RFNNDecoder(FourierFeatures(0.5, n_features=P), random_state=0, dtype=dtype).fit(Y, F)
    alone = np.vstack([decoder.predict(y[None]) for y in Y[:12]])
    for n in range(2, 13):
        assert (decoder.predict(Y[:n]) == alone[:n]).all()
    J = decoder.jacobian(Y[:1])
    for k, unit in enumerate(np.eye(Y.shape[1])):
        assert (decoder.jvp(Y[:1], unit) == J[..., k]).all()


def test_results_do_not_depend_on_the_thread_count():
    Y, F = problem(400)
    fitted = RANDSMAPDecoder(random_state=0).fit(Y, F)
    decoded, refitted = [], []
    for threads in (1, 2, 3):
        randsmap.set_num_threads(threads)
        try:
            decoded.append(fitted.predict(Y))
            refitted.append(clone(fitted).set_params(regularization=1.0).fit(Y, F).predict(Y))
        finally:
            randsmap.set_num_threads(None)
    condition = 1 + np.linalg.norm(phi(fitted, Y), 2) ** 2
    for a, b in zip(decoded[1:], refitted[1:]):
        assert np.array_equal(a, decoded[0])  # BLAS has one thread inside a tile
        assert np.abs(b - refitted[0]).max() <= 10 * EPS * condition * np.abs(b).max()


def test_conservation_at_every_instruction_level(level):
    code = """
import numpy as np
from randsmap import RANDSMAPDecoder, FourierFeatures
rng = np.random.default_rng(0)
Y = rng.uniform(size=(50, 2)); F = rng.uniform(size=(50, 37)); F /= F.sum(axis=1, keepdims=True)
decoder = RANDSMAPDecoder(FourierFeatures(0.3), regularization=0.0, random_state=0).fit(Y, F)
for n in (1, 9, 50):
    fields = decoder.predict(100 * Y[:n])
    mass = fields.astype(np.longdouble).sum(axis=1)
    assert (abs(mass - decoder.invariant_values_) <= 1e-14 * (abs(fields).sum(axis=1) + 1)).all()
"""
    python(code, level=level)


def test_no_blas_threads_inside_tasks(monkeypatch):
    Y, F = problem(400)
    decoder = RANDSMAPDecoder(random_state=0).fit(Y, F)
    decoder.predict(Y[:1])  # finds the trusted region, which needs tasks that run
    seen = []

    def note(task, calls):
        seen.append((len(calls), list(_parallel._blas_limits)))

    monkeypatch.setattr(_parallel, "parallel_for", note)
    decoder.predict(Y)
    assert seen == [(4, [1])]


def test_out_receives_the_fields():
    Y, F = problem()
    decoder = RANDSMAPDecoder(random_state=0).fit(Y, F)
    out = np.empty((60, 30))
    assert decoder.predict(Y, out=out) is out
    assert np.array_equal(out, decoder.predict(Y))
    with pytest.raises(ValueError, match=r"shape \(60, 30\), got \(60, 29\)"):
        decoder.predict(Y, out=np.empty((60, 29)))
    with pytest.raises(TypeError, match="float64"):
        decoder.predict(Y, out=np.empty((60, 30), np.float32))
    with pytest.raises(ValueError, match="C-contiguous"):
        decoder.predict(Y, out=np.empty((30, 60)).T)
    with pytest.raises(ValueError, match="share memory"):
        RFNNDecoder(random_state=0).fit(Y, F[:, :2]).predict(Y, out=Y)


# -- Feature maps ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "features", [PolynomialFeatures(3, include_bias=False), make_pipeline(StandardScaler(), PolynomialFeatures(2))]
)
def test_any_transformer_is_a_feature_map(features):
    Y, F = problem()
    decoder = RANDSMAPDecoder(features, regularization=1e-8, random_state=0).fit(Y, F)
    fields = decoder.predict(Y)
    assert violation(fields, decoder.invariant_matrix_, decoder.invariant_values_) <= 1e-14
    assert np.allclose(fields, phi(decoder, Y) @ decoder.coef_, atol=1e-10)
    assert np.allclose(decoder.predict(Y[:1]), fields[:1], atol=1e-12)


def test_other_transformers_are_used_by_chunks(monkeypatch):
    Y, F = problem(200)
    whole = RANDSMAPDecoder(PolynomialFeatures(3), random_state=0).fit(Y, F).predict(Y)
    monkeypatch.setattr(TransformerBasis, "rows", 30)
    monkeypatch.setattr(_ridge.FeatureRows.blocks, "__defaults__", (70,))
    chunked = RANDSMAPDecoder(PolynomialFeatures(3), random_state=0).fit(Y, F).predict(Y)
    assert np.allclose(chunked, whole, rtol=0, atol=1e-10)


def test_transformer_whose_width_changes_is_refused():
    class Growing(BaseEstimator):
        def fit(self, X):
            return self

        def transform(self, X):
            return np.ones((len(X), len(X)))

    with pytest.raises(ValueError, match=r"transform\(X\) must have 1 columns, got 60"):
        RFNNDecoder(Growing()).fit(*problem())


def test_default_map_and_random_state():
    Y, F = problem()
    decoder = RFNNDecoder(random_state=3).fit(Y, F)
    assert isinstance(decoder.features_, FourierFeatures)
    explicit = RFNNDecoder(FourierFeatures(random_state=3), regularization="auto").fit(Y, F)
    assert np.array_equal(decoder.coef_, explicit.coef_)
    mine = SigmoidFeatures(2.0, random_state=1)
    both = RFNNDecoder(mine, random_state=3).fit(Y, F)
    assert mine.random_state == 1 and not hasattr(mine, "weights_")
    assert both.features_ is not mine and both.features_.random_state == 3


# -- scikit-learn's conventions --------------------------------------------------------------------


def _failed_checks(decoder):
    reason = "by default features are as many as rows, and lambda is found by errors of rows left out"
    return {"check_sample_weight_equivalence_on_dense_data": reason} if decoder.features is None else {}


@parametrize_with_checks(
    [
        RFNNDecoder(random_state=0),
        RANDSMAPDecoder(invariants=None, random_state=0),
        RANDSMAPDecoder(FourierFeatures(n_features=10), latent_scale=None, invariants=None, random_state=0),
    ],
    expected_failed_checks=_failed_checks,
)
def test_scikit_learn_estimator(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cls", [RFNNDecoder, RANDSMAPDecoder])
def test_constructor_only_stores_and_documented_defaults_are_real(cls):
    marker = object()
    names = list(inspect.signature(cls).parameters)
    estimator = cls(**dict.fromkeys(names, marker))
    assert all(getattr(estimator, name) is marker for name in names)
    documented = dict(re.findall(r"^ *(\w+) : .*default=(.+)$", cls.__doc__, re.M))
    assert documented
    for name, text in documented.items():
        assert eval(text) == inspect.signature(cls).parameters[name].default


def test_defaults_given_explicitly_change_nothing():
    Y, F = problem()
    a = RANDSMAPDecoder(random_state=0).fit(Y, F)
    b = RANDSMAPDecoder(
        FourierFeatures(),
        regularization="auto",
        invariants=np.ones(30),
        solver="auto",
        invariant_values=a.invariant_values_,
        invariant_tol=1e-6,
        constraint="everywhere",
        cell_weights=np.ones(30),
        random_state=0,
    ).fit(Y, F)
    assert np.allclose(a.predict(Y), b.predict(Y), rtol=0, atol=1e-13)


@pytest.mark.slow
def test_clone_pickle_and_grid_search():
    Y, F = problem()
    decoder = RANDSMAPDecoder(SigmoidFeatures(5.0), random_state=0)
    assert not hasattr(clone(decoder.fit(Y, F)), "coef_")
    again = pickle.loads(pickle.dumps(decoder))
    assert np.array_equal(again.predict(Y), decoder.predict(Y))
    search = GridSearchCV(decoder, {"features__slope": [0.01, 10.0]}, n_jobs=2, cv=3).fit(Y, F)
    assert search.best_params_ == {"features__slope": 10.0}
    assert search.best_estimator_.score(Y, F) > -0.1


@pytest.mark.parametrize("weights", [None, np.array([1.0, 0.0, 3.0, 1.0] * 10)])
def test_score_is_minus_the_mean_relative_error(weights):
    """Of the fields, in the cells' weights: a cell that hardly varies does not count as much as the whole field."""
    Y, F = problem()
    volumes = np.linspace(0.5, 2, F.shape[1])
    decoder = RANDSMAPDecoder(SigmoidFeatures(5.0), random_state=0, cell_weights=volumes, invariants=None).fit(Y, F)
    true = F[:40] + 0.01 * np.random.default_rng(0).normal(size=F[:40].shape)
    missed, sizes = (np.sqrt((A**2 * volumes).sum(axis=1)) for A in (decoder.predict(Y[:40]) - true, true))
    expected = -np.average(missed / sizes, weights=weights)
    assert decoder.score(Y[:40], true, sample_weight=weights) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueError, match="sample_weight must be >= 0, .* got -1.0 for row 2"):
        decoder.score(Y[:40], true, sample_weight=np.where(np.arange(40) == 2, -1.0, 1.0))


def test_not_fitted():
    for cls in (RFNNDecoder, RANDSMAPDecoder):
        with pytest.raises(NotFittedError):
            cls().predict([[0.0]])


def test_read_only_strided_and_other_number_types():
    Y, F = problem()
    reference = RANDSMAPDecoder(random_state=0).fit(Y, F).predict(Y)
    Yr, Fr = Y.copy(), F.copy()
    Yr.setflags(write=False)
    Fr.setflags(write=False)
    for A, B in (
        (Yr, Fr),
        (np.asfortranarray(Y), np.asfortranarray(F)),
        (Y.tolist(), F.tolist()),
        (np.repeat(Y, 2, axis=1)[:, ::2], np.repeat(F, 2, axis=1)[:, ::2]),
        (Y[:, ::-1].copy()[:, ::-1], F[::-1].copy()[::-1]),
    ):
        assert np.array_equal(RANDSMAPDecoder(random_state=0).fit(A, B).predict(A), reference)
    integers = np.array([[3, 1, 0], [1, 2, 1], [0, 2, 2], [4, 0, 0]], np.uint8)
    latents = np.arange(4, dtype=np.uint8)[:, None] * 80
    as_float = RANDSMAPDecoder(random_state=0).fit(latents.astype(float), integers.astype(float))
    decoder = RANDSMAPDecoder(random_state=0).fit(latents, integers)
    assert decoder.invariant_values_ == [4.0]
    assert np.array_equal(decoder.predict(latents), as_float.predict(latents.astype(float)))
    half = np.array([[1.0], [300.0], [301.0]], np.float16)
    fields = RFNNDecoder(random_state=0).fit(half, half * np.float16(100)).predict(half)
    assert fields.dtype == np.float64 and np.isfinite(fields).all()


def test_the_callers_data_are_neither_changed_nor_kept():
    Y, F = problem()
    V, C = np.ones(30), np.ones((30, 1))
    m = np.array([1.0])
    copies = [a.copy() for a in (Y, F, V, C, m)]
    decoder = RANDSMAPDecoder(random_state=0, invariants=C, cell_weights=V, invariant_values=m)
    expected = decoder.fit(Y, F).predict(Y)
    for array, copy in zip((Y, F, V, C, m), copies):
        assert np.array_equal(array, copy)
        array[:] = 7
    assert np.array_equal(decoder.predict(copies[0]), expected)
    held = [v for k, v in vars(decoder).items() if k.endswith("_") and isinstance(v, np.ndarray)]
    held += [v for v in vars(decoder.invariants_).values() if isinstance(v, np.ndarray)]
    assert not any(np.may_share_memory(v, a) for v in held for a in (Y, F, V, C, m))


def test_one_dimensional_fields_stay_one_dimensional():
    Y, F = problem()
    decoder = RFNNDecoder(random_state=0).fit(Y, F[:, 3])
    assert decoder.predict(Y).shape == (60,) and decoder.coef_.shape[1] == 1
    column = RFNNDecoder(random_state=0).fit(Y, F[:, 3:4])
    assert np.array_equal(decoder.predict(Y), column.predict(Y)[:, 0])


# -- Bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs, message",
    [
        (dict(regularization=-1.0), "regularization must be finite and >= 0, got -1.0"),
        (dict(regularization=np.nan), "regularization"),
        (dict(regularization=np.inf), "regularization"),
        (dict(solver="lu"), "solver must be one of 'auto', 'cholesky', 'svd', 'lowrank', 'krylov', got 'lu'"),
        (dict(constraint="sometimes"), "constraint must be one of"),
        (dict(invariants="momentum"), "got 'momentum'"),
        (dict(features=SigmoidFeatures(slope=-1.0)), "slope"),
    ],
)
def test_bad_parameters(kwargs, message):
    with pytest.raises(ValueError, match=message):
        RANDSMAPDecoder(**kwargs).fit(*problem())
    with pytest.raises(TypeError, match="regularization must be a real number, got 'x'"):
        RFNNDecoder(regularization="x").fit(*problem())


def _with(array, value):
    array = array.copy()
    array[3, 1] = value
    return array


@pytest.mark.parametrize(
    "bad, message",
    [
        (lambda Y, F: (_with(Y, np.nan), F), "X must be finite"),
        (lambda Y, F: (_with(Y, np.inf), F), "X must be finite"),
        (lambda Y, F: (Y, _with(F, np.nan)), r"y must be finite, got NaN at \(3, 1\)"),
        (lambda Y, F: (Y, _with(F, -np.inf)), "y must be finite"),
        (lambda Y, F: (Y[:-1], F), "same number of rows, got 59 and 60"),
        (lambda Y, F: (Y[0], F), r"X must have 2 dimensions.*got shape \(2,\).*reshape\(1, -1\)"),
        (lambda Y, F: (Y[:, None], F), r"X must have 2 dimensions.*got shape \(60, 1, 2\).*reshape\(60, -1\)"),
        (lambda Y, F: (Y, F[None]), r"same number of rows, got 60 and 1 \(fields of shape \(60, 30\)\)"),
        (lambda Y, F: (F, Y), "X, the latents, has 30 columns and y, the fields, only 2: are they swapped"),
        (lambda Y, F: (Y[:1], F[:1]), r"a minimum of 2 is required"),
        (lambda Y, F: (Y[:0], F[:0]), r"a minimum of 2 is required"),
        (lambda Y, F: (Y[:, :0], F), "a minimum of 1 is required"),
        (lambda Y, F: (Y, F[:, :0]), "at least 1 column"),
        (lambda Y, F: (Y, F * np.linspace(1, 2, 60)[:, None]), "do not satisfy invariant 0: field"),
        (lambda Y, F: (Y, None), "y must hold the fields"),
        (lambda Y, F: (Y, F.astype(str).tolist()[:-1] + [["a"] * 30]), "y must be an array of real"),
    ],
)
def test_failed_fit_leaves_the_estimator_as_it_was(bad, message):
    Y, F = problem()
    fresh = RANDSMAPDecoder(invariants="mass", random_state=0)
    with pytest.raises(ValueError, match=message):
        fresh.fit(*bad(Y, F))
    assert not [name for name in vars(fresh) if name.endswith("_")]
    fitted = RANDSMAPDecoder(invariants="mass", random_state=0).fit(Y, F)
    expected, state = fitted.predict(Y), set(vars(fitted))
    with pytest.raises(ValueError, match=message):
        fitted.fit(*bad(Y, F))
    assert set(vars(fitted)) == state
    assert np.array_equal(fitted.predict(Y), expected)


@pytest.mark.parametrize("bad", [np.empty((4, 3)), np.zeros(2), np.array(1.0), np.full((2, 2), np.nan), [["a", "b"]]])
def test_predict_refuses_bad_latents(bad):
    decoder = RANDSMAPDecoder(random_state=0).fit(*problem())
    with pytest.raises(ValueError):
        decoder.predict(bad)


def test_a_field_that_overflows_is_an_error_not_a_field_without_invariants():
    latents, fields = np.linspace(-1, 1, 20)[:, None], np.full((20, 4), 0.25)
    fields[:, 0] += 0.1 * latents[:, 0]
    fields[:, 1] -= 0.1 * latents[:, 0]
    decoder = RANDSMAPDecoder(FourierFeatures(0.01), random_state=0).fit(latents, fields)
    far = np.full((300, 1), 0.5)
    far[270] = 1.7e308
    with pytest.raises(ValueError, match="X must be 0 or of magnitude 1e-140 to 1e\\+140, got 1.7e\\+308: use a unit"):
        decoder.predict(far)
    with pytest.raises(ValueError, match="X must be 0 or"):
        decoder.predict(far[270:271])
    quadratic = RANDSMAPDecoder(PolynomialFeatures(2, include_bias=False)).fit(latents, fields)
    assert np.isfinite(quadratic.predict([[1e69]])).all()


@pytest.mark.parametrize("scale", [1e141, 1.7e308])
def test_fields_beyond_the_numeric_domain_are_refused(scale):
    latents = np.linspace(-1, 1, 20)[:, None]
    fields = np.hstack([np.tile(1 - abs(latents), 1), abs(latents)]) * scale
    with pytest.raises(ValueError, match="y must be 0 or of magnitude 1e-140 to 1e\\+140"):
        RANDSMAPDecoder(invariants=np.full(2, 1e4)).fit(latents, fields)


def test_a_fit_is_immutable_and_does_not_see_changed_features():
    Y, F = problem(40)
    decoder = RANDSMAPDecoder(SigmoidFeatures(3.0, n_features=20), random_state=0, latent_scale=None).fit(Y, F)
    fields = decoder.predict(Y)
    for name in ("coef_", "features_", "invariants_", "solver_", "latent_scale_"):
        with pytest.raises(AttributeError):
            setattr(decoder, name, getattr(decoder, name))
    with pytest.raises(FrozenInstanceError):
        decoder._fitted.coefficients = decoder.coef_
    for change in (dict(n_features=50), dict(n_features=10)):  # the decoder has the arrays that it was fitted with
        decoder.features_.set_params(**change).fit(Y)
        assert np.array_equal(decoder.predict(Y), fields)


@pytest.mark.parametrize("n, P", [(60, 40), (60, 150), (500, 700)])
def test_auto_regularization_is_the_best_of_explicit_leave_one_out(n, P):
    """Of up to 300 samples exactly; of more, one that is as good for all."""
    rng = np.random.default_rng(0)
    Y = rng.uniform(-1, 1, size=(n, 2))
    F = np.sin(3 * Y[:, :1] + np.linspace(0, 2, 20)) * np.exp(Y[:, 1:]) + 1e-3 * rng.normal(size=(n, 20))
    features = FourierFeatures(n_features=P, random_state=0)
    decoder = RFNNDecoder(features, regularization="auto").fit(Y, F)
    lambdas = decoder.regularization_ * np.array([0.01, 0.1, 1.0, 10.0, 100.0])
    errors = randsmap.leave_one_out(RFNNDecoder(features), Y, F, regularizations=lambdas).mean_errors_
    assert errors[2] <= (1 + 1e-9 if n <= 300 else 1.1) * errors.min()
    assert RFNNDecoder(features).fit(Y, F).regularization_ == 1e-3  # the paper's, with features that are given


def test_auto_regularization_where_it_cannot_be():
    Y, F = problem()
    with pytest.raises(ValueError, match="partial_fit needs a number"):
        RFNNDecoder(
            FourierFeatures(n_features=5), regularization="auto", latent_scale=None, random_state=0
        ).partial_fit(Y, F)
    with pytest.raises(ValueError, match="constraint='training'"):
        RANDSMAPDecoder(FourierFeatures(), regularization="auto", constraint="training").fit(Y, F)
    assert not hasattr(RFNNDecoder(), "smoother") and hasattr(RFNNDecoder(FourierFeatures()), "smoother")


def test_untuned_is_near_the_best_of_many():
    """Smooth fields without noise, on latents far from unit spread: the paper's defaults lost three digits here."""
    rng = np.random.default_rng(1)
    Y, Z = rng.uniform(-1, 1, size=(150, 2)), rng.uniform(-0.9, 0.9, size=(50, 2))

    def fields(Y):
        return 2 + np.cos(np.linspace(0, 3, 40) + 2 * Y[:, :1]) * np.exp(-Y[:, 1:])

    def error(decoder):
        return np.abs(decoder.fit(50 * Y, fields(Y)).predict(50 * Z) - fields(Z)).max()

    tuned = min(
        error(RFNNDecoder(features, regularization=lam, random_state=0))
        for features in (SigmoidFeatures(1.0), SigmoidFeatures(3.0), FourierFeatures(1.0), FourierFeatures(2.0))
        for lam in (1e-10, 1e-8, 1e-6, 1e-3)
    )
    assert error(RFNNDecoder(random_state=0)) <= 3 * tuned
