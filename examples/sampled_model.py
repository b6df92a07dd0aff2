"""A reduced model whose cost does not depend on the number of cells: a front in 320 x 320 cells.

A blob of unit mass moves across a periodic square and steepens into a front (viscous Burgers equation

    df/dt + div(b f^2 / 2) = nu Laplace(f),    b = (cos angle, sin angle)

in conservative central differences). Two parameters, the blob's width and the direction of its motion. The manifold
model has 5 latent coordinates; for parameters that are not in the training set, two reduced models are solved for
them and compared with the full model:

- with whole fields, dz/dt = encoder'(f) g(f), which costs as much as decoding all 102400 cells,
- sampled, dz/dt = argmin |J_S v - g_S| in a few cells S: `randsmap.SampledModel`.

The fields that are handed out have the mass of the blob and no negative cell.

    python examples/sampled_model.py
"""

import argparse
import time

import numpy as np
from scipy.integrate import solve_ivp
from sklearn.base import clone

import randsmap

N = 320  # cells a side
NU = 3e-3
TIMES = np.linspace(0.0, 0.4, 21)
WIDTHS, ANGLES, LONGER = (0.08, 0.09, 0.1), (0.6, 0.8, 1.0), 3  # training; so many snapshots beyond TIMES
TEST = ((0.085, 0.7), (0.095, 0.9))  # (width, angle)


def initial(width):
    """A Gaussian of mean 1 over the cells; fields have N^2 cells, the first index along x."""
    x = (np.arange(N) + 0.5) / N - 0.3
    f = np.exp(-(x[:, None] ** 2 + x**2) / (2 * width**2)).ravel()
    return f * (f.size / f.sum())


def rate(centre, west, east, south, north, angle):
    """df/dt from the values in a cell and its four neighbours: arrays of any one shape.

    Fields are scaled to mean 1; the equation is that of fields 20 times smaller.
    """
    flux = np.cos(angle) * (east**2 - west**2) + np.sin(angle) * (north**2 - south**2)
    return NU * N**2 * (west + east + south + north - 4 * centre) - flux * (N / 80)


def full_rate(f, angle):
    """df/dt (N^2,) of a whole field."""
    f = f.reshape(N, N)
    shifted = np.roll(f, 1, 0), np.roll(f, -1, 0), np.roll(f, 1, 1), np.roll(f, -1, 1)
    return rate(f, *shifted, angle).ravel()


def solve(velocity, start, times=TIMES, **options):
    """States (times, n), evaluations of velocity, seconds."""
    began = time.perf_counter()
    solution = solve_ivp(velocity, (times[0], times[-1]), start, t_eval=times, **options)
    return solution.y.T, solution.nfev, time.perf_counter() - began


def solve_full(width, angle, times=TIMES):
    return solve(lambda t, f: full_rate(f, angle), initial(width), times, method="RK23", rtol=1e-4, atol=1e-5)


def training_fields():
    """Fields (n, N^2) of mean 1 and without negative cells.

    Time stepping leaves values slightly below 0; the nearest fields within the bounds, of the same mass, are taken, so
    that a decoder may have these bounds.
    """
    times = np.concatenate([TIMES, TIMES[-1] + TIMES[1 : LONGER + 1]])
    fields = np.concatenate([solve_full(width, angle, times)[0] for width in WIDTHS for angle in ANGLES])
    return randsmap.project_bounds(fields, lower=0.0, total=float(N * N))


def manifold_model(fields, n_components):
    """The model whose derivatives move the latents, and its twin with bounds, which makes the fields.

    With bounds every cell depends on all others, so that a few cells would cost as much as all.
    """
    decoder = randsmap.KernelDecoder(
        "matern", nu=2.5, length_scale=10.0, degree=1, regularization=1e-5, invariants="mass"
    )
    model = randsmap.ManifoldModel(randsmap.POD(n_components, invariants="mass"), decoder).fit(fields)
    bounded = clone(decoder).set_params(bounds="nonnegative").fit(model.transform(fields), fields)
    return model, bounded


def sampled_model(model, cells, angle):
    """The reduced model of the flow in a direction: it evaluates the field in the cells and their neighbours."""
    needed, beside = randsmap.stencil(cells, (N, N), [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])
    return randsmap.SampledModel(model, lambda t, f: rate(*f[beside].T, angle), cells, stencil=needed)


def main(n_cells=300, n_components=5):
    began = time.perf_counter()
    fields = training_fields()
    print(f"{len(fields)} training fields of {N * N} cells: {time.perf_counter() - began:.1f} s")

    began = time.perf_counter()
    model, bounded = manifold_model(fields, n_components)
    latents = model.transform(fields)
    print(f"manifold model, {n_components} latent coordinates: {time.perf_counter() - began:.1f} s")

    began = time.perf_counter()
    cells = randsmap.sample_cells(model, latents, n_cells)
    print(f"{n_cells} of the cells chosen: {time.perf_counter() - began:.1f} s")

    results = []
    for width, angle in TEST:

        def whole_fields(t, y, angle=angle):
            f = model.inverse_transform(y[None])
            return model.encoder_.jvp(f, full_rate(f[0], angle)[None])[0]

        sampled = sampled_model(model, cells, angle)
        truth, count, seconds = solve_full(width, angle)
        print(f"width {width}, angle {angle}: full model {1e3 * seconds:.0f} ms, {count} evaluations")
        start = model.transform(truth[:1])[0]
        sampled.velocity(0.0, start)  # the coefficients of the cells are gathered once
        row = {"full": seconds}
        for name, velocity in (("jvp", whole_fields), ("sampled", sampled.velocity)):
            path, count, seconds = solve(velocity, start, rtol=1e-5, atol=1e-6 * np.abs(latents).max())
            began = time.perf_counter()
            decoded = bounded.predict(path)
            decoding = time.perf_counter() - began
            errors = randsmap.metrics.relative_l2(truth, decoded)
            row[name] = seconds, errors.mean(), seconds / count
            print(
                f"  {name:8}{1e3 * seconds:7.1f} ms, {row['full'] / seconds:.1f} x faster than the full model, {count} "
                f"evaluations of {1e3 * seconds / count:.2f} ms, error {errors.mean():.2%}, last {errors[-1]:.2%}"
            )
        mass = abs(decoded.mean(axis=1) - 1).max()
        print(
            f"  its {len(decoded)} fields within bounds: {1e3 * decoding:.1f} ms more; mass off by {mass:.0e}, lowest "
            f"value {decoded.min():.0e} (without bounds {model.inverse_transform(path).min():.0e})"
        )
        best = randsmap.metrics.relative_l2(truth, bounded.predict(model.transform(truth))).mean()
        condition = sampled.condition(path[-1])
        print(f"  fields encoded and decoded: error {best:.2%}; condition of the sampled equations {condition:.1f}")
        results.append(row)
    faster = min(row["jvp"][2] / row["sampled"][2] for row in results)
    worse = max(row["sampled"][1] / row["jvp"][1] for row in results)
    print(f"sampled against whole fields: {faster:.0f} x faster an evaluation, {worse:.2f} x the error")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=300, help="number of sampled cells (300)")
    main(parser.parse_args().cells)
