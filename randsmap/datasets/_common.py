"""What the generators share: random streams, work in blocks with a progress bar, output on disk."""

import os
import threading
from pathlib import Path

import numpy as np

from randsmap import _parallel, _validation


def random_streams(random_state, n_streams):
    """Independent generators; the first ones do not depend on how many there are."""
    words = _validation.check_random_state(random_state)
    words = words.integers if isinstance(words, np.random.Generator) else words.randint
    seeds = np.random.SeedSequence(words(0, 2**32, size=4, dtype=np.uint64)).spawn(n_streams)
    return [np.random.default_rng(seed) for seed in seeds]


def fill_blocks(fill, n_rows, block_size, *, description, progress):
    """Call ``fill(block, rows)`` for each block of rows (a slice), on several threads."""
    from tqdm import tqdm

    lock = threading.Lock()
    with tqdm(total=n_rows, desc=description, disable=not progress) as bar:

        def task(block):
            rows = slice(block * block_size, min((block + 1) * block_size, n_rows))
            fill(block, rows)
            with lock:
                bar.update(rows.stop - rows.start)

        _parallel.parallel_for(task, -(-n_rows // block_size))


def fill_output(out, shape, fill):
    """The array that ``fill(array)`` has filled: a new one, the caller's or a memory-mapped file.

    A file appears under its name only when it is complete; a failure leaves what was there before.
    """
    if out is None or isinstance(out, np.ndarray):
        array = _validation.check_out(out, shape)
        fill(array)
        return array
    if not isinstance(out, (str, os.PathLike)):
        raise TypeError(f"out must be a float64 NumPy array, the path of a .npy file or None, got {type(out).__name__}")
    path = Path(out)
    if path.suffix.lower() != ".npy":
        raise ValueError(f"out must name a .npy file, got {str(path)!r}")
    partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.partial")
    try:
        array = np.lib.format.open_memmap(partial, mode="w+", dtype=np.float64, shape=shape)
        fill(array)
        array.flush()
        del array
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return np.load(path, mmap_mode="r+")
