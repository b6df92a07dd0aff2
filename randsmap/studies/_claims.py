"""The paper's testable sentences, each with a verdict computed from the studies' rows.

A `Claim` quotes the sentence and says in words what figures would make it true; its ``check`` decides
that for one data set and one training size. `judge` gives the verdicts over any of the five studies.
The same check on the paper's own tables shows the sentences that those tables do not bear out either.

Three verdicts: "holds" (in every data set that the sentence is about), "does not hold" (one
counterexample is enough), "cannot be compared" (rows are missing; the reason stands with it).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from randsmap.studies._table import QUANTITIES, paper_rows

__all__ = ["CLAIMS", "Claim", "Verdict", "claims_markdown", "judge"]

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot be compared"

RFNN = ("RFNN-RFF", "RFNN-MS-RFF", "RFNN-Sig")
RANDSMAP = ("RANDSMAP-RFF", "RANDSMAP-MS-RFF", "RANDSMAP-Sig")
MANIFOLDS, FIELDS = ("swiss_roll", "s_curve"), ("lwr", "mri", "hughes")
NAMES = {"swiss_roll": "Swiss roll", "s_curve": "S-curve", "lwr": "traffic", "mri": "images", "hughes": "crowd"}

# as the runner labels what the paper's tables do not tell apart
PRINTED_FORM = "-training"
STARRED_DDM = "DDM-r"  # then the number of modes; "DDM" goes by the printed eigenvalue rule
KERNEL, POD = "Kernel-Gauss", "POD"

ROUND_OFF = 1e-14  # of sums in double precision
SINGLE = 2.0**-23  # machine precision of single precision, 1.2e-7
ORDERS = 100.0  # "orders of magnitude": at least two
AS_GOOD = 1.05  # "matching": at most 5 % worse


class _Missing(Exception):
    """A row that a check needs is not there; the text says which."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, what would make it true, and the function that looks.

    Parameters
    ----------
    key : str
        Short name, unique.
    quote, where : str
        The sentence, or as much of it as is tested, and its place in the paper.
    datasets : tuple of str
        The data sets that it is about, as the rows name them.
    criterion : str
        What the figures must be for it to hold.
    check : callable
        `Measured` of one data set and training size -> (bool, what was measured, in words).
    n_train : int, optional
        The one training size that it is about; by default every one.
    """

    key: str
    quote: str
    where: str
    datasets: tuple
    criterion: str
    check: Callable
    n_train: int | None = None


@dataclass(frozen=True)
class Verdict:
    """What the rows say about a claim: "holds", "does not hold" or "cannot be compared"."""

    claim: Claim
    verdict: str
    measured: str
    paper: str  # the verdict of the same check on the paper's own tables


class Measured:
    """Rows of one data set and one training size, asked for by decoder and number of features."""

    def __init__(self, rows, *, paper=False):
        self._paper = paper
        self._rows = {(row["split"], row["decoder"], row["features_per_sample"]): row for row in rows}
        self.decoders = list(dict.fromkeys(row["decoder"] for row in rows))

    def printed(self, label):
        """Label of the decoder by the paper's closed form, which the paper's own rows are."""
        return label if self._paper else label + PRINTED_FORM

    @property
    def starred_ddm(self):
        """Label of DDM with the number of modes that made the paper's table."""
        labels = ["DDM"] if self._paper else [label for label in self.decoders if label.startswith(STARRED_DDM)]
        if len(labels) != 1:
            raise _Missing("no row of DDM with the paper's starred r")
        return labels[0]

    def find(self, labels, splits, quantity, fraction=None):
        """{(split, label, P / N): median} of the decoders; each of them must have a figure."""
        found = {}
        for split in _listed(splits):
            for label in _listed(labels):
                values = {
                    key: row[f"{quantity}_median"]
                    for key, row in self._rows.items()
                    if key[:2] == (split, label)
                    and fraction in (None, key[2])
                    and row[f"{quantity}_median"] is not None
                }
                if not values:
                    size = "" if fraction is None else f" with {_features(fraction)}"
                    raise _Missing(f"no {quantity_name(quantity)} of {label}{size} ({split})")
                found |= values
        return found

    def one(self, label, split, quantity, fraction=None):
        """The median of one row."""
        values = list(self.find(label, split, quantity, fraction).values())
        if len(values) > 1:
            raise _Missing(f"{label} has several rows ({split})")
        return values[0]


