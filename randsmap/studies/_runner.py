"""Run a study: data, split, encoder, then for every decoder and feature count tune, fit and test.

Each finished piece (the tuning of a decoder, one run) is a small JSON file, written atomically, so
that an interrupted study goes on where it stopped. A folder that holds another configuration is
refused.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import numpy as np
from sklearn.base import clone
from tqdm import tqdm

from randsmap._validation import check_count
from randsmap.datasets._cache import cached
from randsmap.metrics import conservation_error, relative_l2, relative_linf
from randsmap.persistence import write_atomically
from randsmap.tuning import on_edge, tune

__all__ = ["DecoderCase", "Study", "run_study"]

FRACTIONS = (1.0, 0.5, 0.25)  # P = N, N/2, N/4
QUICK_FRACTIONS = (0.25,)
QUICK_CANDIDATES = (2, 5, 8)  # of the ten grid values: three inner ones
TUNING_DRAWS = 3  # the tuned value is the best on average over this many feature draws
QUICK_TUNING_DRAWS = 1


@dataclass(frozen=True)
class DecoderCase:
    """A decoder of a study: its label in the paper's tables and the one parameter that is tuned."""

    label: str
    decoder: Any
    parameter: str
    grid: tuple


@dataclass(frozen=True)
class Study:
    """Data set, split sizes, encoder and decoders of a study."""

    dataset: str
    make_data: Callable  # (random_state, out, progress): (n_samples, n_cells) into the file out
    n_train: int
    n_validation: int
    n_test: int
    encoder: Any
    cases: tuple


def run_study(study, *, out, quick=False, runs=None, seed=0, progress=True):
    """Run a study, or go on with one that was interrupted, and return its table.

    Parameters
    ----------
    study : Study
    out : path
        Folder for the finished pieces; created if missing.
    quick : bool
        Three grid values, one draw for tuning, P = N/4 only, and 2 runs unless `runs` says otherwise.
    runs : int, optional
        Independent draws of the features, over which medians and percentiles are taken. 100 as in
        the paper if not given; raising it later keeps the runs already done.
    seed : int
        Fixes the data, the split and all draws.
    progress : bool
        Show a progress bar.

    Returns
    -------
    list of dict
        One row for each split, decoder and feature count (see `_table`).

    Raises
    ------
    ValueError
        If `out` holds the pieces of another configuration, or an argument is out of range.
    """
    seed = check_count(seed, "seed", low=0)
    runs = check_count((2 if quick else 100) if runs is None else runs, "runs")
    fractions = QUICK_FRACTIONS if quick else FRACTIONS
    draws = QUICK_TUNING_DRAWS if quick else TUNING_DRAWS
    cases = [_thin(case) for case in study.cases] if quick else study.cases
    store = _Store(Path(out), _configuration(study, cases, fractions, draws, seed))

    data = _Embedded(study, Path(out), seed, progress)
    n_units = sum(len(case.grid) * draws + runs for case in cases) * len(fractions)
    rows = []
    with tqdm(total=n_units, desc=study.dataset, disable=not progress, unit="fit") as bar:
        for case in cases:
            for fraction in fractions:
                name = f"{case.label}-{fraction:g}"
                tuned = _best(case, data, [
                    store.get(f"{name}-tuning-{draw}",
                              lambda: _tune(case, fraction, data, seed, draw, bar),
                              lambda: bar.update(len(case.grid)))
                    for draw in range(draws)
                ])
                results = [
                    store.get(f"{name}-run-{run}",
                              lambda: _run(case, fraction, tuned["value"], data, seed, run, bar),
                              bar.update)
                    for run in range(runs)
                ]
                rows += _aggregate(study, case, fraction, tuned, results)
    order = {"train": 0, "test": 1}
    return sorted(rows, key=lambda row: order[row["split"]])


def _thin(case):
    return DecoderCase(case.label, case.decoder, case.parameter,
                       tuple(case.grid[i] for i in QUICK_CANDIDATES))


def _configuration(study, cases, fractions, draws, seed):
    return {
        "version": _version(),
        "dataset": study.dataset,
        "split": [study.n_train, study.n_validation, study.n_test],
        "encoder": repr(study.encoder),
        "decoders": {case.label: {"decoder": repr(case.decoder), "parameter": case.parameter,
                                  "grid": [float(v) for v in case.grid]} for case in cases},
        "features_per_sample": list(fractions),
        "tuning_draws": draws,
        "seed": seed,
    }


def _version():
    from randsmap import __version__

    return __version__


class _Embedded:
    """The split data and their latents, with the seconds that the encoder took."""

    def __init__(self, study, folder, seed, progress):
        F = cached(folder, {"version": _version(), "dataset": study.dataset, "seed": seed},
                   lambda path: study.make_data(random_state=_seed(seed, 0), out=path, progress=progress))
        sizes = (study.n_train, study.n_validation, study.n_test)
        if sum(sizes) != len(F):
            raise ValueError(f"split {sizes} does not add up to {len(F)} samples")
        order = np.random.RandomState(_seed(seed, 1)).permutation(len(F))
        parts = np.split(order, np.cumsum(sizes)[:-1])
        self.F_train, self.F_validation, self.F_test = (F[part] for part in parts)
        encoder = clone(study.encoder)
        self.Y_train, self.seconds_encoder = _timed(lambda: encoder.fit_transform(self.F_train))
        self.Y_validation = encoder.transform(self.F_validation)
        self.Y_test, self.seconds_encode_test = _timed(lambda: encoder.transform(self.F_test))


