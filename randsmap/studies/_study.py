"""Studies: their data, splits, encoders, decoders and grids, what figures show, and the five of the paper."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import randsmap
from randsmap._interface.arrays import as_array
from randsmap._interface.fields import flattened
from randsmap._interface.parameters import check_choice
from randsmap.invariants import InvariantParameters, fit_estimator
from randsmap.studies._result import data_file, documented

Values = NDArray[np.float64]  # of fields (n_samples, n_cells)
Sizes = tuple[int, int, int]  # of training, validation and test set

# arguments that make ridge and kernel decoders those of the paper
PAPER: dict[str, Any] = {"center": False, "latent_scale": None}
RIDGE: dict[str, Any] = {**PAPER, "regularization": 1e-3}


@dataclass(frozen=True)
class DecoderCase:
    """A decoder of a study: its label in the table and the one parameter that is tuned.

    Use it to add a decoder to a `Study`. Outside studies `tune` does the same for an estimator.

    Parameters
    ----------
    label : str
        In the table, in file names and on the command line.
    decoder : regressor or None
        None: the encoder's own inverse.
    parameter, grid : str or None, tuple, default=None, ()
        `set_params` name of the tuned parameter, and its values.
    encoder : transformer, "autotune" or None, default=None
        "autotune": the encoder that `autotune` chooses for the training fields, with as many latents as the study's
        encoder. None: the study's encoder.
    tuned_as, paper_label : str or None, default=None
        Labels of the case whose tuned value, and tuning time, this case takes over, and of the paper's row to compare
        with (None: `label`, unless `extra`).
    by_map, extra, training_form, searched : bool, default=False
        Whether it is tuned by the study's (w_2, r) map of DDM at the decoder's rank, or is not in the paper. Whether it
        is the paper's closed form, which constrains the training points only, or is found by cross-validation errors.

    Examples
    --------
    >>> import randsmap
    >>> from randsmap.studies import DecoderCase
    >>> DecoderCase("k-NN", randsmap.KNNDecoder(), "n_neighbors", (2, 5, 11)).runs(100)
    1
    """

    label: str
    decoder: Any
    parameter: str | None = None
    grid: tuple[float, ...] = ()
    encoder: Any = None
    tuned_as: str | None = None
    by_map: bool = False
    paper_label: str | None = None
    extra: bool = False
    training_form: bool = False
    searched: bool = False

    @property
    def draws_features(self) -> bool:
        """True if the decoder has random features, so that several runs make sense."""
        return self.decoder is not None and "features__n_features" in self.decoder.get_params()

    def runs(self, runs: int) -> int:
        """Number of runs for this case.

        Parameters
        ----------
        runs : int
            Number requested.

        Returns
        -------
        int
            1 if no features are drawn.
        """
        if not self.draws_features:
            return 1
        return min(runs, 5) if self.training_form else runs  # each of these runs takes an SVD


@dataclass(frozen=True)
class Study:
    """Data set, splits, encoder and decoders of a study.

    Use it to compare decoders on your own data, as `run_study` does on the paper's. Use `autotune` for one model.

    Parameters
    ----------
    name, dataset : str
        On the command line, and in the tables, the paper's too.
    make_data : callable
        ``make_data(random_state=, out=, progress=, **data_options)`` writes the fields (n_samples, n_cells) to the .npy
        file `out` and returns a Bunch that describes them.
    sizes : tuple of (int, int, int)
        Samples for training, validation and testing, for each table.
    encoder : transformer
    cases : tuple of DecoderCase
    view : callable
        ``view(about, n_cells)`` is the `_data.View` of data described by the dict `about`.
    title, section : str, default=""
        Its title, and its section in the paper.
    conserves : bool, default=True
        Whether the fields have a common mass.
    notes : tuple of str, default=()
        Interpretations of the paper and caveats, a sentence each.
    data_options, quick_options : dict
        Arguments of `make_data`, and those that a quick run changes.
    quick_sizes : tuple or None, default=None
        Splits of a quick run. None: as `sizes`.
    tuning_draws, tuning_samples : int, default=3, None
        Feature draws over which a candidate's error is averaged in tuning, and validation samples (None: all).
    tuning_left_out : float or None, default=None
        Candidates, except k-NN, are compared in the leading modes of the training fields, all but this fraction of the
        energy. None: on the fields.
    ranks : tuple of int, default=(2, 3, 5, 8, 13, 18, 25, 35, 50, 75, 100)
        Numbers of harmonics in the (w_2, r) map of DDM.
    starred : (float, int) or None, default=None
        (w_2, r) of the star in the paper's map.
    training_form, has_trajectories : bool, default=True, False
        Whether the paper's closed form is run by default, and the data have ``trajectories`` to split by.
    check_embedding : callable or None, default=None
        ``check_embedding(latents, about, rows)`` returns sentences for the notes.

    Examples
    --------
    >>> from randsmap.studies import lwr_study
    >>> study = lwr_study()
    >>> study.name, study.conserves, len(study.cases) > 10
    ('lwr', True, True)
    """

    name: str
    dataset: str
    make_data: Callable[..., Any]
    sizes: tuple[tuple[int, int, int], ...]
    encoder: Any
    cases: tuple[DecoderCase, ...]
    view: Callable[[dict[str, Any], int], View]
    title: str = ""
    section: str = ""
    conserves: bool = True
    notes: tuple[str, ...] = ()
    data_options: dict[str, Any] = field(default_factory=dict)
    quick_options: dict[str, Any] = field(default_factory=dict)
    quick_sizes: tuple[tuple[int, int, int], ...] | None = None
    tuning_draws: int = 3
    tuning_samples: int | None = None
    tuning_left_out: float | None = None
    training_form: bool = True
    ranks: tuple[int, ...] = (2, 3, 5, 8, 13, 18, 25, 35, 50, 75, 100)
    starred: tuple[float, int] | None = None
    has_trajectories: bool = False
    check_embedding: Callable[..., list[str]] | None = None


def quick_form(study: Study) -> Study:
    """The study of a quick run: three of ten grid values, one draw for tuning, smaller data if it has them."""
    thinned = [replace(case, grid=case.grid[2:9:3]) if len(case.grid) > 3 else case for case in study.cases]
    return replace(
        study,
        cases=tuple(thinned),
        tuning_draws=1,
        sizes=study.quick_sizes or study.sizes,
        data_options={**study.data_options, **study.quick_options},
    )


def user_study(study: Study, path: Path) -> tuple[Study, Values]:
    """The study of the user's own snapshots in a file, and these (n, n_cells); ValueError where they do not suit."""
    fields = as_array(flattened(randsmap.read_snapshots(path), str(path))[0], str(path))
    n, M = fields.shape
    if study.conserves:
        view = View((0, 1, 2), axes={"cell": np.arange(float(M))})
        try:
            fit_estimator(InvariantParameters(invariants="mass"), fields, fields.dtype)
        except ValueError as error:
            remedy = "scale every row to one sum, or use a study without (s-curve)"
            raise ValueError(f"{path}: {error}. This study's decoders keep the sum of the cells; {remedy}") from None
    else:
        shown = tuple(min(j, M - 1) for j in range(3))
        view = View(shown, tuple(f"x{j + 1}" for j in shown))
    note = f"The data are {path.name}, {n} snapshots of {M} cells, split in the study's fractions"
    changed: dict[str, Any] = {
        "title": f"{path.name} (M = {M}), in the protocol of the study {study.name}",
        "notes": (f"{note}; the paper's numbers do not belong to them.",),
        "sizes": user_sizes(study.sizes, n),
        "view": lambda about, n_cells: view,
        "data_options": {"data": path},
        **{"quick_sizes": None, "has_trajectories": False, "check_embedding": None},
    }
    return replace(study, **changed), fields


