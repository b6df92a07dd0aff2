"""Run a study: data, split, encoder, then for every decoder and feature count tune, fit and test.

Each finished piece (latents, tuning of a decoder, one run) is a small file, so that an interrupted study can go on.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from randsmap._interface.callers import extrapolation_ignored
from randsmap._interface.parameters import check_choice, check_count
from randsmap._io.progress import ProgressBar, if_asked, show_progress
from randsmap.decoders import KNNDecoder
from randsmap.studies._data import (
    Part,
    error_summary,
    file_description,
    load_data,
    random_split,
    sample_errors,
    seed_for,
    timed,
    trajectory_split,
    user_data,
    user_sizes,
)
from randsmap.studies._figures import View, field_view, harmonics_map, rank_of_rule
from randsmap.studies._result import MAX_SHOWN, StudyResult, save_result
from randsmap.studies._store import Store
from randsmap.studies._study import Study, TunedEncoder, thinned
from randsmap.studies._table import QUANTITIES, with_paper
from randsmap.tuning import tune
from randsmap.tuning._search import on_edge

PAPER_RUNS = 100

_NOTES = (
    "Latents: diffusion time t = 0 and eigenvectors scaled so that the trivial one is 1 everywhere; the paper writes "
    "t = 1, with which its own tuned values do not agree.",
    'The paper\'s "sigma_w" is the length scale of the Gaussian kernel (its text prints the inverse), tuned over a '
    "geometric sequence.",
    "Regularisation lambda = 1e-3 as such, not squared.",
    "Seconds: training is the encoder's fit, the tuning of the decoder and its fit, testing is encoding and decoding "
    "the test set; ours on this machine with all its cores, the paper's on one core of a Xeon E5-2630 v4 in MATLAB.",
    "k-NN: weights that minimise the paper's objective |y - encode(mixture)| (App. B), solved to convergence; on the "
    "training set a point is not its own neighbour, which the paper leaves open.",
)
_MASS_NOTES = (
    "RANDSMAP-Sig-bounds takes the slope that RANDSMAP-Sig was tuned to, and DDM-mass the w_2 of DDM: the "
    "projection changes the errors in the fourth digit only.",
    "RANDSMAP rows conserve mass everywhere; rows ending in -training are the paper's closed form, which "
    "does at the training points only. They take over the tuned values and have at most 5 runs.",
)
_SEARCH_NOTE = (
    "Rows with -auto: `AutoDecoder` searches among random features (RANDSMAP, RFNN), kernels, splines and k-NN "
    "mixtures (Kernel), or k-NN mixtures or DDM alone, with a scale a coordinate, by held-out errors of "
    "the training set (whole trajectories with --split trajectory); -auto-encoder: on the latents of the encoder that "
    "`autotune` chooses in the same way, of as many coordinates. The validation set is not used."
)
_DDM_NOTE = (
    "DDM keeps the harmonics that the paper's printed eigenvalue rule keeps; {label} the number "
    "starred in its figure, with w_2 from the map over (w_2, r) on the validation set, whose time counts "
    "as tuning. Both are compared with the paper's one DDM row."
)


def run_study(
    study: Study,
    *,
    out: str | os.PathLike[str],
    quick: bool = False,
    runs: int | None = None,
    decoders: Sequence[str] | None = None,
    seed: int = 0,
    feature_seed: int | None = None,
    split: str = "random",
    data: str | os.PathLike[str] | None = None,
    training_form: bool | None = None,
    searched: bool | None = None,
    command: str = "",
    progress: bool = True,
) -> StudyResult:
    """Run a study, or go on with one that was interrupted.

    Parameters
    ----------
    study : Study
    out : path
        Folder for the finished pieces and the result; created if missing.
    quick : bool
        Three grid values, one draw for tuning, P = N/4 only, 2 runs, and the study's smaller data if it has them.
    runs : int, optional
        Independent draws of the features, over which medians are taken; by default 100 as in the paper. Raising it
        later keeps the runs already done.
    decoders : sequence of str, optional
        Labels of the decoders to run; by default all.
    seed : int
        Fixes the data, the split and all draws.
    feature_seed : int, optional
        Seed of the features of the runs; data, split and tuned values depend on `seed` only.
    split : {"random", "trajectory"}
        "random" is the paper's split: neighbouring times of one trajectory are in training and test set.
    data : path, optional
        File of your own snapshots (n, n_cells) instead of the study's data, split in the same fractions.
    training_form : bool, optional
        Whether to run the paper's closed form too; by default as the study says.
    searched : bool, optional
        Whether to run the decoders that are searched for by held-out errors too; by default unless `quick`.
    command : str
        Command line to be named in the result.
    progress : bool
        Show a progress bar.

    Returns
    -------
    StudyResult
        Also in `out`, for `load_result`.

    Raises
    ------
    ValueError
        If `out` holds the pieces of another configuration, an argument is not valid, or the data do not suit the study.

    Examples
    --------
    >>> import tempfile
    >>> from randsmap.studies import run_study, s_curve_study
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = run_study(s_curve_study(), out=folder, quick=True, decoders=["POD"], progress=False)
    >>> [row["split"] for row in result.rows]
    ['train', 'test']
    """
    out = Path(out)
    seed = check_count(seed, "seed", low=0)
    feature_seed = seed if feature_seed is None else check_count(feature_seed, "feature_seed", low=0)
    runs = check_count((2 if quick else PAPER_RUNS) if runs is None else runs, "runs")
    check_choice(split, "split", ("random", "trajectory"))
    if quick:
        study = _quick(study)
    if split == "trajectory" and (data is not None or not study.has_trajectories):
        raise ValueError(f"{data or f'the data of {study.name}'} have no trajectories: only split='random' is possible")
    own = None if data is None else user_data(data, study.conserves)
    if own is not None:
        study = replace(study, sizes=user_sizes(study.sizes, len(own[0])))
    options = {
        "runs": runs,
        "quick": quick,
        "seed": seed,
        "feature_seed": feature_seed,
        "split": split,
        "training_form": study.training_form if training_form is None else training_form,
        "searched": not quick if searched is None else searched,
        "decoders": None if decoders is None else list(decoders),
        "data": None if data is None else Path(data).name,
    }
    chosen = _chosen(study, options)
    store = Store(out, _configuration(study, options, own))
    if own is None:
        fields, about = load_data(study, out, _version(), seed, progress)
        view = study.view(about, fields.shape[1])
    else:
        fields, about, view = own[0], {}, user_view(study, *own[0].shape)

    rows: list[Any] = []
    arrays: dict[str, Any] = {}
    findings: list[str] = []
    total = sum(_n_units(case, study, options) for case in chosen) * len(study.sizes)
    with if_asked(progress), ProgressBar(total, study.name, unit="fit") as bar, show_progress(False):
        for sizes in study.sizes:
            part = _part(study, fields, about, sizes, options, store)
            runner = _PartRunner(study, part, view, store, options, bar.update)
            rows += runner.run(chosen)
            arrays.update({f"{part.name}/{key}": value for key, value in runner.arrays().items()})
            findings += _findings(study, chosen, part, about)
    result = StudyResult(
        name=study.name,
        title=_title(study, options, fields.shape[1]),
        section=study.section,
        notes=_notes(study, chosen, findings, options, fields.shape),
        cuts=_cuts(study, chosen, options),
        options=options,
        command=command,
        date=datetime.date.today().isoformat(),
        version=_version(),
        rows=with_paper(rows, paper=own is None),
        arrays=arrays,
    )
    save_result(result, out)
    return result


def _configuration(study, options, own):
    """JSON values on which the pieces of a run depend."""
    return {
        "version": _version(),
        "dataset": study.dataset,
        "data": own[1] if own else {k: repr(v) for k, v in file_description(study.data_options).items()},
        "split": [options["split"], *study.sizes],
        "encoder": repr(study.encoder),
        "decoders": {case.label: repr(case) for case in study.cases},
        "features_per_sample": fractions(options),
        "tuning": [study.tuning_draws, study.tuning_samples, study.tuning_left_out],
        "seed": options["seed"],
        "feature_seed": options["feature_seed"],
    }


def _part(study, fields, about, sizes, options, store):
    """The split of these sizes; all sizes deal from one shuffled deck."""
    seed = seed_for(options["seed"], 1)
    if options["split"] == "random":
        return Part(study, fields, random_split(len(fields), sizes, seed), store)
    rows = trajectory_split(about["trajectories"], sizes, seed)
    return Part(study, fields, rows, store, about["trajectories"][rows[0]])


def _findings(study, chosen, part, about):
    """Sentences on the embedding of the study's own data, and on the encoder that was tuned."""
    found = []
    if study.check_embedding is not None and about:
        found += study.check_embedding(part.latents(study.cases[0])["train"], about, part.rows["train"])
    tuned = next((case for case in chosen if isinstance(case.encoder, TunedEncoder)), None)
    if tuned is not None:
        found.append(f"The tuned encoder (N = {part.n_train}): {part.latents(tuned)['encoder']}.")
    return found


