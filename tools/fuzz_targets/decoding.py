"""Decoders of every kind: invariants and bounds, parts of fields, derivatives, copies, batches."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import Ridge

from randsmap import (
    POD,
    BlendedDecoder,
    ConservativeRegressor,
    DiffusionMaps,
    DoubleDiffusionMapsDecoder,
    FourierFeatures,
    KernelDecoder,
    KNNDecoder,
    MaternFeatures,
    MonomialFeatures,
    MultiscaleFourierFeatures,
    RANDSMAPDecoder,
    RFNNDecoder,
    SigmoidFeatures,
    project_bounds,
)
from randsmap._kernels import distances as distance_kernels
from randsmap._kernels import linear_map as map_kernels
from randsmap._linalg import gram
from randsmap.maps.linear_map import Basis, LinearMap

from fuzz_targets.inputs import EPS, WIDE, laid_out, quiet, refused, same_bits, size, spoiled, violation, within
from helpers import with_common_invariants
from oracles import PLAIN, RADIAL

PROMISE = 1e-14  # |C^T f - m| of |C|^T |f| + |m|
ROUND_OFF = 1e-12  # of |phi(y)| |A|, by which a row may depend on the others


# -- Problems --------------------------------------------------------------------------------------
class Problem:
    """Latents, fields that satisfy invariants and bounds, the options that say so, and points to decode."""

    def __init__(self, rng, n=None):
        self.n = n or size(rng, (3, 9), (10, 40))
        self.d, self.M = size(rng, (1, 3)), size(rng, (2, 9), (10, 60))
        n, d, M = self.n, self.d, self.M
        self.Y = rng.uniform(size=(n, d)) * 10.0 ** rng.integers(-3, 4)
        if rng.integers(5) == 0:
            self.Y = self.Y[rng.integers(n, size=n)]
        F = 1.5 + np.cos(self.Y / np.abs(self.Y).max() @ rng.normal(size=(d, M)) * 3)
        self.constant = (rng.random(M) < 0.2) if rng.integers(2) else np.zeros(M, bool)
        self.constant[:2] = False
        F[:, self.constant] = rng.choice([0.0, 0.25])
        self.weights = 10.0 ** rng.uniform(-1, 1, M) if rng.integers(3) == 0 else None
        q = min(int(rng.choice([0, 1, 1, 1, 2, 3])), np.count_nonzero(~self.constant) - 1)  # more leave one field alone
        self.options = {"invariants": None, "cell_weights": self.weights, "bounds": None}
        self.C = np.empty((M, 0))
        if q == 1:
            self.C = (np.ones(M) if self.weights is None else self.weights)[:, None]
            self.options["invariants"] = "mass"
        elif q:
            self.C = self.options["invariants"] = rng.normal(size=(M, q)) * 10.0 ** rng.integers(-3, 4, q)
        self.F = with_common_invariants(F, self.C, self.weights, self.constant) if q else F
        if q < 2 and rng.integers(3) == 0:
            low, high = self.F.min(), self.F.max()
            self.options["bounds"] = [(low, None), (low, high), (None, np.full(M, high)), (low - 1, high + 1)][
                rng.integers(4)
            ]
        self.F *= 10.0 ** rng.integers(-2, 3) if q != 1 and self.options["bounds"] is None else 1.0
        extent = np.ptp(self.Y, axis=0) + 1e-3 * np.abs(self.Y).max() + 1e-300
        L = size(rng, (1, 1), (2, 12), (13, 40))
        spread = rng.choice([0.1, 1.0, 1.0, 3.0, 1e3])
        self.X = self.Y[rng.integers(n, size=L)] + spread * extent * rng.normal(size=(L, d))
        self.X[: L // 3] = self.Y[rng.integers(n, size=L // 3)]

    def check(self, F, values=None, what="fields"):
        """Invariants, constant cells and bounds of decoded fields (L, M)."""
        m = self.F[0].astype(WIDE) @ self.C if values is None else values
        if self.C.shape[1]:
            # the values of the fit are those of fields that have them to round-off
            worst = violation(F, self.C, m).max()
            slack = PROMISE + (0 if values is not None else 4 * EPS * self.M)
            assert worst <= slack, f"{what}: invariants miss by {float(worst)} of their size"
        if self.options["bounds"] is not None:
            low, high = self.options["bounds"]
            assert (F >= (-np.inf if low is None else low)).all(), f"{what}: below the lower bound"
            assert (F <= (np.inf if high is None else high)).all(), f"{what}: above the upper bound"


def _feature_map(rng, d):
    P = size(rng, (1, 9), (10, 60))
    return (
        FourierFeatures(float(rng.uniform(0.3, 2)), n_features=P, paired=bool(rng.integers(2))),
        FourierFeatures(rng.uniform(0.3, 2, d), n_features=P),
        MaternFeatures(0.7, n_features=P),
        MultiscaleFourierFeatures(3.0, n_features=P),
        SigmoidFeatures(float(rng.uniform(1, 10)), n_features=P),
        MonomialFeatures(int(rng.integers(1, 4))),
    )[rng.integers(6)]


def _linear_decoder(rng, problem):
    """A decoder of the kinds that are [1 | phi(y)] A, with the problem's invariants and bounds."""
    regularization = float(rng.choice([0.0, 1e-12, 1e-6, 1e-3, 1.0]))
    common = {"center": bool(rng.integers(2)), "latent_scale": (None, "std")[rng.integers(2)], **problem.options}
    kind = rng.integers(10)
    if kind < 4:
        options = {"regularization": regularization, "random_state": 0, **common}
        if rng.integers(4) == 0:
            options["regularization"] = None
        if rng.integers(6) == 0:
            options["output_rank"] = int(rng.integers(1, 4))
        return RANDSMAPDecoder(_feature_map(rng, problem.d), **options)
    if kind < 8:
        kernel = ("gaussian", "matern", "thin-plate", "multi-gaussian")[kind - 4]
        options = {"regularization": regularization, **common}
        options["degree"] = 1 if kernel == "thin-plate" else int(rng.integers(2))
        if options["degree"] and not regularization:
            options["regularization"] = 1e-9  # repeated latents are refused without
        if kernel == "multi-gaussian":
            options["max_frequency"] = 4.0
        elif rng.integers(2):
            options["length_scale"] = rng.uniform(0.3, 3, problem.d)
        if kernel == "matern":
            options["nu"] = float(rng.choice([0.5, 1.5, 2.5]))
        return KernelDecoder(kernel, **options)
    rank = "rule" if rng.integers(2) else int(rng.integers(1, problem.n + 1))
    return DoubleDiffusionMapsDecoder(epsilon_scale=float(rng.uniform(0.3, 2)), rank=rank, **common)


