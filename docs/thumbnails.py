"""Draw docs/_static/thumbnails/, one picture for each example of the gallery: `python docs/thumbnails.py` (20 s).

The figures of the examples have axes and legends that cannot be read at this size. These have none.
"""

import io
from pathlib import Path

import numpy as np
from hero import BLUE, GREY, TEXT, VERMILION
from matplotlib.figure import Figure
from PIL import Image
from scipy.integrate import solve_ivp

import randsmap
from randsmap.datasets import make_hughes, make_lwr, make_s_curve


def field(ax, x, reference, *decoded):
    """The reference in grey, and other fields with their colours."""
    ax.fill_between(x, reference, color=GREY, alpha=0.4, lw=0)
    for values, color in decoded:
        ax.plot(x, values, color=color, lw=2.5)
    ax.axhline(0, color=TEXT, lw=1)
    ax.set_xlim(x[0], x[-1])


def first_model(figure):
    """Latents on a ring, coloured by the place of the cars, about a field and what is decoded."""
    traffic = make_lwr(16, 40, random_state=0)
    test = traffic.trajectories % 5 == 0
    encoder = randsmap.DiffusionMaps(3, epsilon_scale=0.3).fit(traffic.data[~test])
    latents = encoder.transform(traffic.data[~test])
    decoder = randsmap.KernelDecoder("matern", nu=1.5, degree=1, regularization=1e-4).fit(latents, traffic.data[~test])
    place = np.angle(traffic.data[~test] @ np.exp(2j * np.pi * np.arange(400) / 400))
    ax = figure.add_axes((0.2, 0.02, 0.6, 0.96))
    ax.scatter(*latents[:, :2].T, c=place, cmap="hsv", s=14, lw=0)
    inner = figure.add_axes((0.35, 0.33, 0.3, 0.34))
    row = 25
    decoded = decoder.predict(encoder.transform(traffic.data[test]))[row]
    field(inner, traffic.cell_centers, traffic.data[test][row], (decoded, BLUE))
    return [ax, inner]


def six_decoders(figure):
    """Bars of the errors."""
    points = make_s_curve(900, random_state=0).data
    encoder = randsmap.DiffusionMaps(2, epsilon_scale=0.2, select="non-harmonic").fit(points[::2])
    latents, test = encoder.transform(points[::2]), encoder.transform(points[1::2])
    decoders = (
        randsmap.AutoDecoder(random_state=0),
        randsmap.KernelDecoder("matern", nu=2.5, degree=1, regularization=1e-5),
        randsmap.RANDSMAPDecoder(invariants=None, random_state=0),
        randsmap.DoubleDiffusionMapsDecoder(),
        randsmap.KNNDecoder(6, objective="encoder", encoder=encoder),
        randsmap.KNNDecoder(6),
    )
    errors = [
        randsmap.metrics.relative_l2(points[1::2], decoder.fit(latents, points[::2]).predict(test)).mean()
        for decoder in decoders
    ]
    ax = figure.add_axes((0.08, 0.08, 0.84, 0.84))
    ax.barh(range(6), sorted(errors, reverse=True), color=[GREY] * 5 + [BLUE], height=0.7)
    return [ax]


def nonnegative(figure):
    """The foot of a block, where a decoder without bounds goes below 0."""
    x = (np.arange(300) + 0.5) / 300
    latents = np.random.default_rng(0).uniform((0.3, 0.08), (0.7, 0.16), (300, 2))

    def block(points):
        sides = [np.tanh((x - points[:, :1] + side * points[:, 1:]) / 0.01) for side in (1, -1)]
        return (sides[0] - sides[1]) / (sides[0] - sides[1]).sum(axis=1, keepdims=True)

    point = np.array([[0.537, 0.115]])
    kernel = {"kernel": "matern", "degree": 1, "regularization": 1e-6, "invariants": "mass"}
    decoders = [randsmap.KernelDecoder(**kernel, bounds=bounds) for bounds in (None, "nonnegative")]
    free, bounded = (decoder.fit(latents, block(latents)).predict(point)[0] for decoder in decoders)
    ax = figure.add_axes((0.02, 0.02, 0.96, 0.96))
    field(ax, x, block(point)[0], (free, VERMILION), (bounded, BLUE))
    ax.set(xlim=(0.36, 0.5), ylim=(1.4 * free.min(), 0.9 * free.max()))
    return [ax]


def leverage(figure):
    """Leverage in the plane about training points on an annulus."""
    rng = np.random.default_rng(0)
    angle, radius = rng.uniform(0, 2 * np.pi, 250), rng.uniform(0.7, 1.1, 250)
    latents = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    x = np.linspace(0, 1, 50)
    fields = np.exp(-(((x - 0.5 - 0.15 * latents[:, :1]) / (0.08 + 0.03 * latents[:, 1:])) ** 2))
    decoder = randsmap.KernelDecoder("gaussian", regularization=1e-8).fit(latents, fields)
    sides = np.linspace(-2.4, 2.4, 121), np.linspace(-1.6, 1.6, 81)
    values = decoder.leverage(np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)).reshape(81, 121)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.pcolormesh(*sides, np.log10(np.maximum(values, 1e-8)), cmap="viridis", shading="gouraud")
    ax.contour(*sides, values, [decoder.leverage_limit_], colors="white", linewidths=2)
    ax.plot(*latents.T, "k.", ms=4)
    return [ax]