BOTH = ("train", "test")


def quantity_name(quantity):
    return {"rel_l2": "L2 error", "rel_linf": "Linf error", "conservation": "conservation error", "seconds": "time"}[
        quantity
    ]


def _listed(names):
    return (names,) if isinstance(names, str) else names


def _features(fraction):
    return {1.0: "P = N", 0.5: "P = N/2", 0.25: "P = N/4"}.get(fraction, f"P = {fraction:g} N")


def _row(key):
    split, label, fraction = key
    return f"{label}{'' if fraction is None else ', ' + _features(fraction)} ({split})"


def _percent(value):
    return f"{100 * value:.3g} %"


def _extreme(values, pick, style=_percent):
    key = pick(values, key=values.get)
    return f"{style(values[key])} of {_row(key)}"


def _small(value):
    return f"{value:.1e}"


# --- checks: Measured -> (does it hold, what was measured) ---------------------------------------


def _conserves(labels, bound, form=lambda m, label: label, splits=BOTH):
    def check(m):
        values = m.find([form(m, label) for label in labels], splits, "conservation")
        return max(values.values()) <= bound, f"largest {_extreme(values, max, _small)}"

    return check


def _loses_mass(label, bound):
    def check(m):
        values = m.find(label, BOTH, "conservation")
        return min(values.values()) > bound, f"smallest {_extreme(values, min, _small)}"

    return check


def _three_orders(m):
    plain = m.find("RFNN-Sig", BOTH, "conservation")
    label = m.printed("RANDSMAP-Sig")
    kept = m.find(label, BOTH, "conservation")
    ratios = {
        key: value / max(kept[paired], np.finfo(float).tiny)
        for key, value in plain.items()
        if (paired := (key[0], label, key[2])) in kept
    }
    if not ratios:
        raise _Missing(f"RFNN-Sig and {label} have no feature count in common")
    return (
        min(ratios.values()) >= 100,
        f"ratios from {min(ratios.values()):.2g} to {max(ratios.values()):.2g} against the training-point form",
    )


def _similar_conservation(m):
    ratio = m.one("RFNN-Sig", "test", "conservation", 1.0) / max(
        m.one(m.printed("RANDSMAP-Sig"), "test", "conservation", 1.0), 1e-300
    )
    return 0.1 <= ratio <= 10, f"ratio {ratio:.2g} at P = N (test)"


def _no_accuracy_lost(m):
    plain = m.find("RFNN-Sig", BOTH, "rel_l2")
    kept = m.find("RANDSMAP-Sig", BOTH, "rel_l2")
    ratios = {
        key: kept[other] / value for key, value in plain.items() if (other := (key[0], "RANDSMAP-Sig", key[2])) in kept
    }
    if not ratios:
        raise _Missing("RFNN-Sig and RANDSMAP-Sig have no feature count in common")
    worst = max(ratios.values())
    return worst <= 1.01, f"RANDSMAP-Sig's L2 error is at most {worst:.4f} times RFNN-Sig's"


def _slower_training(form):
    def check(m):
        label = form(m, "RANDSMAP-Sig")
        plain = m.find("RFNN-Sig", "train", "seconds")
        kept = m.find(label, "train", "seconds")
        ratios = [
            kept["train", label, key[2]] / value for key, value in plain.items() if ("train", label, key[2]) in kept
        ]
        if not ratios:
            raise _Missing(f"RFNN-Sig and {label} have no feature count in common")
        return (
            all(1.5 <= ratio <= 5 for ratio in ratios),
            f"{label} takes {min(ratios):.2g} to {max(ratios):.2g} times RFNN-Sig's training time",
        )

    return check


def _faster(labels, others, factor):
    """Slowest of `labels` against the fastest of `others`, in training and in inference."""

    def check(m):
        measured, holds = [], True
        for split, what in (("train", "training"), ("test", "inference")):
            slow = max(m.find(_present(m, labels), split, "seconds").values())
            fast = min(m.find(others, split, "seconds").values())
            holds &= fast >= factor * slow
            measured.append(f"{what} {fast:.3g} s against {slow:.3g} s ({fast / slow:.3g} times)")
        return holds, f"{others}: " + ", ".join(measured)

    return check