def _title(study, options, n_cells):
    if options["data"] is None:
        return study.title or study.name
    return f"{options['data']} (M = {n_cells}), in the protocol of the study {study.name}"


def _quick(study):
    return replace(
        study,
        cases=tuple(thinned(case) for case in study.cases),
        tuning_draws=1,
        sizes=study.quick_sizes or study.sizes,
        data_options={**study.data_options, **study.quick_options},
    )


def fractions(options: dict[str, Any]) -> tuple[float, ...]:
    """P / N of the decoders with random features, as in the paper."""
    return (0.25,) if options["quick"] else (1.0, 0.5, 0.25)


def _chosen(study, options):
    """The cases to run, in the order of the table."""
    decoders = options["decoders"]
    if decoders is None:
        left_out = [kind for kind in ("training_form", "searched") if not options[kind]]
        return [case for case in study.cases if not any(getattr(case, kind) for kind in left_out)]
    known = [case.label for case in study.cases]
    unknown = [label for label in decoders if label not in known]
    if unknown or not decoders:
        raise ValueError(f"decoders must be among {', '.join(known)}, got {', '.join(unknown) or 'none'}")
    return [case for case in study.cases if case.label in decoders]


def _version():
    from randsmap import __version__

    return __version__


def _draws(case, study):
    return study.tuning_draws if case.draws_features else 1


