"""Rotations of one image (paper, Case Study 2), and the test that an embedding distinguishes them."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch

from randsmap._interface.arrays import as_array, check_domain, check_samples
from randsmap._interface.callers import warn_caller
from randsmap._interface.parameters import check_count
from randsmap._io import files
from randsmap._io.matlab import NUMBERS, mat_arrays
from randsmap._kernels import images as kernel
from randsmap._linalg.rows import load_npy
from randsmap.datasets import _common


@_common.documented
def make_rotated_images(
    n_samples: int = 3600,
    *,
    image: ArrayLike | str | os.PathLike[str] | None = None,
    shape: int | tuple[int, int] | None = None,
    shuffle: bool = False,
    random_state: _common.RandomState = None,
    out: _common.Output = None,
    progress: bool = False,
) -> Bunch:
    """Rotations of one image about its centre: the data of the paper's Case Study 2.

    ``data[i]`` is the image rotated counter-clockwise by ``angles[i]`` = 2 pi i / n_samples, bilinear, 0 outside the
    image, flattened row by row, scaled to sum 1.

    Parameters
    ----------
    n_samples : int, default 3600
        Number of images.
    image : array_like (height, width) or path, default=None
        The image: non-negative, or a file as `load_image` reads it. By default `head_phantom`.
    shape : int or (int, int), default=None
        Height and width in pixels; one number makes the images square. An image of another shape is resampled by area
        averages. By default the image's own shape, and 128 x 128 of the phantom.
    shuffle : bool, default False
        Put the images in random order instead of the order of angle.
    random_state : None, int, RandomState or Generator, default=None
        Seed of `shuffle`.
    {out}

    Returns
    -------
    Bunch
        ``data`` (n_samples, height * width); ``angles`` (n_samples,) in radians; ``coordinates`` (n_samples, 1): the
        angles; ``coordinate_names``; ``image`` (height, width): what was rotated, scaled to maximum 1; ``shape``;
        ``DESCR``.

    {raises}
        Also as `load_image`, or if a rotation carries everything out of the frame.

    See Also
    --------
    winding_number : does a two-dimensional embedding of the images tell all angles apart?

    Notes
    -----
    Row 0 is on top. The values are those of `scipy.ndimage.rotate` with ``order=1, reshape=False,
    mode="grid-constant"``. A quarter turn of a square image is exact, and so a little sharper than its neighbours. The
    paper's image, slice 4 of MATLAB's ``mri`` data, cannot be distributed; ``image="mri.mat"`` reads it.

    {example}
    """
    n_samples = check_count(n_samples, "n_samples")
    shape = None if shape is None else _check_shape(shape)
    if image is None:
        image = head_phantom(shape or 128)
    else:
        image = load_image(image)
        if shape is not None and shape != image.shape:
            image = _area_averages(image, shape)
    height, width = image.shape
    frame = kernel.PAD_BEFORE, kernel.PAD_AFTER
    if (height + sum(frame)) * (width + sum(frame)) > 2**31 - 1:  # the kernel's 32-bit indices
        raise ValueError(f"image must have fewer than 2**31 pixels, got shape {image.shape}")
    image = image / image.max()
    padded = np.ascontiguousarray(np.pad(image, frame))

    steps = np.arange(n_samples)
    if shuffle:
        steps = _common.random_streams(random_state, 1)[0].permutation(n_samples)
    cosines, sines = _cosines_and_sines(steps, n_samples)
    angles = steps * (2 * np.pi / n_samples)
    sums = np.empty(n_samples)

    def fill(data, rows):
        kernel.rotate(padded, cosines[rows], sines[rows], data[rows], sums[rows])
        for angle in angles[rows][~(sums[rows] > 0)][:1]:
            reason = "its content lies too close to the corners"
            raise ValueError(f"the image rotated by {angle:g} is zero everywhere: {reason}")

    # a task of 32 images takes a few milliseconds
    size, about = (n_samples, height * width), make_rotated_images.__doc__ or ""
    data = _common.fill_blocks(out, size, fill, 32, description="rotated images", progress=progress)
    coordinates = {"angles": angles, "coordinates": angles[:, None], "coordinate_names": ("theta",)}
    return Bunch(data=data, **coordinates, image=image, shape=image.shape, DESCR=about)


def _check_shape(shape):
    pair = shape if isinstance(shape, (tuple, list)) else (shape, shape)
    if len(pair) != 2:
        raise ValueError(f"shape must be a number of pixels or (height, width), got {shape!r}")
    return tuple(check_count(size, "shape", low=2) for size in pair)


def _cosines_and_sines(steps, n):
    """Cosine and sine of 2 pi steps / n, from the first quadrant: exact at quarter turns."""
    quadrant, rest = np.divmod(4 * steps, n)
    c, s = np.cos(rest * (np.pi / 2 / n)), np.sin(rest * (np.pi / 2 / n))
    return np.choose(quadrant, [c, -s, -c, s]), np.choose(quadrant, [s, c, -s, -c])


@_common.documented
def head_phantom(shape: int | tuple[int, int] = 128) -> NDArray[np.float64]:
    """Analytic picture of a head: the default image of `make_rotated_images`.

    The modified Shepp-Logan phantom (P. Toft, The Radon Transform, PhD thesis, 1996, Appendix B), scaled by 0.80 and
    shifted to the right by 0.17 half-widths, with a light texture; averages of 4 x 4 points per pixel. In the middle,
    images half a turn apart would have one latent point.

    Parameters
    ----------
    shape : int or (int, int), default 128
        Height and width in pixels; one number makes it square.

    Returns
    -------
    ndarray (height, width)
        Values between 0 and about 1.

    {raises}

    Examples
    --------
    >>> from randsmap.datasets import head_phantom
    >>> head_phantom(64).shape
    (64, 64)
    """
    height, width = _check_shape(shape)
    half, scale, shift, subpixels = min(height, width) / 2, 0.80, 0.17, 4
    offsets = (np.arange(subpixels) + 0.5) / subpixels
    image = np.zeros((height, width))
    for row_offset in offsets:
        y = -(np.arange(height) + row_offset - height / 2)[:, None] / half
        for column_offset in offsets:
            x = (np.arange(width) + column_offset - width / 2)[None, :] / half
            image += _phantom_intensity((x - shift) / scale, y / scale)
    return image / subpixels**2


def _phantom_intensity(x, y):
    """Modified Shepp-Logan phantom with texture; the head spans |x| < 0.69, |y| < 0.92."""
    # Toft (1996), Appendix B: intensity added inside an ellipse, half-axes, centre, counter-clockwise tilt in degrees
    ellipses = (
        (1.0, 0.69, 0.92, 0.0, 0.0, 0.0),
        (-0.8, 0.6624, 0.874, 0.0, -0.0184, 0.0),
        (-0.2, 0.11, 0.31, 0.22, 0.0, -18.0),
        (-0.2, 0.16, 0.41, -0.22, 0.0, 18.0),
        (0.1, 0.21, 0.25, 0.0, 0.35, 0.0),
        (0.1, 0.046, 0.046, 0.0, 0.1, 0.0),
        (0.1, 0.046, 0.046, 0.0, -0.1, 0.0),
        (0.1, 0.046, 0.023, -0.08, -0.605, 0.0),
        (0.1, 0.023, 0.023, 0.0, -0.606, 0.0),
        (0.1, 0.023, 0.046, 0.06, -0.605, 0.0),
    )
    intensity = np.zeros(np.broadcast_shapes(x.shape, y.shape))
    for added, a, b, x0, y0, degrees in ellipses:
        c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
        along, across = c * (x - x0) + s * (y - y0), c * (y - y0) - s * (x - x0)
        intensity += added * ((along / a) ** 2 + (across / b) ** 2 <= 1)
    texture = np.sin(23 * x + 7 * y + 1) * np.sin(11 * x - 19 * y)
    # 1 - 0.8 - 0.2 is 5e-17 below zero
    return np.maximum(intensity, 0.0) * (1 + 0.05 * texture)


def load_image(image: ArrayLike | str | os.PathLike[str]) -> NDArray[np.float64]:
    """An image as a checked array, from an array or a file.

    Parameters
    ----------
    image : array_like (height, width) or path
        Non-negative values, at least 2 x 2. A file is a ``.npy`` array; a ``.mat`` file with a variable D (height,
        width) or (height, width[, 1], slices), of which slice 4 is taken (the paper's image in MATLAB's ``mri.mat``);
        or a picture that Pillow reads (colours become luminance, transparency is ignored).

    Returns
    -------
    ndarray (height, width)
        float64; never the caller's array.

    Raises
    ------
    ValueError, TypeError, FileNotFoundError, ImportError
        If the image is not two-dimensional, holds NaN, infinite or negative values or nothing but zeros, the file
        is missing or cannot be read, or Pillow is needed and not installed.

    Examples
    --------
    >>> from randsmap.datasets import load_image
    >>> load_image([[0, 1], [2, 3]])
    array([[0., 1.],
           [2., 3.]])
    """
    name = "image"
    if isinstance(image, (str, os.PathLike)):
        path = files.expanded(image)
        name = f"image {path.name}"
        image = _read_image(path)
    if np.ndim(image) != 2:
        raise ValueError(f"{name} must be two-dimensional (height, width), got shape {np.shape(image)}")
    image = np.array(as_array(image, name, min_rows=2, min_columns=2))
    if image.min() < 0:
        where = tuple(int(i) for i in np.argwhere(image < 0)[0])
        raise ValueError(f"{name} must not be negative, got {image[where]} at {where}")
    if image.max() == 0:
        raise ValueError(f"{name} must not be zero everywhere: its sum cannot be scaled to 1")
    return image


def _read_image(path):
    kind, read = {".npy": ("a .npy file of numbers", load_npy), ".mat": ("a .mat file", _read_mat)}.get(
        path.suffix.lower(), ("a picture", _read_picture)
    )
    try:
        return read(path)
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # damaged files make the readers raise nearly anything
        if isinstance(error, OSError) and error.errno is not None:  # the file is missing or not readable
            raise
        raise ValueError(f"{path} cannot be read as {kind}: {error}") from error


def _read_mat(path):
    with open(path, "rb") as file:
        if file.read(10) == b"MATLAB 7.3":
            raise ValueError("it has MATLAB's format 7.3; save it with '-v7'")
        found = mat_arrays(file).get("D")
        if found is None:
            raise ValueError("it holds no variable D")
        if found.kind != NUMBERS:
            raise ValueError(f"D must be an array of real numbers, got {found.kind}")
        D = found.read()
    if D.ndim == 2:
        return D
    if D.ndim not in (3, 4) or (D.ndim == 4 and D.shape[2] != 1) or D.shape[-1] < 4:
        expected = "(height, width[, 1], slices) with at least 4 slices, or (height, width)"
        raise ValueError(f"D must have shape {expected}, got {D.shape}")
    return D.reshape(*D.shape[:2], -1)[:, :, 3]


def _read_picture(path):
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("reading a picture needs Pillow: pip install 'randsmap[plots]'") from None
    with Image.open(path) as picture:
        # these modes are one channel of numbers; "L" would cut 16 bits to 8
        if picture.mode not in ("L", "F", "I") and not picture.mode.startswith("I;16"):
            picture = picture.convert("L")
        return np.asarray(picture)


def _area_averages(image, shape):
    """Image resampled to a shape: a new pixel is the mean of the image over the pixel's area."""

    def overlaps(size, new_size):
        edges, cells = np.linspace(0, size, new_size + 1), np.arange(size)
        overlap = np.minimum(edges[1:, None], cells + 1) - np.maximum(edges[:-1, None], cells)
        return np.maximum(overlap, 0.0) * (new_size / size)

    rows, columns = map(overlaps, image.shape, shape)
    return rows @ image @ columns.T


