#!/usr/bin/env python3
"""Held-out error of decoders and of whole reduced models on snapshots: randsmap beside what else there is.

    pip install '.[peers]'
    python benchmarks/peers/accuracy.py [--d 2] [--blocks] [--seeds 1]   # made sets: one core, two minutes each
    python benchmarks/peers/accuracy.py --data FOLDER                         # every .npz of it
    python benchmarks/peers/accuracy.py --quick                               # does it run: seconds, says nothing

A set is an array `data` with one field a row; without FOLDER the sets are made here. 75 % of the rows train, a fifth of
those choose among a method's candidates, 25 % test. --blocks takes rows in ten consecutive blocks instead of at random,
so that most test fields have no neighbour among the training fields. 75 % of ten blocks are seven and a half: the other
half of one is tested, and there, as at the ends of blocks, a test field has a neighbour that trains. All methods have d
latent coordinates and the same rows.

Some peers decode the latents that randsmap's decoders get, diffusion maps (SciPy's RBF interpolator, scikit-learn's
neighbours and kernel ridge). The others choose latents of their own, with the held-out rows: POD, Isomap or diffusion
maps before the same three, before a Gaussian process with a length a coordinate, kriging (SMT), POD with RBF (EZyRB)
and a perceptron; PCA, kernel PCA, a quadratic manifold (Geelen, Wright and Willcox, 2023; its modes also chosen
greedily, Schwerdtner and Peherstorfer, 2024) and an autoencoder (JAX, dense, two hidden layers each way, at most 10 s
of processor time a fit). `randsmap.autotune` chooses its latents, too. Peers in time are in forecasts.py.

What is not installed is left out and named. EZyRB installs beside NumPy 2, but brings PyTorch with CUDA: it is not in
the extra `peers`, and without it SciPy does what its POD and RBF do.

Prints a Markdown table of mean relative L2 errors over the seeds; errors below 1e-6, with --blocks 1e-3, count as that
in ratios. "mass" is the worst relative error of the mass of autotune's fields, where the training fields have one mass.
Seconds are of processor time, a method's choice among its candidates included. Standard error gets a line a method. A
method that decodes no field of a set makes the exit status 1.
"""

import argparse
import contextlib
import functools
import importlib.util
import io
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.interpolate import RBFInterpolator
from sklearn.decomposition import KernelPCA
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.manifold import Isomap
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor

sys.path.insert(0, str(Path(__file__).parent))

import forecasts  # noqa: E402

import randsmap as rm  # noqa: E402

try:
    import ezyrb
except ImportError:  # or PyTorch is missing
    ezyrb = None

warnings.simplefilter("ignore")
MAPS, POD, WHITE_POD, ISOMAP = "diffusion maps", "POD", "whitened POD", "Isomap"


# -- Sets that are made here -----------------------------------------------------------------------------
def some(fields, n=240):
    """n rows, evenly spread, of the fields of trajectories one after the other."""
    rows = fields.reshape(-1, fields.shape[-1])
    return rows[np.linspace(0, len(rows) - 1, n).astype(int)]


def along(bunch):
    """The points of a manifold in the order of its first coordinate, so that blocks are gaps."""
    return bunch.data[np.argsort(bunch.coordinates[:, 0])]


SETS = {
    "traffic": lambda: rm.datasets.make_lwr(16, 15, random_state=0, n_cells=200).data,
    "crowd": lambda: rm.datasets.make_hughes(8, 30, random_state=0, n_cells=(80, 20), t_end=40.0).data,
    "images": lambda: rm.datasets.make_rotated_images(240, shape=32).data,
    "s_curve": lambda: along(rm.datasets.make_s_curve(300, random_state=0)),
    "swiss_roll": lambda: along(rm.datasets.make_swiss_roll(300, random_state=0)),
    "vortex": lambda: some(forecasts.vortex()[0]),
    "burgers": lambda: some(forecasts.burgers()[0]),
}


