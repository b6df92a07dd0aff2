"""What several test files share: random problems, plain formulas to compare with, processes of their own."""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

import randsmap
from randsmap.invariants import InvariantParameters, fit_estimator


def random_problem(n=60, M=30, d=2, *, seed=0, constant=None, total=1.0, place=(0.0, 1.0), width=None, compact=False):
    """Random latents and fields that follow them: bumps that move and grow.

    Parameters
    ----------
    n, M, d : int
        Numbers of samples, cells and latents.
    constant : dict, optional
        Values of the cells that are the same in every field, as {cell: value}.
    total : float or None
        Sum of every field; None: the sums differ.
    place : (float, float)
        Where the bumps are for a first latent of 0 and 1; the cells lie between 0 and 1.
    width : (float, float), optional
        How wide they are for a last latent of 0 and 1; None: they grow instead of widening.
    compact : bool
        Bumps that are exactly 0 away from their centre, and do not grow.

    Returns
    -------
    Y : ndarray (n, d)
        Latents, uniform in the unit cube. Bumps move with the first and grow with the last.
    F : ndarray (n, M)
        Fields.
    """
    constant = constant or {}
    rng = np.random.default_rng(seed)
    Y = rng.uniform(size=(n, d))
    away = np.linspace(0, 1, M) - place[0] - (place[1] - place[0]) * Y[:, :1]
    if compact:
        F = np.maximum(0, 1 - (away / 0.15) ** 2)
    elif width is None:
        F = np.exp(-(away**2) / 0.02) * (1 + Y[:, -1:])
    else:
        F = np.exp(-((away / (width[0] + (width[1] - width[0]) * Y[:, -1:])) ** 2))
    F[:, list(constant)] = 0
    if total is not None:
        F *= (total - sum(constant.values())) / F.sum(axis=1, keepdims=True)
    F[:, list(constant)] = list(constant.values())
    return Y, F


def random_invariants(rng, q, M, weighted):
    """The options `invariants` and `cell_weights` of a decoder with q invariants, and the matrix C (M, q) they mean."""
    weights = 10.0 ** rng.uniform(-1, 1, M) if weighted else None
    if q == 0:
        return {"invariants": None, "cell_weights": weights}, np.empty((M, 0))
    if q == 1:
        return {"invariants": "mass", "cell_weights": weights}, (np.ones(M) if weights is None else weights)[:, None]
    C = rng.normal(size=(M, q))
    return {"invariants": C, "cell_weights": weights}, C


def with_common_invariants(F, C, weights=None, constant=None):
    """Fields F moved, in the weighted norm the least that it takes, to where C^T f is that of their mean.

    Cells in the mask `constant` stay as they are.
    """
    free = np.ones(F.shape[1], dtype=bool) if constant is None else ~constant
    root = np.ones(free.sum()) if weights is None else np.sqrt(weights[free])
    Q = np.linalg.qr(C[free] / root[:, None])[0]
    moved = F.copy()
    moved[:, free] += ((F.mean(axis=0) - F)[:, free] * root) @ Q @ Q.T / root
    return moved


def fitted_invariants(F, dtype=np.float64, **given):
    """`fit_estimator` of the fields F with these `InvariantParameters`, of mass if no others are given."""
    names = {"values": "invariant_values", "tol": "invariant_tol"}
    parameters = {"invariants": "mass"} | {names.get(name, name): value for name, value in given.items()}
    return fit_estimator(InvariantParameters(**parameters), F, dtype)


def violation(F, C, m):
    """max |C_j^T f - m_j| / (|C_j|^T |f| + |m_j|), in extended precision where there is one."""
    wide = np.longdouble
    defect = np.abs(F.astype(wide) @ C.astype(wide) - m.astype(wide))
    size = np.abs(F) @ np.abs(C) + np.abs(m)
    return float(np.where(size > 0, defect / np.where(size > 0, size, 1), defect).max())


def squared_distances(Y, Z):
    """|y_i - z_j|^2 (n, m), without cancellation."""
    return ((Y[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2)


def python(code, *arguments, level=None, cwd=None, timeout=120):
    """What `code` prints in an interpreter of its own, or in that of an instruction level, which its tests share.

    An error there is an AssertionError here, with its traceback.
    """
    if level is not None:
        printed, error = _asked(level, [code, list(map(str, arguments)), str(cwd or os.getcwd())], timeout)
        assert not error, error
        return printed
    command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
    child = subprocess.run(command, cwd=cwd, timeout=timeout, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    return child.stdout


_SERVER = """
import contextlib, io, json, os, sys, traceback
for line in sys.stdin:
    code, sys.argv[1:], folder = json.loads(line)
    os.chdir(folder)
    printed, error = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps([printed.getvalue(), error]), flush=True)
"""
_servers = {}  # instruction level -> its process, which imports once what all its tests need


def _asked(level, request, timeout):
    """[what was printed, traceback or ""] of a request to the interpreter of a level; one that ends is replaced."""
    if level not in _servers:
        environment = {**os.environ, "RANDSMAP_CPU": level}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": tempfile.TemporaryFile("w+")}
        _servers[level] = subprocess.Popen([sys.executable, "-P", "-c", _SERVER], env=environment, text=True, **pipes)
        _servers[level].errors = pipes["stderr"]
    server = _servers[level]
    timer = threading.Timer(timeout, server.kill)
    timer.start()
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    answer = server.stdout.readline()
    timer.cancel()
    if answer:
        return json.loads(answer)
    _ended(_servers.pop(level))
    server.errors.seek(0)
    return "", f"the interpreter ended with {server.returncode}: {server.errors.read()}"


def _ended(server):
    server.stdin.close()
    server.wait()
    server.stdout.close()


@atexit.register
def _end_all():
    for server in _servers.values():
        _ended(server)


class FittedFeatures(BaseEstimator, TransformerMixin):
    """A feature map that stays as it is: `fit` does not draw anew."""

    def __init__(self, features):
        self.features = features

    def __sklearn_clone__(self):
        return self

    def fit(self, X):
        return self

    def transform(self, X):
        return self.features.transform(X)


def small_model(folder):
    """A fitted model m.npz, its fields F.npy (30, 8) and their latents Y.npy in a new folder, which is returned."""
    rng = np.random.default_rng(0)
    F = rng.uniform(0.5, 1, (30, 8))
    F /= F.sum(axis=1, keepdims=True)
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(3.0, n_features=10), random_state=0)
    model = randsmap.ManifoldModel(randsmap.DiffusionMaps(2), decoder).fit(F)
    folder.mkdir()
    model.save(folder / "m.npz")
    np.save(folder / "F.npy", F)
    np.save(folder / "Y.npy", model.transform(F))
    return folder
