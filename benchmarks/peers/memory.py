"""Peak memory of a fit above its data: n = 200000, P = 2000, M = 400 unless told otherwise.

    python benchmarks/peers/memory.py [n [P [M]]]

The features (3.2 GB at the default size) are never stored whole.
"""

import resource
import sys
import time

import numpy as np

import randsmap


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    n, P, M = (int(a) for a in [*sys.argv[1:], *("200000", "2000", "400")[len(sys.argv) - 1:]])
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
    print(f"n = {n}, P = {P}, M = {M}: {time.perf_counter() - start:.1f} s, data {data / 1e9:.2f} GB, "
          f"peak of the process {peak() / 1e9:.2f} GB, {(peak() - data) / 1e9:.2f} GB above the data "
          "(interpreter and libraries included)")


if __name__ == "__main__":
    main()
