"""Nearest neighbours side by side with pykdtree (float64) and faiss (flat, float32), one thread each.

    python benchmarks/peers/neighbors.py        # needs pykdtree and faiss-cpu

The two sides alternate; the figures are medians and their ratio (above 1: randsmap is ahead). Both
sides get a prepared index, except in the last comparison, which includes building it.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when the peers are loaded

from statistics import median  # noqa: E402
from time import perf_counter  # noqa: E402

import faiss  # noqa: E402
import numpy as np  # noqa: E402
from pykdtree.kdtree import KDTree  # noqa: E402

import randsmap  # noqa: E402
from randsmap._neighbors import NeighborIndex, nearest_neighbors  # noqa: E402


def compare(label, ours, theirs, repeats):
    times = [], []
    ours(), theirs()
    for _ in range(repeats):
        for record, call in zip(times, (ours, theirs)):
            start = perf_counter()
            call()
            record.append(1e3 * (perf_counter() - start))
    a, b = median(times[0]), median(times[1])
    print(f"{label:42s} randsmap {a:9.2f} ms   peer {b:9.2f} ms   ratio {b / a:5.2f}")


def main():
    randsmap.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    rng = np.random.default_rng(0)
    clouds = {
        "uniform": lambda n: rng.uniform(size=(n, 2)),
        "clustered": lambda n: rng.integers(0, 10, (n, 1)) * [1, 0.7] + 0.01 * rng.normal(size=(n, 2)),
        "log-normal": lambda n: rng.lognormal(0, 2, (n, 2)),
        "lattice": lambda n: rng.integers(0, 45, (n, 2)).astype(float),
    }
    for name, draw in clouds.items():
        points, queries = draw(2000), draw(8000)
        index, tree = NeighborIndex(points), KDTree(points)
        compare(f"d=2 n=2000 8000 queries k=6 {name}", lambda: nearest_neighbors(index, queries, 6),
                lambda: tree.query(queries, k=6), 51)

    points, queries = rng.normal(size=(5000, 10)), rng.normal(size=(20000, 10))
    index, flat = NeighborIndex(points), faiss.IndexFlatL2(10)
    flat.add(points.astype(np.float32))
    single = queries.astype(np.float32)
    compare("d=10 n=5000 20000 queries k=10 (faiss)", lambda: nearest_neighbors(index, queries, 10),
            lambda: flat.search(single, 10), 9)

    points, queries = rng.uniform(size=(1_000_000, 3)), rng.uniform(size=(1_000_000, 3))
    compare("d=3 n=1e6 1e6 queries k=6, with build", lambda: nearest_neighbors(points, queries, 6),
            lambda: KDTree(points).query(queries, k=6), 1)


if __name__ == "__main__":
    main()