def _present(m, labels):
    """The random-feature decoders of this data set: RANDSMAP, or RFNN where no mass is kept."""
    return labels if any(label in m.decoders for label in labels) else RFNN


def _as_accurate(labels, other, splits=BOTH, quantity="rel_l2", fraction=None, every=False, tolerance=AS_GOOD):
    """The best (or every one) of `labels` has at most `tolerance` times the error of `other`."""

    def check(m):
        measured, holds = [], True
        name = other(m) if callable(other) else other
        for split in _listed(splits):
            values = m.find(_present(m, labels), split, quantity, fraction)
            theirs = m.one(name, split, quantity)
            decisive = (max if every else min)(values.values())
            holds &= decisive <= tolerance * theirs
            measured.append(f"{_extreme(values, max if every else min)} against {_percent(theirs)} of {name}")
        return holds, "; ".join(measured)

    return check


def _falls_with_features(m):
    rises = []
    n_steps = 0
    for split in BOTH:
        for label in _present(m, RANDSMAP):
            values = {key[2]: v for key, v in m.find(label, split, "rel_l2").items()}
            if len(values) < 2:
                raise _Missing(f"{label} was run with one feature count only")
            sizes = sorted(values)
            for small, large in zip(sizes, sizes[1:]):
                n_steps += 1
                if values[large] > 1.01 * values[small]:
                    rises.append(
                        f"{label} ({split}) from {_percent(values[small])} at "
                        f"{_features(small)} to {_percent(values[large])} at {_features(large)}"
                    )
    if rises:
        return False, f"in {len(rises)} of {n_steps} steps the error grows, such as {rises[0]}"
    return True, f"the error grows in none of {n_steps} steps"


def _ddm_poor(label):
    def check(m):
        name = label(m)
        ddm = m.one(name, "train", "rel_l2")
        others = m.find((*RANDSMAP, "k-NN"), "train", "rel_l2")
        worst = max(others.values())
        return ddm >= 2 * worst and worst < 0.17, (
            f"{name} {_percent(ddm)}; worst of the others {_extreme(others, max)}"
        )

    return check


def _ddm_fundamentally_poor(m):
    labels = [label for label in m.decoders if label == "DDM" or label.startswith(STARRED_DDM)]
    if not labels:
        raise _Missing("no DDM row")
    ddm = m.find(labels, "test", "rel_l2")
    ours = m.find(RANDSMAP, "test", "rel_l2")
    return min(ddm.values()) >= 2 * min(ours.values()), (
        f"best of DDM {_extreme(ddm, min)}, best of RANDSMAP {_extreme(ours, min)}"
    )


def _ddm_near_a_fifth(m):
    labels = [label for label in m.decoders if label == "DDM" or label.startswith(STARRED_DDM)]
    values = m.find(labels or "DDM", "test", "rel_l2")
    return 0.15 <= min(values.values()) <= 0.25, "; ".join(
        f"{_percent(value)} of {key[1]} (test)" for key, value in values.items()
    )


def _all_beat_knn_in_training(m):
    return _as_accurate(RANDSMAP, "k-NN", "train", every=True, tolerance=1.0)(m)


def _only_sigmoid_beats_knn(m):
    theirs = m.one("k-NN", "test", "rel_l2")
    best = {label: min(m.find(label, "test", "rel_l2").values()) for label in RANDSMAP}
    winners = [label for label in RANDSMAP if best[label] < theirs]
    return winners == ["RANDSMAP-Sig"], (
        f"k-NN {_percent(theirs)}; lower: {', '.join(winners) if winners else 'none'}; best of "
        + ", ".join(f"{label} {_percent(value)}" for label, value in best.items())
    )


def _best_map(expected, quantity, fraction):
    def check(m):
        values = m.find(RANDSMAP, "test", quantity, fraction)
        winner = min(values, key=values.get)[1]
        return winner == expected, (
            f"{_features(fraction)}: " + ", ".join(f"{key[1]} {_percent(value)}" for key, value in values.items())
        )

    return check


