"""Draw docs/_static/hero.svg of the README and the landing page, hero-narrow.svg of phones, card.png, which other sites
show, and method.svg: `python docs/hero.py` (20 s)."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import randsmap
from randsmap.datasets import make_lwr

STATIC = Path(__file__).parent / "_static"
BLUE, VERMILION, GREY, TEXT = "#2a86d6", "#d55e00", "#8a8a8a", "#767676"  # legible on white and on black
STYLE = {"font.size": 8, "svg.fonttype": "path", "svg.hashsalt": "hero", "axes.spines.top": False} | {
    "axes.spines.right": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), TEXT),
}


def gallery_style(gallery_conf, name):
    """Of the gallery's figures, on the site alone: transparent, for light and dark pages."""
    matplotlib.rcParams.update({key: value for key, value in STYLE.items() if not key.startswith("svg")})
    matplotlib.rcParams.update({"savefig.transparent": True, "font.size": 10, "legend.frameon": False})
    matplotlib.rcParams["axes.prop_cycle"] = matplotlib.cycler(color=[BLUE, VERMILION, "#009e73", "#cc79a7", "#e69f00"])


def decoded_field(ax):
    """The first unseen trajectory of traffic at its last time, from three numbers a field."""
    traffic = make_lwr(16, 30, random_state=0)
    test = traffic.trajectories % 5 == 0
    train, held_out = traffic.data[~test], traffic.data[test]
    decoder = randsmap.AutoDecoder(bounds="nonnegative", n_trials=20, random_state=0)
    models = {
        "POD, 3 modes": (randsmap.ManifoldModel(randsmap.POD(3)), VERMILION),
        "randsmap, shift and 2 coordinates": (
            randsmap.ShiftRegistration(randsmap.ManifoldModel(randsmap.POD(2), decoder)),
            BLUE,
        ),
    }
    row, x = 29, traffic.cell_centers
    ax.fill_between(x, held_out[row], color=GREY, alpha=0.35, lw=0, label="full model")
    for name, (model, color) in models.items():
        fields = model.fit(train).inverse_transform(model.transform(held_out))
        error = randsmap.metrics.relative_l2(held_out, fields).mean()
        print(
            f"{name}: mean error {error:.1%}, least value {fields.min():.1e}, mass {abs(fields.sum(1) - 1).max():.0e}"
        )
        ax.plot(x, fields[row], color=color, lw=1.3, label=f"{name}: {error:.0%}")
    ax.axhline(0, color=TEXT, lw=0.5)
    ax.set(xlabel="position on the ring", ylabel="density of cars", xlim=(x[0], x[-1]))
    ax.legend(frameon=False, fontsize=7)
    ax.set_title("A field of an unseen trajectory, and mean errors", fontsize=8)


def mass_errors(ax):
    """The largest relative error of the mass at growing distance from the training points."""
    traffic = make_lwr(16, 30, random_state=0).data
    latents = randsmap.POD(2).fit_transform(traffic)
    latents /= latents.std(axis=0)
    directions = np.random.default_rng(0).normal(size=(500, 2))
    distances = np.geomspace(0.5, 100, 24)
    textbook = {"center": False, "latent_scale": None, "regularization": 1e-3}
    decoders = {
        "ridge regression, not centred": (randsmap.RFNNDecoder(random_state=0, **textbook), VERMILION),
        "the same, centred": (randsmap.RFNNDecoder(random_state=0, regularization=1e-3), GREY),
        "randsmap, nonnegative": (randsmap.RANDSMAPDecoder(bounds="nonnegative", random_state=0), BLUE),
    }
    for name, (decoder, color) in decoders.items():
        decoder.fit(latents, traffic)
        worst = []
        for distance in distances:
            points = distance * directions / np.linalg.norm(directions, axis=1, keepdims=True)
            worst.append(abs(decoder.predict(points).sum(axis=1) - 1).max())
        print(f"{name}: {worst[0]:.0e} to {max(worst):.0e}")
        ax.loglog(distances, worst, color=color, lw=1.5)
        ax.annotate(name, (distances[8], worst[8]), (0, 8), textcoords="offset points", color=color, fontsize=7)
    ax.set(xlabel="distance from the mean, standard deviations", ylabel="relative mass error", ylim=(None, 1e2))
    ax.set_title("Largest mass error at 500 points", fontsize=8)


