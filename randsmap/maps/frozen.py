"""Frozen decoders: one immutable block of memory that C decodes with (src/randsmap/include/randsmap.h)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import as_array
from randsmap._interface.callers import compiled
from randsmap._interface.fields import FieldOutputMixin, FieldShape, field_rows
from randsmap._interface.texts import shared_texts
from randsmap._io.files import expanded, write_atomically
from randsmap._kernels import linear_map as _kernel
from randsmap.maps.image import MAX_BYTES, FrozenEncoder, field_shape_of, image_of
from randsmap.maps.linear_map import LinearMap


def library_path() -> str:
    """The shared library ``librandsmap``, or on Windows what a linker takes in its place; FileNotFoundError in a
    source tree, which has none."""
    folder = Path(__file__).resolve().parent.parent / "lib"
    for pattern in ("librandsmap*.so*", "librandsmap*.dylib", "*randsmap*.lib", "*randsmap*.dll.a"):
        for path in sorted(folder.glob(pattern)):
            return str(path)
    raise FileNotFoundError(f"no shared library in {folder}: install the package (pip install .)")


def get_include() -> str:
    """The folder of ``randsmap.h``, for a compiler's ``-I``.

    Returns
    -------
    str
        The path of the folder, in which ``randsmap.hpp`` and ``randsmap.f90`` lie, too.

    Examples
    --------
    >>> import os, randsmap
    >>> os.path.exists(os.path.join(randsmap.get_include(), "randsmap.h"))
    True
    """
    package = Path(__file__).resolve().parent.parent
    installed = package / "include"
    return str(installed if installed.is_dir() else package.parent / "src" / "randsmap" / "include")


def _of_kernel(name: str) -> Any:
    """An attribute of the structure that C decodes with."""
    return property(lambda self: getattr(self.linear_map.kernel, name))


@shared_texts
class FrozenDecoder(FieldOutputMixin):
    """A decoder as one immutable block of memory, as ``decoder.freeze()`` makes it and C decodes with it.

    Parameters
    ----------
    image : bytes-like
        The image, as a file holds it; it is not copied. ``decoder.freeze()`` and `load` are the usual ways to one.

    Attributes
    ----------
    n_components, n_cells, n_invariants, n_features : int
        d latent coordinates, M cells, q invariants (columns of C), P functions of the latent point.
    kind : {"features", "table"}
    precision : {"float64", "float32"}
    nbytes : int
        Size of the image, in memory and in a file.
    field_shape_ : tuple of int
        Shape of a field, (M,) of rows; it is in the image.

    Raises
    ------
    ValueError
        If it is no image, damaged, cut off or forged, of a later version or of the other byte order.

    Notes
    -----
    The image is the file: `load` maps it, so that processes share its memory, and ``randsmap_open`` in C (randsmap.h)
    opens what `save` has written. It depends on the byte order alone, not on the platform. A file from an untrusted
    source cannot do more than decode nonsense. Any number of threads may use one decoder at once.

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
        self.linear_map = LinearMap.of(image)
        self._row = self.linear_map.kernel.row  # bound: one row must cost microseconds
        self._n_cells = self.linear_map.n_cells
        shape = field_shape_of(image, self._n_cells)
        self._field_shape = FieldShape(shape or (() if self.linear_map.kernel.single else (self._n_cells,)))

    n_components = _of_kernel("n_components")
    n_cells = _of_kernel("n_cells")
    n_invariants = _of_kernel("n_invariants")
    n_features = _of_kernel("n_features")

    @property
    def kind(self) -> str:
        return "table" if self.linear_map.kernel.kind == _kernel.TABLE else "features"

    @property
    def precision(self) -> str:
        return f"float{self.linear_map.kernel.precision}"

    @property
    def nbytes(self) -> int:
        return memoryview(self.linear_map.kernel.source).nbytes

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_components={self.n_components}, n_cells={self.n_cells}, kind={self.kind!r}, "
            f"precision={self.precision!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (bytes(self.linear_map.kernel.source),)

    # -- Files -------------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the image to a file, which `load` and ``randsmap_open`` in C map.

        Parameters
        ----------
        path : path
            The file is written whole or not at all. One that is mapped is replaced: who has it open goes on with it.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        write_atomically(path, lambda file: file.write(memoryview(self.linear_map.kernel.source)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The decoder of a file, mapped into memory: nothing is copied, and processes share it.

        Parameters
        ----------
        path : str or path-like
            A file that `save` has written; ``~`` is expanded.

        Returns
        -------
        FrozenDecoder
            Or `FrozenModel`, called as ``FrozenModel.load``.

        Raises
        ------
        ValueError, OSError
            As the class, and if the file cannot be read.
        """
        path = expanded(path)
        if not path.stat().st_size:
            raise ValueError(f"{path} is empty, not the image of a frozen decoder")
        try:
            return cls(np.memmap(path, np.uint8, "r"))
        except ValueError as error:
            raise ValueError(f"{path} is not the image of a frozen decoder: {error}") from None

    # -- Fields ------------------------------------------------------------------------------------
    @compiled
    def predict(
        self, X: ArrayLike, *, invariant_values: float | ArrayLike | None = None, out: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Decode latent points.

        Parameters
        ----------
        {latents}
        {invariant_values}
        {out}

        {returns_fields}

        {raises}
        """
        if invariant_values is None and type(X) is np.ndarray and len(X) <= 8:
            fields = np.empty((len(X), self._n_cells)) if out is None else out
            try:
                if self._row(X, fields) == 0:
                    return fields if out is not None else self._in_shape(fields)
            except (BufferError, TypeError, ValueError):  # of another layout: taken, or refused in its own words
                pass
        linear = self.linear_map
        return linear.fields(
            linear.checked(X, invariant_values=invariant_values), invariant_values, out=out, shape=self.field_shape_
        )

    # -- Derivatives -------------------------------------------------------------------------------
    def jacobian(self, X: ArrayLike, *, out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Derivatives of the fields with respect to the latents.

        Parameters
        ----------
        {latents}
        {out_jacobian}

        {returns_jacobian}

        {raises}
        """
        linear = self.linear_map
        return linear.jacobian(linear.checked(X), out=out, shape=self.field_shape_)

    def jvp(self, X: ArrayLike, V: ArrayLike) -> NDArray[np.float64]:
        """Products J v of the derivatives with directions in the latent space.

        Parameters
        ----------
        {latents}
        {directions}

        {returns_jvp}

        {raises}
        """
        linear = self.linear_map
        return linear.jvp(linear.checked(X, V=V), V, shape=self.field_shape_)

    def vjp(self, X: ArrayLike, U: ArrayLike) -> NDArray[np.float64]:
        """Products J^T u: gradients of u . f with respect to the latents.

        Parameters
        ----------
        {latents}
        {functionals}

        {returns_vjp}

        {raises}
        """
        linear = self.linear_map
        return linear.vjp(linear.checked(X, U=U), self._vectors(U), shape=self.field_shape_)


@shared_texts
class FrozenModel(FrozenDecoder):
    """Encoder and decoder as one immutable block of memory, as ``model.freeze()`` makes it.

    A `FrozenDecoder` with `transform`. In C ``randsmap_encode`` and ``randsmap_decode`` use the same image.

    Parameters
    ----------
    image : bytes-like
        As of a `FrozenDecoder`.

    Raises
    ------
    ValueError
        As `FrozenDecoder`, and if the image has no encoder.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> x = np.linspace(0, 1, 50)
    >>> bumps = np.exp(-((x - np.linspace(0.3, 0.7, 40)[:, None]) / 0.1) ** 2)
    >>> bumps /= bumps.sum(axis=1, keepdims=True)
    >>> model = randsmap.ManifoldModel(randsmap.DiffusionMaps(1), randsmap.KernelDecoder()).fit(bumps)
    >>> frozen = model.freeze()
    >>> bool(abs(frozen.transform(bumps) - model.transform(bumps)).max() < 1e-12)
    True
    """

    def __init__(self, image: Any) -> None:
        super().__init__(image)
        if not self.linear_map.kernel.has_encoder:
            raise ValueError("the image holds no encoder: open it as a FrozenDecoder")

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Latents of fields.

        Parameters
        ----------
        {fields}

        Returns
        -------
        ndarray (n, d)

        Raises
        ------
        ValueError
            If X is not a finite array (n, M), or a field is too large for its distances from the training fields.
        """
        return self.linear_map.encode(as_array(field_rows(self, X), "X", (None, self.n_cells), min_rows=0))

    @compiled
    def inverse_transform(
        self, X: ArrayLike, *, invariant_values: float | ArrayLike | None = None, out: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Fields at latents: `predict` under the name that models give it.

        Parameters
        ----------
        {latents}
        {invariant_values}
        {out}

        {returns_fields}

        {raises}
        """
        return self.predict(X, invariant_values=invariant_values, out=out)


def load_image(path: str | os.PathLike[str]) -> FrozenDecoder:
    """A `FrozenModel` if the file holds an encoder, else a `FrozenDecoder`."""
    decoder = FrozenDecoder.load(path)
    return FrozenModel(decoder.linear_map.kernel.source) if decoder.linear_map.kernel.has_encoder else decoder


class LinearMapHolder(FieldOutputMixin):
    """`freeze` of an estimator that decodes by `linear_map`, a `LinearMap`."""

    linear_map: Any
    _box: NDArray[np.float64] | None = None  # smallest and largest latents (2, d) of the training points, if known

    def freeze(
        self,
        *,
        precision: str = "float64",
        tol: float | None = None,
        kind: str = "features",
        latents: ArrayLike | None = None,
        max_bytes: int = MAX_BYTES,
        encoder: FrozenEncoder | None = None,
    ) -> FrozenDecoder:
        """The decoder as one immutable block of memory, which decodes without Python: in C, or here with less overhead.

        Parameters
        ----------
        precision : {"float64", "float32"}, default="float64"
            Of the coefficients that are stored. "float32" decodes to 5e-6 of a field's norm. Sums have double
            precision, and invariants, constant cells and bounds hold as exactly, in both.
        tol : float or None
            Relative L2 error that fields may have. kind="features": at `latents`, for a product of two smaller matrices
            in place of the coefficients; None: the coefficients themselves. Smooth fields have few modes, shocks many.
            kind="table": at the centres of its cells; None: 1e-7.
        kind : {"features", "table"}, default="features"
            "table", for one or two latent coordinates: tensor B-splines of degree 7 on a uniform grid over the
            bounding box of `latents`, refined until `tol` holds, at a cost independent of the number of features.
            Outside the box, and before bounds and invariants, the decoder itself.
        latents : array-like (n, d) or None
            Points such as those that will be decoded. None: the box of the training points, which POD does not know.
        max_bytes : int
            Largest table.
        encoder : FrozenEncoder or None
            What `ManifoldModel.freeze` adds.

        Returns
        -------
        FrozenDecoder, with an encoder FrozenModel
            In float64, without `tol` and table, it decodes up to 12 rows to the bits of `predict`, more to round-off.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        TypeError
            If the functions are not the package's own: another transformer's features, a blend.
        ValueError
            If an argument is out of range, a table needs more than max_bytes, coefficients cancel too much for
            float32, or latents are needed and not given.

        Examples
        --------
        >>> import numpy as np, randsmap
        >>> latents = np.linspace(0, 1, 20)[:, None]
        >>> fields = np.hstack([latents**2, 1 - latents**2])
        >>> decoder = randsmap.RANDSMAPDecoder(random_state=0).fit(latents, fields)
        >>> table = decoder.freeze(kind="table")
        >>> bool(abs(table.predict([[0.3]]) - decoder.predict([[0.3]])).max() < 1e-7)
        True
        """
        image = image_of(
            self.linear_map,
            precision=precision,
            tol=tol,
            kind=kind,
            latents=latents,
            box=self._box,
            max_bytes=max_bytes,
            field_shape=self.field_shape_,
            encoder=encoder,
            owner=type(self).__name__,
        )
        return FrozenDecoder(image) if encoder is None else FrozenModel(image)