def _both(*checks):
    def check(m):
        answers = [one(m) for one in checks]
        return all(holds for holds, _ in answers), "; ".join(text for _, text in answers)

    return check


def _similar_maps(m):
    values = m.find(RANDSMAP, "test", "rel_l2", 1.0)
    spread = max(values.values()) / min(values.values())
    return spread <= 1.25, f"L2 errors at P = N differ by a factor of {spread:.3g}"


def _improves_with_fewer_features(m):
    falls = []
    for split in BOTH:
        for label in RANDSMAP:
            printed = m.printed(label)
            values = {key[2]: v for key, v in m.find(printed, split, "conservation").items()}
            if len(values) < 2:
                raise _Missing(f"{printed} was run with one feature count only")
            errors = [values[size] for size in sorted(values)]
            falls.append(
                (all(np.diff(errors) > 0), f"{printed} ({split}) " + " < ".join(_small(error) for error in errors))
            )
    wrong = [text.replace(" < ", ", ") for right, text in falls if not right]
    return not wrong, ("from P = N/4 upwards " + (wrong[0] if wrong else falls[0][1]))


def _below_six_above_eight(m):
    ours = m.find(RANDSMAP, "test", "rel_l2")
    knn = m.one("k-NN", "test", "rel_l2")
    return max(ours.values()) < 0.06 and knn > 0.08, (
        f"largest of RANDSMAP {_extreme(ours, max)}; k-NN {_percent(knn)}"
    )


def _about_two_percent(m):
    values = m.find((*RFNN, "DDM"), "test", "rel_l2")
    return (
        min(values.values()) >= 0.015 and max(values.values()) <= 0.025,
        f"from {_extreme(values, min)} to {_extreme(values, max)}",
    )


def _multiscale_beats_single_scale(m):
    multiscale = m.find("RANDSMAP-MS-RFF", "test", "rel_l2", 1.0)
    single = m.find(
        [label for label in ("RANDSMAP-RFF", KERNEL) if label in m.decoders] or ["RANDSMAP-RFF"], "test", "rel_l2"
    )
    single = {key: value for key, value in single.items() if key[2] in (1.0, None)}
    if not single:
        raise _Missing("no single-scale decoder with P = N")
    ours, theirs = min(multiscale.values()), min(single.values())
    return ours < 0.95 * theirs, (f"RANDSMAP-MS-RFF {_percent(ours)}, best single scale {_extreme(single, min)}")


def _kernel_limit(m):
    feature = m.one("RANDSMAP-RFF", "test", "rel_l2", 1.0)
    kernel = m.one(KERNEL, "test", "rel_l2")
    return abs(feature / kernel - 1) <= 0.1, (
        f"RANDSMAP-RFF with P = N {_percent(feature)}, {KERNEL} {_percent(kernel)} (test)"
    )


def _plain(m, label):
    return label


def _printed(m, label):
    return m.printed(label)


