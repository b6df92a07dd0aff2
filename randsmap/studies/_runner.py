"""Run a study: its data and splits, then for every decoder and feature count tune, fit, test; each piece is a file."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray
from sklearn.base import clone

import randsmap
from randsmap._interface.callers import extrapolation_ignored
from randsmap._interface.parameters import check_choice, check_count
from randsmap._io.files import checksum
from randsmap._io.progress import ProgressBar, if_asked
from randsmap._linalg.distances import gaussian_kernel, gaussian_of_data
from randsmap._linalg.scales import median_norm
from randsmap._linalg.svd import low_rank
from randsmap.metrics import conservation_error, field_norms, scaled_l2, scaled_linf
from randsmap.studies import _result
from randsmap.studies._result import MAX_SHOWN, PERCENTILES, QUANTITIES, Piece, Row, StudyResult, documented, stored
from randsmap.studies._study import NOTES, DecoderCase, Sizes, Study, Values, quick_form, user_study
from randsmap.tuning._autotune import chosen_encoder
from randsmap.tuning._search import on_edge

PAPER_RUNS = 100  # feature draws of the medians in the paper's tables


@documented
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
    quick : bool, default=False
        Three grid values, one draw for tuning, P = N/4 only, 2 runs, and the study's smaller data if it has them.
    runs : int, default=None
        Independent draws of the features, over which medians are taken; None: 100. Runs already done are kept.
    decoders : sequence of str, default=None
        Labels of the decoders to run; by default all.
    seed, feature_seed : int, default=0, None
        Seeds of everything, and of the features of the runs (None: `seed`).
    split : {"random", "trajectory"}, default="random"
        "random" is the paper's split: neighbouring times of one trajectory are in training and test set.
    data : path, default=None
        File of your own snapshots (n, n_cells) instead of the study's data, split in the same fractions.
    training_form, searched : bool, default=None
        Whether to run the paper's closed form too (None: as the study says), and the decoders that are searched for by
        cross-validation errors (None: unless `quick`).
    command : str, default=""
        Command line to be named in the result.
    progress : bool, default=True
        Show a progress bar.

    Returns
    -------
    StudyResult
        Also in `out`, for `load_result`.

    Raises
    ------
    ValueError
        If `out` holds the pieces of another configuration, an argument is not valid, or the data do not suit the study.

    {example}
    >>> [row["split"] for row in result.rows]
    ['train', 'test']
    """
    out = Path(out)
    study = quick_form(study) if quick else study
    fields, about = None, {}
    if data is not None:
        study, fields = user_study(study, Path(data))
    options = {
        "runs": check_count((2 if quick else PAPER_RUNS) if runs is None else runs, "runs"),
        "quick": quick,
        "seed": check_count(seed, "seed", low=0),
        "feature_seed": check_count(seed if feature_seed is None else feature_seed, "feature_seed", low=0),
        "split": check_choice(split, "split", ("random", "trajectory")),
        "training_form": study.training_form if training_form is None else training_form,
        "searched": not quick if searched is None else searched,
        "decoders": None if decoders is None else list(decoders),
        "data": None if data is None else Path(data).name,
    }
    if split == "trajectory" and not study.has_trajectories:
        raise ValueError(f"{data or f'the data of {study.name}'} have no trajectories: only split='random' is possible")
    # nothing is written before all arguments are checked
    chosen = _chosen(study, options)
    pieces = _result.open_pieces(out, _configuration(study, options))
    if fields is None:
        fields, about = _load_data(study, out, options["seed"], progress)
    rows, arrays, findings = _run_parts(study, chosen, fields, about, options, pieces, if_asked(progress))
    result = StudyResult(
        name=study.name,
        title=study.title or study.name,
        section=study.section,
        notes=_notes(study, chosen, findings, options),
        cuts=_cuts(study, chosen, options),
        options=options,
        command=command,
        date=datetime.date.today().isoformat(),
        version=randsmap.__version__,
        rows=_result.with_paper(rows, paper=data is None),
        arrays=arrays,
    )
    _result.save_result(result, out)
    return result


