"""Definition of a study: data, splits, encoder and decoders; and the decoders that studies share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from randsmap.decoders import (
    AutoDecoder,
    DoubleDiffusionMapsDecoder,
    KernelDecoder,
    KNNDecoder,
    RANDSMAPDecoder,
    RFNNDecoder,
)
from randsmap.encoders import POD, DiffusionMaps
from randsmap.features import FourierFeatures, MultiscaleFourierFeatures, SigmoidFeatures
from randsmap.studies._figures import View
from randsmap.tuning._autotune import chosen_encoder

Fields = NDArray[np.float64]  # (n_samples, n_cells)

# arguments by which ridge and kernel decoders are the paper's
PAPER: dict[str, Any] = {"center": False, "latent_scale": None}
RIDGE: dict[str, Any] = {**PAPER, "regularization": 1e-3}


@dataclass(frozen=True)
class DecoderCase:
    """A decoder of a study: its label in the table and the one parameter that is tuned.

    Parameters
    ----------
    label : str
        In the table, in file names and on the command line.
    decoder : regressor or None
        None: the encoder's own inverse.
    parameter, grid : str or None, tuple
        `set_params` name of the tuned parameter, and its values.
    encoder : transformer or None
        None: the study's encoder.
    tuned_as : str or None
        Label of the case whose tuned value, and tuning time, this case takes over.
    by_map : bool
        Whether it is tuned by the study's (w_2, r) map of DDM, at the decoder's rank.
    paper_label : str or None
        Label of the paper's row to compare with. None: `label`, unless `extra`.
    extra : bool
        Whether the paper lacks this decoder.
    training_form : bool
        Whether it is the paper's closed form, which constrains the training points only.
    searched : bool
        Whether the decoder, or the encoder too, is found by held-out errors of the training set.

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
        """Whether the decoder has random features, so that several runs make sense."""
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

    Parameters
    ----------
    name : str
        On the command line, and of the default folder.
    dataset : str
        In the table; the paper's rows are found by it.
    make_data : callable
        ``make_data(random_state=, out=, progress=, **data_options)`` writes the fields (n_samples, n_cells) to the .npy
        file `out` and returns a Bunch that describes them.
    sizes : tuple of (int, int, int)
        Samples for training, validation and testing, for each table.
    encoder : transformer
    cases : tuple of DecoderCase
    view : callable
        ``view(about, n_cells)`` is the `_figures.View` of data described by the dict `about`.
    title, section : str
        Its title, and its section in the paper.
    conserves : bool
        Whether the fields have a common mass.
    notes : tuple of str
        Readings of the paper and caveats, a sentence each.
    data_options, quick_options : dict
        Arguments of `make_data`, and those that a quick run changes.
    quick_sizes : tuple or None
        Splits of a quick run. None: as `sizes`.
    tuning_draws : int
        Feature draws over which a candidate's error is averaged in tuning.
    tuning_samples : int or None
        Validation samples for tuning. None: all.
    tuning_left_out : float or None
        Candidates, except k-NN, are compared in the leading modes of the training fields, all but this fraction of the
        energy. None: on the fields.
    training_form : bool
        Whether the paper's closed form is run by default.
    ranks : tuple of int
        Numbers of harmonics in the (w_2, r) map of DDM.
    starred : (float, int) or None
        (w_2, r) of the star in the paper's map.
    has_trajectories : bool
        Whether the data have ``trajectories`` to split by.
    check_embedding : callable or None
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


class TunedEncoder(TransformerMixin, BaseEstimator):
    """The encoder that `autotune` chooses for the training fields: width, choice of eigenvectors, or POD.

    Parameters
    ----------
    n_components : int
    alpha : float
        Density normalisation of the diffusion maps tried.
    """

    def __init__(self, n_components: int, alpha: float = 1.0) -> None:
        self.n_components = n_components
        self.alpha = alpha

    def fit(self, X: Fields, y: Any = None, groups: Any = None) -> TunedEncoder:
        self.fit_transform(X, groups=groups)
        return self

    def fit_transform(self, X: Fields, y: Any = None, groups: Any = None) -> Fields:
        self.encoder_ = clone(chosen_encoder(X, self.n_components, alpha=self.alpha, groups=groups))
        return np.asarray(self.encoder_.fit_transform(X))

    def transform(self, X: Fields) -> Fields:
        return np.asarray(self.encoder_.transform(X))


