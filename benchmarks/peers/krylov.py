"""The Krylov solver: beside the dense ones, and how its iterations grow.

    python benchmarks/peers/krylov.py dense [n [P]]       # time, memory, difference; 10000 x 10000
    python benchmarks/peers/krylov.py fit n P SOLVER      # one fit, its time and memory
    python benchmarks/peers/krylov.py iterations          # the tables of docs/krylov.md

`dense` runs each fit in a process of its own, the solvers in turn, and quotes medians.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import randsmap
from randsmap._linalg.krylov import Krylov
from randsmap._linalg.rows import FeatureRows

MAPS = {
    "Fourier, length scale 0.3": lambda P: randsmap.FourierFeatures(0.3, n_features=P),
    "Fourier, length scale 0.03": lambda P: randsmap.FourierFeatures(0.03, n_features=P),
    "sigmoid, slope 10": lambda P: randsmap.SigmoidFeatures(10.0, n_features=P),
    "multiscale, up to 100": lambda P: randsmap.MultiscaleFourierFeatures(100.0, n_features=P),
}


def problem(n, M=400, seed=0):
    """Latents in the unit square and bumps of mass 1."""
    Y = np.random.default_rng(seed).uniform(size=(n, 2))
    F = np.empty((n, M))
    for rows in np.array_split(np.arange(n), max(1, n // 1000)):
        F[rows] = np.exp(-((np.linspace(0, 1, M) - Y[rows, :1]) ** 2) / 0.02) * (1 + Y[rows, 1:])
        F[rows] /= F[rows].sum(axis=1, keepdims=True)
    return Y, F


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fit(n, P, solver, out=None):
    """One fit; seconds, and MB above what the data and the libraries took."""
    Y, F = problem(n)
    decoder = randsmap.RANDSMAPDecoder(MAPS["Fourier, length scale 0.3"](P), solver=solver, random_state=0)
    randsmap.RANDSMAPDecoder(solver="krylov").fit(Y[:50], F[:50])  # loads all there is to load
    before, start = peak(), time.perf_counter()
    decoder.fit(Y, F)
    seconds = time.perf_counter() - start
    above = peak() - before
    if out:
        new = np.random.default_rng(1).uniform(size=(1000, 2))
        np.save(out, decoder.predict(np.vstack([Y[:1000], new])))
    return seconds, above, f"{decoder.solver_}, {decoder.n_iter_} iterations"


def dense(n, P, turns=3):
    """Fits in turn in processes of their own."""
    runs, files = {"cholesky": [], "krylov": [], "auto": []}, {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(turns):
            for solver in runs:
                files[solver] = os.path.join(folder, f"{solver}.npy")
                answer = subprocess.run(
                    [sys.executable, __file__, "fit", str(n), str(P), solver, files[solver]],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
                print(answer, end="", flush=True)
                runs[solver].append([float(word) for word in answer.split()[:2]])
        fields = {solver: np.load(file) for solver, file in files.items()}
    for solver, values in runs.items():
        seconds, above = np.median(values, axis=0)
        difference = fields[solver] - fields["cholesky"]
        rows = np.linalg.norm(difference, axis=1) / np.linalg.norm(fields["cholesky"], axis=1)
        print(
            f"{solver}: {seconds:.1f} s, {above:.0f} MB above the data, largest relative difference "
            f"of a field {rows[:1000].max():.1e} (training), {rows[1000:].max():.1e} (new)"
        )


def iterations(rows, F, regularization):
    krylov = Krylov(rows, F, regularization, 1e-7)
    krylov.precondition()
    rank = krylov.rank
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        n_iter = krylov.solve(500).n_iter
    return f"{n_iter}{'*' if caught else ''} ({rank})"


def tables():
    n = 2000
    Y, F = problem(n, M=100)
    print(f"n = {n}, M = 100, tol = 1e-7: iterations (rank of the preconditioner); * not converged\n")
    sizes, lambdas = (250, 500, 1000, 2000, 4000), (1e-1, 1e-3, 1e-5, 1e-7, 1e-9)
    print("| lambda = 1e-3, P = |", " | ".join(map(str, sizes)), "|\n|---|" + "---|" * len(sizes))
    rows = {}
    for name, make in MAPS.items():
        line = []
        for P in sizes:
            rows[name, P] = FeatureRows(make(P).set_params(random_state=0).fit(Y), Y)
            line.append(iterations(rows[name, P], F, 1e-3))
        print("|", name, "|", " | ".join(line), "|", flush=True)
    print("\n| P = 2000, lambda = |", " | ".join(f"{x:g}" for x in lambdas), "|\n|---|" + "---|" * len(lambdas))
    for name in MAPS:
        print("|", name, "|", " | ".join(iterations(rows[name, 2000], F, x) for x in lambdas), "|", flush=True)


def main():
    command, *rest = sys.argv[1:] or ["dense"]
    if command == "fit":
        seconds, above, note = fit(int(rest[0]), int(rest[1]), *rest[2:])
        print(f"{seconds:.2f} {above:.0f} (seconds, MB above the data): {note}")
    elif command == "iterations":
        tables()
    else:
        dense(*(int(a) for a in [*rest, *("10000", "10000")[len(rest) :]]))


if __name__ == "__main__":
    main()