# -- Plain decoding --------------------------------------------------------------------------------
def _functions(decoder, X):
    """phi (L, P), and the round-off of doubles in it, in extended precision; None where there is no formula here."""
    basis = decoder.linear_map.basis
    if not isinstance(basis, Basis):
        return None
    arrays = {k: v.astype(WIDE) for k, v in basis.arrays.items() if v is not None}
    if basis.kind == map_kernels.FEATURE_MAP:
        t = X.astype(WIDE) @ arrays["weights"] + arrays["offsets"]
        sizes = np.abs(X) @ np.abs(arrays["weights"]) + np.abs(arrays["offsets"])
        error = basis.scale * np.minimum((X.shape[1] + 2) * EPS * sizes + 4 * EPS, 2)
        with quiet():
            return basis.scale * PLAIN[basis.function](t), error
    if basis.kind != map_kernels.RADIAL_KERNEL:
        return None
    name = next(name for name in RADIAL if getattr(distance_kernels, name) == basis.function)
    lengths = arrays.get("lengths", 1)
    x = X.astype(WIDE) / lengths
    z = arrays["columns"].T
    D = ((x[:, None] - z[None]) ** 2).sum(axis=2)
    # x is rounded, by eps of itself
    moved = 2 * EPS * np.abs(x).max(axis=1, keepdims=True)
    error_of_D = (X.shape[1] + 4) * EPS * D + 2 * np.sqrt(D) * moved + moved**2
    scale, value = WIDE(basis.scale), RADIAL[name][1]
    with quiet():
        k = np.where(D > 0, value(scale * D), 0 if name == "THIN_PLATE" else 1)
        low, high = value(scale * np.maximum(D - error_of_D, 1e-300)), value(scale * (D + error_of_D))
        error = np.maximum(np.abs(low - k), np.abs(high - k)) + 8 * EPS * np.abs(k) + 1e-299
    if arrays.get("tail_centre") is not None:
        tail = (X.astype(WIDE) - arrays["tail_centre"]) / lengths
        k = np.hstack([k, tail])
        error = np.hstack([error, 4 * EPS * (np.abs(tail) + np.abs(X / lengths))])
    return k, error


