"""The data of a study: made once, split, encoded."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from randsmap._interface.arrays import as_array
from randsmap._interface.fields import flattened
from randsmap._io.files import checksum
from randsmap._linalg.scales import median_norm
from randsmap._linalg.svd import low_rank
from randsmap._parallel import blas_threads, for_tiles
from randsmap.datasets._common import cached
from randsmap.invariants import Invariants, fit_invariants
from randsmap.metrics import field_norms, unchecked_errors
from randsmap.snapshots import read_snapshots
from randsmap.studies._store import Store
from randsmap.studies._study import DecoderCase, Study, TunedEncoder

T = TypeVar("T")
Fields = NDArray[np.float64]  # (n_samples, n_cells)
Sizes = tuple[int, int, int]  # of training, validation and test set


def seed_for(seed: int, *path: int) -> int:
    """A seed for one use, independent of the other uses."""
    return int(np.random.SeedSequence((seed, *path)).generate_state(1)[0])


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Result of the call, and the seconds it took."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def load_data(
    study: Study, folder: Path, version: str, seed: int, progress: bool
) -> tuple[Fields, dict[str, NDArray[Any]]]:
    """Fields (n, n_cells), memory-mapped, and a dict that describes them; computed once."""
    description = {"version": version, "dataset": study.dataset, "seed": seed, **file_description(study.data_options)}
    return cached(
        folder,
        description,
        lambda path: study.make_data(random_state=seed_for(seed, 0), out=path, progress=progress, **study.data_options),
    )


def file_description(options: dict[str, Any]) -> dict[str, Any]:
    """The options, files by their content."""
    return {key: f"sha256:{checksum(value)}" if key == "image" else value for key, value in options.items()}


def user_data(path: str | os.PathLike[str], conserves: bool) -> tuple[Fields, str]:
    """The user's own snapshots (n, n_cells) from a file of `read_snapshots`, memory-mapped if large, and its checksum.

    ValueError if they have not all the same mass although the study's decoders keep it.
    """
    F = flattened(read_snapshots(path), str(path))[0]
    numbers = as_array(F, str(path))
    if conserves:
        try:
            fit_invariants(numbers, Invariants.of(numbers.shape[1]), F.dtype)
        except ValueError as error:
            raise ValueError(
                f"{path}: {error}. The decoders of this study keep the sum of the cells; "
                "scale every row to one sum, or use a study without (s-curve)"
            ) from None
    return numbers, f"sha256:{checksum(path)}"


def user_sizes(sizes: Iterable[Sizes], n_samples: int) -> tuple[Sizes, ...]:
    """Split sizes of a study, scaled to n_samples samples."""
    fewest = 30  # for training: P = N/4 are then 7 features
    scaled = []
    for train, validation, test in sizes:
        total = train + validation + test
        n_train, n_validation = (n_samples * part // total for part in (train, validation))
        if n_train < fewest:
            raise ValueError(
                f"{n_samples} samples give {n_train} for training (the study's fraction is "
                f"{train / total:g}), expected at least {fewest}"
            )
        scaled.append((n_train, n_validation, n_samples - n_train - n_validation))
    return tuple(scaled)


def random_split(n_samples: int, sizes: Sizes, seed: int) -> list[NDArray[np.intp]]:
    """Rows for training, validation and testing, drawn at random (paper, App. D)."""
    if sum(sizes) != n_samples:
        raise ValueError(f"split {sizes} does not add up to {n_samples} samples")
    order = np.random.RandomState(seed).permutation(n_samples)
    return np.split(order, np.cumsum(sizes)[:-1])


def trajectory_split(trajectories: NDArray[Any], sizes: Sizes, seed: int) -> list[NDArray[np.intp]]:
    """Rows for training, validation and testing such that no trajectory is in two parts.

    Whole trajectories are dealt out until a part has its size; the surplus of its last one is not used. Testing gets
    the trajectories that are left, so it may be a little smaller.
    """
    rng = np.random.RandomState(seed)
    names = rng.permutation(np.unique(trajectories))
    sizes_of = {name: int(np.count_nonzero(trajectories == name)) for name in names}
    parts, first = [], 0
    for k, size in enumerate(sizes):
        last = first
        if k == len(sizes) - 1:
            last = len(names)
        else:
            while last < len(names) and sum(sizes_of[name] for name in names[first:last]) < size:
                last += 1
        rows = np.flatnonzero(np.isin(trajectories, names[first:last]))
        if len(rows) == 0 or (k < len(sizes) - 1 and len(rows) < size):
            raise ValueError(
                f"{len(names)} trajectories are too few for parts of {sizes} samples "
                "without a trajectory in two of them"
            )
        parts.append(rng.permutation(rows)[:size])
        first = last
    return parts


def rows_of(data: Fields, rows: NDArray[np.intp], out: Fields | None = None) -> Fields:
    """Fields of some rows in memory, in that order."""
    array = np.asarray(data)
    out = np.empty((len(rows), array.shape[1])) if out is None else out

    def tile(a: int, b: int) -> None:
        out[a:b] = array[rows[a:b]]

    for_tiles(tile, len(rows), _tile_rows(out))
    return out


def _tile_rows(F):
    """Rows that are read, or whose errors are computed, at a time: 1 MB stays in cache."""
    return max(1, 2**17 // F.shape[1])


def sample_errors(F: Fields, F_hat: Fields, references: tuple[float, float], conserves: bool) -> NDArray[np.float64]:
    """Relative L2, relative Linf and mass error of each reconstruction, (3, n).

    The references are the usual L2 and maximum norms of a field, so that a field that is empty, or much smaller than
    usual, does not decide a mean alone.
    """
    errors = np.empty((3, len(F)))

    def tile(a: int, b: int) -> None:
        errors[:, a:b] = unchecked_errors(F[a:b], F_hat[a:b], references)
        if conserves:  # relative to the mass, which is 1 in the paper's data
            errors[2, a:b] /= abs(F[a:b].sum(axis=1))

    for_tiles(tile, len(F), _tile_rows(F))
    return errors


def error_summary(errors: NDArray[np.float64], conserves: bool, seconds: float) -> dict[str, float | None]:
    """Means of `sample_errors` over the samples, and the seconds."""
    l2, linf, conservation = (float(each.mean()) for each in errors)
    return {"rel_l2": l2, "rel_linf": linf, "conservation": conservation if conserves else None, "seconds": seconds}


class Part:
    """One split of the data: fields, and their latents by the study's encoder or by that of a case.

    `rows` are those of `data` for training, validation and testing; searches hold out `groups` of the training fields
    as a whole.
    """

    def __init__(
        self,
        study: Study,
        data: Fields,
        rows: Sequence[NDArray[np.intp]],
        store: Store,
        groups: NDArray[Any] | None = None,
    ) -> None:
        self.groups = groups
        self.rows = dict(zip(("train", "validation", "test"), rows))
        self.n_train = len(self.rows["train"])
        self.name = f"N{self.n_train}"
        self._study, self._data, self._store = study, data, store
        self._latents: dict[str, Any] = {}
        self._encoders: dict[str, Any] = {}
        self._coefficients: Any = None

    @cached_property
    def F_train(self) -> Fields:
        return rows_of(self._data, self.rows["train"])

    @cached_property
    def F_validation(self) -> Fields:
        return rows_of(self._data, self.rows["validation"])

    @cached_property
    def _F_test(self) -> Fields | None:
        """The test fields, or None if they take more than 512 MB."""
        rows = self.rows["test"]
        return rows_of(self._data, rows) if len(rows) * self._data.shape[1] <= 2**26 else None

    def first_test_fields(self, count: int) -> Fields:
        return rows_of(self._data, self.rows["test"][:count])

    def test_blocks(self) -> Iterator[tuple[slice, Fields]]:
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
    def references(self) -> tuple[float, float]:
        """Median L2 and maximum norm of the training fields that are not empty."""
        return median_norm(field_norms(self.F_train)), median_norm(field_norms(self.F_train, "linf"))

    def tuning_fields(self, whole: bool) -> tuple[Fields, Fields, float]:
        """Training and validation fields for tuning, and the seconds it took to make them.

        They are the fields themselves if `whole`, else their coefficients in the leading modes if the study wants
        these; of the validation set as many samples as the study wants.
        """
        F_validation = self.F_validation[: self._study.tuning_samples]
        if whole or self._study.tuning_left_out is None:
            return self.F_train, F_validation, 0.0
        if self._coefficients is None:
            self._coefficients = timed(lambda: self._leading_coefficients(F_validation))
        (coefficients, validation), seconds = self._coefficients
        return coefficients, validation, seconds

    def _leading_coefficients(self, F_validation):
        tolerance = self._study.tuning_left_out**0.5 * np.linalg.norm(self.F_train)
        with blas_threads():
            coefficients, modes = low_rank(self.F_train, tolerance)
            return coefficients, F_validation if modes is None else F_validation @ modes.T

    def latents(self, case: DecoderCase) -> dict[str, NDArray[np.float64]]:
        """Latents of "train", "validation" and "test" by the case's encoder; its "seconds_fit" and "seconds_test"."""
        name = self._encoder_name(case)
        if name not in self._latents:
            self._latents[name] = self._store.get(f"{self.name}-latents-{name}.npz", lambda: self._encode(case))
        return self._latents[name]

    def encoder(self, case: DecoderCase) -> Any:
        """The fitted encoder of a case; fitted again after an interruption, to the same bits."""
        name = self._encoder_name(case)
        if name not in self._encoders:
            self._encoders[name] = self._fit_encoder(case)[0]
        return self._encoders[name]

    def _encoder_name(self, case):
        return "encoder" if case.encoder is None else type(case.encoder).__name__

    def _fit_encoder(self, case):
        encoder = clone(self._study.encoder if case.encoder is None else case.encoder)
        options = {"groups": self.groups} if isinstance(encoder, TunedEncoder) else {}
        return encoder, encoder.fit_transform(self.F_train, **options)

    def _encode(self, case):
        (encoder, Y_train), seconds_fit = timed(lambda: self._fit_encoder(case))
        self._encoders[self._encoder_name(case)] = encoder
        blocks = [timed(lambda: encoder.transform(F)) for _, F in self.test_blocks()]
        latents = {
            "train": Y_train,
            "validation": encoder.transform(self.F_validation),
            "test": np.concatenate([Y for Y, _ in blocks]),
            "seconds_fit": seconds_fit,
            "seconds_test": sum(seconds for _, seconds in blocks),
        }
        if isinstance(encoder, TunedEncoder):
            latents["encoder"] = repr(encoder.encoder_)
        # one memory layout, whether computed or read back: BLAS rounds by it
        return {
            name: np.ascontiguousarray(value) if np.ndim(value) else np.array(value) for name, value in latents.items()
        }
