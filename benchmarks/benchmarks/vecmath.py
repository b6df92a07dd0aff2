"""cos, exp, log and logistic: time of an element, ratio to NumPy, error in units in the last place."""

import time

import numpy as np

from randsmap._kernels import vecmath

NUMPY = {"cos": np.cos, "exp": np.exp, "log": np.log, "logistic": lambda x: 1 / (1 + np.exp(-x))}
N = 4096  # in and out stay in the first- and second-level caches


class Functions:
    params = (list(NUMPY),)
    param_names = ("function",)

    def setup(self, name):
        self.x = np.random.default_rng(0).uniform(0 if name == "log" else -30, 30, N)
        self.out = np.empty(N)
        self.function = getattr(vecmath, name)

    def time_4096_elements(self, name):
        self.function(self.x, self.out)

    def _seconds(self, name):
        """Medians of alternating calls: ours and NumPy's."""
        ours, numpys = [], []
        for _ in range(101):
            start = time.perf_counter()
            self.function(self.x, self.out)
            middle = time.perf_counter()
            NUMPY[name](self.x)
            ours.append(middle - start)
            numpys.append(time.perf_counter() - middle)
        return np.median(ours), np.median(numpys)

    def track_ns_per_element(self, name):
        return 1e9 * self._seconds(name)[0] / N

    track_ns_per_element.unit = "ns"

    def track_times_faster_than_numpy(self, name):
        ours, numpys = self._seconds(name)
        return numpys / ours

    def track_max_ulp(self, name):
        x = np.random.default_rng(1).uniform(0 if name == "log" else -10, 10, 200_000)
        out = np.empty_like(x)
        self.function(x, out)
        wide = NUMPY[name](x.astype(np.longdouble))
        return float(np.max(np.abs(out - wide) / np.spacing(np.abs(wide.astype(float)))))

    track_max_ulp.unit = "ulp"