def _run_parts(study, chosen, fields, about, options, pieces, show):
    """Rows, arrays and findings of the chosen decoders for all sizes of the study, under the context `show`."""
    rows: list[Row] = []
    arrays: dict[str, Any] = {}
    findings: list[str] = []
    total = sum(n_steps(case, study, options) for case in chosen) * len(study.sizes)
    with (
        show,
        ProgressBar(total, study.name, unit="step") as bar,
        randsmap.show_progress(False),
        extrapolation_ignored(),  # held-out points may be far away
    ):
        for sizes in study.sizes:
            part = Part(study, chosen, fields, about, sizes, options=options, pieces=pieces, update=bar.update)
            rows += part.run()
            arrays.update({f"{part.name}/{key}": value for key, value in part.arrays().items()})
            findings += part.findings()
    return rows, arrays, findings


def _load_data(study, folder, seed, progress):
    """Fields (n, n_cells), memory-mapped, and a dict that describes them; computed once in a folder."""
    path = folder / "data.npy"

    def make():
        made = study.make_data(random_state=seed_for(seed, 0), out=path, progress=progress, **study.data_options)
        return {name: value for name, value in made.items() if name != "data"}

    about = stored(folder / "data.npz", make, path)
    return np.load(path, mmap_mode="r"), about


def _configuration(study, options):
    """JSON values on which the pieces of a run depend; files by their content."""
    files = {name: checksum(path) for name, path in study.data_options.items() if name in ("image", "data")}
    return {
        "version": randsmap.__version__,
        "dataset": study.dataset,
        "data": {name: repr(value) for name, value in {**study.data_options, **files}.items()},
        "split": [options["split"], *study.sizes],
        "encoder": repr(study.encoder),
        "decoders": {case.label: repr(case) for case in study.cases},
        "tuning": [study.tuning_draws, study.tuning_samples, study.tuning_left_out],
        "seed": options["seed"],
        "feature_seed": options["feature_seed"],
    }


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


def _notes(study, chosen, findings, options):
    notes = [*study.notes, *findings, *NOTES["every"], *(NOTES["mass"] if study.conserves else [])]
    notes += [NOTES["searched"]] if any(case.searched for case in chosen) else []
    notes += [NOTES["ddm"].format(label=case.label) for case in chosen if case.by_map]
    return notes + ([NOTES[f"{options['split']}_split"]] if study.has_trajectories else [])


def _cuts(study, chosen, options):
    runs, changed = options["runs"], ", ".join(f"{k} = {v}" for k, v in study.quick_options.items())
    tuning = "three of the ten grid values of each hyperparameter, P = N/4 only, tuning on one draw of the features"
    smaller = f"smaller data ({changed}), so no number of the paper belongs to it"
    left_out = {
        kind: options["decoders"] is None and not options[kind] and any(getattr(case, kind) for case in study.cases)
        for kind in ("training_form", "searched")
    }
    texts = {
        f"Quick run: {tuning}.": options["quick"],
        f"Quick run: {smaller}: {study.sizes[0][0]} training points.": options["quick"] and study.quick_sizes,
        f"{runs} run{'' if runs == 1 else 's'} instead of the paper's {PAPER_RUNS}.": runs < PAPER_RUNS,
        f"Only the decoders {', '.join(case.label for case in chosen)}.": options["decoders"] is not None,
        "Without the paper's closed form (--training-form adds it).": left_out["training_form"],
        "Without the decoders that are searched for (--auto adds them).": left_out["searched"],
    }
    return [text for text, holds in texts.items() if holds]


