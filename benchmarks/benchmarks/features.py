"""Feature matrices of 2000 points, and of one."""

import numpy as np

from randsmap import FourierFeatures, MaternFeatures, MultiscaleFourierFeatures, SigmoidFeatures

from ._gemm import tracked

N = P = 2000
MAPS = {cls.__name__: cls for cls in (FourierFeatures, MaternFeatures, MultiscaleFourierFeatures, SigmoidFeatures)}


@tracked
class Transform:
    params = [[("FourierFeatures", 2), ("FourierFeatures", 20), ("SigmoidFeatures", 2)], ["float64", "float32"]]
    param_names = ["map, d", "dtype"]

    def setup(self, kind, dtype):
        name, d = kind
        self.Y = np.random.default_rng(0).normal(size=(N, d)).astype(dtype)
        self.map = MAPS[name](n_features=P, random_state=0).fit(self.Y)
        self.out = np.zeros((N, P), dtype)

    def run_transform(self, kind, dtype):
        self.map.transform(self.Y, out=self.out)


@tracked
class Draw:
    params = list(MAPS)
    param_names = ["map"]

    def setup(self, name):
        self.Y = np.random.default_rng(0).normal(size=(N, 2))
        self.map = MAPS[name](n_features=P, random_state=0).fit(self.Y)

    def run_fit(self, name):
        self.map.fit(self.Y)

    def run_transform_one_row(self, name):
        self.map.transform(self.Y[:1])