# -- What candidates are given ---------------------------------------------------------------------------
class Split:
    """Fields that train and fields that are encoded and decoded; what several candidates need is computed once."""

    def __init__(self, train, fields, d, groups=None):
        self.train, self.fields, self.d, self.groups = train, fields, d, groups

    @functools.cached_property
    def mass(self):
        sums = self.train.sum(axis=1)
        return "mass" if np.ptp(sums) <= 1e-9 * np.abs(self.train).sum(axis=1).max() else None

    @functools.cached_property
    def modes(self):
        """Mean, modes (r, M) and coefficients (n, r) of the training fields."""
        mean = self.train.mean(axis=0)
        U, s, V = np.linalg.svd(self.train - mean, full_matrices=False)
        r = max(self.d, int(np.sum(s > 1e-10 * s[0])))
        return mean, V[:r], U[:, :r] * s[:r]

    @functools.cache  # noqa: B019 - a split lives as long as the program needs it
    def latents(self, encoder, k=10):
        """Those of the training fields and of the others; of Isomap and POD in units of the widest coordinate."""
        if encoder == MAPS:
            maps = rm.DiffusionMaps(self.d).fit(self.train)
            return maps.transform(self.train), maps.transform(self.fields)
        if encoder == ISOMAP:
            isomap = Isomap(n_neighbors=min(k, len(self.train) - 1), n_components=self.d).fit(self.train)
            Y, Z = isomap.transform(self.train), isomap.transform(self.fields)
        else:
            mean, V, C = self.modes
            Y, Z = C[:, : self.d], (self.fields - mean) @ V[: self.d].T
        width = Y.std(axis=0)
        width = width if encoder == WHITE_POD else width.max()
        return Y / width, Z / width

    def through_modes(self, most, regress):
        """Fields whose coefficients `regress` predicts from scaled ones (n, r) of the leading modes.

        These are at most `most`, and no more than hold all but 1e-10 of the energy; the others are as in the mean.
        """
        mean, V, C = self.modes
        energy = np.cumsum(np.sum(C**2, axis=0))
        r = min(max(self.d, int(np.searchsorted(energy, (1 - 1e-10) * energy[-1])) + 1), most, len(V))
        scale = C[:, 0].std()
        return mean + scale * regress(C[:, :r] / scale) @ V[:r]


# -- Peers: each function makes a candidate, which maps a split to decoded fields --------------------------
def rbf(encoder, kernel, smoothing, k=10):
    def run(s):
        Y, Z = s.latents(encoder, k)
        return RBFInterpolator(Y, s.train, kernel=kernel, smoothing=smoothing, epsilon=1.0)(Z)

    return run


def regressor(encoder, model, k=10):
    def run(s):
        Y, Z = s.latents(encoder, k)
        return model.fit(Y, s.train).predict(Z)

    return run


def neighbors(encoder):
    return [regressor(encoder, KNeighborsRegressor(k, weights=w)) for k in (2, 3, 4, 5, 8, 12) for w in WEIGHTS]


def ridge(encoder):
    return [regressor(encoder, KernelRidge(kernel="rbf", gamma=g, alpha=a)) for g in GAMMAS for a in (1e-8, 1e-5, 1e-2)]


WEIGHTS, GAMMAS = ("uniform", "distance"), (0.1, 1, 10, 100)


def kernel_pca(gamma, alpha):
    def run(s):
        part = s.train[:150]
        width = np.median(np.linalg.norm(part[:, None] - part[None], axis=2))
        model = KernelPCA(s.d, kernel="rbf", gamma=gamma / width**2, alpha=alpha, fit_inverse_transform=True)
        return model.inverse_transform(model.fit(s.train).transform(s.fields))

    return run


def pca(s):
    mean, V, _ = s.modes
    return mean + (s.fields - mean) @ V[: s.d].T @ V[: s.d]


def gaussian_process(encoder, kernel):
    """One process with a length a coordinate for all coefficients, fitted to at most 1000 rows."""

    def run(s):
        Y, Z = s.latents(encoder)
        rows = np.random.default_rng(0).permutation(len(Y))[:1000]
        covariance = ConstantKernel(1.0, (1e-3, 1e4)) * kernel(np.ones(s.d)) + WhiteKernel(1e-4, (1e-12, 1.0))
        model = GaussianProcessRegressor(covariance, n_restarts_optimizer=1, random_state=0)
        return s.through_modes(200, lambda C: model.fit(Y[rows], C[rows]).predict(Z).reshape(len(Z), -1))

    return run


