"""Draw docs/_static/hero.svg, the figure of the README and of the landing page: `python docs/hero.py` (10 s)."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import randsmap
from randsmap.datasets import make_lwr

BLUE, VERMILION, GREY, TEXT = "#2a86d6", "#d55e00", "#8a8a8a", "#767676"  # legible on white and on black
STYLE = {"font.size": 8, "svg.fonttype": "path", "svg.hashsalt": "hero", "axes.spines.top": False} | {
    "axes.spines.right": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), TEXT),
}


def gallery_style(gallery_conf, name):
    """Of the gallery's figures, on the site alone: transparent, for light and dark pages."""
    matplotlib.rcParams.update({key: value for key, value in STYLE.items() if not key.startswith("svg")})
    matplotlib.rcParams.update({"savefig.transparent": True, "font.size": 10, "legend.frameon": False})


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
        ax.annotate(name, (distances[8], worst[8]), (0, 5), textcoords="offset points", color=color, fontsize=7)
    ax.set(xlabel="distance from the mean, standard deviations", ylabel="relative mass error")
    ax.set_title("Largest mass error at 500 points", fontsize=8)


if __name__ == "__main__":
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 2.7), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
        decoded_field(left)
        mass_errors(right)
        figure.savefig(Path(__file__).parent / "_static" / "hero.svg", transparent=True, metadata={"Date": None})
