"""Frozen decoders: one immutable block of memory that C decodes with (src/randsmap/include/randsmap.h)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._files import expanded, write_atomically
from randsmap._kernels import frozen as _kernel
from randsmap._parallel import for_tiles
from randsmap._validation import check_matrix, check_out, check_vectors

__all__ = ["FrozenDecoder", "get_include", "image_of", "is_image"]


def is_image(start: bytes) -> bool:
    """Whether a file that starts with these bytes calls itself an image."""
    return start[: len(_kernel.MAGIC)] == _kernel.MAGIC


def get_include() -> str:
    """The folder of ``randsmap.h``, for a compiler's ``-I``.

    Examples
    --------
    >>> import os, randsmap
    >>> os.path.exists(os.path.join(randsmap.get_include(), "randsmap.h"))
    True
    """
    package = Path(__file__).resolve().parent.parent
    installed = package / "include"
    return str(installed if installed.is_dir() else package.parent / "src" / "randsmap" / "include")


def image_of(linear: Any, single: bool = False) -> NDArray[np.uint8]:
    """The image of a `LinearMap`; `single`: its fields are one-dimensional."""
    basis, A = linear.basis.frozen(), linear.A
    arrays: dict[str, NDArray[Any] | None] = {**basis.arrays, "bias": A[0], "coefficients": A[1:]}
    invariants = linear.invariants
    q = 0
    if invariants is not None:
        arrays.update(invariants.frozen())
        q = invariants.matrix.shape[1]
    parameters = {
        "n_components": basis.n_components,
        "n_cells": A.shape[1],
        "n_invariants": q,
        "basis": basis.kind,
        "function": basis.function,
        "kind": _kernel.FEATURES,
        "precision": 64,
        "projected": invariants is not None,
        "single": single,
    }
    arrays["parameters"] = np.array([parameters[name] for name in _kernel.PARAMETERS], dtype=np.int64)
    arrays["scalars"] = np.array([basis.scale, basis.low, basis.high])
    return assembled({name: array for name, array in arrays.items() if array is not None})


def assembled(arrays: dict[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """One image of named arrays, as rk_image.h describes it: read-only, aligned to a cache line."""
    alignment = _kernel.ALIGNMENT
    matrices = {name: np.atleast_2d(array) for name, array in arrays.items()}
    offsets, end = [], 64 + 32 * len(matrices)
    for array in matrices.values():
        offsets.append(-(-end // alignment) * alignment)
        end = offsets[-1] + array.nbytes
    size = -(-end // alignment) * alignment
    memory = np.zeros(size + alignment, np.uint8)
    image = memory[-memory.ctypes.data % alignment :][:size]
    header = np.zeros(1, _HEADER)
    header["magic"], header["order"], header["version"] = _kernel.MAGIC, _kernel.ORDER, _kernel.VERSION
    header["size"], header["n_sections"] = size, len(matrices)
    table = np.zeros(len(matrices), _SECTION)
    for entry, offset, (name, array) in zip(table, offsets, matrices.items()):
        entry["id"], entry["type"], entry["offset"] = _kernel.SECTIONS[name], _kernel.TYPES[array.dtype.name], offset
        entry["rows"], entry["columns"] = array.shape
        image[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)[:] = array
    image[64 : 64 + table.nbytes] = table.view(np.uint8)
    image[:64] = header.view(np.uint8)
    header["checksum"] = _kernel.checksum(image)
    image[:64] = header.view(np.uint8)
    image.flags.writeable = False
    return image


_HEADER = np.dtype(
    {
        "names": ["magic", "order", "version", "size", "checksum", "n_sections"],
        "formats": ["S8", "u4", "u4", "u8", "u8", "u4"],
        "offsets": [0, 8, 12, 16, 24, 32],
        "itemsize": 64,
    }
)
_SECTION = np.dtype([("id", "u4"), ("type", "u4"), ("offset", "u8"), ("rows", "u8"), ("columns", "u8")])


class FrozenDecoder:
    """A decoder as one immutable block of memory, as ``decoder.freeze()`` makes it and C decodes with it.

    Attributes
    ----------
    n_components, n_cells, n_invariants, n_features : int
        d latent coordinates, M cells, q invariants (columns of C), P functions of the latent point.
    kind : {"features", "table"}
    precision : {"float64", "float32"}
    nbytes : int
        Size of the image, in memory and in a file.

    Notes
    -----
    The image is the file: `load` maps it, so that processes that load the same file share its memory, and
    ``randsmap_open`` in C (randsmap.h) opens what `save` has written. It depends on the byte order alone, not on
    the platform. A file from an untrusted source cannot do more than decode nonsense.

    One decoder may be used by any number of threads at once.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> latents = np.linspace(0, 1, 20)[:, None]
    >>> fields = np.hstack([latents**2, 1 - latents**2])
    >>> decoder = randsmap.RANDSMAPDecoder(random_state=0).fit(latents, fields)
    >>> frozen = decoder.freeze()
    >>> bool(abs(frozen.predict([[0.3]]) - decoder.predict([[0.3]])).max() < 1e-13)
    True
    """

    def __init__(self, image: Any) -> None:
        self._decoder = _kernel.Decoder(image)
        self._row = self._decoder.row  # bound: one row must cost microseconds
        self._n_cells = self._decoder.n_cells

    @property
    def n_components(self) -> int:
        return self._decoder.n_components

    @property
    def n_cells(self) -> int:
        return self._decoder.n_cells

    @property
    def n_invariants(self) -> int:
        return self._decoder.n_invariants

    @property
    def n_features(self) -> int:
        return self._decoder.n_features

    @property
    def kind(self) -> str:
        return "table" if self._decoder.kind == _kernel.TABLE else "features"

    @property
    def precision(self) -> str:
        return f"float{self._decoder.precision}"

    @property
    def nbytes(self) -> int:
        return memoryview(self._decoder.image).nbytes

    def __repr__(self) -> str:
        return (
            f"FrozenDecoder(n_components={self.n_components}, n_cells={self.n_cells}, kind={self.kind!r}, "
            f"precision={self.precision!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDecoder, (bytes(self._decoder.image),)

    # -- Files -------------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the image to a file, which `load` and ``randsmap_open`` in C map.

        Parameters
        ----------
        path : path
            The file is there whole or, if writing fails, as it was before. A file that is mapped is replaced, not
            overwritten: who has it open goes on with what was there.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        write_atomically(path, lambda file: file.write(memoryview(self._decoder.image)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FrozenDecoder:
        """The decoder of a file, mapped into memory: nothing is copied, and processes share it.

        Raises
        ------
        ValueError
            If it is no image, damaged, cut off or forged, of a later version or of the other byte order.
        OSError
            If it cannot be read.
        """
        path = expanded(path)
        if not path.stat().st_size:
            raise ValueError(f"{path} is empty, not the image of a frozen decoder")
        try:
            return cls(np.memmap(path, np.uint8, "r"))
        except ValueError as error:
            raise ValueError(f"{path} is not the image of a frozen decoder: {error}") from None

    # -- Fields ------------------------------------------------------------------------------------
    def predict(
        self, X: ArrayLike, *, invariant_values: float | ArrayLike | None = None, out: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Decode latent points.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates.
        invariant_values : float, array (q,), (n,) if q is 1, or (n, q), or None
            m of these rows in place of the fitted one, as in the decoder's own `predict`.
        out : ndarray (n, M), float64, C-contiguous, or None
            Where to put the fields.

        Returns
        -------
        fields : ndarray (n, M), float64
            `out` if given; (n,) if the decoder was fitted to one-dimensional y. A row's result does not depend on
            the other rows.

        Raises
        ------
        ValueError, TypeError
            If X is not a finite array (n, d), out has the wrong shape, type or layout or shares memory with X,
            invariant_values do not fit or contradict each other or the bounds, or a field that has invariants to
            satisfy overflows.
        """
        if invariant_values is None and type(X) is np.ndarray and len(X) <= 8:
            fields = np.empty((len(X), self._n_cells)) if out is None else out
            if self._row(X, fields) == 0:
                return fields
        return self._predict(X, invariant_values, out)

    def _predict(self, X, invariant_values, out):
        X = check_matrix(X, "X", n_columns=self.n_components, min_rows=0)
        n, M = len(X), self.n_cells
        if out is not None and np.may_share_memory(out, X):
            raise ValueError("out must not share memory with X")
        single = self._decoder.single
        out = check_out(out, (n,) if single else (n, M))
        values = None if invariant_values is None else self._values(invariant_values, n)
        rows = out.reshape(n, M)

        def task(a, b):
            given = None if values is None else values[a:b]
            status = self._decoder.decode(X[a:b], given, rows[a:b])
            if status:
                self._refuse(
                    status,
                    a,
                    b,
                    lambda i: self._decoder.decode(
                        X[i : i + 1], None if values is None else values[i : i + 1], rows[i : i + 1]
                    ),
                )

        for_tiles(task, n)
        return out

    @staticmethod
    def _refuse(status, start, stop, again):
        """ValueError that names the first row of a failed tile; `again(i)`: the status of row i alone."""
        row = next((i for i in range(start, stop) if again(i)), start)
        raise ValueError(f"row {row} of X: {_kernel.message(status)}")

    def _values(self, values, n):
        """Values m (n, q) of each row, of the shapes that a decoder's `predict` takes."""
        q = self.n_invariants
        if q == 0:
            raise ValueError("invariant_values given, but this decoder does not project its fields on invariants")
        shape = np.shape(values)
        if shape not in {(), (q,), (n, q)} | ({(n,)} if q == 1 else set()) or (shape == () and q > 1):
            raise ValueError(
                f"invariant_values must have shape ({q},) for all rows, or ({n}, {q}) for each"
                + (f", or be a number or ({n},)" if q == 1 else "")
                + f", got {shape}"
            )
        values = np.asarray(values)
        values = values[:, None] if shape == (n,) and q == 1 and n != 1 else np.atleast_2d(values)
        return np.ascontiguousarray(np.broadcast_to(check_matrix(values, "invariant_values", min_rows=0), (n, q)))

    # -- Derivatives -------------------------------------------------------------------------------
    def jacobian(self, X: ArrayLike, *, out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Derivatives (n, M, d) of the fields at X (n, d); (n, d) if y was one-dimensional. Raises as `predict`."""
        X = check_matrix(X, "X", n_columns=self.n_components, min_rows=0)
        n, d = X.shape
        shape = (n, d) if self._decoder.single else (n, self.n_cells, d)
        out = check_out(out, shape)
        out.reshape(n, self.n_cells, d)[:] = self._tangents(X, None, d).transpose(0, 2, 1)
        return out

    def jvp(self, X: ArrayLike, V: ArrayLike) -> NDArray[np.float64]:
        """Products J v (n, M) of the derivatives at X (n, d) with V (n, d), or (d,) for all rows.

        Raises as `predict`, and ValueError if V does not fit. C^T J v = 0 with invariants.
        """
        X = check_matrix(X, "X", n_columns=self.n_components, min_rows=0)
        V = np.ascontiguousarray(check_vectors(V, "V", *X.shape))
        out = self._tangents(X, V[:, None], 1)[:, 0]
        return out[:, 0] if self._decoder.single else out

    def _tangents(self, X, V, p):
        n, M = len(X), self.n_cells
        out = np.empty((n, p, M))

        def task(a, b):
            given = None if V is None else V[a:b]
            status = self._decoder.decode_jvp(X[a:b], given, np.empty((b - a, M)), out[a:b])
            if status:
                self._refuse(
                    status,
                    a,
                    b,
                    lambda i: self._decoder.decode_jvp(
                        X[i : i + 1], None if V is None else V[i : i + 1], np.empty((1, M)), out[i : i + 1]
                    ),
                )

        for_tiles(task, n)
        return out

    def vjp(self, X: ArrayLike, U: ArrayLike) -> NDArray[np.float64]:
        """Products J^T u (n, d) at X (n, d) for U (n, M), or (M,) for all rows: gradients of u . f.

        Raises as `predict`, and ValueError if U does not fit.
        """
        X = check_matrix(X, "X", n_columns=self.n_components, min_rows=0)
        if self._decoder.single:
            U = np.asarray(U)[..., None] if np.ndim(U) else U
        U = np.ascontiguousarray(check_vectors(U, "U", len(X), self.n_cells))
        out = np.empty(X.shape)

        def task(a, b):
            status = self._decoder.vjp(X[a:b], U[a:b], out[a:b])
            if status:
                self._refuse(status, a, b, lambda i: self._decoder.vjp(X[i : i + 1], U[i : i + 1], out[i : i + 1]))

        for_tiles(task, len(X))
        return out