def kriging(encoder, correlation):
    """A model a coefficient, as SMT asks for, of at most 12 modes: a third of a second each for 150 rows."""

    def run(s):
        from smt.surrogate_models import KRG

        def regress(C):
            columns = []
            for c in C.T:
                model = KRG(corr=correlation, eval_noise=True, n_start=1, print_global=False, seed=0)
                model.set_training_values(Y, c[:, None])
                with contextlib.redirect_stdout(io.StringIO()):
                    model.train()
                columns.append(model.predict_values(Z)[:, 0])
            return np.column_stack(columns)

        Y, Z = s.latents(encoder)
        return s.through_modes(12, regress)

    return run


def pod_rbf(encoder, kernel, rank):
    """EZyRB's POD (of the fields without their mean taken off) and RBF; by SciPy where it is not installed."""

    def run(s):
        Y, Z = s.latents(encoder)
        if ezyrb:
            pod, model = ezyrb.POD("svd", rank=rank).fit(s.train.T), ezyrb.RBF(kernel)
            model.fit(Y, pod.transform(s.train.T).T)
            return pod.inverse_transform(model.predict(Z).T).T
        U, sigma, V = np.linalg.svd(s.train, full_matrices=False)
        energy = np.cumsum(sigma**2) / np.sum(sigma**2)
        r = len(sigma) if rank == -1 else int(np.searchsorted(energy, rank)) + 1
        epsilon = 1.0 if kernel != "multiquadric" else (np.prod(np.ptp(Y, axis=0)) / s.d) ** (1 / s.d)
        return RBFInterpolator(Y, U[:, :r] * sigma[:r], kernel=kernel, epsilon=epsilon)(Z) @ V[:r]

    return run


def perceptron(encoder):
    def run(s):
        Y, Z = s.latents(encoder)
        model = MLPRegressor(
            hidden_layer_sizes=(64, 64), activation="tanh", solver="lbfgs", alpha=1e-4, max_iter=600, random_state=0
        )
        return s.through_modes(100, lambda C: model.fit(Y, C).predict(Z).reshape(len(Z), -1))

    return run


def quadratic_manifold(regularization, greedy):
    """f = mean + V s + W (s kron s), s = V^T (f - mean), W by ridge regression of what V leaves."""

    def products(S):
        i, j = np.triu_indices(S.shape[1])
        return S[:, i] * S[:, j]

    def run(s):
        mean, V, C = s.modes
        C = C / C[:, 0].std()

        def quadratic(chosen):
            Q = products(C[:, chosen])
            rest = np.delete(np.arange(len(V)), chosen)
            damping = regularization * np.trace(Q.T @ Q) / Q.shape[1] * np.eye(Q.shape[1])
            W = np.linalg.solve(Q.T @ Q + damping, Q.T @ C[:, rest])
            return rest, W, np.linalg.norm(C[:, rest] - Q @ W)

        chosen = list(range(s.d))
        if greedy:
            chosen = []
            for _ in range(s.d):
                left = [j for j in range(min(20 + s.d, len(V))) if j not in chosen]
                chosen.append(min(left, key=lambda j: quadratic([*chosen, j])[2]))
        rest, W, _ = quadratic(chosen)
        scale = s.modes[2][:, 0].std()
        S = (s.fields - mean) @ V[chosen].T / scale
        return mean + scale * (S @ V[chosen] + products(S) @ W @ V[rest])

    return run


