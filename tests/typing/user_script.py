"""What a user writes, for `mypy --strict` and to run: fit, tune, decode, save, load, metrics, data sets.

`.ci/run types` checks it against the installed package. Types are stated wherever they are to be found.
"""

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import randsmap
from randsmap import metrics
from randsmap.datasets import make_lwr
from randsmap.decoders import BlendedDecoder

Array = NDArray[np.float64]


def fit(fields: Array) -> randsmap.ManifoldModel:
    encoder = randsmap.DiffusionMaps(n_components=2, epsilon_scale=0.5)
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(slope=11.0), random_state=0)
    return randsmap.ManifoldModel(encoder, decoder).fit(fields)


def errors(model: randsmap.ManifoldModel, fields: Array) -> tuple[float, float, float]:
    decoded: Array = model.inverse_transform(model.transform(fields))
    l2: Array = metrics.relative_l2(fields, decoded)
    linf: Array = metrics.relative_linf(fields, decoded)
    mass: Array = metrics.conservation_error(fields, decoded)
    return float(l2.mean()), float(linf.max()), float(np.abs(mass).max())


def tuned(decoder: randsmap.RANDSMAPDecoder, Y: Array, F: Array) -> randsmap.RANDSMAPDecoder:
    result = randsmap.tune(decoder, {"features__length_scale": [0.3, 1.0]}, Y[::2], F[::2], Y[1::2], F[1::2])
    print(result.best_params_, result.on_edge_, result.errors_)
    path = randsmap.leave_one_out(decoder, Y, F, regularizations=[1e-6, 1e-3])
    best: float = path.best_regularization_
    decoder.set_params(regularization=best)
    return decoder.fit(Y, F)


def searched(Y: Array, F: Array) -> None:
    decoder = randsmap.AutoDecoder(n_trials=4, random_state=0).fit(Y, F)
    blend: BlendedDecoder = decoder.best_decoder_
    edges: list[str] = decoder.on_edge_
    print(blend.coef_.shape, edges, decoder.held_out_error_, decoder.results_["error"])
    found = randsmap.autotune(F, model=randsmap.ManifoldModel(randsmap.POD(2)), n_trials=3, random_state=0)
    print(found)


def interpolated(fields: Array) -> None:
    model = randsmap.ManifoldModel(randsmap.POD(2), randsmap.KernelDecoder(length_scale=1.0))
    parametric = randsmap.ParametricModel(model, randsmap.KernelDecoder("matern", nu=2.5)).fit(
        np.arange(len(fields)), fields
    )
    between: Array = parametric.predict([0.5, 1.5])
    shift = randsmap.ShiftRegistration(model).fit(fields)
    aligned: Array = shift.inverse_transform(shift.transform(fields))
    forecast = randsmap.LatentForecast(model, lag=2).fit(fields, times=np.arange(len(fields)))
    later, errors = forecast.forecast(fields[-2:], 3, return_error=True)
    step: float = forecast.step_
    print(between.shape, aligned.shape, later, errors, step)


def streamed(Y: Array, F: Array, path: Path) -> randsmap.RANDSMAPDecoder:
    map_ = randsmap.SigmoidFeatures(2.0, n_features=20, latent_box=(-1.0, 1.0), random_state=0).fit(Y)
    weights: Array = map_.weights_
    decoder = randsmap.RANDSMAPDecoder(map_, latent_scale=None, bounds=None, cell_weights=[1.0] * F.shape[1])
    for part in (slice(0, 100), slice(100, None)):
        decoder = decoder.partial_fit(Y[part], F[part])
    seen: int = decoder.n_samples_seen_
    solver: str = decoder.solve().solver_
    weighted: Array = decoder.smoother(Y, Y[:1])
    vectors, values = randsmap.KernelDecoder().spectrum(Y)
    randsmap.persistence.save(decoder, path)
    neighbors = randsmap.KNNDecoder(4).fit(Y, F)
    rows, shares = neighbors.neighbor_weights(Y[:2])
    without: Array = neighbors.with_n_neighbors(2).predict(Y, exclude=range(len(Y)))
    print(weights.shape, seen, solver, weighted.shape, vectors.shape, values.shape)
    print(rows.shape, shares.shape, without.shape)
    return decoder.fit(Y, F)


def of_a_shape(folder: Path, fields: Array) -> None:
    np.save(folder / "fields.npy", fields.reshape(len(fields), 20, -1))
    read = randsmap.read_snapshots(folder / "fields.npy", transpose=False)
    pod = randsmap.POD(2, cell_weights=np.ones((20, fields.shape[1] // 20))).fit(read)
    shape: tuple[int, ...] = pod.field_shape_
    back: Array = pod.inverse_transform(pod.transform(read))
    print(shape, back.shape, randsmap.ManifoldModel(randsmap.POD(2)).fit(read).field_shape_)


def main(folder: Path) -> None:
    fields: Array = make_lwr(10, 30, random_state=0).data
    model = fit(fields)
    path = folder / "model.npz"
    model.save(path)
    loaded = randsmap.load(path)
    assert isinstance(loaded, randsmap.ManifoldModel)
    print(errors(loaded, fields))

    latents: Array = model.transform(fields)
    decoder = tuned(randsmap.RANDSMAPDecoder(randsmap.FourierFeatures(0.3), random_state=0), latents, fields)
    out = np.empty((1, fields.shape[1]))
    decoder.predict(latents[:1], out=out)
    some: Array = decoder.predict(latents, cells=[0, 5])
    coefficients: Array = decoder.coef_
    values: Array = decoder.invariant_values_
    score: float = decoder.score(latents, fields)
    jacobian: Array = decoder.jacobian(latents[:2])
    tangents: Array = decoder.jvp(latents, np.ones_like(latents))
    gradient: Array = decoder.vjp(latents, fields)
    print(some.shape, coefficients.shape, values, score, jacobian.shape, tangents.shape, gradient.shape)

    cells: NDArray[np.intp] = randsmap.sample_cells(decoder, latents, 10)
    needed, beside = randsmap.stencil(cells, decoder.field_shape_, [0, -1], boundary="clamp")
    sampled = randsmap.SampledModel(decoder, lambda t, f: f[beside[:, 0]] - f[beside[:, 1]], cells, stencil=needed)
    velocity: Array = sampled.velocity(0.0, latents[0])
    condition: float = sampled.condition(latents[0])
    print(velocity.shape, condition)

    for other in (
        randsmap.RFNNDecoder(solver="cholesky"),
        randsmap.KNNDecoder(4),
        randsmap.KernelDecoder(length_scale=0.5, invariants="mass"),
        randsmap.DoubleDiffusionMapsDecoder(rank=20),
    ):
        again: Array = other.fit(latents, fields).predict(latents)
        print(float(metrics.relative_l2(fields, again).mean()))
    pod = randsmap.POD(0.99).fit(fields)
    modes: Array = pod.components_
    back: Array = pod.inverse_transform(pod.transform(fields))
    bounded: Array = randsmap.project_bounds(back, lower=0.0, total=1.0)
    print(modes.shape, float(bounded.min()))

    searched(latents, fields)
    interpolated(fields)
    of_a_shape(folder, fields)
    streamed(latents, fields, folder / "decoder.npz")

    randsmap.set_num_threads(1)
    threads: int = randsmap.get_num_threads()
    solver = randsmap.LWRSolver(n_cells=100)
    print(threads, solver.solve(fields[:1, :100], 0.5).fields.shape)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
