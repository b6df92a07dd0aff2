"""One split of a study's data: for every decoder and feature count tune, fit, test; rows and arrays of the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

import randsmap
from randsmap._linalg.scales import median_norm
from randsmap._linalg.svd import low_rank
from randsmap.metrics import field_norms
from randsmap.studies._data import Fields, error_summary, rows_of, sample_errors, seed_for, timed
from randsmap.studies._figures import View, harmonics_map
from randsmap.studies._result import MAX_SHOWN
from randsmap.studies._store import Piece, put, stored
from randsmap.studies._study import DecoderCase, Study
from randsmap.studies._table import PERCENTILES, QUANTITIES, Row
from randsmap.tuning._autotune import chosen_encoder
from randsmap.tuning._search import on_edge


def fractions(case: DecoderCase, quick: bool) -> tuple[float | None, ...]:
    """P / N of a decoder with random features, as in the paper; None for another."""
    if not case.draws_features:
        return (None,)
    return (0.25,) if quick else (1.0, 0.5, 0.25)


def n_fits(case: DecoderCase, study: Study, options: dict[str, Any]) -> int:
    """Fits that the progress bar counts; a tuning that was found or taken over counts as made."""
    tuning = len(case.grid) * _tuning_draws(case, study) if case.parameter else 0
    return (tuning + case.runs(options["runs"])) * len(fractions(case, options["quick"]))


def _tuning_draws(case, study):
    return study.tuning_draws if case.draws_features else 1


class Part:
    """All decoders of a study on one split of its data.

    `rows` are the rows of `data` for training, validation and testing; searches hold out `groups` of the training
    fields as a whole. Finished pieces are files in `pieces`; `update(n)` counts fits.
    """

    def __init__(
        self,
        study: Study,
        data: Fields,
        rows: Sequence[NDArray[np.intp]],
        groups: NDArray[Any] | None,
        *,
        view: View,
        options: dict[str, Any],
        pieces: Path,
        update: Callable[..., object],
    ) -> None:
        self.rows = dict(zip(("train", "validation", "test"), rows))
        self.n_train = len(self.rows["train"])
        self.name = f"N{self.n_train}"
        self._study, self._data, self._groups, self._view = study, data, groups, view
        self._options, self._pieces, self._update = options, pieces, update
        self._cases = {case.label: case for case in study.cases}
        self._shown = self.rows["test"][:MAX_SHOWN]
        self._shown_index = view.pick(self._shown)
        self._latents: dict[str, Piece] = {}
        self._encoders: dict[str, Any] = {}
        # {label: {P / N: (the tuned value, its seconds and the errors of the grid; a result for each run)}}
        self._done: dict[str, dict[float | None, tuple[tuple[Any, float, Any], list[Piece]]]] = {}

    def run(self, cases: Sequence[DecoderCase]) -> list[Row]:
        """Rows of these cases on the training set, then on the test set."""
        for case in cases:
            counts = fractions(case, self._options["quick"])
            self._done[case.label] = {fraction: self._run_case(case, fraction) for fraction in counts}
        return [
            self._row(self._cases[label], fraction, *found, split)
            for split in ("train", "test")
            for label, runs in self._done.items()
            for fraction, found in runs.items()
        ]

    def _piece(self, name, make, found=None):
        return stored(self._pieces / f"{self.name}-{name}", make, found=found)

    # --- fields and latents ----------------------------------------------------------------------

    @cached_property
    def _F_train(self) -> Fields:
        return rows_of(self._data, self.rows["train"])

    @cached_property
    def _F_validation(self) -> Fields:
        return rows_of(self._data, self.rows["validation"])

    @cached_property
    def _F_test(self) -> Fields | None:
        """The test fields, or None if they take more than 512 MB."""
        rows = self.rows["test"]
        return rows_of(self._data, rows) if len(rows) * self._data.shape[1] <= 2**26 else None

    def _test_blocks(self) -> Iterator[tuple[slice, Fields]]:
        """(slice, fields) of consecutive test samples; a block may overwrite the fields of the one before."""
        rows = self.rows["test"]
        if self._F_test is not None:
            yield slice(0, len(rows)), self._F_test
            return
        step = max(1, 2**24 // self._data.shape[1])  # 128 MB in memory
        buffer = np.empty((min(step, len(rows)), self._data.shape[1]))
        for start in range(0, len(rows), step):
            block = slice(start, min(start + step, len(rows)))
            yield block, rows_of(self._data, rows[block], buffer[: block.stop - start])

    @cached_property
    def _references(self) -> tuple[float, float]:
        """Median L2 and maximum norm of the training fields that are not empty."""
        return median_norm(field_norms(self._F_train)), median_norm(field_norms(self._F_train, "linf"))

    def latents(self, case: DecoderCase) -> Piece:
        """Latents of "train", "validation" and "test" by a case's encoder, its text, its seconds of fit and test."""
        name = _encoder_name(case)
        if name not in self._latents:
            self._latents[name] = self._piece(f"latents-{name}.npz", lambda: self._encode(case))
        return self._latents[name]

    def _encode(self, case):
        Y_train, seconds_fit = timed(lambda: self._fit_encoder(case))
        encoder = self._encoder(case)
        blocks = [timed(lambda: encoder.transform(F)) for _, F in self._test_blocks()]
        latents = {
            "train": Y_train,
            "validation": encoder.transform(self._F_validation),
            "test": np.concatenate([Y for Y, _ in blocks]),
        }
        # one memory layout, whatever encoders return: BLAS rounds by it
        latents = {split: np.ascontiguousarray(Y) for split, Y in latents.items()}
        seconds = {"seconds_fit": seconds_fit, "seconds_test": sum(seconds for _, seconds in blocks)}
        return {**latents, **seconds, "encoder": repr(encoder)}

    def _encoder(self, case):
        """The fitted encoder of a case; fitted again after an interruption, to the same bits."""
        name = _encoder_name(case)
        if name not in self._encoders:
            self._fit_encoder(case)
        return self._encoders[name]

    def _fit_encoder(self, case):
        """The training latents of a case's encoder, which is fitted and kept."""
        usual = self._study.encoder
        encoder = usual if case.encoder is None else case.encoder
        if case.encoder == "autotune":
            encoder = chosen_encoder(self._F_train, usual.n_components, alpha=usual.alpha, groups=self._groups)
        encoder = self._encoders[_encoder_name(case)] = clone(encoder)
        return np.asarray(encoder.fit_transform(self._F_train))

    # --- tuning ----------------------------------------------------------------------------------

    def _tuned(self, case, fraction):
        """The value whose mean error over the draws is lowest, the mean seconds of a tuning, the errors of the grid."""
        if case.parameter is None:
            return None, 0.0, ()
        if case.by_map:
            found = self._map(case)
            self._update(len(case.grid))
            draws = [{**found, "errors": found["errors"][:, list(found["ranks"]).index(case.decoder.rank)]}]
        else:
            case = self._cases[case.tuned_as or case.label]
            draws = [self._tuning(case, fraction, draw) for draw in range(_tuning_draws(case, self._study))]
        errors = np.mean([draw["errors"] for draw in draws], axis=0)
        best = case.grid[int(np.nanargmin(errors))]  # NaN: a candidate that could not be fitted
        return best, float(np.mean([draw["seconds"] for draw in draws])), errors

    def _tuning(self, case, fraction, draw):
        """Validation error of each grid value for one feature draw."""

        def make():
            decoder = self._decoder(case, fraction, seed_for(self._options["seed"], 3, draw))
            fields, validation, seconds = self._tuning_fields(isinstance(decoder, randsmap.KNNDecoder))
            if fields is not self._F_train and "invariants" in decoder.get_params():
                decoder.set_params(invariants=None)  # they are those of fields, not of coefficients
            latents, grid = self.latents(case), {case.parameter: list(case.grid)}
            data = latents["train"], fields, latents["validation"][: len(validation)], validation
            result, seconds_tune = timed(lambda: randsmap.tune(decoder, grid, *data, callback=self._update))
            return {"errors": result.errors_.tolist(), "seconds": seconds + seconds_tune}

        name = f"{_name(case, fraction)}-tuning-{draw}.json"
        return self._piece(name, make, lambda: self._update(len(case.grid)))

    def _map(self, case):
        """The (w_2, r) map of DDM on the validation set."""

        def make():
            Y, Y_validation = (self.latents(case)[split] for split in ("train", "validation"))
            ranks = sorted({*(r for r in self._study.ranks if r < self.n_train), case.decoder.rank})
            fields, validation, seconds = self._tuning_fields(False)
            data = Y, fields, Y_validation[: len(validation)], validation
            errors, seconds_map = timed(lambda: harmonics_map(*data, weights=case.grid, ranks=ranks))
            arrays = {"weights": case.grid, "ranks": ranks, "errors": errors, "seconds": seconds + seconds_map}
            if self.n_train <= 2000:  # O(n^3) operations for each w_2
                by_rule = [clone(case.decoder).set_params(rank="rule", epsilon_scale=w) for w in case.grid]
                arrays["rule_ranks"] = [decoder.fit(Y, Y[:, :1]).rank_ for decoder in by_rule]  # of whatever fields
            return arrays

        return self._piece("ddm-map.npz", make)

    def _tuning_fields(self, whole):
        """Training and validation fields for tuning, and the seconds it took to make them.

        They are the fields if `whole`, else their coefficients in the leading modes if the study wants these.
        """
        if whole or self._study.tuning_left_out is None:
            return self._F_train, self._F_validation[: self._study.tuning_samples], 0.0
        coefficients, seconds = self._mode_coefficients
        return (*coefficients, seconds)

    @cached_property
    def _mode_coefficients(self):
        """Coefficients of training and validation fields in the leading modes, and the seconds."""

        def make():
            left_out = self._study.tuning_left_out**0.5 * np.linalg.norm(self._F_train)
            coefficients, modes = low_rank(self._F_train, left_out)
            F_validation = self._F_validation[: self._study.tuning_samples]
            return coefficients, F_validation if modes is None else F_validation @ modes.T

        return timed(make)

    # --- runs ------------------------------------------------------------------------------------

    def _run_case(self, case, fraction):
        """Tuned values of a decoder with one feature count, and the results of its runs."""
        tuned, results = self._tuned(case, fraction), []

        def make(run):
            result = self._measure(case, fraction, tuned[0], run)
            if run == 0:
                put(self._pieces / f"{self.name}-{_name(case, fraction)}-figure.npz", result.pop("figure"))
            return result

        for run in range(case.runs(self._options["runs"])):
            results.append(self._piece(f"{_name(case, fraction)}-run-{run}.json", partial(make, run)))
            self._update()
        return tuned, results

    def _decoder(self, case, fraction, seed):
        # a draw depends on the seed and the run alone, so conservative and plain decoders of the same
        # feature map and size are compared on the same features
        decoder = clone(case.decoder)
        if fraction is not None:
            decoder.set_params(features__n_features=fraction, random_state=seed)
        if isinstance(decoder, randsmap.KNNDecoder):
            decoder.set_params(encoder=self._encoder(case))
        return decoder

    def _fit_decoder(self, case, fraction, value, run):
        """The decoder of one draw, fitted with the tuned value, and the seconds; no decoder if the encoder decodes."""
        if case.decoder is None:
            return None, 0.0
        decoder = self._decoder(case, fraction, seed_for(self._options["feature_seed"], 2, run))
        if case.parameter is not None:
            decoder.set_params(**{case.parameter: value})
        groups = {"groups": self._groups} if case.searched else {}
        return timed(lambda: decoder.fit(self.latents(case)["train"], self._F_train, **groups))

    def _measure(self, case, fraction, value, run):
        """Errors and seconds of one draw on both sets; of the first draw also the arrays of its figure."""
        latents, conserves = self.latents(case), self._study.conserves
        decoder, seconds_fit = self._fit_decoder(case, fraction, value, run)
        decode = self._encoder(case).inverse_transform if decoder is None else decoder.predict
        # a training point is not its own neighbour
        others = {"exclude": np.arange(self.n_train)} if isinstance(decoder, randsmap.KNNDecoder) else {}
        F_hat = decode(latents["train"], **others)
        train = sample_errors(self._F_train, F_hat, self._references, conserves)
        seconds_test, errors, shown, out = float(latents["seconds_test"]), [], [], None
        for block, F in self._test_blocks():
            out = np.empty(F.shape) if out is None else out
            F_hat, seconds = timed(lambda: decode(latents["test"][block], out=out[: len(F)]))
            seconds_test += seconds
            errors.append(sample_errors(F, F_hat, self._references, conserves))
            if run == 0 and block.start < MAX_SHOWN:
                shown.append(F_hat[: MAX_SHOWN - block.start].copy())
        test = np.concatenate(errors, axis=1)
        result = {
            "train": error_summary(train, conserves, seconds_fit),
            "test": error_summary(test, conserves, seconds_test),
            "rank": getattr(decoder, "rank_", None),
        }
        return result if run else {**result, "figure": self._figure(np.concatenate(shown), test[0, :MAX_SHOWN])}

    def _figure(self, F_hat, errors):
        figure = {**self._view.describe(F_hat), "errors": errors}
        if self._view.axes:
            figure["field"] = F_hat[self._shown_index].reshape(self._view.shape)
        return figure

    def _row(self, case, fraction, tuned, results, split):
        value, seconds_tune, _ = tuned
        row = {
            "dataset": self._study.dataset,
            "split": split,
            "decoder": case.label,
            "features_per_sample": fraction,
            "n_train": self.n_train,
            "parameter": case.parameter,
            "hyperparameter": value,
            "on_edge": on_edge(case.grid, value),
            "extra": case.extra,
            "runs": len(results),
            "paper_decoder": case.paper_label or (None if case.extra else case.label),
        }
        for quantity in QUANTITIES:
            values = [result[split][quantity] for result in results]
            if quantity == "seconds" and split == "train":
                # training = encoder, tuning and the decoder's fit
                before = seconds_tune + float(self.latents(case)["seconds_fit"])
                values = [value + before for value in values]
            for name, percent in PERCENTILES.items():
                row[f"{quantity}_{name}"] = None if None in values else float(np.percentile(values, percent))
        return row

    # --- arrays of the figures -------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of the figures, of the decoders that were run (keys: docs/reports.md)."""
        view = self._view
        arrays = {
            "point_names": view.point_names,
            "color_name": view.color or view.point_names[0],
            "decoders": list(self._done),
            "train/latents": self.latents(self._study.cases[0])["train"],
        }
        test = rows_of(self._data, self._shown)
        for split, F, rows in (("train", self._F_train, self.rows["train"]), ("test", test, self._shown)):
            described = view.describe(F)
            arrays.update({f"{split}/{key}": value for key, value in described.items()})
            arrays[f"{split}/color"] = view.intrinsic[view.color][rows] if view.color else described["points"][:, 0]
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
            arrays.update({f"decoder/{label}/{key}": value for key, value in self._best_figure(label, runs).items()})
        arrays.update(self._map_arrays())
        return {key: np.asarray(value) for key, value in arrays.items()}

    def _best_figure(self, label, runs):
        """The figure of a decoder at the feature count of the least training error."""
        case = self._cases[label]
        medians = {P: np.median([result["train"]["rel_l2"] for result in results]) for P, (_, results) in runs.items()}
        fraction = min(medians, key=medians.get)
        value = runs[fraction][0][0]
        name = f"{_name(case, fraction)}-figure.npz"
        figure = self._piece(name, lambda: self._measure(case, fraction, value, 0)["figure"])
        return {"features_per_sample": np.nan if fraction is None else fraction, **figure}

    def _map_arrays(self):
        case = next((self._cases[label] for label in self._done if self._cases[label].by_map), None)
        if case is None:
            return {}
        found = self._map(case)
        arrays = {f"ddm/{key}": value for key, value in found.items() if key != "seconds"}
        if self._study.starred is not None:
            arrays["ddm/starred"] = np.array(self._study.starred, dtype=float)
        if "DDM" in self._done:
            (value, _, errors), results = self._done["DDM"][None]
            errors = dict(zip(self._cases["DDM"].grid, errors))
            arrays["ddm/rule_errors"] = [errors.get(w, np.nan) for w in found["weights"]]
            arrays["ddm/rule"] = [value, results[0]["rank"], errors[value]]
        return arrays


def _name(case, fraction):
    return case.label if fraction is None else f"{case.label}-{fraction:g}"


def _encoder_name(case):
    if case.encoder is None:
        return "encoder"
    return case.encoder if case.encoder == "autotune" else type(case.encoder).__name__
