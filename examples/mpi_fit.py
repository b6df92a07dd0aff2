"""Fit a decoder to fields that lie on several MPI ranks; the coefficients have the bits of one process.

    mpiexec -n 2 python mpi_fit.py

Needs mpi4py. Every rank adds its own fields to its own sums, which are then merged by a tree: no fields travel, only
sums of P (P + M) numbers. The bits are the same because each rank but the last has whole blocks of 1024 rows, and
because all ranks have the same number of BLAS threads: one here.
"""

import numpy as np
from mpi4py import MPI
from mpi4py.util import pkl5

import randsmap

N, M = 8 * 1024 + 300, 200


def snapshots(rows):
    """Latents (n, 2) and fields (n, M) of mass 1 with these numbers: in your case, read from this rank's files."""
    t = (rows[:, None] + 0.5) / N
    latents = np.hstack([t, np.sin(50 * t)])
    x = np.linspace(0, 1, M)
    fields = np.exp(-(((x - 0.2 - 0.6 * latents[:, :1]) / (0.15 + 0.05 * latents[:, 1:])) ** 2))
    return latents, fields / fields.sum(axis=1, keepdims=True)


def own_rows(rank, size):
    """Whole blocks of 1024 rows for each rank; what is left over goes to the last."""
    edges = np.arange(size + 1) * (N // 1024) // size * 1024
    edges[-1] = N
    return np.arange(edges[rank], edges[rank + 1])


def merged(decoder, comm):
    """The decoder of all ranks, on rank 0: in each round the odd ones of those left send to their neighbours."""
    rank, step = comm.rank, 1
    while step < comm.size:
        if rank % (2 * step):
            comm.send(decoder, dest=rank - step)
            return None
        if rank + step < comm.size:
            decoder.merge(comm.recv(source=rank + step))
        step *= 2
    return decoder


def main():
    comm = pkl5.Intracomm(MPI.COMM_WORLD)  # sends arrays as they are, of more than 2 GB too
    randsmap.set_num_threads(1)
    rows = own_rows(comm.rank, comm.size)
    latents, fields = snapshots(rows)

    # features and latent scale need the latents of all ranks, which are small
    everywhere = comm.gather(latents, root=0)
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(5.0, n_features=300), solver="cholesky", random_state=0)
    if comm.rank == 0:
        decoder.fit_features(np.concatenate(everywhere))
    decoder = comm.bcast(decoder, root=0)

    for start in range(0, len(rows), 1000):  # batches of any size: rows wait until they are 1024
        decoder.partial_fit(latents[start : start + 1000], fields[start : start + 1000])
    decoder = merged(decoder, comm)

    if decoder is not None:
        alone = randsmap.RANDSMAPDecoder(**decoder.get_params(deep=False)).fit(*snapshots(np.arange(N)))
        same = np.array_equal(decoder.solve().coef_, alone.coef_)
        print(f"{decoder.n_samples_seen_} fields on {comm.size} ranks, the bits of one process: {same}")


if __name__ == "__main__":
    main()
