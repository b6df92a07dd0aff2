"""Small made-up results with every key that docs/reports.md lists, for tests."""

import numpy as np

from randsmap.studies._result import StudyResult

QUANTITIES = ("rel_l2", "rel_linf", "conservation", "seconds")
DECODERS = {
    "manifold": (("RFNN-RFF", False), ("RFNN-Sig", False), ("DDM", False), ("k-NN", False), ("POD", True)),
    "mass": (
        ("RANDSMAP-RFF", False),
        ("RANDSMAP-Sig", False),
        ("RFNN-Sig", False),
        ("DDM", False),
        ("DDM-r5", False),
        ("k-NN", False),
        ("POD", True),
    ),
}


def example_row(dataset, n_train, split, decoder, fraction, extra, paper=True):
    row = {
        "dataset": dataset,
        "split": split,
        "decoder": decoder,
        "features_per_sample": fraction,
        "n_train": n_train,
        "parameter": "features__slope",
        "hyperparameter": 11.0,
        "on_edge": decoder == "DDM",
        "extra": extra,
        "runs": 2 if fraction else 1,
    }
    for i, quantity in enumerate(QUANTITIES):
        none = quantity == "conservation" and dataset in ("swiss_roll", "s_curve")
        value = (0.1 + 0.01 * len(decoder)) * 10.0**-i
        for name, factor in (("median", 1.0), ("p05", 0.9), ("p95", 1.2)):
            row[f"{quantity}_{name}"] = None if none else value * factor
            row[f"paper_{quantity}_{name}"] = (
                None if none or extra or not paper or (not fraction and name != "median") else value * 2
            )
        row[f"ratio_{quantity}"] = None if none or extra or not paper else 0.5
    return row


def example_result(name="lwr", *, n_trains=None, paper=True, seed=0):
    """name: "swiss-roll", "s-curve", "lwr", "mri" or "hughes"."""
    rng = np.random.default_rng(seed)
    dataset = name.replace("-", "_")
    manifold = dataset in ("swiss_roll", "s_curve")
    shape = {"lwr": (40,), "mri": (16, 16), "hughes": (20, 10)}.get(dataset, ())
    decoders = DECODERS["manifold" if manifold else "mass"]
    n_trains = n_trains or ((30, 60) if dataset == "swiss_roll" else (50,))
    d = 10 if dataset == "hughes" else 2
    rows, arrays = [], {}
    for n in n_trains:
        for split in ("train", "test"):
            for label, extra in decoders:
                for fraction in (1.0, 0.25) if "RFNN" in label or "RANDSMAP" in label else (None,):
                    rows.append(example_row(dataset, n, split, label, fraction, extra, paper))
        part, L = f"N{n}", 35
        arrays[f"{part}/point_names"] = np.array(["mean", "variance", "skewness"])
        arrays[f"{part}/color_name"] = np.array("angle")
        arrays[f"{part}/intrinsic_names"] = np.array(["angle"])
        arrays[f"{part}/decoders"] = np.array([label for label, _ in decoders])
        arrays[f"{part}/train/points"] = rng.normal(size=(n, 3))
        arrays[f"{part}/train/color"] = rng.uniform(0, 6.28, n)
        arrays[f"{part}/train/latents"] = rng.normal(size=(n, d))
        arrays[f"{part}/test/points"] = rng.normal(size=(L, 3))
        arrays[f"{part}/test/color"] = rng.uniform(0, 6.28, L)
        arrays[f"{part}/test/intrinsic"] = rng.uniform(0, 6.28, (L, 1))
        if not manifold:
            S = 3 * len(shape)
            arrays[f"{part}/statistic_names"] = np.array([f"statistic {i}" for i in range(S)])
            arrays[f"{part}/train/statistics"] = rng.normal(size=(n, S))
            arrays[f"{part}/test/statistics"] = rng.normal(size=(L, S))
            arrays[f"{part}/field/truth"] = rng.uniform(size=shape)
            arrays[f"{part}/field/index"] = np.array(3)
            if dataset != "mri":
                for axis, size in zip("xy", shape):
                    arrays[f"{part}/field/{axis}"] = np.linspace(-1, 1, size)
            if dataset == "hughes":
                arrays[f"{part}/field/mask"] = np.ones(shape, dtype=bool)
                arrays[f"{part}/field/mask"][9:11, 4:6] = False
        for label, _ in decoders:
            key = f"{part}/decoder/{label}"
            arrays[f"{key}/points"] = rng.normal(size=(L, 3))
            arrays[f"{key}/errors"] = rng.uniform(0.01, 0.2, L)
            arrays[f"{key}/features_per_sample"] = np.array(1.0 if "RFNN" in label else np.nan)
            if not manifold:
                arrays[f"{key}/statistics"] = rng.normal(size=(L, S))
                arrays[f"{key}/field"] = rng.uniform(size=shape)
        arrays[f"{part}/ddm/weights"] = np.linspace(0.2, 1.0, 10)
        arrays[f"{part}/ddm/ranks"] = np.array([3, 5, 10, 25, 50, 100])
        arrays[f"{part}/ddm/errors"] = rng.uniform(0.05, 0.7, (10, 6))
        arrays[f"{part}/ddm/rule_ranks"] = rng.integers(60, 160, 10)
        arrays[f"{part}/ddm/rule"] = np.array([0.5, 120.0, 0.06])
        arrays[f"{part}/ddm/rule_errors"] = rng.uniform(0.05, 0.2, 10)
        if not manifold:
            arrays[f"{part}/ddm/starred"] = np.array([0.6, 5.0])
    return StudyResult(
        name=name,
        title=f"{name} (made up)",
        section="Sec. 5.1, App. G",
        notes=[
            "Diffusion time t = 0, which the paper's own optima need.",
            "The data cannot be the paper's because its seeds are not known.",
        ],
        cuts=["2 runs instead of 100."],
        options={"runs": 2, "seed": 0, "quick": True, "split": "random"},
        command=f"randsmap study {name} --quick --seed 0",
        date="2026-01-01",
        version="0.1.0",
        rows=rows,
        arrays=arrays,
    )