def method(figure):
    """A field, its latent point, the linear decoder's field there, and the nearest field within the bounds."""
    traffic = make_lwr(16, 30, random_state=0)
    test = traffic.trajectories % 5 == 0
    train, held_out, x = traffic.data[~test], traffic.data[test], traffic.cell_centers
    encoder = randsmap.POD(2).fit(train)
    latents, z = encoder.transform(train), encoder.transform(held_out)
    decoders = (randsmap.RANDSMAPDecoder(bounds=bounds, random_state=0) for bounds in (None, "nonnegative"))
    linear, bounded = (decoder.fit(latents, train).predict(z) for decoder in decoders)
    errors = randsmap.metrics.relative_l2(held_out, bounded)
    row = np.where(errors < np.quantile(errors, 0.3), linear.min(axis=1), 0).argmin()  # good, and the bounds matter
    y, z, linear, bounded = held_out[row], z[row], linear[row], bounded[row]
    # panels, with gaps for the arrows
    panels = figure.subplots(1, 7, width_ratios=(1, 0.55, 1, 0.75, 1, 0.75, 1))
    titles = (
        "snapshot $y$\n$M$ cells",
        "latent point $z$\n$d$ numbers",
        "linear field\nexact mass",
        "decoded field $f(z)$\nmass and bounds",
    )
    for ax, title in zip(panels[::2], titles):
        ax.set_title(title, fontsize=8)
        ax.set(xticks=[], yticks=[])
    for ax, field, color in zip(panels[[0, 4, 6]], (y, linear, bounded), (GREY, VERMILION, BLUE)):
        ax.axhline(0, color=TEXT, lw=0.5)
        ax.fill_between(x[::2], field[::2], color=color, alpha=0.35, lw=0)
        ax.plot(x[::2], field[::2], color=color, lw=1.3)
        ax.set(ylim=(1.4 * linear.min(), 1.1 * max(y.max(), linear.max())))
    panels[2].scatter(*latents[::2].T, s=3, color=GREY, lw=0)
    panels[2].scatter(*z, s=30, color=BLUE, lw=0, zorder=3)
    steps = (
        ("encoder", r"$z = \Psi(y)$"),
        ("features\nand coefficients", r"$\bar y + A^T [1 \mid \varphi(z)]$" + "\n" + r"$C^T f = m$"),
        ("projection", r"$C^T f = m$" + "\n" + r"$0 \leq f$"),
    )
    for ax, (name, formula) in zip(panels[1::2], steps):
        ax.axis("off")
        ax.annotate("", (1.1, 0.5), (-0.1, 0.5), "axes fraction", arrowprops={"arrowstyle": "-|>", "color": TEXT})
        ax.text(0.5, 0.56, name, ha="center", va="bottom", fontsize=7)
        ax.text(0.5, 0.44, formula, ha="center", va="top", fontsize=8)


if __name__ == "__main__":
    options = {"transparent": True, "metadata": {"Date": None}}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 1.8), layout="constrained")
        method(figure)
        figure.savefig(STATIC / "method.svg", **options)
        for name, size, panels in (
            ("hero.svg", (8, 2.7), {"ncols": 2, "width_ratios": (1.4, 1)}),
            ("hero-narrow.svg", (3.8, 4.8), {"nrows": 2}),
            ("card.png", (8, 4.2), {"ncols": 2, "width_ratios": (1.4, 1)}),
        ):
            figure = Figure(figsize=size, layout="constrained")
            card = name == "card.png"
            if card:
                figure.get_layout_engine().set(rect=(0.02, 0.03, 0.96, 0.72))
                figure.text(0.04, 0.86, "randsmap", fontsize=24, weight="bold", color="#222222")
                figure.text(0.04, 0.78, "Reduced-order models that conserve mass", fontsize=13, color="#444444")
            first, second = figure.subplots(**panels)
            decoded_field(first)
            mass_errors(second)
            figure.savefig(STATIC / name, **({"dpi": 150, "metadata": {"Software": None}} if card else options))