def _plain_fields(decoder, X):
    """Fields before any projection, and their round-off (L, M), in extended precision."""
    found = _functions(decoder, X)
    if found is None:
        return None
    phi, error = found
    linear = decoder.linear_map
    A, B = linear.A.astype(WIDE), linear.combinations
    if B is not None:  # of few modes: [1 | phi] B are their coordinates
        phi, error = _combined(phi, error, B.astype(WIDE))
    return _combined(phi, error, A)


def _combined(phi, error, A):
    """[1 | phi] A and its round-off, where phi has `error`."""
    terms = np.abs(A[0]) + np.abs(phi) @ np.abs(A[1:])
    return A[0] + phi @ A[1:], error @ np.abs(A[1:]) + (len(A) + 4) * EPS * terms


def _projected(held, G):
    """The nearest fields that satisfy C^T f = m and are constant where they must be, in extended precision."""
    if held is None:
        return G
    F = G.copy()
    F[:, held.constant] = held.constant_values
    C, W, T = held.matrix[:, held.independent].astype(WIDE), held.directions.astype(WIDE), held.triangle.astype(WIDE)
    for _ in range(3):  # W and T are rounded: what is left is taken off again
        defect = held.values[held.independent] - F @ C
        step = np.zeros_like(defect)
        for k in range(len(T)):  # T^T x = defect
            step[:, k] = (defect[:, k] - step[:, :k] @ T[:k, k]) / T[k, k]
        F += step @ W
    return F


# -- Decoders that are linear in functions of the latent point ----------------------------------------
def decoders(rng):
    """Random-feature, kernel and double-diffusion-map decoders: all that `predict` and the derivatives promise. A
    latent point an input."""
    problem = Problem(rng)
    decoder = _linear_decoder(rng, problem)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # dependent columns of C are told
            decoder.fit(problem.Y, problem.F)
    except (ValueError, np.linalg.LinAlgError) as error:
        # bounds that the projection on the fitted values cannot reach, and modes that a rank lacks
        assert any(
            text in str(error)
            for text in ("out of reach", "output_rank", "rank", "latent points must differ", "median distance")
        ), error
        return 1
    X = problem.X
    F = decoder.predict(laid_out(rng, X))
    problem.check(F)
    held = decoder.invariants_
    assert (F[:, held.constant] == held.constant_values).all(), "constant cells"
    scale = _scale(decoder, X, F)
    _check_value(decoder, X, F, held)
    _check_parts(rng, decoder, X, F, scale)
    _check_derivatives(rng, problem, decoder, X)
    if rng.integers(4) == 0:
        again = pickle.loads(pickle.dumps(decoder))
        assert same_bits(again.predict(X), F), "a copy"
    if rng.integers(4) == 0:
        _check_values(rng, problem, decoder, X)
    if rng.integers(4) == 0:
        _check_frozen(rng, problem, decoder, X, scale)
    if rng.integers(6) == 0:
        refused(lambda: decoder.predict(spoiled(rng, X)), "NaN", "infinity", "finite")
        refused(lambda: decoder.predict(np.hstack([X, X])), "features", "columns")
        _check_far(rng, problem, decoder)
    return len(X)


def _terms(decoder):
    """phi and |A|; of decoders of few modes, [1 | phi] B A, that is |B| |A|."""
    linear = decoder.linear_map
    A, B = np.abs(linear.A), linear.combinations
    if B is None:
        return linear.basis, A
    return linear.basis, np.vstack([A[:1] + np.abs(B[:1]) @ A[1:], np.abs(B[1:]) @ A[1:]])


