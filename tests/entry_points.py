"""Everything public that hands arrays to the kernels, called once each.

For tests and for tools/fuzz.py of how arrays lie in memory: an entry draws its problem from `rng`, presents each array
through `lay`, which may lay it out anew, and returns what it computes, an array after the other. The same `rng` gives
the same numbers whatever `lay` does.
"""

import tempfile
from pathlib import Path

import numpy as np

import randsmap
from randsmap import metrics
from randsmap.datasets import make_rotated_images

from helpers import random_problem, with_common_invariants


def _problem(rng):
    """Latents, fields of sum 1 and points to decode; cell 2 is constant."""
    n, M, d, L = (int(rng.integers(low, high)) for low, high in ((20, 36), (8, 40), (1, 4), (1, 20)))
    Y, F = random_problem(n, M, d, seed=int(rng.integers(2**32)), constant={2: 0.02})
    return Y, F, Y[rng.integers(n, size=L)] + 0.01 * rng.normal(size=(L, d))


def _decoded(rng, lay, decoder, Y, F, X, total=None):
    """Fit, and all that a decoder has."""
    L, M = len(X), F.shape[1]
    V, U, cells = rng.normal(size=X.shape), rng.normal(size=(L, M)), rng.integers(-M, M, 5)
    decoder.fit(lay(Y), lay(F))
    yield decoder.predict(lay(X))
    yield decoder.predict(lay(X[:0]))
    yield decoder.predict(lay(X), cells=lay(cells))
    yield decoder.leverage(lay(X))
    yield decoder.predict(lay(X), return_error=True)[1]
    if total is not None:
        yield decoder.predict(lay(X), invariant_values=lay(total * np.ones(L)))
    if hasattr(decoder, "jacobian"):
        yield decoder.jacobian(lay(X))
        yield decoder.jvp(lay(X), lay(V))
        yield decoder.vjp(lay(X), lay(U))
    if hasattr(decoder, "freeze"):
        try:
            frozen = decoder.freeze()
        except TypeError:  # it says so: tests/test_frozen.py
            return
        yield frozen.predict(lay(X))
        yield frozen.predict(lay(X[:0]))
        yield frozen.jacobian(lay(X))
        yield frozen.jvp(lay(X), lay(V))
        yield frozen.vjp(lay(X), lay(U))


def _encoded(rng, lay, encoder, F):
    d, M = encoder.n_components, F.shape[1]
    yield encoder.fit_transform(lay(F))
    yield encoder.transform(lay(F[:7]))
    yield encoder.transform(lay(F[:0]))
    yield encoder.jacobian(lay(F[:3]))
    yield encoder.jvp(lay(F[:3]), lay(rng.normal(size=(3, M))))
    yield encoder.vjp(lay(F[:3]), lay(rng.normal(size=(3, d))))


# -- Features and decoders -------------------------------------------------------------------------
def feature_maps(rng, lay):
    Y, _, X = _problem(rng)
    d = Y.shape[1]
    box = lay(np.array([np.zeros(d), np.ones(d)]))
    for features in (
        randsmap.FourierFeatures(lay(rng.uniform(0.5, 2, d)), n_features=17, random_state=0),
        randsmap.MaternFeatures(n_features=9, random_state=0),
        randsmap.MultiscaleFourierFeatures(3.0, n_features=9, random_state=0),
        randsmap.SigmoidFeatures(3.0, n_features=9, latent_box=box, random_state=0),
        randsmap.MonomialFeatures(2),
    ):
        features.fit(lay(Y))
        yield features.transform(lay(X))
        yield features.jacobian(lay(X))
        yield features.transform(lay(X.astype(np.float32)))


def random_features(rng, lay):
    Y, F, X = _problem(rng)
    options = {"regularization": 1e-6, "random_state": 0, "latent_scale": lay(np.full(Y.shape[1], 0.5))}
    sigmoids = randsmap.SigmoidFeatures(5.0, n_features=30)
    yield from _decoded(rng, lay, randsmap.RANDSMAPDecoder(sigmoids, **options), Y, F, X, 1.0)
    bounds = lay(np.zeros(F.shape[1])), lay(np.full(F.shape[1], F.max()))
    weights = lay(np.ones(F.shape[1]))
    options.update(bounds=bounds, cell_weights=weights)
    yield from _decoded(rng, lay, randsmap.RANDSMAPDecoder(sigmoids, **options), Y, F, X, 1.0)


