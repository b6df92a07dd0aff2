"""Rows of a batch cut into tiles that threads share, and the decoding of features tile by tile."""

from randsmap._kernels import decode as _kernel
from randsmap._parallel import blas_threads, parallel_for

__all__ = ["FEW", "check_projected", "for_tiles", "decode_features"]

# Rows a decoding task takes. BLAS packs A anew for each task, which costs about as much as 30 rows;
# eight tasks or more share the work between threads.
_MIN_TILE, _MAX_TILE, _TILES = 128, 1024, 8
FEW = _kernel.FEW


def _tiles(n, most=_MAX_TILE):
    """Number of tiles for n rows; depends on n alone, so that results do not depend on threads."""
    rows = min(max(-(-n // _TILES), _MIN_TILE), most)
    return -(-n // rows)


def for_tiles(task, n, most=_MAX_TILE):
    """Call task(start, stop) over tiles of n rows, in parallel; a few rows are one task.

    `most` limits the rows of a tile, for tasks that need memory a row.
    """
    if n <= FEW:
        task(0, n)
        return
    tiles = _tiles(n, most)
    with blas_threads(1):
        parallel_for(lambda i: task(i * n // tiles, (i + 1) * n // tiles), tiles)


def check_projected(bad, X):
    """ValueError naming the latent point X[bad], whose field overflows; bad is -1 if none does."""
    if bad >= 0:
        raise ValueError(f"the field at the latent point {X[bad]} is too large for floating-point "
                         "numbers, so it cannot satisfy its invariants")


def decode_features(Z, A, projection, out, X):
    """Fields [1 | Z] A into out (n, M), each row projected; projection may be None.

    Z (n, P) are the features of the latent points X (n, d). ValueError if a row overflows.
    """

    def task(a, b):
        bad = _kernel.decode_features(Z[a:b], A, projection, out[a:b])
        check_projected(bad, X[a:b])

    for_tiles(task, len(Z))