def searched_cases(*, conserves: bool) -> tuple[DecoderCase, ...]:
    """Decoders that cross-validation finds, on the study's latents and on those of a tuned encoder."""
    families = {
        "RANDSMAP" if conserves else "RFNN": ("sigmoid", "fourier", "multiscale-fourier", "matern-features"),
        "Kernel": ("gaussian", "multi-gaussian", "matern", "thin-plate", "k-nn"),
        "k-NN": "k-nn",
        "DDM": "double-diffusion-maps",
    }
    mass = "mass" if conserves else None
    auto = partial(randsmap.AutoDecoder, invariants=mass, random_state=0)
    return tuple(
        DecoderCase(f"{name}-auto{suffix}", auto(families=family), encoder=encoder, extra=True, searched=True)
        for suffix, encoder in (("", None), ("-encoder", "autotune"))
        for name, family in families.items()
    )


def paper_cases(
    ranges: Mapping[str, tuple[float, float]], *, conserves: bool, d: int, starred: tuple[float, int] | None = None
) -> tuple[DecoderCase, ...]:
    """The decoders of a study's tables, by the ranges of the tuned parameters, then those that the paper lacks."""
    # ten values: a geometric sequence for the Gaussian kernel's length scale (the paper's "sigma_w"), else arithmetic
    grids = {name: np.linspace(*ends, 10) for name, ends in ranges.items()}
    grids["length_scale"] = np.geomspace(*ranges["length_scale"], 10)
    grids["n_neighbors"] = np.unique(grids["n_neighbors"].round().astype(int))
    cases: list[DecoderCase] = []

    def add(label: str, decoder: Any, parameter: str = "", beyond: tuple[float, ...] = (), **about: Any) -> None:
        grid = (*grids[parameter.removeprefix("features__")].tolist(), *beyond) if parameter else ()
        cases.append(DecoderCase(label, decoder, parameter or None, grid, **about))

    sigmoids = (randsmap.SigmoidFeatures(), "features__slope")
    maps = {
        "RFF": (randsmap.FourierFeatures(), "features__length_scale"),
        "MS-RFF": (randsmap.MultiscaleFourierFeatures(), "features__max_frequency"),
        "Sig": sigmoids,
    }
    conservative, plain = partial(randsmap.RANDSMAPDecoder, invariants="mass"), randsmap.RFNNDecoder
    ddm, kernel = randsmap.DoubleDiffusionMapsDecoder, randsmap.KernelDecoder
    free = {**PAPER, "invariants": None}
    # without invariants the tables of the paper have RFNN
    kind, ridge, mass = ("RANDSMAP", conservative, "mass") if conserves else ("RFNN", plain, None)

    for name, (features, parameter) in maps.items():
        add(f"{kind}-{name}", ridge(features, **RIDGE), parameter)
    if conserves:
        add("RFNN-Sig", plain(sigmoids[0], **RIDGE), sigmoids[1])
    add("DDM", ddm(**free), "epsilon_scale")
    if starred is not None:
        weight, rank = starred
        beyond = (weight,) if weight > ranges["epsilon_scale"][1] else ()  # the range that the paper's text gives
        add(f"DDM-r{rank}", ddm(rank=rank, **free), "epsilon_scale", beyond, by_map=True, paper_label="DDM")
    add("k-NN", randsmap.KNNDecoder(objective="encoder"), "n_neighbors")

    n_paper = len(cases)
    if conserves:
        bounded = conservative(sigmoids[0], bounds="nonnegative", **RIDGE)
        add("RANDSMAP-Sig-bounds", bounded, sigmoids[1], tuned_as="RANDSMAP-Sig")
        for name, (features, parameter) in maps.items():
            closed_form, label = conservative(features, constraint="training", **RIDGE), f"RANDSMAP-{name}"
            add(f"{label}-training", closed_form, parameter, tuned_as=label, paper_label=label, training_form=True)
        add("DDM-mass", ddm(invariants="mass", **PAPER), "epsilon_scale", tuned_as="DDM")
    add("Kernel-Gauss", kernel("gaussian", invariants=mass, **RIDGE), "length_scale")
    add("Kernel-multi-Gauss", kernel("multi-gaussian", invariants=mass, **RIDGE), "max_frequency")
    pod = randsmap.POD(d, invariants=mass)
    add("POD", None, encoder=pod)
    quadratic = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False))
    add("Quadratic", ridge(quadratic, **RIDGE), encoder=pod)
    return (*cases[:n_paper], *(replace(case, extra=True) for case in cases[n_paper:]))