@_common.documented
def winding_number(latents: ArrayLike, angles: ArrayLike | None = None) -> int:
    """Number of turns of a closed curve in the plane about its centroid.

    The latent points of rotated images form a closed curve, which goes round once if they distinguish all angles, and
    twice if half a turn hardly changes the image. Consecutive points must lie less than half a turn apart.

    {curve}
    """
    check_samples(latents=latents, angles=angles)
    latents = as_array(latents, "latents", (None, 2), min_rows=3)
    if angles is not None:
        angles = as_array(angles, "angles", (len(latents),))
        latents = latents[np.argsort(angles, kind="stable")]
    check_domain(latents, "latents")
    points = (latents - latents.mean(axis=0)) @ [1, 1j]
    for k in np.flatnonzero(points == 0)[:1]:
        raise ValueError(f"the curve goes through its centroid (point {k} in order): it has no winding number")
    points /= abs(points)
    turns = np.angle(np.roll(points, -1) * points.conj()).sum() / (2 * np.pi)
    return int(np.rint(turns))


@_common.documented
def warn_unless_covered_once(latents: ArrayLike, angles: ArrayLike | None = None) -> int:
    """`winding_number` of an embedding of rotated images, with a UserWarning if it is not 1 or -1.

    {curve}
    """
    number = winding_number(latents, angles)
    reason = "the two coordinates do not follow the angle; take other eigenvectors or another bandwidth"
    if abs(number) > 1:
        shared = f"images 1/{abs(number)} of a turn apart share a latent point and cannot be distinguished"
        reason = f"{shared}, since the image is nearly symmetric under that turn; shift it off the centre, or take "
        reason += "another image or other eigenvectors"
    if abs(number) != 1:
        warn_caller(f"while the image makes one turn its embedding goes {number} times round, not once: {reason}")
    return number