CLAIMS = (
    Claim(
        "exact mass, any form",
        "RANDSMAP enforces exact mass preservation, with conservation errors as low as single machine precision",
        "Sec. 6 (and Abstract)",
        FIELDS,
        "The mean conservation error of every RANDSMAP row, with this package's exact form, is at most "
        "1.2e-7, on training and test set.",
        _conserves(RANDSMAP, SINGLE),
    ),
    Claim(
        "exact mass, closed form",
        "This ensures exact mass conservation by construction",
        "Sec. 6; Prop. RANDSMAP",
        FIELDS,
        "With the paper's closed form (which constrains the training points) the mean conservation "
        "error is round-off, at most 1e-14, on the test set too.",
        _conserves(RANDSMAP, ROUND_OFF, _printed),
    ),
    Claim(
        "single precision out of sample",
        "their mean conservation errors are on the order of the single machine precision",
        "Sec. 5.1",
        FIELDS,
        "With the paper's closed form the mean conservation error is at most 1.2e-7 on the test set.",
        _conserves(RANDSMAP, SINGLE, _printed, "test"),
    ),
    Claim(
        "RFNN loses mass",
        "they do not inherently preserve physical constraints such as mass conservation",
        "Sec. 4.3",
        FIELDS,
        "The mean conservation error of every RFNN-Sig row is above round-off, 1e-14.",
        _loses_mass("RFNN-Sig", ROUND_OFF),
    ),
    Claim(
        "RFNN three orders worse",
        "RFNN-Sig decoder [...] exhibits conservation errors three orders of magnitude larger",
        "Sec. 5.1, 5.2",
        ("lwr", "mri"),
        "RFNN-Sig's mean conservation error is at least 100 times that of RANDSMAP-Sig with the "
        "paper's closed form, at each P.",
        _three_orders,
    ),
    Claim(
        "RFNN conserves a crowd as well",
        "the non-mass-conserving RFNN-Sig decoder achieves similar conservation error here, except for low P",
        "Sec. 5.3",
        ("hughes",),
        "At P = N the two mean conservation errors on the test set are within a factor of 10, with the "
        "paper's closed form.",
        _similar_conservation,
    ),
    Claim(
        "no accuracy lost",
        "without sacrificing reconstruction accuracy",
        "Sec. 6",
        FIELDS,
        "RANDSMAP-Sig's mean L2 error is at most 1 % above RFNN-Sig's, at each P.",
        _no_accuracy_lost,
    ),
    Claim(
        "conservation costs training time",
        "RANDSMAP decoders are approximately 2-4 times slower to train than their RFNN counterparts",
        "Sec. 5.1",
        ("lwr",),
        "RANDSMAP-Sig's training time (encoder, tuning, fit), with this "
        "package's exact form, is 1.5 to 5 times RFNN-Sig's, at each P.",
        _slower_training(_plain),
    ),
    Claim(
        "k-NN keeps mass",
        "the k-NN decoder also preserves mass to machine precision",
        "Sec. 5.1; Prop. kNN",
        FIELDS,
        "Its mean conservation error is at most 1e-14.",
        _conserves(("k-NN",), ROUND_OFF),
    ),
    Claim(
        "DDM loses mass",
        "DDM does not [preserve mass]",
        "Sec. 5.1; Prop. DDM",
        FIELDS,
        "Its mean conservation error, by the printed eigenvalue rule, is above 1e-6 (the text prints "
        "10^6, which cannot be meant).",
        _loses_mass("DDM", 1e-6),
    ),
    Claim(
        "POD keeps mass",
        "POD preserves the total mass",
        "App. A",
        FIELDS,
        "The mean conservation error of POD, its modes projected on what keeps mass, is at most 1e-14.",
        _conserves((POD,), ROUND_OFF),
    ),
    Claim(
        "faster than k-NN",
        "The method consistently achieves orders of magnitude faster inference and training than k-NN",
        "Sec. 6",
        FIELDS,
        "k-NN, solved to convergence by this package, takes at least 100 times as long as the slowest "
        "RANDSMAP row, in training and in inference.",
        _faster(RANDSMAP, "k-NN", ORDERS),
    ),
    Claim(
        "faster than DDM",
        "outperforms the kernel-based DDM decoder in speed",
        "Sec. 6",
        FIELDS,
        "DDM by the printed eigenvalue rule takes longer than the slowest RANDSMAP row, in training and in inference.",
        _faster(RANDSMAP, "DDM", 1.0),
    ),
    Claim(
        "as accurate as k-NN",
        "while matching or exceeding their accuracy [k-NN's]",
        "Sec. 6",
        FIELDS,
        "The best RANDSMAP row's mean L2 error is at most 5 % above that of k-NN, solved to "
        "convergence, on training and test set.",
        _as_accurate(RANDSMAP, "k-NN"),
    ),
    Claim(
        "as accurate as DDM",
        "while matching or exceeding their accuracy [DDM's]",
        "Sec. 6",
        FIELDS,
        "The best RANDSMAP row's mean L2 error is at most 5 % above that of DDM by the printed "
        "eigenvalue rule, on training and test set.",
        _as_accurate(RANDSMAP, "DDM"),
    ),
    Claim(
        "DDM poor with the starred rank",
        "the DDM decoder performs poorly, with a mean relative L2 error of ~ 64% (training), compared "
        "to less than 17% for all other methods",
        "Sec. 5.1",
        ("lwr",),
        "DDM with the paper's starred r has at least twice the training error of every other method, "
        "and those are below 17 %.",
        _ddm_poor(lambda m: m.starred_ddm),
    ),
    Claim(
        "DDM poor by its rule",
        "the DDM decoder performs poorly [...] compared to less than 17% for all other methods",
        "Sec. 5.1, App. C",
        ("lwr",),
        "The same for DDM with the number of modes that the printed eigenvalue rule gives.",
        _ddm_poor(lambda m: "DDM"),
    ),
    Claim(
        "DDM fundamentally poor",
        "the poor performance of the DDM decoder in this example is fundamental, not an artifact of "
        "poor hyperparameter tuning",
        "Sec. 5.1, 5.2",
        ("lwr", "mri"),
        "The best DDM row, by rule or star, has at least twice the test error of the best RANDSMAP.",
        _ddm_fundamentally_poor,
    ),
    Claim(
        "crowd: DDM cannot do better than 20 per cent",
        "An exhaustive hyperparameter search [...] confirms this ~20% error is optimal for DDM on this manifold",
        "Sec. 5.3",
        ("hughes",),
        "The lowest test error of DDM, by the printed eigenvalue rule or with the starred r, is between 15 and 25 %.",
        _ddm_near_a_fifth,
    ),
    Claim(
        "accuracy grows with P",
        "accuracy improves as P increases",
        "Sec. 5.1-5.3, App. E, F",
        (*MANIFOLDS, *FIELDS),
        "For each feature map, on training and test set, the median L2 error "
        "does not grow by more than 1 % from P = N/4 to N/2 or from N/2 to N.",
        _falls_with_features,
    ),
    Claim(
        "beats k-NN in training",
        "On the training set, all RANDSMAP decoders surpass the k-NN decoder in L2 accuracy",
        "Sec. 5.1",
        ("lwr",),
        "The L2 error of every RANDSMAP row is below k-NN's on the training set.",
        _all_beat_knn_in_training,
    ),
    Claim(
        "only Sig beats k-NN",
        "On the testing set, only RANDSMAP-Sig achieves a lower L2 error than k-NN",
        "Sec. 5.1",
        ("lwr",),
        "Of the three feature maps, each at its best P, RANDSMAP-Sig alone has a test error below k-NN's.",
        _only_sigmoid_beats_knn,
    ),
    Claim(
        "better than k-NN in Linf",
        "for the Linf error [...], all RANDSMAP variants outperform k-NN",
        "Sec. 5.1",
        ("lwr",),
        "The Linf error of every RANDSMAP row is below k-NN's on the test set.",
        _as_accurate(RANDSMAP, "k-NN", "test", "rel_linf", every=True, tolerance=1.0),
    ),
    Claim(
        "which map is best in Linf",
        "RANDSMAP-MS-RFF is most accurate for P=N/4, while RANDSMAP-RFF is best for P=N",
        "Sec. 5.1",
        ("lwr",),
        "These maps have the lowest Linf error on the test set at these P.",
        _both(_best_map("RANDSMAP-MS-RFF", "rel_linf", 0.25), _best_map("RANDSMAP-RFF", "rel_linf", 1.0)),
    ),
    Claim(
        "images: as accurate as k-NN",
        "all RANDSMAP decoders [...] matching or surpassing its reconstruction accuracy on both "
        "training and testing sets",
        "Sec. 5.2",
        ("mri",),
        "At P = N every RANDSMAP's L2 error is at most 5 % above k-NN's, on training and test set.",
        _as_accurate(RANDSMAP, "k-NN", fraction=1.0, every=True),
    ),
    Claim(
        "images: fewer features conserve better",
        "conservation error improves as P decreases",
        "Sec. 5.2",
        ("mri",),
        "With the paper's closed form the mean conservation error grows from P = N/4 to N/2 to N, for "
        "each map, on training and test set.",
        _improves_with_fewer_features,
    ),
    Claim(
        "images: Linf at P = N",
        "for P=N, all variants achieve similar L2 errors, but RANDSMAP-MS-RFF attains the best Linf error",
        "Sec. 5.2",
        ("mri",),
        "On the test set at P = N the L2 errors differ by at most 25 %, and RANDSMAP-MS-RFF has the lowest Linf error.",
        _both(_similar_maps, _best_map("RANDSMAP-MS-RFF", "rel_linf", 1.0)),
    ),
    Claim(
        "images: Fourier best at P = N/4",
        "the most accurate [...] RANDSMAP variant is that with vanilla Fourier features for low P=N/4",
        "Sec. 5.2",
        ("mri",),
        "RANDSMAP-RFF has the lowest L2 error on the test set at P = N/4.",
        _best_map("RANDSMAP-RFF", "rel_l2", 0.25),
    ),
    Claim(
        "crowd: 6 and 8 per cent",
        "achieving <6% relative L2 testing error versus >8% for k-NN",
        "Sec. 5.3",
        ("hughes",),
        "Every RANDSMAP row is below 6 %, k-NN, solved to convergence, above 8 %, on the test set.",
        _below_six_above_eight,
    ),
    Claim(
        "crowd: Sig best",
        "The RANDSMAP-Sig variant is slightly more accurate than the Fourier feature variants",
        "Sec. 5.3",
        ("hughes",),
        "RANDSMAP-Sig has the lowest L2 error on the test set at P = N.",
        _best_map("RANDSMAP-Sig", "rel_l2", 1.0),
    ),
    Claim(
        "crowd: mass to 1e-6",
        "the mean of pointwise reconstruction [conservation error] is smaller than 10^-6",
        "Sec. 5.3",
        ("hughes",),
        "With the paper's closed form every RANDSMAP row is below 1e-6.",
        _conserves(RANDSMAP, 1e-6, _printed),
    ),
    Claim(
        "manifolds: faster than DDM",
        "consistently faster in both training and inference than the DDM [...] decoders",
        "App. E, F",
        MANIFOLDS,
        "DDM by the printed eigenvalue rule takes longer than the slowest RFNN row, in training and in inference.",
        _faster(RFNN, "DDM", 1.0),
    ),
    Claim(
        "manifolds: faster than k-NN",
        "consistently faster in both training and inference than the [...] k-NN decoders",
        "App. E, F",
        MANIFOLDS,
        "k-NN, solved to convergence by this package, takes longer than the "
        "slowest RFNN row, in training and in inference.",
        _faster(RFNN, "k-NN", 1.0),
    ),
    Claim(
        "manifolds: more accurate",
        "RFNN decoders, particularly the RFNN-Sig one, consistently achieve higher reconstruction "
        "accuracy [...] compared to both numerical analysis-based DDM and k-NN approaches",
        "App. F",
        MANIFOLDS,
        "The best RFNN-Sig row has a lower L2 error than DDM by the printed eigenvalue rule "
        "and than k-NN, solved to convergence, on training and test set.",
        _both(_as_accurate("RFNN-Sig", "DDM", tolerance=1.0), _as_accurate("RFNN-Sig", "k-NN", tolerance=1.0)),
    ),
    Claim(
        "S-curve: all more accurate out of sample",
        "all RFNN variants are more accurate than DDM and k-NN decoders in out-of-sample data",
        "App. F",
        ("s_curve",),
        "At P = N every RFNN's test error is below DDM's (printed eigenvalue rule) and below k-NN's.",
        _both(
            _as_accurate(RFNN, "DDM", "test", fraction=1.0, every=True, tolerance=1.0),
            _as_accurate(RFNN, "k-NN", "test", fraction=1.0, every=True, tolerance=1.0),
        ),
    ),
    Claim(
        "Swiss roll: two per cent",
        "Increasing N from 1000 to 2000 reduces the reconstruction error of all kernel-based decoders "
        "(RFNN and DDM) to about 2%",
        "App. E",
        ("swiss_roll",),
        "With N = 2000 the test errors of all RFNN rows and of DDM are between 1.5 and 2.5 %.",
        _about_two_percent,
        n_train=2000,
    ),
    Claim(
        "many scales beat one",
        "successfully captures multiscale features that single-scale kernel methods fail to represent",
        "Sec. 6",
        FIELDS,
        "RANDSMAP-MS-RFF at P = N has a test error at least 5 % below that of the better of "
        "RANDSMAP-RFF at P = N and the Gaussian kernel decoder (oscillations are not measured).",
        _multiscale_beats_single_scale,
    ),
    Claim(
        "the kernel limit",
        "its equivalence to deterministic kernel methods in expectation in the deterministic limit",
        "Sec. 6; Sec. 4.1",
        FIELDS,
        "At P = N, far from the limit already, the test errors of RANDSMAP-RFF and of the Gaussian "
        "kernel decoder, its limit, agree within 10 %.",
        _kernel_limit,
    ),
)