def searched_cases(encoder: DiffusionMaps, *, conserves: bool) -> tuple[DecoderCase, ...]:
    """Decoders that are searched for by held-out errors, on the study's latents and on those of a tuned encoder."""
    mass = "mass" if conserves else None
    features = ("sigmoid", "fourier", "multiscale-fourier", "matern-features")
    kernels = ("gaussian", "multi-gaussian", "matern", "thin-plate", "k-nn")
    families = {"RANDSMAP" if conserves else "RFNN": features, "Kernel": kernels, "k-NN": "k-nn"}
    families["DDM"] = "double-diffusion-maps"
    tuned = TunedEncoder(encoder.n_components, encoder.alpha)
    return tuple(
        DecoderCase(
            f"{name}-auto{suffix}",
            AutoDecoder(families=family, invariants=mass, random_state=0),
            encoder=own,
            extra=True,
            searched=True,
        )
        for suffix, own in (("", None), ("-encoder", tuned))
        for name, family in families.items()
    )


def thinned(case: DecoderCase) -> DecoderCase:
    """The case with three inner values of its grid of ten."""
    if len(case.grid) <= 3:
        return case
    return replace(case, grid=tuple(case.grid[i] for i in (2, 5, 8)))


def paper_cases(
    length_scale: tuple[float, float],
    max_frequency: tuple[float, float],
    slope: tuple[float, float],
    ddm_scale: tuple[float, float],
    n_neighbors: tuple[int, int],
    *,
    conserves: bool,
    d: int,
    starred: tuple[float, int] | None = None,
) -> tuple[DecoderCase, ...]:
    """The decoders of a study's tables, then those that the paper lacks.

    Ranges (low, high) of the tuned parameters become ten values: a geometric sequence for the length scale of the
    Gaussian kernel (the paper's "sigma_w"), arithmetic ones for the others. `d` is the number of POD modes.
    """
    lengths = tuple(np.geomspace(*length_scale, 10).tolist())
    frequencies, slopes, scales = (tuple(np.linspace(*ends, 10).tolist()) for ends in (max_frequency, slope, ddm_scale))
    neighbors = tuple(np.unique(np.linspace(*n_neighbors, 10).round().astype(int)).tolist())
    maps: dict[str, Any] = {
        "RFF": (FourierFeatures(), "features__length_scale", lengths),
        "MS-RFF": (MultiscaleFourierFeatures(), "features__max_frequency", frequencies),
        "Sig": (SigmoidFeatures(), "features__slope", slopes),
    }
    mass = "mass" if conserves else None
    # without an invariant there is nothing to preserve: the tables of the paper then have RFNN
    kind, ridge = ("RANDSMAP", RANDSMAPDecoder) if conserves else ("RFNN", RFNNDecoder)

    cases = [
        DecoderCase(f"{kind}-{name}", ridge(features, **RIDGE), *tuned) for name, (features, *tuned) in maps.items()
    ]
    if conserves:
        cases.append(DecoderCase("RFNN-Sig", RFNNDecoder(SigmoidFeatures(), **RIDGE), *maps["Sig"][1:]))
    cases.append(DecoderCase("DDM", DoubleDiffusionMapsDecoder(**PAPER), "epsilon_scale", scales))
    if starred is not None:
        weight, rank = starred
        grid = scales if weight <= scales[-1] else (*scales, weight)  # beyond the range that the paper's text gives
        decoder = DoubleDiffusionMapsDecoder(rank=rank, **PAPER)
        cases.append(DecoderCase(f"DDM-r{rank}", decoder, "epsilon_scale", grid, by_map=True, paper_label="DDM"))
    cases.append(DecoderCase("k-NN", KNNDecoder(objective="encoder"), "n_neighbors", neighbors))

    extra: Callable[..., DecoderCase] = partial(DecoderCase, extra=True)
    if conserves:
        decoder = RANDSMAPDecoder(SigmoidFeatures(), bounds="nonnegative", **RIDGE)
        cases.append(extra("RANDSMAP-Sig-bounds", decoder, *maps["Sig"][1:], tuned_as="RANDSMAP-Sig"))
        for name, (features, *tuned) in maps.items():
            label = f"RANDSMAP-{name}"
            decoder = RANDSMAPDecoder(features, constraint="training", **RIDGE)
            others: dict[str, Any] = {"tuned_as": label, "paper_label": label, "training_form": True}
            cases.append(extra(f"{label}-training", decoder, *tuned, **others))
        decoder = DoubleDiffusionMapsDecoder(invariants="mass", **PAPER)
        cases.append(extra("DDM-mass", decoder, "epsilon_scale", scales, tuned_as="DDM"))
    multi = KernelDecoder("multi-gaussian", invariants=mass, **RIDGE)
    quadratic = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False))
    return (
        *cases,
        extra("Kernel-Gauss", KernelDecoder("gaussian", invariants=mass, **RIDGE), "length_scale", lengths),
        extra("Kernel-multi-Gauss", multi, "max_frequency", frequencies),
        extra("POD", None, encoder=POD(d, invariants=mass)),
        extra("Quadratic", ridge(quadratic, **RIDGE), encoder=POD(d, invariants=mass)),
    )