def _n_units(case, study, options):
    """Fits that the progress bar counts; a tuning that was found or taken over counts as made."""
    tuning = len(case.grid) * _draws(case, study) if case.parameter else 0
    return (tuning + case.runs(options["runs"])) * (len(fractions(options)) if case.draws_features else 1)


def _notes(study, chosen, findings, options, shape):
    own = options["data"]
    if own is None:
        notes = [*study.notes, *findings, *_NOTES]
    else:
        data = f"The data are {own}, {shape[0]} snapshots of {shape[1]} cells, split in the study's fractions"
        notes = [f"{data}; the paper's numbers do not belong to them.", *_NOTES]
    notes += _MASS_NOTES if study.conserves else ()
    notes += [_SEARCH_NOTE] if any(case.searched for case in chosen) else []
    notes += [_DDM_NOTE.format(label=case.label) for case in chosen if case.by_map]
    if options["split"] == "trajectory":
        notes.append(
            "Split by whole trajectories; the paper's random split, to which its numbers "
            "belong, leaks neighbouring times of one trajectory into the test set."
        )
    elif own is None and study.has_trajectories:
        notes.append(
            "The random split, the paper's, puts neighbouring times of one trajectory into "
            "training and test set; --split trajectory does not."
        )
    return notes


def _cuts(study, chosen, options):
    cuts = []
    if options["quick"]:
        cuts.append(
            "Quick run: three of the ten grid values of each hyperparameter, P = N/4 only, "
            "tuning on one draw of the features."
        )
        if study.quick_sizes:
            changed = ", ".join(f"{k} = {v}" for k, v in study.quick_options.items())
            cuts.append(
                f"Quick run: smaller data ({changed}), so no number of the paper belongs to "
                f"it: {study.sizes[0][0]} training points."
            )
    runs = options["runs"]
    if runs < PAPER_RUNS:
        cuts.append(f"{runs} run{'' if runs == 1 else 's'} instead of the paper's {PAPER_RUNS}.")
    if options["decoders"] is not None:
        return [*cuts, f"Only the decoders {', '.join(case.label for case in chosen)}."]
    if not options["training_form"] and any(case.training_form for case in study.cases):
        cuts.append("Without the paper's closed form (--training-form adds it).")
    if not options["searched"] and any(case.searched for case in study.cases):
        cuts.append("Without the decoders that are searched for (--auto adds them).")
    return cuts


