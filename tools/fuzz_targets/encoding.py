"""Encoders: diffusion maps of dense and sparse kernels, and modes."""

from __future__ import annotations

import pickle
import warnings

import numpy as np

from randsmap import POD, DiffusionMaps

from fuzz_targets.inputs import EPS, WIDE, laid_out, quiet, refused, same_bits, size, spoiled, within

DEGENERATE = ("eigenvalue", "mode", "n_components", "median distance", "connected", "disconnected", "component")


def _fields(rng):
    """Fields (n, M) that a few parameters make, some of them repeated, of any unit and place."""
    n, M, d = size(rng, (4, 12), (13, 60)), size(rng, (1, 8), (9, 50)), size(rng, (1, 3))
    t = rng.uniform(size=(n, d))
    if rng.integers(5) == 0:
        t = t[rng.integers(n, size=n)]
    F = np.cos(3 * t @ rng.normal(size=(d, M)) + rng.uniform(0, 6, M))
    F += rng.choice([0.0, 1e-8, 0.3]) * rng.normal(size=F.shape)
    return (F + rng.choice([0.0, 1.0, 1e4])) * 10.0 ** rng.integers(-20, 20)


def diffusion_maps(rng):
    """DiffusionMaps: eigenvectors of the Markov matrix, the formula of the extension, derivatives. A field an input."""
    F = _fields(rng)
    n, M = F.shape
    k = size(rng, (1, n - 1)) if rng.integers(3) == 0 else None
    alpha = float(rng.choice([0.0, 0.5, 1.0]))
    encoder = DiffusionMaps(size(rng, (1, 3)), alpha=alpha, n_neighbors=k, epsilon_scale=10.0 ** rng.uniform(-0.5, 0.7))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a graph of several parts is told
        try:
            latents = encoder.fit_transform(laid_out(rng, F))
        except ValueError as error:
            assert any(text in str(error) for text in DEGENERATE), error
            return 1
    X = F[rng.integers(n, size=size(rng, (0, 20)))]
    X = X + rng.choice([0.0, 0.1, 10.0, 1e4]) * F.std() * rng.normal(size=X.shape)
    if rng.integers(10) == 0:
        refused(lambda: encoder.transform(spoiled(rng, F)), "NaN", "infinity", "finite")
        refused(lambda: encoder.transform(np.hstack([F, F])), "features", "columns")
    Y = encoder.transform(laid_out(rng, X))
    assert Y.shape == (len(X), encoder.n_components) and np.isfinite(Y).all()
    xi = np.abs(encoder.eigenvalues_[encoder.selected_ - 1])
    scale = np.abs(encoder.eigenvectors_[:, encoder.selected_ - 1]).max() / xi.min()
    alone = np.vstack([encoder.transform(x[None]) for x in X]) if len(X) else Y
    within(Y, alone, 1e-11 * scale, "a row depends on the others")
    assert same_bits(pickle.loads(pickle.dumps(encoder)).transform(X), Y), "a copy"
    if k is None:
        _check_extension(encoder, F, X, Y, scale)
        within(encoder.transform(F), latents, 1e-10 * scale, "training fields")
    _check_derivatives(rng, encoder, X, 1e-10 * scale * F.std() / encoder.epsilon_**2)
    return len(X)


def _check_extension(encoder, F, X, Y, scale):
    """y = sum_j P_j c_j / xi (paper, App. C) in extended precision, shifted so that nothing underflows."""
    weights, values = encoder.nystroem_weights()
    with quiet():
        t = ((X[:, None].astype(WIDE) - F) ** 2).sum(axis=2) / WIDE(encoder.epsilon_) ** 2
        P = np.exp(t.min(axis=1, keepdims=True) - t) * weights
    P /= P.sum(axis=1, keepdims=True)
    # the exponents carry the round-off of distances from fields that are far from the origin
    nearest, width = t.min(axis=1), np.sqrt(F.shape[1])
    size_of = (np.abs(X).max(axis=1, initial=0) + np.abs(F).max()) / encoder.epsilon_
    error = (F.shape[1] + 4096) * EPS * (1 + nearest + 8 * size_of * width * (1 + np.sqrt(nearest)))
    within(Y, P @ values.T.astype(WIDE), (error * 50 * scale)[:, None], "the extension")


def _check_derivatives(rng, encoder, X, round_off):
    L, M = X.shape
    if not L:
        assert encoder.jacobian(X).shape == (0, encoder.n_components, M)
        return
    J = encoder.jacobian(X)
    V, U = rng.normal(size=X.shape), rng.normal(size=(L, encoder.n_components))
    assert np.isfinite(J).all()
    bound = 1e-9 * np.abs(J).max() + round_off
    within(encoder.jvp(X, V), np.einsum("lpm,lm->lp", J, V), bound * np.abs(V).sum(), "jvp beside the Jacobian")
    within(encoder.vjp(X, U), np.einsum("lpm,lp->lm", J, U), bound * np.abs(U).sum(), "vjp beside the Jacobian")


def modes(rng):
    """POD: orthonormal modes, no other as good, coordinates by the formula. A field an input."""
    F = _fields(rng)
    n, M = F.shape
    weights = 10.0 ** rng.uniform(-2, 2, M) if rng.integers(2) else None
    pod = POD(size(rng, (1, min(n, M))), cell_weights=weights, invariants=None)
    try:
        pod.fit(laid_out(rng, F))
    except ValueError as error:
        assert any(text in str(error) for text in ("n_components", "mode")), error
        return 1
    w = np.ones(M) if weights is None else weights
    V = pod.components_
    G = (V * w) @ V.T
    within(G, np.eye(len(V)), 100 * max(n, M) * EPS, "orthonormal modes")
    centred = (F - F.mean(axis=0)) * np.sqrt(w)
    sigma = np.linalg.svd(centred, compute_uv=False)
    Y = pod.transform(laid_out(rng, F))
    rest = np.linalg.norm(centred - (Y @ V) * np.sqrt(w))
    best = np.sqrt((sigma[len(V) :] ** 2).sum())
    slack = 1e3 * max(n, M) * EPS * np.linalg.norm(F * np.sqrt(w))
    assert rest <= best * (1 + 1e-6) + slack, "modes that leave more than others would"
    within(Y, ((F - F.mean(axis=0)) * w) @ V.T, slack, "coordinates")
    return n


TARGETS = diffusion_maps, modes