def _seed(seed, *path):
    """A seed for one use, independent of the other uses."""
    return int(np.random.SeedSequence((seed, *path)).generate_state(1)[0])


def _timed(call):
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def _decoder(case, fraction, seed, run):
    # a run's draw depends on the seed and the run alone, so conservative and plain decoders of the
    # same feature map and size are compared on the same features
    return clone(case.decoder).set_params(features__n_features=fraction,
                                          random_state=_seed(seed, 2, run))


def _tune(case, fraction, data, seed, draw, bar):
    """Validation error of each grid value for one feature draw."""
    decoder = _decoder(case, fraction, seed, draw)
    result, seconds = _timed(lambda: tune(
        decoder, {case.parameter: list(case.grid)}, data.Y_train, data.F_train, data.Y_validation,
        data.F_validation, callback=bar.update))
    return {"errors": result.errors_.tolist(), "seconds": seconds}


def _best(case, data, draws):
    """The grid value whose mean error over the draws is lowest; seconds of one tuning and encoder."""
    errors = np.mean([draw["errors"] for draw in draws], axis=0)
    grid = [float(value) for value in case.grid]
    best = grid[int(np.argmin(errors))]
    return {
        "value": best,
        "on_edge": on_edge(grid, best),
        "seconds": float(np.mean([draw["seconds"] for draw in draws])) + data.seconds_encoder,
    }


def _run(case, fraction, value, data, seed, run, bar):
    """Fit one draw with the tuned value and measure it on the training and the test set."""
    decoder = _decoder(case, fraction, seed, run).set_params(**{case.parameter: value})
    _, seconds_fit = _timed(lambda: decoder.fit(data.Y_train, data.F_train))
    train = decoder.predict(data.Y_train)
    test, seconds_decode = _timed(lambda: decoder.predict(data.Y_test))
    bar.update()
    return {
        "train": _errors(data.F_train, train, seconds_fit),
        "test": _errors(data.F_test, test, data.seconds_encode_test + seconds_decode),
    }


def _errors(F, F_hat, seconds):
    return {
        "rel_l2": float(relative_l2(F, F_hat).mean()),
        "rel_linf": float(relative_linf(F, F_hat).mean()),
        "conservation": float(conservation_error(F, F_hat).mean()),
        "seconds": seconds,
    }


def _aggregate(study, case, fraction, tuned, results):
    rows = []
    for split in ("train", "test"):
        row = {
            "dataset": study.dataset,
            "split": split,
            "decoder": case.label,
            "features_per_sample": fraction,
            "n_train": study.n_train,
            "hyperparameter": tuned["value"],
            "on_edge": tuned["on_edge"],
        }
        for quantity in ("rel_l2", "rel_linf", "conservation", "seconds"):
            values = np.array([result[split][quantity] for result in results])
            if quantity == "seconds" and split == "train":
                values = values + tuned["seconds"]  # training = encoder, tuning and the decoder's fit
            for name, percent in (("median", 50), ("p05", 5), ("p95", 95)):
                row[f"{quantity}_{name}"] = float(np.percentile(values, percent))
        rows.append(row)
    return rows


class _Store:
    """Finished pieces of one configuration, a JSON file each."""

    def __init__(self, folder, configuration):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder / "pieces"
        path = folder / "config.json"
        try:
            found = json.loads(path.read_text())
            if not isinstance(found, dict):
                raise ValueError("not an object")
        except FileNotFoundError:
            found = None
        except ValueError:
            raise ValueError(f"{path} is damaged; remove {folder} or choose another folder") from None
        if found is None:
            if self._folder.exists():
                raise ValueError(f"{folder} holds pieces of a study but no config.json; "
                                 "remove it or choose another folder")
            _write_json(path, configuration)
        elif found != configuration:
            differing = sorted(k for k in configuration.keys() | found.keys()
                               if configuration.get(k) != found.get(k))
            raise ValueError(f"{folder} holds another configuration (different: "
                             f"{', '.join(differing)}); choose another folder")
        self._folder.mkdir(exist_ok=True)

    def get(self, name, make, skip):
        """The piece from disk (then `skip()` is called), else `make()`, kept on disk."""
        path = self._folder / f"{name}.json"
        try:
            piece = json.loads(path.read_text())
            if not isinstance(piece, dict):
                raise ValueError("not an object")
        except (FileNotFoundError, ValueError):  # not there, or damaged: make it again
            piece = make()
            _write_json(path, piece)
        else:
            skip()
        return piece



def _write_json(path, value):
    text = json.dumps(value, indent=1) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