def _scale(decoder, X, F):
    """|phi(y)| |A| of each row (L, 1): in its units come round-off and what other rows change."""
    linear, (basis, A) = decoder.linear_map, _terms(decoder)
    identity = np.vstack([np.zeros((1, len(A) - 1)), np.eye(len(A) - 1)])
    Phi = LinearMap(basis, identity).fields(X)
    scale = (A[0] + np.abs(Phi) @ A[1:]).max(axis=1)
    # the projection may move all cells by what one is off
    held = linear.invariants
    spread = 1.0 if held is None or held.cell_weights is None else np.sqrt(np.ptp(np.log(held.cell_weights)) + 1) * 10
    return np.maximum(scale, np.abs(F).max(axis=1))[:, None] * spread * np.sqrt(F.shape[1])


def _check_value(decoder, X, F, held):
    plain = _plain_fields(decoder, X)
    if plain is None:
        return
    G, error = plain
    bound = error.max(axis=1, keepdims=True)
    weights = np.ones(F.shape[1], WIDE) if held.cell_weights is None else held.cell_weights.astype(WIDE)
    if held.lower is None:
        exact = _projected(held, G)
        # the projection is orthogonal in the weighted norm: no error grows there, and it adds its own
        moved = np.abs(exact - G).max(axis=1, keepdims=True) + np.abs(exact).max(axis=1, keepdims=True)
        size_of = np.sqrt(weights.sum() / weights) * np.sqrt(weights.max() / weights.min())
        within(F, exact, (bound + 64 * EPS * moved) * size_of * np.sqrt(F.shape[1]), "fields beside the formula")
        return
    # with bounds `bounds` checks the projection, which is not expansive: no error grows in the weighted norm
    low, high = held.lower.copy(), held.upper.copy()
    low[held.constant] = high[held.constant] = held.constant_values
    options = {"lower": low, "upper": high, "cell_weights": held.cell_weights, "total": None}
    if len(held.independent):
        options.update(weights=held.matrix[:, 0], total=held.values[0])
    difference = np.sqrt((weights * (F - project_bounds(G.astype(float), **options)) ** 2).sum(axis=1))
    slack = bound[:, 0] + 64 * EPS * (np.abs(G).max(axis=1) + np.abs(F).max(axis=1))
    within(difference, 0.0, slack * np.sqrt(weights.sum()) * np.sqrt(weights.max() / weights.min()), "bounded fields")


def _check_parts(rng, decoder, X, F, scale):
    L, M = F.shape
    out = np.full((L, M), np.nan)
    assert decoder.predict(X, out=out) is out and same_bits(out, F), "out"
    bound = ROUND_OFF * scale
    i = int(rng.integers(L))
    within(decoder.predict(X[i : i + 1]), F[i : i + 1], bound[i : i + 1], "a row alone")
    cells = rng.integers(-M, M, size(rng, (0, M)))
    if rng.integers(3) == 0:
        cells = rng.random(M) < 0.4
    within(decoder.predict(X, cells=cells), F[:, cells], bound, "cells")
    refused(lambda: decoder.predict(X, cells=[M]), "out of range")