def moving(figure):
    """A wave over time, and the same with its shift taken out."""
    traffic = make_lwr(1, 400, random_state=3)
    order = np.argsort(traffic.times)
    fields = traffic.data[order]
    model = randsmap.ShiftRegistration(randsmap.ManifoldModel(randsmap.POD(2), randsmap.KernelDecoder())).fit(fields)
    cells = np.round(400 * model.transform(fields)[:, 0] / (2 * np.pi)).astype(int)
    still = np.array([np.roll(each, 200 - shift) for each, shift in zip(fields, cells)])
    axes = [figure.add_axes((left, 0.02, 0.47, 0.96)) for left in (0.01, 0.52)]
    for ax, values in zip(axes, (fields, still)):
        ax.imshow(values.T, origin="lower", aspect="auto", cmap="viridis", vmax=0.7 * fields.max())
    return axes


def parameters(figure):
    """Two known pulses, and the one between them, by the model and by linear interpolation."""
    x = np.linspace(0, 1, 400)
    left, middle, right = (np.exp(-(((x - place) / 0.07) ** 2)) for place in (0.25, 0.5, 0.75))
    ax = figure.add_axes((0.02, 0.06, 0.96, 0.9))
    for known in (left, right):
        ax.plot(x, known, color=TEXT, lw=1.5)
    field(ax, x, middle, ((left + right) / 2, VERMILION), (middle, BLUE))
    ax.annotate("", (0.42, 0.93), (0.29, 0.93), arrowprops={"arrowstyle": "-|>", "color": TEXT})
    ax.annotate("", (0.58, 0.93), (0.71, 0.93), arrowprops={"arrowstyle": "-|>", "color": TEXT})
    return [ax]


def vortex(figure):
    """The drop on its way, with cells in which a reduced model evaluates the equation."""
    n, nu, most = 120, 2e-3, 40.0
    side = (np.arange(n) + 0.5) / n
    X, Y = np.meshgrid(side, side, indexing="ij")
    u, v = 0.5 * np.sin(2 * np.pi * Y), -0.5 * np.sin(2 * np.pi * X)

    def rate(t, f):
        f = f.reshape(n, n)
        west, east, south, north = (np.roll(f, shift, axis) for axis in (0, 1) for shift in (1, -1))
        flux_x, flux_y = (b * (1 - b / most) - a * (1 - a / most) for a, b in ((west, east), (south, north)))
        diffusion = nu * n**2 * (west + east + south + north - 4 * f)
        return (diffusion - (u * flux_x + v * flux_y) * n / 2).ravel()

    start = np.exp(-((X - 0.335) ** 2 + (Y - 0.655) ** 2) / (2 * 0.08**2)).ravel()
    times = np.linspace(0, 1, 12)
    path = solve_ivp(rate, (0, 1), start / start.mean(), t_eval=times, method="RK23", rtol=1e-4, atol=1e-4).y.T
    encoder = randsmap.POD(6, invariants="mass").fit(path)
    latents = encoder.transform(path)
    decoder = randsmap.KernelDecoder("matern", nu=2.5, length_scale=10.0, degree=1, regularization=1e-6)
    cells = randsmap.sample_cells(decoder.fit(latents, path), latents, 60)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.imshow(path[6].reshape(n, n).T, origin="lower", extent=(0, 1, 0, 1), aspect="auto", cmap="viridis")
    ax.plot(X.flat[cells], Y.flat[cells], "o", color="white", ms=3.5, mew=0)
    ax.set(xlim=(0, 1), ylim=(0.2, 0.87))
    return [ax]


def crowd(figure):
    """A crowd that parts at an obstacle."""
    shape = (80, 20)
    crowd = make_hughes(1, 40, n_cells=shape, t_end=20.0, dt=0.05, random_state=1)
    solid = np.ptp(crowd.data, axis=0) == 0
    order = np.argsort(crowd.times)
    axes = [figure.add_axes((0.01, bottom, 0.98, 0.31)) for bottom in (0.68, 0.345, 0.01)]
    for ax, row in zip(axes, order[[4, 14, 24]]):
        ax.imshow(crowd.data[row].reshape(shape).T, origin="lower", aspect="auto", cmap="viridis")
        hidden = np.ma.masked_equal(solid.reshape(shape).T, False)
        ax.imshow(hidden, origin="lower", aspect="auto", cmap="gray", vmin=0, vmax=1.6)
    return axes


EXAMPLES = (first_model, six_decoders, nonnegative, leverage, moving, parameters, vortex, crowd)

if __name__ == "__main__":
    for number, draw in enumerate(EXAMPLES, 1):
        figure = Figure(figsize=(3, 2))
        for ax in draw(figure):
            ax.set(xticks=[], yticks=[])
            ax.patch.set_alpha(0)
            ax.spines[:].set_visible(False)
        figure.savefig(drawn := io.BytesIO(), dpi=160, transparent=True)
        path = Path(__file__).parent / "_static" / "thumbnails" / f"{number}.png"
        Image.open(drawn).quantize(255).save(path, optimize=True)
