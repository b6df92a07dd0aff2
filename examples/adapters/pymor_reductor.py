"""A nonlinear reductor for pyMOR: latents of a manifold model, decoded to its solution space with their mass.

`ManifoldReductor` takes parameter values and solutions (VectorArrays) of a full-order model, fits encoder and decoder
of randsmap, and hands the latents to pyMOR's own `DataDrivenReductor`, which learns them over parameter and time. The
reduced model is a pyMOR model; `reconstruct` gives VectorArrays of the full model's space.

    pip install pymor
    python examples/adapters/pymor_reductor.py

Tried with pyMOR 2026.1, whose `to_numpy` has vectors as columns; older releases had rows.
"""

import time

import numpy as np
from pymor.analyticalproblems.burgers import burgers_problem
from pymor.core.logger import set_log_levels
from pymor.discretizers.builtin import discretize_instationary_fv
from pymor.reductors.data_driven import DataDrivenPODReductor, DataDrivenReductor

import randsmap


class ManifoldReductor:
    """Reductor of pyMOR whose reconstruction is a decoder of randsmap.

    Parameters
    ----------
    fom : pyMOR model, instationary
    parameters : list of parameter values (Mu)
    solutions : list of VectorArray
        Solutions of `fom` for them, at equal times.
    model : randsmap.ManifoldModel
    regressor : regressor, optional
        From (parameters, time) to latents; by default thin-plate splines.
    """

    def __init__(self, fom, parameters, solutions, model, regressor=None):
        self.fom, self.parameters, self.model = fom, parameters, model
        self.regressor = regressor or randsmap.KernelDecoder("thin-plate", degree=1, regularization=1e-8)
        self.snapshots = np.concatenate([solution.to_numpy().T for solution in solutions])

    def reduce(self):
        """The reduced model: its solutions are latents."""
        self.model.fit(self.snapshots)
        latents = self.model.transform(self.snapshots)
        reductor = DataDrivenReductor(self.parameters, latents, regressor=self.regressor, T=self.fom.T)
        return reductor.reduce()

    def reconstruct(self, solution):
        """Solutions of the reduced model in the space of the full one, each with its mass."""
        return self.fom.solution_space.from_numpy(self.model.inverse_transform(solution.to_numpy().T).T)


def main(n_components=3):
    set_log_levels({"pymor": "ERROR"})
    fom, _ = discretize_instationary_fv(burgers_problem(circle=True), diameter=1 / 200, nt=200)
    train = [fom.parameters.parse([exponent]) for exponent in np.linspace(1.0, 1.8, 6)]
    test = [fom.parameters.parse([exponent]) for exponent in (1.12, 1.4, 1.7)]
    solutions = [fom.solve(mu) for mu in train]

    model = randsmap.ManifoldModel(
        randsmap.POD(n_components, invariants="mass"),
        randsmap.AutoDecoder(families=("gaussian", "matern", "thin-plate"), n_trials=8, random_state=0),
    )
    ours = ManifoldReductor(fom, train, solutions, model)
    snapshots = fom.solution_space.from_numpy(ours.snapshots.T)
    theirs = DataDrivenPODReductor(
        train, snapshots, T=fom.T, pod_params={"modes": n_components}, regressor=ours.regressor
    )
    results = {}
    for name, reductor in (("pyMOR's POD, as many modes", theirs), ("ManifoldReductor", ours)):
        rom = reductor.reduce()
        errors, mass, seconds = [], [], []
        for mu in test:
            truth = fom.solve(mu).to_numpy().T
            began = time.perf_counter()
            fields = reductor.reconstruct(rom.solve(mu)).to_numpy().T
            seconds.append(time.perf_counter() - began)
            errors.append(randsmap.metrics.relative_l2(truth, fields).mean())
            mass.append(abs(fields.sum(axis=1) - truth.sum(axis=1)).max() / truth.sum(axis=1).max())
        results[name] = float(np.mean(errors)), float(max(mass))
        print(f"{name:28} error {np.mean(errors):6.2%}, mass off by {max(mass):.0e}, {1e3 * np.mean(seconds):.1f} ms")
    return results


if __name__ == "__main__":
    main()