def _check_derivatives(rng, problem, decoder, X):
    L, M, d = len(X), problem.M, problem.d
    try:
        J = decoder.jacobian(X)
    except ValueError as error:
        assert "too large" in str(error), error
        return
    assert J.shape == (L, M, d) and np.isfinite(J).all()
    held = decoder.invariants_
    assert (J[:, held.constant] == 0).all(), "derivatives of constant cells"
    C = problem.C.astype(WIDE)
    defect, terms = np.einsum("mq,lmd->lqd", C, J.astype(WIDE)), np.einsum("mq,lmd->lqd", np.abs(C), np.abs(J))
    assert (np.abs(defect) <= 1e-13 * terms + 1e-300).all(), "derivatives leave the invariants"
    V, U = rng.normal(size=(L, d)), rng.normal(size=(L, M))
    Jv, uJ = decoder.jvp(X, V), decoder.vjp(X, U)
    with quiet():
        slope = _slope_scale(decoder, X)
    bound = ROUND_OFF * slope * np.abs(V).sum(axis=1, keepdims=True)
    within(Jv, np.einsum("lmd,ld->lm", J, V), bound, "jvp beside the Jacobian")
    bound = ROUND_OFF * slope * np.abs(U).sum(axis=1, keepdims=True) * 10
    within(uJ, np.einsum("lmd,lm->ld", J, U), np.broadcast_to(bound, uJ.shape), "vjp beside the Jacobian")
    cells = rng.integers(0, M, size(rng, (1, M)))
    within(decoder.jacobian(X, cells=cells), J[:, cells], 30 * ROUND_OFF * slope[:, :, None], "cells of the Jacobian")
    within(decoder.jvp(X, V, cells=cells), Jv[:, cells], 60 * ROUND_OFF * slope * np.abs(V).max(), "cells of jvp")


def _slope_scale(decoder, X):
    """Size of the terms in derivatives: (L, 1)."""
    basis, A = _terms(decoder)
    A = A[1:]
    identity = np.vstack([np.zeros((1, len(A))), np.eye(len(A))])
    G = np.abs(LinearMap(basis, identity).jacobian(X)).swapaxes(1, 2)
    terms = (G @ A).max(axis=(1, 2))[:, None] * np.sqrt(A.shape[1])
    rate = np.abs(G).max(axis=(1, 2))[:, None]
    features = getattr(decoder, "features_", None)
    if hasattr(features, "weights_"):
        t = np.abs(X) @ np.abs(features.weights_) + np.abs(features.offsets_)
        terms = np.maximum(terms, (((1 + t) * np.abs(features.weights_).max(axis=0)) @ A).max(axis=1)[:, None])
    weights = decoder.invariants_.cell_weights
    unequal = 1.0 if weights is None else 10 * np.sqrt(np.ptp(np.log(weights)) + 1)
    return np.maximum(terms, rate * A.max()) * unequal


def _check_values(rng, problem, decoder, X):
    """Values of the invariants a row: those of a field within the bounds."""
    q = problem.C.shape[1]
    if not q:
        refused(lambda: decoder.predict(X, invariant_values=1.0), "invariant")
        return
    inside = problem.F[rng.integers(problem.n, size=len(X))] * (1.0 if problem.options["bounds"] else 1.25)
    inside[:, decoder.invariants_.constant] = decoder.invariants_.constant_values
    values = inside @ problem.C
    F = decoder.predict(X, invariant_values=values)
    problem.check(F, values, "fields with values of their own")


def _check_frozen(rng, problem, decoder, X, scale):
    try:
        frozen = decoder.freeze()
    except TypeError as error:
        assert "cannot be frozen" in str(error), error
        return
    F = frozen.predict(laid_out(rng, X))
    problem.check(F, what="frozen")
    one = np.vstack([decoder.predict(x[None]) for x in X])
    within(F, one, 1e-13 * scale, "frozen beside rows alone")
    assert same_bits(F, np.vstack([frozen.predict(x[None]) for x in X])), "a frozen row depends on the others"
    held = decoder.invariants_
    if held.lower is not None:  # a field that meets a bound to round-off has no derivative there
        ours, theirs = ((G > held.lower) & (G < held.upper) for G in (F, decoder.predict(X)))
        X = X[(ours == theirs).all(axis=1)]
    if not len(X):
        return
    V = rng.normal(size=X.shape)
    try:
        Jv = decoder.jvp(X, V)
    except ValueError:
        return
    slope = _slope_scale(decoder, X)
    bound = ROUND_OFF * slope * np.abs(V).sum(axis=1, keepdims=True)
    within(frozen.jvp(X, V), Jv, 30 * bound, "frozen jvp")