class _Tuned(NamedTuple):
    """The value of a hyperparameter, the validation error of each on its grid, the mean seconds of one tuning."""

    value: Any = None
    on_edge: bool = False
    seconds: float = 0.0
    errors: Sequence[float] = ()


class _PartRunner:
    """All decoders on one split of the data."""

    def __init__(self, study, part, view, store, options, update):
        self.study, self.part, self.view, self.store = study, part, view, store
        self.options, self.update = options, update
        self.cases = {case.label: case for case in study.cases}
        self.figures = {}  # label -> (training error, fraction, call that gives the arrays)
        self.ranks = {}  # label -> (_Tuned, number of harmonics)
        self.shown = part.rows["test"][:MAX_SHOWN]
        self.shown_index = view.pick(self.shown)

    def run(self, cases):
        rows = [
            row
            for case in cases
            for fraction in (fractions(self.options) if case.draws_features else (None,))
            for row in self._case(case, fraction)
        ]
        return sorted(rows, key=lambda row: row["split"], reverse=True)  # train, test

    def _case(self, case, fraction):
        tuned = self._tuned(case, fraction)
        name = self._name(case, fraction)
        results = [
            self.store.get(f"{name}-run-{run}", lambda: self._measure(case, fraction, tuned, run), self.update)
            for run in range(case.runs(self.options["runs"]))
        ]
        self.ranks[case.label] = tuned, results[0]["rank"]
        error = float(np.median([result["train"]["rel_l2"] for result in results]))
        if case.label not in self.figures or error < self.figures[case.label][0]:
            make = partial(self._measure, case, fraction, tuned, 0, only_figure=True)
            self.figures[case.label] = error, fraction, partial(self.store.get, f"{name}-figure.npz", make)
        return [self._row(case, fraction, tuned, results, split) for split in ("train", "test")]

    def _name(self, case, fraction):
        return f"{self.part.name}-{case.label}" + ("" if fraction is None else f"-{fraction:g}")

    def _tuned(self, case, fraction):
        """Grid value whose mean error over the draws is lowest."""
        if case.parameter is None:
            return _Tuned()
        if case.by_map:
            piece = self._map(case)
            self.update(len(case.grid))
            errors = piece["errors"][:, piece["ranks"] == case.decoder.rank].T
            seconds = [float(piece["seconds"])]
        else:
            case = self.cases[case.tuned_as or case.label]
            draws = [self._tuning(case, fraction, draw) for draw in range(_draws(case, self.study))]
            errors, seconds = ([draw[key] for draw in draws] for key in ("errors", "seconds"))
        errors = np.mean(errors, axis=0)
        best = case.grid[int(np.nanargmin(errors))]  # NaN: a candidate that could not be fitted
        return _Tuned(best, on_edge(case.grid, best), float(np.mean(seconds)), errors)

    def _tuning(self, case, fraction, draw):
        """Validation error of each grid value for one feature draw."""

        def make():
            decoder = self._decoder(case, fraction, seed_for(self.options["seed"], 3, draw))
            fields, validation, seconds = self.part.tuning_fields(isinstance(decoder, KNNDecoder))
            if fields is not self.part.F_train and "invariants" in decoder.get_params():
                decoder.set_params(invariants=None)  # they are those of fields, not of coefficients
            latents, grid = self.part.latents(case), {case.parameter: list(case.grid)}
            Y_validation = latents["validation"][: len(validation)]
            result, seconds_tune = timed(
                lambda: tune(decoder, grid, latents["train"], fields, Y_validation, validation, callback=self.update)
            )
            return {"errors": result.errors_.tolist(), "seconds": seconds + seconds_tune}

        name = f"{self._name(case, fraction)}-tuning-{draw}"
        return self.store.get(name, make, lambda: self.update(len(case.grid)))

    def _decoder(self, case, fraction, seed):
        # a draw depends on the seed and the run alone, so conservative and plain decoders of the same
        # feature map and size are compared on the same features
        decoder = clone(case.decoder)
        if fraction is not None:
            decoder.set_params(features__n_features=fraction, random_state=seed)
        if isinstance(decoder, KNNDecoder):
            decoder.set_params(encoder=self.part.encoder(case))
        return decoder

    def _map(self, case):
        """The (w_2, r) map of DDM on the validation set."""

        def make():
            part, latents = self.part, self.part.latents(case)
            ranks = sorted({*(r for r in self.study.ranks if r < part.n_train), case.decoder.rank})
            fields, validation, seconds = part.tuning_fields(False)
            Y_validation = latents["validation"][: len(validation)]
            errors, seconds_map = timed(
                lambda: harmonics_map(
                    latents["train"], fields, Y_validation, validation, weights=case.grid, ranks=ranks
                )
            )
            arrays = {"weights": case.grid, "ranks": ranks, "errors": errors, "seconds": seconds + seconds_map}
            if part.n_train <= 2000:  # O(n^3) operations for each w_2
                arrays["rule_ranks"] = [rank_of_rule(latents["train"], w) for w in case.grid]
            return {name: np.array(value) for name, value in arrays.items()}

        return self.store.get(f"{self.part.name}-ddm-map.npz", make)

    def _fit_decoder(self, case, fraction, tuned, run):
        """The decoder of one draw, fitted with the tuned value, and the seconds; no decoder if the encoder decodes."""
        if case.decoder is None:
            return None, 0.0
        decoder = self._decoder(case, fraction, seed_for(self.options["feature_seed"], 2, run))
        if case.parameter is not None:
            decoder.set_params(**{case.parameter: tuned.value})
        groups = {"groups": self.part.groups} if case.searched else {}
        return timed(lambda: decoder.fit(self.part.latents(case)["train"], self.part.F_train, **groups))

    def _measure(self, case, fraction, tuned, run, only_figure=False):
        """Fit one draw with the tuned value and measure it on the training and the test set."""
        part, latents, conserves = self.part, self.part.latents(case), self.study.conserves
        decoder, seconds_fit = self._fit_decoder(case, fraction, tuned, run)
        decode = part.encoder(case).inverse_transform if decoder is None else decoder.predict
        if not only_figure:
            # a training point is not its own neighbour
            others = {"exclude": np.arange(part.n_train)} if isinstance(decoder, KNNDecoder) else {}
            with extrapolation_ignored():
                F_hat = decode(latents["train"], **others)
            train = sample_errors(part.F_train, F_hat, part.references, conserves)
        seconds_decode, errors, reconstructed, out = 0.0, [], [], None
        for block, F in part.test_blocks():
            out = np.empty(F.shape) if out is None else out
            with extrapolation_ignored():
                F_hat, seconds = timed(lambda: decode(latents["test"][block], out=out[: len(F)]))
            seconds_decode += seconds
            errors.append(sample_errors(F, F_hat, part.references, conserves))
            if run == 0 and block.start < MAX_SHOWN:
                reconstructed.append(F_hat[: MAX_SHOWN - block.start].copy())
            if only_figure and block.stop >= MAX_SHOWN:
                break
        test = np.concatenate(errors, axis=1)
        if run == 0:
            figure = self._figure(np.concatenate(reconstructed), test[0, :MAX_SHOWN])
            if only_figure:
                return figure
            self.store.put(f"{self._name(case, fraction)}-figure.npz", figure)
        self.update()
        return {
            "train": error_summary(train, conserves, seconds_fit),
            "test": error_summary(test, conserves, float(latents["seconds_test"]) + seconds_decode),
            "rank": getattr(decoder, "rank_", None),
        }

    def _figure(self, F_hat, errors):
        figure = {**self.view.describe(F_hat), "errors": errors}
        if self.view.shape:
            figure["field"] = F_hat[self.shown_index].reshape(self.view.shape)
        return figure

    def _row(self, case, fraction, tuned, results, split):
        row = {
            "dataset": self.study.dataset,
            "split": split,
            "decoder": case.label,
            "features_per_sample": fraction,
            "n_train": self.part.n_train,
            "parameter": case.parameter,
            "hyperparameter": tuned.value,
            "on_edge": tuned.on_edge,
            "extra": case.extra,
            "runs": len(results),
            "paper_decoder": case.paper_label or (None if case.extra else case.label),
        }
        for quantity in QUANTITIES:
            values = [result[split][quantity] for result in results]
            if quantity == "seconds" and split == "train":
                # training = encoder, tuning and the decoder's fit
                before = tuned.seconds + float(self.part.latents(case)["seconds_fit"])
                values = [value + before for value in values]
            for name, percent in (("median", 50), ("p05", 5), ("p95", 95)):
                row[f"{quantity}_{name}"] = None if None in values else float(np.percentile(values, percent))
        return row

    def arrays(self):
        """Arrays of the figures, of the decoders that were run (keys: `_result`)."""
        view = self.view
        arrays = {
            "point_names": view.point_names,
            "color_name": view.color_name,
            "decoders": list(self.figures),
            "train/latents": self.part.latents(next(iter(self.cases.values())))["train"],
        }
        test = self.part.first_test_fields(MAX_SHOWN)
        for split, F, rows in (("train", self.part.F_train, self.part.rows["train"]), ("test", test, self.shown)):
            described = view.describe(F)
            arrays[f"{split}/color"] = view.colors(F, rows, described)
            arrays.update({f"{split}/{key}": value for key, value in described.items()})
        if view.intrinsic_names:
            arrays.update({"intrinsic_names": view.intrinsic_names, "test/intrinsic": view.intrinsic[self.shown]})
        if view.shape:
            arrays["statistic_names"] = view.statistic_names
            arrays["field/truth"] = test[self.shown_index].reshape(view.shape)
            arrays["field/index"] = self.shown_index
            if view.with_axes:
                arrays.update({f"field/{name}": axis for name, axis in zip("xy", view.axes)})
            if view.mask is not None:
                arrays["field/mask"] = view.mask
        for label, (_, fraction, figure) in self.figures.items():
            arrays[f"decoder/{label}/features_per_sample"] = np.nan if fraction is None else fraction
            arrays.update({f"decoder/{label}/{key}": value for key, value in figure().items()})
        arrays.update(self._map_arrays())
        return {key: np.asarray(value) for key, value in arrays.items()}

    def _map_arrays(self):
        label = next((label for label in self.figures if self.cases[label].by_map), None)
        if label is None:
            return {}
        piece = self._map(self.cases[label])
        arrays = {f"ddm/{key}": value for key, value in piece.items() if key != "seconds"}
        if self.study.starred is not None:
            arrays["ddm/starred"] = np.array(self.study.starred, dtype=float)
        if "DDM" in self.ranks:
            tuned, rank = self.ranks["DDM"]
            errors = dict(zip(self.cases["DDM"].grid, tuned.errors))
            arrays["ddm/rule_errors"] = [errors.get(w, np.nan) for w in piece["weights"]]
            arrays["ddm/rule"] = [tuned.value, rank, errors[tuned.value]]
        return arrays


def user_view(study: Study, n_samples: int, n_cells: int) -> View:
    """View of the user's own snapshots: densities along the cell index, or the first coordinates."""
    nothing = np.empty((n_samples, 0))
    if study.conserves:
        return field_view((np.arange(float(n_cells)),), ("cell",), (0, 1, 2), nothing, ())
    shown = tuple(min(j, n_cells - 1) for j in range(3))
    return View(
        shown=shown,
        point_names=tuple(f"x{j + 1}" for j in shown),
        color=("coordinate", 0),
        color_name="x1",
        intrinsic=nothing,
        intrinsic_names=(),
    )