def autoencoder(width, steps):
    """Dense, of POD coefficients, with two hidden layers before and behind the latents; Adam, batches of 64."""

    def run(s):
        import jax
        import jax.numpy as jnp

        def encode_decode(layers, X):
            for i, (A, b) in enumerate(layers):
                X = X @ A + b
                X = X if i in (2, 5) else jnp.tanh(X)
            return X

        def adam(state, key, C):
            layers, mean, square, t = state
            X = C[jax.random.randint(key, (64,), 0, len(C))]
            slope = jax.grad(lambda w: jnp.mean((encode_decode(w, X) - X) ** 2))(layers)
            mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, slope)
            square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, square, slope)
            rate = 3e-3 * 0.03 ** (t / steps) * jnp.sqrt(1 - 0.999 ** (t + 1)) / (1 - 0.9 ** (t + 1))
            layers = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), layers, mean, square)
            return (layers, mean, square, t + 1), None

        def trained(C):
            C = jnp.asarray(C, jnp.float32)
            sizes = (C.shape[1], width, width, s.d, width, width, C.shape[1])
            rng = np.random.default_rng(0)
            layers = [
                (jnp.asarray(rng.normal(0, p**-0.5, (p, q)), jnp.float32), jnp.zeros(q))
                for p, q in zip(sizes, sizes[1:])
            ]
            zeros = jax.tree.map(jnp.zeros_like, layers)
            part = jax.jit(lambda state, keys: jax.lax.scan(lambda a, key: adam(a, key, C), state, keys)[0])
            state, keys, start = (
                (layers, zeros, zeros, 0),
                jax.random.split(jax.random.key(0), steps),
                time.process_time(),
            )
            for first in range(0, steps, 500):
                state = jax.block_until_ready(part(state, keys[first : first + 500]))
                if time.process_time() - start > 10:
                    break
            return state[0]

        def regress(C):
            mean, V, all_coefficients = s.modes
            given = (s.fields - mean) @ V[: C.shape[1]].T / all_coefficients[:, 0].std()
            return np.asarray(encode_decode(trained(C), jnp.asarray(given, jnp.float32)), dtype=np.float64)

        return s.through_modes(100, regress)

    return run


def same_latents():
    """Peers that decode the latents that randsmap's decoders get."""
    kernels = ("thin_plate_spline", "linear", "gaussian")
    return {
        "scipy RBFInterpolator": [rbf(MAPS, kernel, c) for kernel in kernels for c in (1e-8, 1e-4, 1e-2, 1.0)],
        "sklearn KNeighbors": neighbors(MAPS),
        "sklearn KernelRidge": ridge(MAPS),
    }


def own_latents(steps):
    """Peers with latents of their own; those whose package is missing are named and left out."""
    kernels = ("thin_plate_spline", "cubic", "linear")
    encoders = (MAPS, WHITE_POD, ISOMAP)
    peers = {
        "sklearn PCA": [pca],
        "sklearn KernelPCA": [kernel_pca(g, a) for g in (0.1, 0.5, 2, 10) for a in (1e-5, 1e-3, 1e-1)],
        "Isomap, RBFInterpolator": [rbf(ISOMAP, f, c, k) for k in (5, 10, 20) for f in kernels for c in (1e-8, 1e-3)],
        "Isomap, KNeighbors": neighbors(ISOMAP),
        "Isomap, KernelRidge": ridge(ISOMAP),
        "POD, KNeighbors": neighbors(POD) + neighbors(WHITE_POD),
        "POD, KernelRidge": ridge(POD) + ridge(WHITE_POD),
        "sklearn GaussianProcess": [gaussian_process(e, f) for e in encoders for f in (RBF, Matern52)],
        "sklearn MLPRegressor": [perceptron(e) for e in encoders],
        "SMT kriging": [kriging(WHITE_POD, "squar_exp"), kriging(WHITE_POD, "matern52"), kriging(MAPS, "matern52")],
        "EZyRB POD, RBF": [
            pod_rbf(e, f, rank)
            for e in (MAPS, POD, WHITE_POD)
            for f in (*kernels, "multiquadric")
            for rank in (-1, 0.999)
        ],
        "quadratic manifold": [quadratic_manifold(c, g) for c in (1e-10, 1e-6, 1e-3, 1e-1) for g in (False, True)],
        "JAX autoencoder": [autoencoder(width, steps) for width in (32, 64)],
    }
    for name, package in (("SMT kriging", "smt"), ("JAX autoencoder", "jax")):
        if importlib.util.find_spec(package) is None:
            print(f"{name} is left out: {package} is not installed", file=sys.stderr)
            del peers[name]
    if ezyrb is None:
        print("EZyRB POD, RBF: ezyrb does not import, SciPy does the same", file=sys.stderr)
    return peers


def Matern52(lengths):
    return Matern(lengths, nu=2.5)