def _check_far(rng, problem, decoder):
    """So far away that fields overflow: they satisfy the invariants, or it is an error."""
    far = rng.choice([-1, 1], (3, problem.d)) * 10.0 ** rng.uniform(5, 307, (3, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            F = decoder.predict(far)
        except ValueError as error:
            # finite: of monomials, which decoders take as another's features
            assert any(text in str(error) for text in ("too large", "must be finite", "must be 0 or of magnitude")), (
                error
            )
            return
    if problem.C.shape[1] or problem.options["bounds"]:
        assert np.isfinite(F).all()
        problem.check(F, what="far away")


# -- The other decoders ----------------------------------------------------------------------------
def mixtures(rng):
    """k-NN decoders, blends, conservative regressors, POD: what every field must satisfy. A latent point an input."""
    problem = Problem(rng)
    X, options, d = problem.X, problem.options, problem.d
    kind = rng.integers(4)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind == 0:
                decoder = _knn(rng, problem)
            elif kind == 1:
                parts = [KernelDecoder(), KNNDecoder(min(3, problem.n)), RFNNDecoder(n_features(rng), random_state=0)]
                limit = (None, 0.1)[rng.integers(2)]
                decoder = BlendedDecoder(parts, limit=limit, **options).fit(problem.Y, problem.F)
            elif kind == 2:
                decoder = ConservativeRegressor(Ridge(1e-3), **options).fit(problem.Y, problem.F)
            else:
                return _pod(rng, problem)
            F = decoder.predict(laid_out(rng, X))
            again = decoder.predict(X)
            one = decoder.predict(X[:1])
    except (ValueError, np.linalg.LinAlgError) as error:
        assert "out of reach" in str(error) or "repeat" in str(error) or "differ" in str(error), error
        return 1
    problem.check(F)
    extent = np.abs(F).max() + np.abs(problem.F).max()
    if kind == 2:  # another's estimator: BLAS adds in an order that the layout decides on
        within(again, F, 1e-12 * extent * problem.M, "the same points in another layout")
    else:
        assert same_bits(F, again), "the same points in another layout"
    if kind == 0:
        within(one, F[:1], 1e-12 * extent, "a row alone")
        slack = 8 * EPS * np.abs(problem.F).max()
        assert (F >= problem.F.min(axis=0) - slack).all() and (F <= problem.F.max(axis=0) + slack).all()
    assert same_bits(pickle.loads(pickle.dumps(decoder)).predict(X), again), "a copy"
    refused(lambda: decoder.predict(spoiled(rng, X)), "NaN", "infinity", "finite")
    refused(lambda: decoder.predict(np.ones((2, d + 1))), "features", "columns")
    return len(X)


def n_features(rng):
    return FourierFeatures(1.0, n_features=size(rng, (1, 20)))


def _knn(rng, problem):
    options = {"latent_scale": (None, "std")[rng.integers(2)]}
    if rng.integers(3) == 0 and problem.n > 5:
        encoder = DiffusionMaps(problem.d)
        try:
            latents = encoder.fit_transform(problem.F)
        except ValueError as error:  # modes that round-off decides on
            told = ("eigenvalue", "mode", "n_components", "median distance")
            assert any(text in str(error) for text in told), error
            raise ValueError("out of reach: no such map") from None
        problem.X = latents[rng.integers(problem.n, size=len(problem.X))] * rng.uniform(0.5, 1.5)
        problem.Y = latents
        options.update(objective="encoder", encoder=encoder)
    problem.options["bounds"] = None
    return KNNDecoder(int(rng.integers(1, problem.n + 1)), **options).fit(problem.Y, problem.F)


def _pod(rng, problem):
    M = problem.M
    pod = POD(int(rng.integers(1, min(problem.n, M))), **problem.options)
    try:
        pod.fit(problem.F)
    except ValueError as error:
        assert any(text in str(error) for text in ("n_components", "mode", "out of reach")), error
        return 1
    Z = pod.transform(problem.F)
    Z = Z * rng.choice([1.0, 3.0])
    F = pod.inverse_transform(laid_out(rng, Z))
    problem.check(F)
    frozen = pod.freeze()
    assert np.abs(frozen.predict(Z) - F).max() <= 1e-13 * np.abs(F).max()
    V, U = rng.normal(size=Z.shape), rng.normal(size=F.shape)
    J = pod.inverse_jacobian(Z)
    scale = 1e-12 * np.abs(pod.linear_map.A[1:]).max()
    within(pod.inverse_jvp(Z, V), np.einsum("lmd,ld->lm", J, V), scale * np.abs(V).sum(), "jvp of modes")
    within(pod.inverse_vjp(Z, U), np.einsum("lmd,lm->ld", J, U), scale * np.abs(U).sum(), "vjp of modes")
    return len(Z)


# -- Batches ---------------------------------------------------------------------------------------
def batches(rng):
    """partial_fit and merge: the bits of one fit, whatever the cuts and the tree. A row of a batch an input."""
    block = gram._BLOCK
    gram._BLOCK = 32  # a thousand rows a case would be few cases
    try:
        return _batches(rng)
    finally:
        gram._BLOCK = block


def _batches(rng):
    blocks, rest = size(rng, (1, 4)), size(rng, (0, 31))
    problem = Problem(rng, n=32 * blocks + rest)
    problem.options["bounds"] = None
    Y, F, X = problem.Y, problem.F, problem.X
    maps = (
        FourierFeatures(0.5, n_features=size(rng, (1, 25))),
        MonomialFeatures(1),
        SigmoidFeatures(3.0, n_features=size(rng, (1, 25)), latent_box=[Y.min(axis=0), Y.max(axis=0)]),
    )
    regularization = float(np.abs(Y).max() ** 2 * rng.choice([1e-3, 1.0]) + 1e-3)
    options = {"regularization": regularization, "solver": "cholesky", "center": bool(rng.integers(2))}
    decoder = RANDSMAPDecoder(
        maps[rng.integers(2) * 2], random_state=0, latent_scale=float(np.abs(Y).max()), **options, **problem.options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = clone(decoder).fit(Y, F)
        if whole.solver_ != "cholesky":
            return 1
        cuts = np.sort(rng.choice(np.arange(1, len(Y)), size(rng, (0, 6)), replace=False))
        streamed = clone(decoder)
        for rows in np.split(np.arange(len(Y)), cuts):
            streamed.partial_fit(laid_out(rng, Y[rows]), F[rows])
        assert same_bits(streamed.solve().coef_, whole.coef_), "cuts change the bits"
        assert same_bits(streamed.predict(X), whole.predict(X))
        free = ~whole.constant_cells_
        if (np.ptp(F, axis=0) <= 1e-6 * np.abs(F).max(axis=0))[free].any():
            return len(Y)  # sums that cancel by 2^40 of their terms depend on the tree (randsmap/_linalg/gram.py)
        # whole blocks in any order and tree; what fills no block comes last
        order = rng.permutation(blocks)
        groups = np.split(order, np.sort(rng.integers(0, blocks + 1, 2)))
        parts = [np.concatenate([np.arange(32 * i, 32 * i + 32) for i in g]).astype(int) for g in groups if len(g)]
        last = int(rng.integers(len(parts)))
        parts[last] = np.concatenate([parts[last], np.arange(32 * blocks, len(Y))])
        trees = [clone(decoder).partial_fit(Y[rows], F[rows]) for rows in parts]
        while len(trees) > 1:
            i, j = rng.choice(len(trees), 2, replace=False)
            trees[i].merge(trees[j])
            del trees[j]
        assert trees[0].n_samples_seen_ == len(Y)
        assert same_bits(trees[0].solve().coef_, whole.coef_), "merging changes the bits"
        assert same_bits(trees[0].invariant_values_, whole.invariant_values_)
        assert np.array_equal(trees[0].constant_cells_, whole.constant_cells_)
    problem.check(whole.predict(X))
    bad = clone(decoder).partial_fit(Y, F)
    refused(lambda: bad.partial_fit(spoiled(rng, Y), F), "NaN", "infinity", "finite")
    refused(lambda: bad.partial_fit(Y, spoiled(rng, F)), "NaN", "infinity", "finite")
    assert same_bits(bad.solve().coef_, whole.coef_), "a refused batch was counted"
    return len(Y)


TARGETS = decoders, mixtures, batches
