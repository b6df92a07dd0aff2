"""Peak memory: of a fit above its data, and of memory-mapped fields from fit to decoded fields.

    python benchmarks/peers/memory.py [n [P [M]]]
    python benchmarks/peers/memory.py mapped [GB [FOLDER]]

The first: n = 200000, P = 2000, M = 400 unless told otherwise; the features (3.2 GB at that size) are
never stored whole. The second: files of 20 GB, sparse on disk, tall (1000 cells) and wide (1e6 cells), which a
child process fits, encodes, decodes and scores; the files are removed afterwards.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import randsmap


def peak():
    if sys.platform.startswith("linux"):  # getrusage counts what the parent had before the fork, too
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_memory(n=200_000, P=2000, M=400):
    rng = np.random.default_rng(0)
    Y = rng.uniform(size=(n, 2))
    F = np.empty((n, M))
    for rows in np.array_split(np.arange(n), max(1, n // 1000)):
        F[rows] = 1 + np.sin(3 * Y[rows, :1] + np.arange(M) * Y[rows, 1:])
        F[rows] /= F[rows].sum(axis=1, keepdims=True)
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(5.0, n_features=P), random_state=0)
    start = time.perf_counter()
    decoder.fit(Y, F)
    data = Y.nbytes + F.nbytes
    print(
        f"n = {n}, P = {P}, M = {M}: {time.perf_counter() - start:.1f} s, data {data / 1e9:.2f} GB, "
        f"peak of the process {peak() / 1e9:.2f} GB, {(peak() - data) / 1e9:.2f} GB above the data "
        "(interpreter and libraries included)"
    )


def make_sparse(path, n, M):
    """Fields (n, M) of mass 0 to round-off; most of them, or most of their cells, are holes of the file."""
    F = np.lib.format.open_memmap(path, "w+", np.float64, (n, M))
    rng = np.random.default_rng(0)
    every, width = (10, M) if n > M else (1, 4096)
    place = (np.arange(width) + 0.5) / width
    for i in range(0, n, every):
        bump = np.exp(-(((place - rng.uniform(0.3, 0.6)) / 0.05) ** 2))
        F[i, :width] = bump - np.roll(bump, width // 10)
    F.flush()


def use_mapped(path, out):
    """What the child process does; prints its peak memory, the interpreter included."""
    F = np.load(path, mmap_mode="r")
    n, M = F.shape
    tall = n > M
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(5.0, n_features=50 if tall else 30), random_state=0)
    encoder = randsmap.DiffusionMaps(2, epsilon=0.5 * M**0.5 if tall else 20.0)
    model = randsmap.ManifoldModel(encoder, decoder, encoder_samples=300 if tall else None)
    start, text = time.perf_counter(), f"n = {n}, M = {M}, {8e-9 * n * M:.1f} GB:"
    # as large as the data; of the wide set the encoder reads the whole file again
    for name, work in (
        ("fit", lambda: model.fit(F)),
        ("encode", lambda: np.save(f"{out}.npy", model.transform(F))),
        (
            "decode",
            lambda: model.inverse_transform(
                np.load(f"{out}.npy"), out=np.lib.format.open_memmap(out, "w+", np.float64, F.shape)
            ),
        ),
    ):
        work()
        text += f" {name} {time.perf_counter() - start:.0f} s, peak {peak() / 1e9:.2f} GB;"
        start = time.perf_counter()
    decoded = np.load(out, mmap_mode="r")
    error = randsmap.metrics.conservation_error(F, decoded)
    print(
        f"{text} metric {time.perf_counter() - start:.0f} s, peak {peak() / 1e9:.2f} GB; largest error of the mass "
        f"{error.max():.1e}",
        flush=True,
    )


def mapped(size=20.0, folder=None, cells=(1000, 10**6)):
    for M in cells:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            path, out = Path(place, "fields.npy"), Path(place, "decoded.npy")
            make_sparse(path, round(size * 1e9 / 8 / M), M)
            subprocess.run([sys.executable, __file__, "child", str(path), str(out)], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        use_mapped(*sys.argv[2:])
    elif sys.argv[1:2] == ["mapped"]:
        mapped(*map(float, sys.argv[2:3]), *sys.argv[3:4])
    else:
        in_memory(*map(int, sys.argv[1:]))