def several_invariants(rng, lay):
    Y, F, X = _problem(rng)
    M = F.shape[1]
    C, weights = rng.normal(size=(M, 3)), rng.uniform(0.5, 2, M)
    F = with_common_invariants(F, C, weights, np.arange(M) == 2)
    options = {"invariants": lay(C), "cell_weights": lay(weights), "invariant_values": lay(F[0] @ C)}
    yield from _decoded(rng, lay, randsmap.KernelDecoder(regularization=1e-9, **options), Y, F, X)


def regressions(rng, lay):
    Y, F, X = _problem(rng)
    features = randsmap.FourierFeatures(0.5, n_features=25)
    for solver in ("cholesky", "svd", "krylov", "lowrank"):
        decoder = randsmap.RFNNDecoder(features, regularization=1e-4, solver=solver, random_state=0)
        yield decoder.fit(lay(Y), lay(F)).predict(lay(X))
    decoder = randsmap.RFNNDecoder(features, regularization=1e-4, output_rank=3, random_state=0)
    yield decoder.fit(lay(Y), lay(F)).predict(lay(X))


def batches(rng, lay):
    Y, F, X = _problem(rng)
    features = randsmap.SigmoidFeatures(3.0, n_features=15, latent_box=lay(np.array([Y.min(axis=0), Y.max(axis=0)])))
    decoder = randsmap.RANDSMAPDecoder(features, regularization=1e-4, random_state=0, latent_scale=1.0)
    for rows in (slice(0, 7), slice(7, len(Y))):
        decoder.partial_fit(lay(Y[rows]), lay(F[rows]))
    yield decoder.predict(lay(X))


def kernels(rng, lay):
    Y, F, X = _problem(rng)
    for kernel in ("gaussian", "matern", "thin-plate"):
        lengths = lay(rng.uniform(0.5, 2, Y.shape[1]))
        decoder = randsmap.KernelDecoder(kernel, length_scale=lengths, degree=1, regularization=1e-6, invariants="mass")
        yield from _decoded(rng, lay, decoder, Y, F, X, 1.0)


def multi_gaussian_kernels(rng, lay):
    Y, F, X = _problem(rng)
    decoder = randsmap.KernelDecoder("multi-gaussian", max_frequency=4.0, regularization=1e-6)
    yield from _decoded(rng, lay, decoder, Y, F, X)


def double_diffusion_maps(rng, lay):
    Y, F, X = _problem(rng)
    yield from _decoded(rng, lay, randsmap.DoubleDiffusionMapsDecoder(rank=5, invariants="mass"), Y, F, X, 1.0)


def knn(rng, lay):
    Y, F, X = _problem(rng)
    for copy in (True, False):
        yield from _decoded(rng, lay, randsmap.KNNDecoder(4, latent_scale="std", copy=copy), Y, F, X)
    encoder = randsmap.DiffusionMaps(1)
    latents = encoder.fit_transform(lay(F))
    decoder = randsmap.KNNDecoder(3, objective="encoder", encoder=encoder).fit(lay(latents), lay(F))
    yield decoder.predict(lay(latents[:5]))
    yield decoder.predict(lay(latents[:5]), exclude=lay(np.arange(5)))


def blends(rng, lay):
    Y, F, X = _problem(rng)
    parts = [randsmap.KernelDecoder(regularization=1e-6), randsmap.KNNDecoder(3)]
    yield from _decoded(rng, lay, randsmap.BlendedDecoder(parts, limit=0.1, invariants="mass"), Y, F, X, 1.0)


def any_regressor(rng, lay):
    Y, F, X = _problem(rng)
    decoder = randsmap.ConservativeRegressor(_Presented(lay), bounds="nonnegative").fit(lay(Y), lay(F))
    yield decoder.predict(lay(X))
    yield decoder.predict(lay(X), invariant_values=lay(np.full(len(X), 1.0)))