def seed_for(seed: int, *path: int) -> int:
    """A seed for one use, independent of the other uses."""
    return int(np.random.SeedSequence((seed, *path)).generate_state(1)[0])


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Result of the call, and the seconds it took."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def random_split(n_samples: int, sizes: Sizes, seed: int) -> list[NDArray[np.intp]]:
    """Rows for training, validation and testing, drawn at random (paper, App. D)."""
    if sum(sizes) != n_samples:
        raise ValueError(f"split {sizes} does not add up to {n_samples} samples")
    return np.split(np.random.RandomState(seed).permutation(n_samples), np.cumsum(sizes)[:-1])


def trajectory_split(trajectories: NDArray[Any], sizes: Sizes, seed: int) -> list[NDArray[np.intp]]:
    """Rows for training, validation and testing such that no trajectory is in two parts; testing may have fewer."""
    # whole trajectories are assigned until a part has its size; the surplus of the last one is not used
    rng = np.random.RandomState(seed)
    names = rng.permutation(np.unique(trajectories))
    ends = np.cumsum([0, *(np.count_nonzero(trajectories == name) for name in names)])
    parts, first = [], 0
    for k, size in enumerate(sizes):
        is_last = k == len(sizes) - 1
        last = len(names) if is_last else min(int(np.searchsorted(ends, ends[first] + size)), len(names))
        rows = np.flatnonzero(np.isin(trajectories, names[first:last]))
        if len(rows) < (1 if is_last else max(size, 1)):
            parts_of = f"parts of {sizes} samples without a trajectory in two of them"
            raise ValueError(f"{len(names)} trajectories are too few for {parts_of}")
        parts.append(rng.permutation(rows)[:size])
        first = last
    return parts


def sample_errors(F: Values, F_hat: Values, references: tuple[float, float], conserves: bool) -> Values:
    """Relative L2, relative Linf and mass error of each reconstruction, (3, n); NaN where no mass is conserved."""
    # the usual norms of a field: one that is empty, or much smaller than usual, does not decide a mean alone
    l2, linf = references
    mass = abs(F.sum(axis=1)) if conserves else np.nan  # 1 in the paper's data
    errors = scaled_l2(F, F_hat, reference=l2), scaled_linf(F, F_hat, reference=linf)
    return np.array([*errors, conservation_error(F, F_hat) / mass])


def harmonics_map(
    Y: Values, F: Values, Y_new: Values, F_new: Values, *, weights: Sequence[float], ranks: Sequence[int]
) -> Values:
    """Mean relative L2 validation error of DDM over kernel widths w_2 and ascending ranks r (Figs. DM_GH_tuning)."""
    start = np.random.RandomState(0).standard_normal(len(Y))  # so that results are bit-identical
    errors, reference = np.zeros((len(weights), len(ranks))), median_norm(field_norms(F))
    for i, weight in enumerate(weights):
        K, epsilon = gaussian_of_data(Y, None, weight)
        eigenvalues, V = scipy.sparse.linalg.eigsh(K, k=ranks[-1], which="LA", v0=start)
        # as in the decoder: harmonics divide by their eigenvalues, which would amplify round-off
        kept = int(np.count_nonzero(eigenvalues > len(Y) * np.finfo(float).eps * eigenvalues[-1]))
        eigenvalues, V = eigenvalues[::-1][:kept], V[:, ::-1][:, :kept]
        harmonics = gaussian_kernel(Y_new, Y, epsilon=epsilon) @ (V / eigenvalues)
        coef, F_hat, done = V.T @ F, np.zeros_like(F_new), 0
        # all ranks together cost one decoding: each adds the harmonics that the one before lacks
        for j, rank in enumerate(ranks):
            F_hat += harmonics[:, done:rank] @ coef[done:rank]
            done = min(rank, kept)
            errors[i, j] = scaled_l2(F_new, F_hat, reference=reference).mean()
    return errors