def ours(n_trials):
    def decoder(make):
        def run(s):
            Y, Z = s.latents(MAPS)
            model = make(s.mass)
            groups = {} if isinstance(model, rm.RANDSMAPDecoder) else {"groups": s.groups}
            return model.fit(Y, s.train, **groups).predict(Z)

        return run

    def fixed(slope, regularization):
        features = rm.SigmoidFeatures(slope)
        return decoder(
            lambda mass: rm.RANDSMAPDecoder(features, regularization=regularization, invariants=mass, random_state=0)
        )

    def autotune(s):
        found = rm.autotune(s.train, n_components=s.d, groups=s.groups, n_trials=n_trials, random_state=0)
        model = found.best_model_
        return model.inverse_transform(model.transform(s.fields))

    return {
        "randsmap, untuned": [decoder(lambda mass: rm.RANDSMAPDecoder(invariants=mass, random_state=0))],
        "randsmap, 12 candidates": [fixed(slope, c) for slope in (0.3, 1, 3, 10) for c in (1e-8, 1e-5, 1e-3)],
        AUTODECODER: [decoder(lambda mass: rm.AutoDecoder(n_trials=n_trials, invariants=mass, random_state=0))],
        AUTOTUNE: [autotune],
    }


AUTODECODER, AUTOTUNE = "randsmap, AutoDecoder", "randsmap, autotune"


# -- Errors ----------------------------------------------------------------------------------------------
def relative(F, G):
    """Mean relative L2 error of G; infinite where it is no number."""
    error = float(np.mean(np.linalg.norm(F - G, axis=1) / np.linalg.norm(F, axis=1)))
    return error if np.isfinite(error) else np.inf