# --- the data: read, split, errors of its samples -----------------------------------------------------
def user_sizes(sizes: Iterable[Sizes], n_samples: int) -> tuple[Sizes, ...]:
    """Split sizes of a study, scaled to n_samples samples."""
    fewest = 30  # training samples: P = N/4 is then 7 features
    scaled = []
    for train, validation, test in sizes:
        total = train + validation + test
        n_train, n_validation = (n_samples * part // total for part in (train, validation))
        if n_train < fewest:
            given = f"{n_train} for training (the study's fraction is {train / total:g})"
            raise ValueError(f"{n_samples} samples give {given}, expected at least {fewest}")
        scaled.append((n_train, n_validation, n_samples - n_train - n_validation))
    return tuple(scaled)


# --- what the figures show ------------------------------------------------------------------------
@dataclass(frozen=True)
class View:
    """Selection of columns, axes and colours for the figures of a study."""

    shown: tuple[int, ...]  # columns that are plotted: of the summary statistics, or of a point's coordinates
    names: tuple[str, ...] = ()  # of the columns of points
    intrinsic: Mapping[str, Values] = field(default_factory=dict)  # known values (n_samples,) that no field has
    axes: Mapping[str, Values] = field(default_factory=dict)  # coordinates along each axis of a field; {} for points
    mask: NDArray[np.bool_] | None = None  # (nx, ny), False where a field is always 0
    color: str | None = None  # of the intrinsic values, or angles on a ring of cells; None: the first column shown
    target: float | None = None  # first intrinsic value of the field shown; None: the middle one
    with_axes: bool = True  # whether the coordinates of the axes have a meaning (not for images)

    @property
    def statistic_names(self) -> tuple[str, ...]:
        """Names of all summary statistics."""
        return tuple(f"{what} {axis}" for axis in self.axes for what in ("mean", "variance", "skewness"))

    @property
    def point_names(self) -> tuple[str, ...]:
        """Names of the columns that are plotted."""
        return tuple(self.statistic_names[j] for j in self.shown) if self.axes else self.names

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a field; () for points."""
        return tuple(len(axis) for axis in self.axes.values())

    def describe(self, F: Values) -> dict[str, Values]:
        """Arrays ``points`` and, for fields, ``statistics`` of samples F (n, n_cells)."""
        if not self.axes:
            return {"points": np.ascontiguousarray(F[:, list(self.shown)])}
        statistics = summary_statistics(F, list(self.axes.values()))
        return {"points": statistics[:, list(self.shown)], "statistics": statistics}

    def colors(self, F: Values, rows: NDArray[np.intp], points: Values) -> Values:
        """Values (n,) that colour samples F, which are these rows of the data and have these `points`."""
        if self.color in self.intrinsic or self.color is None:
            return points[:, 0] if self.color is None else self.intrinsic[self.color][rows]
        return np.angle(F @ np.exp(2j * np.pi * np.arange(F.shape[1]) / F.shape[1]))

    def pick(self, rows: NDArray[np.intp]) -> int:
        """Index of the sample that is shown as a field."""
        if self.target is None:
            return len(rows) // 2
        first = next(iter(self.intrinsic.values()))
        return int(np.argmin(abs(first[rows] - self.target)))


def summary_statistics(F: Values, axes: Sequence[Values]) -> Values:
    """Mean, variance and skewness of densities F (n, n_cells) along each axis; NaN if mass or variance are not > 0."""
    F = np.asarray(F).reshape(len(F), *map(len, axes))
    columns = []
    with np.errstate(invalid="ignore", divide="ignore"):
        for i, x in enumerate(axes):
            density = F.sum(axis=tuple(j + 1 for j in range(len(axes)) if j != i))
            mass = density.sum(axis=1)
            mean = density @ x / mass
            offset = x - mean[:, None]
            variance, third = (np.einsum("ij,ij->i", density, offset**power) / mass for power in (2, 3))
            variance[~(variance > 0)] = np.nan  # negative values of a reconstruction may leave none
            columns += [mean, variance, third / variance**1.5]
    return np.column_stack(columns)


def point_view(about: Mapping[str, Any], shown: tuple[int, ...], names: tuple[str, ...]) -> View:
    """View of points of a manifold, coloured by their first intrinsic coordinate."""
    coordinates = [str(name) for name in about["coordinate_names"]]
    return View(shown, names, dict(zip(coordinates, about["coordinates"].T)), color=coordinates[0])


# --- the five studies, and how the paper was read -----------------------------------------------------
_TABLE: dict[str, Any] = tomllib.loads(data_file("studies.toml"))
NOTES: dict[str, Any] = _TABLE["notes"]  # notes of more than one study


def _study(name: str, view: Callable[[Any, int], View], texts: Mapping[str, str] | None = None, **more: Any) -> Study:
    """A study of the data file, with the paper's decoders and those that are searched for; `texts` replace notes."""
    about = {key: _as_tuples(value) for key, value in _TABLE["studies"][name].items()}
    encoder, conserves = randsmap.DiffusionMaps(**about.pop("encoder")), about.get("conserves", True)
    make_data, ranges = getattr(randsmap.datasets, about.pop("maker")), about.pop("ranges")
    cases = paper_cases(ranges, conserves=conserves, d=encoder.n_components, starred=about.get("starred"))
    about["cases"] = (*cases, *searched_cases(conserves=conserves))
    texts = {**_TABLE["texts"], **(texts or {})}
    about["notes"] = tuple(texts.get(note, note) for note in about["notes"])
    return Study(name, name.replace("-", "_"), make_data, encoder=encoder, view=view, **about, **more)


def _as_tuples(value):
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


@documented
def swiss_roll_study() -> Study:
    """The Swiss roll as the paper describes it, sparse (N = 1000) and dense (N = 2000).

    {study}
    """
    return _study("swiss-roll", lambda about, _: point_view(about, (0, 1, 2), ("x1", "x2", "x3")))


@documented
def s_curve_study() -> Study:
    """The S-curve in 20 dimensions as the paper describes it, N = 1000.

    Eigenvectors by non-harmonic selection: the first and the third, which the paper's caption names, do not resolve the
    width.

    {study}
    """
    return _study("s-curve", lambda about, _: point_view(about, (0, 5, 19), ("x1", "x6", "x20")))


@documented
def lwr_study() -> Study:
    """The traffic study (Lighthill, Whitham, Richards) as the paper describes it.

    12000 snapshots of 100 trajectories: 2000 for training, 2000 for validation and 8000 for testing.

    {study}
    """
    return _study("lwr", _traffic_view)


def _traffic_view(about, _):
    moments = {"time": about["times"], "trajectory": about["trajectories"]}
    # shocks have formed at t = 15
    color = "mean position on the ring (angle)"
    return View((0, 1, 2), intrinsic=moments, axes={"x": about["cell_centers"]}, color=color, target=15.0)


@documented
def mri_study(image: str | os.PathLike[str] | None = None) -> Study:
    """The study of rotated images as the paper describes it.

    3600 rotations of one image: 720 for training, 720 for validation and 2160 for testing.

    Parameters
    ----------
    image : path, default=None
        Your own image (see `randsmap.datasets.make_rotated_images`); by default the head phantom.

    {study}
    """
    texts, options = {}, {}
    if image is not None:
        texts, options = {"phantom": f"The image is {Path(image).name}."}, {"image": str(image)}
    return _study("mri", _image_view, texts, data_options=options, check_embedding=_check_embedding)


def _image_view(about, _):
    height, width = (int(size) for size in about["shape"])
    return View(
        shown=(3, 0, 4),  # statistics along the rows, then along the columns
        axes={"row": np.arange(float(height)), "column": np.arange(float(width))},
        intrinsic={"angle": about["angles"]},
        color="angle",
        target=0.0,
        with_axes=False,
    )


def _check_embedding(latents, about, rows):
    number = randsmap.datasets.warn_unless_covered_once(latents, about["angles"][rows])
    return [
        f"While the image makes one turn its embedding goes round {abs(number)} time"
        f"{'' if abs(number) == 1 else 's: angles share latent points, errors mean little'}."
    ]


@documented
def hughes_study(normalization: str = "before") -> Study:
    """The paper's study of Hughes' crowd in a corridor with an obstacle.

    30000 snapshots of 80 trajectories: 5000 for training, 5000 for validation and 20000 for testing.

    Parameters
    ----------
    normalization : {"before", "after"}, default "before"
        See `randsmap.datasets.make_hughes`.

    {study}
    """
    texts = {"normalization": _TABLE["texts"][check_choice(normalization, "normalization", ("before", "after"))]}
    return _study("hughes", _crowd_view, texts, data_options={"normalization": normalization})


def _crowd_view(about, _):
    nx, ny = (int(size) for size in about["shape"])
    x, y = about["cell_centers"].reshape(nx, ny, 2).transpose(2, 0, 1)
    return View(
        shown=(0, 3, 1),
        axes={"x": x[:, 0].copy(), "y": y[0].copy()},
        intrinsic={"time": about["times"], "trajectory": about["trajectories"]},
        mask=about["mask"].reshape(nx, ny),
        target=10.0,  # the crowd passes the obstacle
    )
