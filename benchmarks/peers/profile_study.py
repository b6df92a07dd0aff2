"""Where the traffic study spends its time: one feature map, P = N, tuning included, one thread.

    python benchmarks/peers/profile_study.py

Times, in processor time, every call into the compiled kernels (vectorised functions, and GEMM, SYRK and Cholesky inside
them), into LAPACK and into ARPACK's products; what is left is Python, NumPy and validation. Before the
study proper a small one is run, so that imports do not count.
"""

import collections
import importlib
import pkgutil
import time

import numpy as np
from threadpoolctl import threadpool_limits

import randsmap
import randsmap._kernels

seconds = collections.Counter()
inside = False


def wrap(module, name):
    function = getattr(module, name)
    label = f"{module.__name__.rsplit('.', 1)[-1]}.{name}"

    def timed(*args, **kwargs):
        global inside
        if inside:
            return function(*args, **kwargs)
        inside = True
        start = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[label] += time.process_time() - start
            inside = False

    setattr(module, name, timed)


def study(F, P, n_values=10):
    n = len(F) // 6
    F_train, F_validation, F_test = F[:n], F[n : 2 * n], F[2 * n :]
    encoder = randsmap.DiffusionMaps(2, alpha=0.0)
    Y = encoder.fit_transform(F_train)
    Y_validation, Y_test = encoder.transform(F_validation), encoder.transform(F_test)
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(n_features=P), random_state=0)
    result = randsmap.tune(
        decoder, {"features__slope": np.linspace(1, 20, n_values).tolist()}, Y, F_train, Y_validation, F_validation
    )
    return randsmap.metrics.relative_l2(F_test, result.best_decoder_.predict(Y_test)).mean()


def main():
    F = randsmap.datasets.make_lwr(random_state=0).data
    F = np.ascontiguousarray(F[np.random.default_rng(0).permutation(len(F))])
    randsmap.set_num_threads(1)
    with threadpool_limits(1):
        study(F[:600], 50, 3)
        for found in pkgutil.iter_modules(randsmap._kernels.__path__):
            module = importlib.import_module(f"randsmap._kernels.{found.name}")
            for name in dir(module):
                if type(getattr(module, name)).__name__ == "cython_function_or_method":
                    wrap(module, name)
        start = time.process_time()
        study(F, 1.0)
        total = time.process_time() - start
    print(f"{'':28}{'seconds':>10}{'share':>8}")
    for label, spent in seconds.most_common():
        if spent > 0.001 * total:
            print(f"{label:28}{spent:10.3f}{spent / total:8.1%}")
    accounted = sum(seconds.values())
    print(f"{'all kernels':28}{accounted:10.3f}{accounted / total:8.1%}")
    print(f"{'everything':28}{total:10.3f}{1:8.1%}")


if __name__ == "__main__":
    main()
