"""Exact nearest neighbours: grid, k-d tree and exhaustive search."""

import numpy as np

from randsmap._linalg.neighbors import NeighborIndex, nearest_neighbors


def cloud(name, n, d, rng):
    if name == "uniform":
        return rng.uniform(size=(n, d))
    if name == "clustered":
        return rng.integers(0, 10, (n, 1)) * np.linspace(1, 0.7, d) + 0.01 * rng.normal(size=(n, d))
    if name == "log-normal":
        return rng.lognormal(0, 2, (n, d))
    return rng.integers(0, 45, (n, d)).astype(float)  # lattice: ties everywhere


class Plane:
    """The k-NN decoder's search: 8000 queries among 2000 points of the plane, 6 neighbours."""

    params = [["uniform", "clustered", "log-normal", "lattice"]]
    param_names = ["points"]

    def setup(self, name):
        rng = np.random.default_rng(0)
        self.points, self.queries = cloud(name, 2000, 2, rng), cloud(name, 8000, 2, rng)
        self.index = NeighborIndex(self.points)

    def time_build(self, name):
        NeighborIndex(self.points)

    def time_query(self, name):
        nearest_neighbors(self.index, self.queries, 6)


class Dimensions:
    params = [[1, 3, 6, 7, 10, 100], [1, 10, 50]]
    param_names = ["d", "k"]

    def setup(self, d, k):
        rng = np.random.default_rng(0)
        self.index = NeighborIndex(rng.normal(size=(5000, d)))
        self.queries = rng.normal(size=(2000, d))

    def time_query(self, d, k):
        nearest_neighbors(self.index, self.queries, k)

    def peakmem_query(self, d, k):
        nearest_neighbors(self.index, self.queries, k)


class OneQuery:
    params = [2, 10]
    param_names = ["d"]

    def setup(self, d):
        rng = np.random.default_rng(0)
        self.index = NeighborIndex(rng.normal(size=(2000, d)))
        self.query = rng.normal(size=(1, d))

    def time_query(self, d):
        nearest_neighbors(self.index, self.query, 6)