def judge(results, *, missing=True):
    """The verdict on each claim that the results are about, in the order of the paper's argument.

    Parameters
    ----------
    results : sequence of StudyResult
        Of any of the studies; a study that is not there counts as missing data. Studies of the user's
        own data say nothing about the paper and are passed over.
    missing : bool
        Whether a data set that is not among the results leaves a claim about it open; False judges
        by the results alone, for the report of one study.

    Returns
    -------
    list of Verdict
        Of the claims about at least one data set of the results.
    """
    parts = {}
    for result in results:
        if result.options.get("data") is None:
            for part in result.part_names:
                rows = result.part_rows(part)
                parts.setdefault(rows[0]["dataset"], []).append((part, Measured(rows)))
    paper = _paper_parts()
    verdicts = []
    for claim in CLAIMS:
        if any(dataset in parts for dataset in claim.datasets):
            datasets = [d for d in claim.datasets if missing or d in parts]
            verdict, measured = _verdict(claim, datasets, parts)
            verdicts.append(Verdict(claim, verdict, measured, _verdict(claim, datasets, paper)[0]))
    return verdicts


def _paper_parts():
    parts = {}
    for row in paper_rows():
        flat = {**row, **{f"{quantity}_median": (row.get(quantity) or {}).get("median") for quantity in QUANTITIES}}
        parts.setdefault((row["dataset"], row["n_train"]), []).append(flat)
    found = {}
    for (dataset, n_train), rows in parts.items():
        found.setdefault(dataset, []).append((f"N{n_train}", Measured(rows, paper=True)))
    return found