class _Presented(randsmap.KNNDecoder):
    """A regressor of another package, whose predictions lie in memory as they please."""

    def __init__(self, lay=np.array):
        super().__init__(3)
        self.lay = lay

    def predict(self, X):
        return self.lay(super().predict(X))


# -- Encoders and models ---------------------------------------------------------------------------
def encoders(rng, lay):
    _, F, _ = _problem(rng)
    yield from _encoded(rng, lay, randsmap.POD(2, invariants="mass", cell_weights=lay(np.full(F.shape[1], 2.0))), 2 * F)
    yield from _encoded(rng, lay, randsmap.DiffusionMaps(2), F)
    yield from _encoded(rng, lay, randsmap.DiffusionMaps(1, n_neighbors=10), F)
    yield from _encoded(rng, lay, randsmap.Isomap(2, cell_weights=lay(np.full(F.shape[1], 2.0))), F)
    pod = randsmap.POD(2, bounds=(lay(F.min(axis=0)), None)).fit(lay(F))
    Z = pod.transform(F)
    yield pod.inverse_transform(lay(Z))
    yield pod.inverse_jacobian(lay(Z))
    yield pod.inverse_jvp(lay(Z), lay(rng.normal(size=Z.shape)))
    yield pod.inverse_vjp(lay(Z), lay(rng.normal(size=F.shape)))


def models(rng, lay):
    Y, F, _ = _problem(rng)
    model = randsmap.ManifoldModel(randsmap.DiffusionMaps(2), randsmap.KernelDecoder(invariants="mass"))
    latents = model.fit_transform(lay(F))
    yield latents
    yield model.transform(lay(F[:4]))
    yield model.inverse_transform(lay(latents[:4]))
    yield model.reconstruct(lay(F[:4]))
    frozen = model.freeze()
    yield frozen.transform(lay(F[:4]))
    yield frozen.predict(lay(latents[:4]))
    planes = F[:, None]
    model.fit(lay(planes))
    yield model.reconstruct(lay(planes[:5]))


def shifts(rng, lay):
    _, F, _ = _problem(rng)
    shifted = randsmap.ShiftRegistration(randsmap.ManifoldModel(randsmap.POD(2), randsmap.KernelDecoder()))
    latents = shifted.fit(lay(F)).transform(lay(F[:5]))
    yield latents
    yield shifted.inverse_transform(lay(latents))
    yield shifted.jvp(lay(latents), lay(rng.normal(size=latents.shape)))
    yield shifted.jacobian(lay(latents))
    yield shifted.vjp(lay(latents), lay(F[:5]))


def quantiles(rng, lay):
    _, F, _ = _problem(rng)
    model = randsmap.QuantileRegistration(randsmap.ManifoldModel(randsmap.POD(2)))
    latents = model.fit(lay(F)).transform(lay(F[:5]))
    yield latents
    yield model.inverse_transform(lay(latents))


def parameters(rng, lay):
    Y, F, X = _problem(rng)
    model = randsmap.ParametricModel(randsmap.ManifoldModel(randsmap.POD(2)), randsmap.KernelDecoder())
    model.fit(lay(Y), lay(F))
    yield model.latents(lay(X))
    yield model.predict(lay(X))
    yield model.vjp(lay(X), lay(F[: len(X)]))


def forecasts(rng, lay):
    _, F, _ = _problem(rng)
    fitted = randsmap.LatentForecast(randsmap.POD(2), randsmap.KernelDecoder(), lag=2).fit(lay(F))
    yield fitted.forecast(lay(F[:4]), 3)


def sampled_models(rng, lay):
    Y, F, X = _problem(rng)
    decoder = randsmap.KernelDecoder(regularization=1e-6, invariants="mass").fit(Y, F)
    cells = randsmap.sample_cells(decoder, lay(Y), 6)
    yield cells
    rate = rng.normal(size=len(cells))
    needed, index = randsmap.stencil(lay(cells), decoder.field_shape_, lay(np.array([[0], [1]])))
    yield index
    model = randsmap.SampledModel(decoder, lambda t, f: lay(rate), lay(cells), stencil=lay(needed))
    yield model.velocity(0.0, lay(X[0]))


