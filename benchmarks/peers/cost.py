"""Cost of fit, predict and encode against n and P, and the plot of it (docs/cost.png).

    pip install '.[plots]'
    python benchmarks/peers/cost.py [docs/cost.png]

One thread's processor time, so that other processes' turns do not count. Every size is measured in turn
with the others, and the least of three counts (of one, beyond a second). Exponents are fitted to the upper
half of the sizes, where fixed costs no longer show.
"""

import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

import randsmap

M = 100
SAMPLES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
FEATURES = (100, 200, 500, 1000, 2000, 4000)


def problem(n):
    Y = np.random.default_rng(0).uniform(size=(n, 2))
    F = np.empty((n, M))
    for rows in np.array_split(np.arange(n), max(1, n // 1000)):
        F[rows] = np.exp(-((np.linspace(0, 1, M) - Y[rows, :1]) ** 2) / 0.02) * (1 + Y[rows, 1:])
        F[rows] /= F[rows].sum(axis=1, keepdims=True)
    return Y, F


def decoder(P):
    return randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(10.0, n_features=P), random_state=0, solver="cholesky")


def least(calls, turns=3, enough=1.0):
    """Least seconds of each call; one that takes longer than `enough` is not repeated."""
    seconds = np.full(len(calls), np.inf)
    for _ in range(turns):
        for i, call in enumerate(calls):
            if seconds[i] == np.inf or seconds[i] < enough:
                start = time.process_time()
                call()
                seconds[i] = min(seconds[i], time.process_time() - start)
    return seconds


def exponent(x, seconds):
    upper = slice(len(x) // 2, None)
    return np.polyfit(np.log(x[upper]), np.log(seconds[upper]), 1)[0]


def main():
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    randsmap.set_num_threads(1)
    threadpool_limits(1)
    Y, F = problem(max(SAMPLES))
    out = np.empty_like(F)
    small = decoder(200).fit(Y[:1000], F[:1000])
    encoder = randsmap.DiffusionMaps(2).fit(F[:1000])
    against_n = {
        "fit, P = 200": least([lambda n=n: decoder(200).fit(Y[:n], F[:n]) for n in SAMPLES]),
        "predict, P = 200": least([lambda n=n: small.predict(Y[:n], out=out[:n]) for n in SAMPLES]),
        "encode, 1000 training fields": least([lambda n=n: encoder.transform(F[:n]) for n in SAMPLES]),
    }
    n = 10_000
    fitted = [decoder(P).fit(Y[:1000], F[:1000]) for P in FEATURES]
    against_P = {
        f"fit, n = {n}": least([lambda P=P: decoder(P).fit(Y[:n], F[:n]) for P in FEATURES]),
        f"predict, n = {n}": least([lambda d=d: d.predict(Y[:n], out=out[:n]) for d in fitted]),
    }
    figure = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name, x, curves in zip(figure.subplots(1, 2), ("n", "P"), (SAMPLES, FEATURES), (against_n, against_P)):
        for label, seconds in curves.items():
            power = exponent(x, seconds)
            axes.loglog(x, seconds, "o-", label=f"{label}: {name}^{power:.2f}")
            print(f"{label}: {name}^{power:.2f};", ", ".join(f"{a}: {s:.3g} s" for a, s in zip(x, seconds)))
        axes.set(xlabel=f"{name} ({'samples' if name == 'n' else 'features'})", ylabel="seconds of one core")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle(f"M = {M}, d = 2; exponents of the upper half")
    figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "docs/cost.png", dpi=120)


if __name__ == "__main__":
    main()