def _verdict(claim, datasets, parts):
    """("holds", "does not hold" or "cannot be compared", the figures or the reason in words)."""
    answers, texts = [], []
    for dataset in datasets:
        found = [
            (part, measured) for part, measured in parts.get(dataset, ()) if claim.n_train in (None, int(part[1:]))
        ]
        if not found:
            answers.append(None)
            texts.append(f"{NAMES[dataset]}: not run" + (f" with N = {claim.n_train}" if dataset in parts else ""))
        for part, measured in found:
            try:
                holds, text = claim.check(measured)
            except _Missing as missing:
                holds, text = None, str(missing)
            answers.append(holds)
            size = f", N = {part[1:]}" if len(parts[dataset]) > 1 else ""
            texts.append(
                f"{NAMES[dataset]}{size}: " + {None: "cannot be compared, ", True: "", False: "no, "}[holds] + text
            )
    if False in answers:
        verdict = FAILS
    elif None in answers:
        verdict = UNKNOWN
    else:
        verdict = HOLDS
    return verdict, ". ".join(texts)


def claims_markdown(results):
    """The verdicts as a Markdown table, for documents.

    Parameters
    ----------
    results : sequence of StudyResult

    Returns
    -------
    str
    """
    lines = [
        "| the paper says | where | it holds if | verdict | measured | by the paper's own tables |",
        "|---|---|---|---|---|---|",
    ]
    for verdict in judge(results):
        claim = verdict.claim
        cells = [
            _markdown_cell(text)
            for text in (
                f"\u201c{claim.quote}\u201d",
                claim.where,
                claim.criterion,
                verdict.verdict,
                verdict.measured,
                verdict.paper,
            )
        ]
        cells[3] = f"**{cells[3]}**"
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


_MARKDOWN = str.maketrans(
    {"<": "&lt;", ">": "&gt;", "&": "&amp;", "\\": "\\\\", "|": "\\|", "`": "\\`", "*": "\\*", "_": "\\_", "\n": " "}
)


def _markdown_cell(text):
    return text.translate(_MARKDOWN)