def decoded(candidate, split):
    """Its fields; no numbers, and once the reason, where it fails with these rows."""
    try:
        return candidate(split)
    except Exception as error:  # of whatever kind a package has
        say_once(f"  {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:120])
        return np.full_like(split.fields, np.nan)


@functools.cache
def say_once(text):
    print(text, file=sys.stderr)


def tested(candidates, half, whole):
    """Test fields as the candidate decodes them that did best on held-out rows."""
    if len(candidates) > 1:
        errors = [relative(half.fields, decoded(candidate, half)) for candidate in candidates]
        candidates = [candidates[int(np.argmin(errors))]]
    return decoded(candidates[0], whole)


def splits(F, d, seed, blocks):
    """The held-out fifth of the training rows and the test rows, each with what trains for it."""
    rng, block = np.random.default_rng(seed), None
    rows = np.arange(len(F))
    if blocks:
        parts = np.array_split(rows, 10)
        order = rng.permutation(10)
        rows = np.concatenate([parts[i] for i in order])
        block = np.concatenate([np.full(len(parts[i]), i) for i in order])
    else:
        rows = rng.permutation(len(F))
    n = int(0.75 * len(F))
    train, test, k = F[rows[:n]], F[rows[n:]], int(0.8 * n)
    groups = (None, None) if block is None else (block[:k], block[:n])
    return Split(train[:k], train[k:], d, groups[0]), Split(train, test, d, groups[1])


def run_set(name, F, methods, options):
    """Method -> mean error, worst error of the mass, mean seconds."""
    results = {method: [] for method in methods}
    for seed in range(options.seeds):
        half, whole = splits(F, options.d, seed, options.blocks)
        for encoder in (MAPS, ISOMAP, POD, WHITE_POD):  # what many share costs none of them more
            half.latents(encoder), whole.latents(encoder)
        total = whole.fields.sum(axis=1)
        for method, candidates in methods.items():
            start = time.process_time()
            G = tested(candidates, half, whole)
            seconds = time.process_time() - start
            lost = np.max(np.abs(total - G.sum(axis=1)) / np.abs(whole.fields).sum(axis=1)) if whole.mass else np.nan
            results[method].append((relative(whole.fields, G), lost, seconds))
    return {
        m: (np.mean([r[0] for r in R]), np.max([r[1] for r in R]), np.mean([r[2] for r in R]))
        for m, R in results.items()
    }


def compared(results, method, peers, floor):
    """Best peer, its error, and ours over it; None where one of them was not run."""
    ran = [name for name in peers if name in results]
    if method not in results or not ran:
        return None
    best = min(ran, key=lambda name: results[name][0])
    return best, results[best][0], max(floor, results[method][0]) / max(floor, results[best][0])


HEADER = (
    "set|n x M|`autotune`|best peer|its error|ratio|mass|s|peer's s|`AutoDecoder`|best, same latents|its error|ratio"
)


def row(name, F, results, groups, floor):
    """Cells of the Markdown table, and both ratios."""
    cells, ratios = [name, f"{F.shape[0]} x {F.shape[1]}"], []
    for method, peers in zip((AUTOTUNE, AUTODECODER), groups):
        found = compared(results, method, peers, floor)
        ratios.append(found and found[2])
        error, lost, seconds = results.get(method, (np.nan, np.nan, np.nan))
        cells += [
            f"{error:.2e}" if method in results else "-",
            *((found[0], f"{found[1]:.2e}", f"{found[2]:.2f}") if found else ("-", "-", "-")),
        ]
        if method == AUTOTUNE:
            cells += ["-" if np.isnan(lost) else f"{lost:.0e}", "-" if np.isnan(seconds) else f"{seconds:.1f}"]
            cells += [f"{results[found[0]][2]:.1f}" if found else "-"]
    return cells, ratios


def summary(ratios, of):
    ratios = [r for r in ratios if r is not None]
    if ratios:
        print(f"{of}: geometric mean {np.exp(np.mean(np.log(ratios))):.2f}, worst {max(ratios):.2f}")


def chosen(methods, wanted):
    """Methods whose names have one of the texts in them."""
    if wanted is None:
        return methods
    unknown = [text for text in wanted if not any(text.lower() in name.lower() for name in methods)]
    if unknown:
        raise SystemExit(f"--only: no method is called {', '.join(unknown)}; there are {'; '.join(methods)}")
    return {name: c for name, c in methods.items() if any(text.lower() in name.lower() for text in wanted)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of .npz files with an array `data`")
    parser.add_argument("--sets", nargs="+", metavar="NAME", help=f"some of the files, or of {', '.join(SETS)}")
    parser.add_argument("--only", nargs="+", metavar="METHOD", help="methods with one of these texts in their names")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--d", type=int, default=2)
    parser.add_argument("--blocks", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one set of sixty rows, two candidates a method")
    options = parser.parse_args()
    sets = SETS
    if options.data:
        sets = {path.stem: functools.partial(lambda p: np.load(p)["data"], path) for path in options.data.glob("*.npz")}
    names = options.sets or (["traffic"] if options.quick and not options.data else sorted(sets))
    if not names or set(names) - set(sets):
        raise SystemExit(f"--sets: there are {', '.join(sorted(sets)) or f'no .npz files in {options.data}'}")
    same, own = same_latents(), own_latents(100 if options.quick else 4000)
    methods = chosen({**ours(4 if options.quick else 40), **same, **own}, options.only)
    floor = 1e-3 if options.blocks else 1e-6  # below it fields repeat themselves, and ratios say nothing
    lines, ratios, failed = [], [], []
    for name in names:
        F = np.ascontiguousarray(sets[name](), dtype=np.float64)
        F = F.reshape(len(F), -1)
        if options.quick:
            F, methods = F[:: max(1, len(F) // 60)][:60], {method: c[:2] for method, c in methods.items()}
        results = run_set(name, F, methods, options)
        print(f"{name} {F.shape}", file=sys.stderr)
        for method, (error, lost, seconds) in results.items():
            line = f"  {method:26s} L2 {error:.2e}  mass {lost:.0e}  {seconds:.2f} s"
            print(line, file=sys.stderr, flush=True)
        failed += [f"{method} ({name})" for method, result in results.items() if not np.isfinite(result[0])]
        cells, both = row(name, F, results, ({**same, **own}, same), floor)
        lines.append(cells)
        ratios.append(both)
    split = "blocks of rows" if options.blocks else "random rows"
    print(f"\nd = {options.d}, {split}, {options.seeds} seed(s), randsmap {rm.__version__}\n")
    header = HEADER.split("|")
    for cells in (header, ["---"] * len(header), *lines):
        print("| " + " | ".join(cells) + " |")
    print()
    summary([r[0] for r in ratios], "autotune over the best of all peers")
    summary([r[1] for r in ratios], "AutoDecoder over the best peer on the same latents")
    if failed:
        raise SystemExit(f"no fields from {'; '.join(failed)}")


if __name__ == "__main__":
    main()