def searches(rng, lay):
    Y, F, X = _problem(rng)
    decoder = randsmap.KernelDecoder(invariants="mass")
    found = randsmap.leave_one_out(decoder, lay(Y), lay(F), regularizations=[1e-6, 1e-3])
    yield found.errors_
    found = randsmap.tune(decoder, {"regularization": [1e-6, 1e-2]}, lay(Y[:12]), lay(F[:12]), lay(Y[12:]), lay(F[12:]))
    yield found.best_decoder_.predict(lay(X))
    auto = randsmap.AutoDecoder(n_trials=2, families="matern", random_state=0).fit(lay(Y), lay(F))
    yield auto.predict(lay(X))


# -- Fields, points and solvers ------------------------------------------------------------------------
def projections(rng, lay):
    _, F, _ = _problem(rng)
    n, M = F.shape
    options = {
        "lower": lay(np.zeros(M)),
        "upper": lay(np.full(M, 2.0)),
        "weights": lay(rng.uniform(0.5, 1, M)),
        "cell_weights": lay(rng.uniform(0.5, 2, M)),
        "total": lay(rng.uniform(0.1, 1, n)),
    }
    yield randsmap.project_bounds(lay(F + rng.normal(size=F.shape)), **options)


def errors(rng, lay):
    _, F, _ = _problem(rng)
    G = F + 1e-3 * rng.normal(size=F.shape)
    for error in (metrics.relative_l2, metrics.relative_linf, metrics.scaled_l2, metrics.scaled_linf):
        yield error(lay(F), lay(G))
    yield metrics.scaled_l2(lay(F), lay(G), reference=lay(G))
    yield metrics.conservation_error(lay(F), lay(G))
    yield metrics.conservation_error(lay(F), lay(G), invariants=lay(rng.normal(size=(F.shape[1], 2))))


def solvers(rng, lay):
    shape = 7, 5
    free = np.ones(shape, bool)
    free[3, 1:4] = False
    slowness = rng.uniform(1, 2, (3, *shape))
    source = np.zeros(shape, bool)
    source[0, 0] = True
    yield randsmap.solve_eikonal(lay(slowness), 0.1, lay(source), obstacles=lay(~free))
    yield randsmap.solve_eikonal(lay(slowness[0]), 0.1, exits=["right"], method="sweeping")
    crowd = randsmap.HughesSolver(shape, lengths=(0.7, 0.5), obstacles=lay(~free), dt=0.01)
    density = (rng.uniform(0, 3, (2, *shape)) * free).reshape(2, -1)
    yield crowd.solve(lay(density), 0.03, times=lay(np.array([0.01, 0.015, 0.03]))).fields
    yield crowd.solve(lay(density[0]), 0.03).fields
    yield crowd.potential(lay(density))
    road = randsmap.LWRSolver(23, domain=(0.0, 23.0), v_max=1.0, dt=0.2)
    yield road.solve(lay(rng.uniform(0, 1, (2, 23))), 1.0, times=lay(np.array([0.2, 0.5, 1.0]))).fields
    yield road.solve(lay(rng.uniform(0, 1, 23)), 1.0).fields


def pictures(rng, lay):
    yield make_rotated_images(5, image=lay(rng.uniform(size=(9, 8)))).data


def files(rng, lay):
    """What was fitted to such arrays, saved and loaded."""
    Y, F, X = _problem(rng)
    decoder = randsmap.RANDSMAPDecoder(
        randsmap.SigmoidFeatures(3.0, n_features=9), cell_weights=lay(np.ones(F.shape[1])), random_state=0
    ).fit(lay(Y), lay(F))
    model = randsmap.ManifoldModel(randsmap.DiffusionMaps(2), decoder).fit(lay(F))
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model.npz"))
        yield randsmap.load(Path(folder, "model.npz")).reconstruct(lay(F[:3]))


ENTRY_POINTS = {
    entry.__name__: entry
    for entry in (
        feature_maps,
        random_features,
        several_invariants,
        regressions,
        batches,
        kernels,
        multi_gaussian_kernels,
        double_diffusion_maps,
        knn,
        blends,
        any_regressor,
        encoders,
        models,
        shifts,
        parameters,
        forecasts,
        sampled_models,
        searches,
        projections,
        errors,
        solvers,
        pictures,
        files,
    )
}