# --- one split of the data ----------------------------------------------------------------------------
def fractions(case: DecoderCase, quick: bool) -> tuple[float | None, ...]:
    """P / N of a decoder with random features, as in the paper; None for another."""
    counts = (0.25,) if quick else (1.0, 0.5, 0.25)
    return counts if case.draws_features else (None,)


def n_steps(case: DecoderCase, study: Study, options: dict[str, Any]) -> int:
    """Tunings and runs, which the progress bar counts; what was found or taken over counts as made."""
    tunings = _tuning_draws(case, study) if case.parameter else 0
    return (tunings + case.runs(options["runs"])) * len(fractions(case, options["quick"]))


def _tuning_draws(case, study):
    return study.tuning_draws if case.draws_features else 1


class Part:
    """The chosen decoders of a study on one split of its data; `update(n)` counts the steps that are done."""

    def __init__(self, study, chosen, data, about, sizes, *, options, pieces, update):
        # rows of a view of the mapping are plain arrays
        self._study, self._chosen, self._data, self._about = study, chosen, np.asarray(data), about
        self._options, self._pieces, self._update = options, pieces, update
        self._cases = {case.label: case for case in study.cases}
        self._groups = None  # groups of training fields that searches leave out as a whole
        seed = seed_for(options["seed"], 1)  # all sizes deal from one shuffled deck
        if options["split"] == "random":
            rows = random_split(len(data), sizes, seed)
        else:
            rows = trajectory_split(about["trajectories"], sizes, seed)
            self._groups = about["trajectories"][rows[0]]
        self._rows = dict(zip(("train", "validation", "test"), rows))
        self._n_train = len(rows[0])
        self.name = f"N{self._n_train}"
        self._view = study.view(about, data.shape[1])
        self._shown = rows[2][:MAX_SHOWN]
        self._shown_index = self._view.pick(self._shown)
        self._F_train, self._F_validation = self._data[rows[0]], self._data[rows[1]]
        # statistics of the fields that are not empty
        self._references = median_norm(field_norms(self._F_train)), median_norm(field_norms(self._F_train, "linf"))
        self._latents, self._encoders = {}, {}
        # {label: {P / N: (the tuned value, its seconds and the errors of the grid; the piece of each run)}}
        self._done: dict[str, dict[float | None, tuple[tuple[Any, float, Any], list[Piece]]]] = {}

    def run(self) -> list[Row]:
        """Rows of the decoders on the training set, then on the test set."""
        for case in self._chosen:
            counts = fractions(case, self._options["quick"])
            self._done[case.label] = {fraction: self._run_case(case, fraction) for fraction in counts}
        return [
            self._row(case, fraction, *found, split)
            for split in ("train", "test")
            for case in self._chosen
            for fraction, found in self._done[case.label].items()
        ]

    def findings(self) -> list[str]:
        """Sentences on the embedding of the study's own data, and on the encoder that was tuned."""
        found = []
        if self._study.check_embedding is not None:
            latents = self._encoded(self._study.cases[0])["train"]
            found += self._study.check_embedding(latents, self._about, self._rows["train"])
        for tuned in [case for case in self._chosen if case.encoder == "autotune"][:1]:
            found.append(f"The tuned encoder (N = {self._n_train}): {self._encoded(tuned)['encoder']}.")
        return found

    def _piece(self, name, make):
        return stored(self._pieces / f"{self.name}-{name}.npz", make)

    # --- fields and latents ----------------------------------------------------------------------
    def _test_blocks(self) -> Iterator[tuple[slice, Values]]:
        """(slice, fields) of consecutive test samples."""
        rows, step = self._rows["test"], max(1, 2**24 // self._data.shape[1])  # 128 MB
        for start in range(0, len(rows), step):
            block = slice(start, start + step)
            yield block, self._data[rows[block]]

    def _encoded(self, case: DecoderCase) -> Piece:
        """Latents of "train", "validation" and "test" by a case's encoder, its text, its seconds of fit and test."""
        name = _encoder_name(case)
        if name not in self._latents:
            self._latents[name] = self._piece(f"latents-{name}", lambda: self._encode(case))
        return self._latents[name]

    def _encode(self, case):
        encoder, Y_train, seconds_fit = self._encoder(case)
        blocks, seconds = zip(*(timed(lambda: encoder.transform(F)) for _, F in self._test_blocks()))
        latents = Y_train, encoder.transform(self._F_validation), np.concatenate(blocks)
        # one memory layout, whatever encoders return: BLAS rounds by it
        latents = dict(zip(("train", "validation", "test"), map(np.ascontiguousarray, latents)))
        return {**latents, "seconds_fit": seconds_fit, "seconds_test": sum(seconds), "encoder": repr(encoder)}

    def _encoder(self, case):
        """A case's encoder, its training latents, seconds of its fit; after an interruption again, to the same bits."""
        name, usual = _encoder_name(case), self._study.encoder
        if name not in self._encoders:
            start = time.perf_counter()
            encoder = usual if case.encoder is None else case.encoder
            if case.encoder == "autotune":
                encoder = chosen_encoder(self._F_train, usual.n_components, alpha=usual.alpha, groups=self._groups)
            encoder = clone(encoder)
            Y_train = np.asarray(encoder.fit_transform(self._F_train))
            self._encoders[name] = encoder, Y_train, time.perf_counter() - start
        return self._encoders[name]

    # --- tuning ----------------------------------------------------------------------------------
    def _tuned(self, case, fraction):
        """The value whose mean error over the draws is lowest, the mean seconds of a tuning, the errors of the grid."""
        if case.parameter is None:
            return None, 0.0, ()
        if case.by_map:
            found = self._map(case)
            draws = [{**found, "errors": found["errors"][:, list(found["ranks"]).index(case.decoder.rank)]}]
        else:
            case = self._cases[case.tuned_as or case.label]
            draws = [self._tuning(case, fraction, draw) for draw in range(_tuning_draws(case, self._study))]
        self._update(len(draws))
        errors = np.mean([draw["errors"] for draw in draws], axis=0)
        best = case.grid[int(np.nanargmin(errors))]  # NaN: a candidate whose fit failed
        return best, float(np.mean([draw["seconds"] for draw in draws])), errors

    def _tuning(self, case, fraction, draw):
        """Validation error of each grid value for one feature draw."""

        def make():
            decoder = self._decoder(case, fraction, seed_for(self._options["seed"], 3, draw))
            fields, validation, seconds = self._tuning_fields(isinstance(decoder, randsmap.KNNDecoder))
            if fields is not self._F_train and "invariants" in decoder.get_params():
                decoder.set_params(invariants=None)  # the invariants apply to fields, not to coefficients
            latents, grid = self._encoded(case), {case.parameter: list(case.grid)}
            data = latents["train"], fields, latents["validation"][: len(validation)], validation
            result, seconds_tune = timed(lambda: randsmap.tune(decoder, grid, *data))
            return {"errors": result.errors_, "seconds": seconds + seconds_tune}

        return self._piece(f"{_name(case, fraction)}-tuning-{draw}", make)

    def _map(self, case):
        """The (w_2, r) map of DDM on the validation set."""

        def make():
            Y, Y_validation = (self._encoded(case)[split] for split in ("train", "validation"))
            ranks = sorted({*(r for r in self._study.ranks if r < self._n_train), case.decoder.rank})
            fields, validation, seconds = self._tuning_fields(False)
            data = Y, fields, Y_validation[: len(validation)], validation
            errors, seconds_map = timed(lambda: harmonics_map(*data, weights=case.grid, ranks=ranks))
            arrays = {"weights": case.grid, "ranks": ranks, "errors": errors, "seconds": seconds + seconds_map}
            if self._n_train <= 2000:  # O(n^3) operations for each w_2
                by_rule = [clone(case.decoder).set_params(rank="rule", epsilon_scale=w) for w in case.grid]
                arrays["rule_ranks"] = [decoder.fit(Y, Y[:, :1]).rank_ for decoder in by_rule]  # for any fields
            return arrays

        return self._piece("ddm-map", make)

    def _tuning_fields(self, whole):
        """Fields to tune and validate with, or their leading modes if the study wants it and not `whole`; seconds."""
        F_validation = self._F_validation[: self._study.tuning_samples]
        if whole or self._study.tuning_left_out is None:
            return self._F_train, F_validation, 0.0
        (coefficients, modes), seconds = self._modes
        return coefficients, F_validation if modes is None else F_validation @ modes.T, seconds

    @cached_property
    def _modes(self):
        """The training fields' coefficients in their leading modes, these, and the seconds."""
        left_out = self._study.tuning_left_out**0.5 * np.linalg.norm(self._F_train)
        return timed(lambda: low_rank(self._F_train, left_out))

    # --- runs ------------------------------------------------------------------------------------
    def _run_case(self, case, fraction):
        """Tuned values of a decoder with one feature count, and the results of its runs."""
        tuned, results = self._tuned(case, fraction), []
        for run in range(case.runs(self._options["runs"])):
            make = partial(self._measure, case, fraction, tuned[0], run)
            results.append(self._piece(f"{_name(case, fraction)}-run-{run}", make))
            self._update()
        return tuned, results

    def _decoder(self, case, fraction, seed):
        # a draw depends on the seed and the run alone, so conservative and plain decoders of the same
        # feature map and size are compared on the same features
        decoder = clone(case.decoder)
        if fraction is not None:
            decoder.set_params(features__n_features=fraction, random_state=seed)
        if isinstance(decoder, randsmap.KNNDecoder):
            decoder.set_params(encoder=self._encoder(case)[0])
        return decoder

    def _fit_decoder(self, case, fraction, value, run):
        """The decoder of one draw, fitted with the tuned value, and the seconds; no decoder if the encoder decodes."""
        if case.decoder is None:
            return None, 0.0
        decoder = self._decoder(case, fraction, seed_for(self._options["feature_seed"], 2, run))
        if case.parameter is not None:
            decoder.set_params(**{case.parameter: value})
        groups = {"groups": self._groups} if case.searched else {}
        return timed(lambda: decoder.fit(self._encoded(case)["train"], self._F_train, **groups))

    def _measure(self, case, fraction, value, run):
        """Errors and seconds of one draw on both sets; of the first draw also the arrays of its figure."""
        latents, conserves = self._encoded(case), self._study.conserves
        decoder, seconds_fit = self._fit_decoder(case, fraction, value, run)
        decode = self._encoder(case)[0].inverse_transform if decoder is None else decoder.predict
        # a training point is not its own neighbour
        others = {"exclude": np.arange(self._n_train)} if isinstance(decoder, randsmap.KNNDecoder) else {}
        train = sample_errors(self._F_train, decode(latents["train"], **others), self._references, conserves)
        seconds_test, errors = float(latents["seconds_test"]), []
        for block, F in self._test_blocks():
            F_hat, seconds = timed(lambda: decode(latents["test"][block]))
            seconds_test += seconds
            errors.append(sample_errors(F, F_hat, self._references, conserves))
        test = np.concatenate(errors, axis=1)
        piece = {
            "train": [*train.mean(axis=1), seconds_fit],
            "test": [*test.mean(axis=1), seconds_test],
            "rank": np.asarray(getattr(decoder, "rank_", None), dtype=float),  # of DDM; None becomes NaN
        }
        if run == 0:
            shown = decode(latents["test"][:MAX_SHOWN])
            piece |= {**self._view.describe(shown), "errors": test[0, :MAX_SHOWN]}
            if self._view.axes:
                piece["field"] = shown[self._shown_index].reshape(self._view.shape)
        return piece

    def _row(self, case, fraction, tuned, results, split):
        value, seconds_tune, _ = tuned
        row = {
            "dataset": self._study.dataset,
            "split": split,
            "decoder": case.label,
            "features_per_sample": fraction,
            "n_train": self._n_train,
            "parameter": case.parameter,
            "hyperparameter": value,
            "on_edge": on_edge(case.grid, value),
            "extra": case.extra,
            "runs": len(results),
            "paper_decoder": case.paper_label or (None if case.extra else case.label),
        }
        figures = np.array([result[split] for result in results])
        if split == "train":  # encoder, tuning and the decoder's fit
            figures[:, -1] += seconds_tune + float(self._encoded(case)["seconds_fit"])
        for quantity, values in zip(QUANTITIES, figures.T, strict=True):
            for name, percent in PERCENTILES.items():
                row[f"{quantity}_{name}"] = None if np.isnan(values).any() else float(np.percentile(values, percent))
        return row

    # --- arrays of the figures -------------------------------------------------------------------
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of the figures, of the decoders that were run (keys: docs/studies.md)."""
        view = self._view
        arrays = {
            "point_names": view.point_names,
            "color_name": view.color or view.point_names[0],
            "decoders": list(self._done),
            "train/latents": self._encoded(self._study.cases[0])["train"],
        }
        test = self._data[self._shown]
        for split, F, rows in (("train", self._F_train, self._rows["train"]), ("test", test, self._shown)):
            described = view.describe(F)
            arrays.update({f"{split}/{key}": value for key, value in described.items()})
            arrays[f"{split}/color"] = view.colors(F, rows, described["points"])
        if view.intrinsic:
            arrays["intrinsic_names"] = list(view.intrinsic)
            arrays["test/intrinsic"] = np.column_stack(list(view.intrinsic.values()))[self._shown]
        if view.axes:
            arrays["statistic_names"] = view.statistic_names
            arrays["field/truth"] = test[self._shown_index].reshape(view.shape)
            arrays["field/index"] = self._shown_index
            if view.with_axes:
                arrays.update({f"field/{name}": axis for name, axis in zip("xy", view.axes.values())})
            if view.mask is not None:
                arrays["field/mask"] = view.mask
        for label, runs in self._done.items():
            arrays.update({f"decoder/{label}/{key}": value for key, value in _best_figure(runs).items()})
        arrays.update(self._map_arrays())
        return {key: np.asarray(value) for key, value in arrays.items()}

    def _map_arrays(self):
        cases = [case for case in self._chosen if case.by_map]
        if not cases:
            return {}
        found = self._map(cases[0])
        arrays = {f"ddm/{key}": value for key, value in found.items() if key != "seconds"}
        if self._study.starred is not None:
            arrays["ddm/starred"] = np.array(self._study.starred, dtype=float)
        if "DDM" in self._done:
            (value, _, errors), results = self._done["DDM"][None]
            errors = dict(zip(self._cases["DDM"].grid, errors))
            arrays["ddm/rule_errors"] = [errors.get(w, np.nan) for w in found["weights"]]
            arrays["ddm/rule"] = [value, results[0]["rank"], errors[value]]
        return arrays


def _best_figure(runs):
    """The figure of a decoder's first run at the feature count of the least training error."""
    medians = {P: np.median([result["train"][0] for result in results]) for P, (_, results) in runs.items()}
    fraction = min(medians, key=medians.get)
    _, (first, *_) = runs[fraction]
    figure = {key: value for key, value in first.items() if key not in ("train", "test", "rank")}
    return {"features_per_sample": np.nan if fraction is None else fraction, **figure}


def _name(case, fraction):
    return case.label if fraction is None else f"{case.label}-{fraction:g}"


def _encoder_name(case):
    return {None: "encoder", "autotune": "autotune"}.get(case.encoder, type(case.encoder).__name__)
