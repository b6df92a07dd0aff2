"""The paper's testable sentences, each with a verdict computed from the studies' rows.

A `Claim` quotes the sentence and says in words what figures would make it true; its ``check`` decides
that for one data set and one training size. `judge` gives the verdicts over any of the five studies.
The same check on the paper's own tables shows the sentences that those tables do not bear out either.

A sentence is judged on the data sets that the paper says it of, and by what it says of the methods:
levels such as "below 6 %" belong to the paper's data, whose random draws are not known.

Three verdicts: "holds" (in every data set that the sentence is about), "does not hold" (one
counterexample is enough), "cannot be compared" (rows are missing; the reason stands with it).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from randsmap.reports._page import percent
from randsmap.studies._result import StudyResult
from randsmap.studies._table import features_text, markdown_row, paper_rows

__all__ = ["CLAIMS", "Claim", "Verdict", "claims_markdown", "judge"]

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot be compared"

RFNN = ("RFNN-RFF", "RFNN-MS-RFF", "RFNN-Sig")
RANDSMAP = ("RANDSMAP-RFF", "RANDSMAP-MS-RFF", "RANDSMAP-Sig")
PRINTED_FORM = "-training"  # how the runner labels the paper's closed form, which the paper's own rows are
PRINTED = tuple(label + PRINTED_FORM for label in RANDSMAP)
STARRED_DDM = "DDM-r"  # then the number of modes; "DDM" goes by the printed eigenvalue rule
BY_RULE_OR_STAR = ("DDM", STARRED_DDM)
KERNEL = "Kernel-Gauss"
MANIFOLDS, FIELDS = ("swiss_roll", "s_curve"), ("lwr", "mri", "hughes")
NAMES = {"swiss_roll": "Swiss roll", "s_curve": "S-curve", "lwr": "traffic", "mri": "images", "hughes": "crowd"}
QUANTITIES = {"rel_l2": "L2 error", "rel_linf": "Linf error", "conservation": "conservation error", "seconds": "time"}
BOTH = ("train", "test")
Key = tuple[str, str, float | None]  # split, decoder, P / N

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
    datasets: tuple[str, ...]
    criterion: str
    check: Callable[["Measured"], tuple[bool, str]]
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

    def __init__(self, rows: Iterable[dict[str, Any]], *, paper: bool = False) -> None:
        self._paper = paper
        self._rows = {(row["split"], row["decoder"], row["features_per_sample"]): row for row in rows}
        self.decoders = {label for _, label, _ in self._rows}

    def label(self, name: str) -> str:
        """Label of a decoder in these rows: the paper has one RANDSMAP, by its closed form, and one DDM, starred."""
        if self._paper:
            return "DDM" if name == STARRED_DDM else name.removesuffix(PRINTED_FORM)
        if name == STARRED_DDM:
            return next((label for label in self.decoders if label.startswith(STARRED_DDM)), name)
        return name

    def present(self, names: str | Sequence[str]) -> Sequence[str]:
        """Those of the decoders that are there; all of them if none is."""
        return [name for name in _listed(names) if self.label(name) in self.decoders] or _listed(names)

    def find(
        self, names: str | Sequence[str], splits: str | Sequence[str], quantity: str, fraction: float | None = None
    ) -> dict[Key, float]:
        """{(split, label, P / N): median} of the decoders; each of them must have a figure.

        Of decoders with features those with P / N = `fraction`, if that is given.
        """
        found: dict[Key, float] = {}
        for split in _listed(splits):
            for label in map(self.label, _listed(names)):
                values = {
                    key: row[f"{quantity}_median"]
                    for key, row in self._rows.items()
                    if key[:2] == (split, label)
                    and (fraction is None or key[2] in (None, fraction))
                    and row[f"{quantity}_median"] is not None
                }
                if not values:
                    size = "" if fraction is None else f" with {features_text(fraction)}"
                    raise _Missing(f"no {QUANTITIES[quantity]} of {label}{size} ({split})")
                found |= values
        return found


def _listed(names):
    return (names,) if isinstance(names, str) else names


def _row(key):
    split, label, fraction = key
    return f"{label}{'' if fraction is None else ', ' + features_text(fraction)} ({split})"


def _value(value, quantity):
    if quantity == "conservation":
        return f"{value:.1e}"
    return f"{value:.3g} s" if quantity == "seconds" else percent(value)


def _figure(values, key, quantity):
    return f"{_value(values[key], quantity)} of {_row(key)}"


# --- checks: Measured -> (does it hold, what was measured) ---------------------------------------


def _both(*checks):
    def check(m):
        answers = [one(m) for one in checks]
        return all(holds for holds, _ in answers), "; ".join(text for _, text in answers)

    return check


def _within(names, quantity, *, low=-np.inf, high=np.inf, splits=BOTH):
    """Every row of the decoders is above `low` and at most `high`."""

    def check(m):
        values = m.find(names, splits, quantity)
        least, most = (pick(values, key=values.get) for pick in (min, max))
        texts = [f"smallest {_figure(values, least, quantity)}"] if low > -np.inf else []
        texts += [f"largest {_figure(values, most, quantity)}"] if high < np.inf else []
        return low < values[least] and values[most] <= high, ", ".join(texts)

    return check


def _compared(names, others, quantity="rel_l2", *, splits=BOTH, fraction=None, every=False, factor=AS_GOOD):
    """The best (or every one) of `names` is at most `factor` times the best of `others`, on each split."""

    def check(m):
        texts, holds = [], True
        for split in _listed(splits):
            values = m.find(names, split, quantity, fraction)
            theirs = m.find(m.present(others), split, quantity, fraction)
            if values.keys() == theirs.keys():
                raise _Missing(f"there is only {', '.join(map(_row, values))}")
            key, other = (max if every else min)(values, key=values.get), min(theirs, key=theirs.get)
            holds &= values[key] <= factor * theirs[other]
            texts.append(f"{_figure(values, key, quantity)} against {_figure(theirs, other, quantity)}")
        return holds, "; ".join(texts)

    return check


def _ratio(name, other, quantity, *, low=0.0, high=np.inf, splits=BOTH, fraction=None):
    """The figure of one decoder, over that of the other, lies between the bounds at each P and on each split."""

    def check(m):
        values, theirs = (m.find(each, splits, quantity, fraction) for each in (name, other))
        label = m.label(other)
        ratios = [
            value / max(theirs[split, label, P], np.finfo(float).tiny)
            for (split, _, P), value in values.items()
            if (split, label, P) in theirs
        ]
        if not ratios:
            raise _Missing(f"{name} and {label} have no feature count in common")
        return low <= min(ratios) and max(ratios) <= high, (
            f"{name}'s {QUANTITIES[quantity]} is {min(ratios):.4g} to {max(ratios):.4g} times {label}'s"
        )

    return check


def _with_features(names, quantity="rel_l2", *, splits=BOTH, grows=False):
    """From one number of features to the next the figure grows, or grows by no more than 1 %."""

    def check(m):
        n_steps, wrong = 0, []
        for split in _listed(splits):
            for name in names:
                values = m.find(name, split, quantity)
                if len(values) < 2:
                    raise _Missing(f"{m.label(name)} was run with one feature count only")
                for few, many in pairwise(sorted(values, key=lambda key: key[2])):
                    n_steps += 1
                    before, after = values[few], values[many]
                    if after <= before if grows else after > 1.01 * before:
                        wrong.append(
                            f"{m.label(name)} ({split}) from {_value(before, quantity)} at {features_text(few[2])} "
                            f"to {_value(after, quantity)} at {features_text(many[2])}"
                        )
        text = f"it {'falls' if grows else 'grows'} in {len(wrong) or 'none'} of {n_steps} steps"
        return not wrong, text + (f", such as {wrong[0]}" if wrong else "")

    return check


def _best_map(expected, quantity, fraction):
    def check(m):
        values = m.find(RANDSMAP, "test", quantity, fraction)
        return min(values, key=values.get)[1] == expected, (
            f"{features_text(fraction)}: " + ", ".join(f"{key[1]} {_value(v, quantity)}" for key, v in values.items())
        )

    return check


def _similar_maps(m):
    values = m.find(RANDSMAP, "test", "rel_l2", 1.0).values()
    spread = max(values) / min(values)
    return spread <= 1.25, f"L2 errors at P = N differ by a factor of {spread:.3g}"


def _only_sigmoid_beats_knn(m):
    (knn,) = m.find("k-NN", "test", "rel_l2").values()
    best = {label: min(m.find(label, "test", "rel_l2").values()) for label in RANDSMAP}
    return [label for label in RANDSMAP if best[label] < knn] == ["RANDSMAP-Sig"], (
        ", ".join(f"{label} {_value(error, 'rel_l2')}" for label, error in {**best, "k-NN": knn}.items())
    )


def _limit_of_features(m):
    values = m.find(("RANDSMAP-RFF", KERNEL), "test", "rel_l2", 1.0)
    figures = " and ".join(_figure(values, key, "rel_l2") for key in values)
    raise _Missing(f"the sentence is about P to infinity, the studies end at P = N, with {figures}")


# where the paper speaks of which data
CONCLUSIONS = ("Sec. 6", FIELDS)
TRAFFIC, IMAGES, CROWD = ("Sec. 5.1", ("lwr",)), ("Sec. 5.2", ("mri",)), ("Sec. 5.3", ("hughes",))
ROLL, CURVE, ROLL_AND_CURVE = ("App. E", ("swiss_roll",)), ("App. F", ("s_curve",)), ("App. E, F", MANIFOLDS)

CLAIMS = (
    Claim(
        "exact mass, any form",
        "RANDSMAP enforces exact mass preservation, with conservation errors as low as single machine precision",
        "Sec. 6 (and Abstract)",
        FIELDS,
        "The mean conservation error of every RANDSMAP row, with this package's exact form, is at most 1.2e-7, on "
        "training and test set.",
        _within(RANDSMAP, "conservation", high=SINGLE),
    ),
    Claim(
        "exact mass, closed form",
        "This ensures exact mass conservation by construction",
        "Sec. 6; Prop. RANDSMAP, and for unseen data the text after it",
        FIELDS,
        "With the paper's closed form (which constrains the training points) the mean conservation error is "
        "round-off, at most 1e-14, on the test set too.",
        _within(PRINTED, "conservation", high=ROUND_OFF),
    ),
    Claim(
        "traffic: single precision",
        "their mean conservation errors are on the order of the single machine precision (10^-8)",
        *TRAFFIC,
        "With the paper's closed form the mean conservation error is at most 1.2e-7, on training and test set.",
        _within(PRINTED, "conservation", high=SINGLE),
    ),
    Claim(
        "images: mass to 1e-7",
        "Mass conservation is again enforced exactly by the RANDSMAP decoders, with errors on the order of 10^-7",
        *IMAGES,
        "With the paper's closed form the mean conservation error is at most 1e-6, ten times that order, on "
        "training and test set.",
        _within(PRINTED, "conservation", high=1e-6),
    ),
    Claim(
        "crowd: mass to 1e-6",
        "the mean of pointwise reconstruction [conservation error] is smaller than 10^-6",
        *CROWD,
        "With the paper's closed form every RANDSMAP row is below 1e-6.",
        _within(PRINTED, "conservation", high=1e-6),
    ),
    Claim(
        "RFNN loses mass",
        "they do not inherently preserve physical constraints such as mass conservation",
        "Sec. 4.3",
        FIELDS,
        "The mean conservation error of every RFNN-Sig row is above round-off, 1e-14.",
        _within("RFNN-Sig", "conservation", low=ROUND_OFF),
    ),
    Claim(
        "RFNN three orders worse",
        "RFNN-Sig decoder [...] exhibits [conservation] errors three orders of magnitude larger",
        "Sec. 5.1, 5.2",
        ("lwr", "mri"),
        "RFNN-Sig's mean conservation error is at least 100 times that of RANDSMAP-Sig with the paper's closed "
        "form, at each P.",
        _ratio("RFNN-Sig", "RANDSMAP-Sig-training", "conservation", low=ORDERS),
    ),
    Claim(
        "RFNN conserves a crowd as well",
        "the non-mass-conserving RFNN-Sig decoder achieves similar conservation error here, except for low P",
        *CROWD,
        "At P = N the two mean conservation errors on the test set are within a factor of 10, with the paper's "
        "closed form.",
        _ratio("RFNN-Sig", "RANDSMAP-Sig-training", "conservation", low=0.1, high=10, splits="test", fraction=1.0),
    ),
    Claim(
        "no accuracy lost",
        "without sacrificing reconstruction accuracy",
        *CONCLUSIONS,
        "RANDSMAP-Sig's mean L2 error is at most 1 % above RFNN-Sig's, at each P.",
        _ratio("RANDSMAP-Sig", "RFNN-Sig", "rel_l2", high=1.01),
    ),
    Claim(
        "conservation costs training time",
        "RANDSMAP decoders are approximately 2-4 times slower to train than their RFNN counterparts",
        *TRAFFIC,
        "RANDSMAP-Sig's training time (encoder, tuning, fit), with this package's exact form, is 1.5 to 5 times "
        "RFNN-Sig's, at each P.",
        _ratio("RANDSMAP-Sig", "RFNN-Sig", "seconds", low=1.5, high=5, splits="train"),
    ),
    Claim(
        "k-NN keeps mass",
        "the k-NN decoder also preserves mass to machine precision",
        "Sec. 5.1; Prop. kNN",
        FIELDS,
        "Its mean conservation error is at most 1e-14.",
        _within("k-NN", "conservation", high=ROUND_OFF),
    ),
    Claim(
        "DDM loses mass",
        "the kernel-based DDM decoder does not preserve mass in general",
        "Sec. 3.3; Prop. DDM",
        FIELDS,
        "Its mean conservation error, by the printed eigenvalue rule, is above round-off, 1e-14.",
        _within("DDM", "conservation", low=ROUND_OFF),
    ),
    Claim(
        "POD keeps mass",
        "POD preserves the total mass",
        "App. A",
        FIELDS,
        "The mean conservation error of POD, its modes projected on what keeps mass, is at most 1e-14.",
        _within("POD", "conservation", high=ROUND_OFF),
    ),
    Claim(
        "faster than k-NN",
        "The method consistently achieves orders of magnitude faster inference and training than k-NN",
        *CONCLUSIONS,
        "k-NN, solved to convergence by this package, takes at least 100 times as long as the slowest RANDSMAP row, "
        "in training and in inference.",
        _compared(RANDSMAP, "k-NN", "seconds", every=True, factor=1 / ORDERS),
    ),
    Claim(
        "faster than DDM",
        "outperforms the kernel-based DDM decoder in speed",
        *CONCLUSIONS,
        "DDM by the printed eigenvalue rule takes longer than the slowest RANDSMAP row, in training and in inference.",
        _compared(RANDSMAP, "DDM", "seconds", every=True, factor=1.0),
    ),
    Claim(
        "as accurate as k-NN",
        "while matching or exceeding their accuracy [k-NN's]",
        *CONCLUSIONS,
        "The best RANDSMAP row's mean L2 error is at most 5 % above that of k-NN, solved to convergence, on "
        "training and test set.",
        _compared(RANDSMAP, "k-NN"),
    ),
    Claim(
        "as accurate as DDM",
        "while matching or exceeding their accuracy [DDM's]",
        *CONCLUSIONS,
        "The best RANDSMAP row's mean L2 error is at most 5 % above that of DDM by the printed eigenvalue rule, on "
        "training and test set.",
        _compared(RANDSMAP, "DDM"),
    ),
    Claim(
        "DDM poor with the starred rank",
        "the DDM decoder performs poorly, with a mean relative L2 error of ~ 64% (training), compared to less than "
        "17% for all other methods",
        *TRAFFIC,
        "DDM with the paper's starred r has at least twice the training error of every other method (the levels are "
        "those of the paper's data).",
        _compared((*RANDSMAP, "k-NN"), STARRED_DDM, splits="train", every=True, factor=0.5),
    ),
    Claim(
        "DDM poor by its rule",
        "the DDM decoder performs poorly [...] compared to [...] all other methods",
        "Sec. 5.1, App. C",
        ("lwr",),
        "The same for DDM with the number of modes that the printed eigenvalue rule gives.",
        _compared((*RANDSMAP, "k-NN"), "DDM", splits="train", every=True, factor=0.5),
    ),
    Claim(
        "traffic: DDM fundamentally poor",
        "the poor performance of the DDM decoder in this example is fundamental, not an artifact of poor "
        "hyperparameter tuning",
        *TRAFFIC,
        "The best DDM row, by rule or star, has at least twice the test error of the best RANDSMAP.",
        _compared(RANDSMAP, BY_RULE_OR_STAR, splits="test", factor=0.5),
    ),
    Claim(
        "images: DDM inherently poor",
        "The DDM decoder again performs poorly due to its inherent limitation in representing sharp image edges, "
        "not due to poor tuning",
        *IMAGES,
        "The best DDM row, by rule or star, has at least twice the test error of the best RANDSMAP.",
        _compared(RANDSMAP, BY_RULE_OR_STAR, splits="test", factor=0.5),
    ),
    Claim(
        "crowd: DDM cannot do better",
        "An exhaustive hyperparameter search [...] confirms this ~20% error is optimal for DDM on this manifold",
        *CROWD,
        "DDM with the starred w_2 and r, found by that search, has at most 5 % more test error than DDM by the "
        "printed eigenvalue rule (the level is that of the paper's data).",
        _compared(STARRED_DDM, "DDM", splits="test"),
    ),
    Claim(
        "accuracy grows with P",
        "accuracy improves as P increases",
        "Sec. 5.1-5.3",
        FIELDS,
        "For each feature map, on training and test set, the median L2 error does not grow by more than 1 % from P "
        "= N/4 to N/2 or from N/2 to N.",
        _with_features(RANDSMAP),
    ),
    Claim(
        "S-curve: accuracy grows with P",
        "as P increases, their accuracy improves, exhibiting a clear monotonic trend [in training; in testing] all "
        "RFNN variants show a clear accuracy gain as P increases",
        *CURVE,
        "The same for each RFNN.",
        _with_features(RFNN),
    ),
    Claim(
        "Swiss roll: accuracy grows with P",
        "RFNN-MS-RFF and RFNN-Sig exhibit a clear monotonic improvement with P, whereas RFNN-RFF shows a less "
        "regular trend. In testing, all RFNN variants display a clear accuracy gain as P grows",
        *ROLL,
        "The same for RFNN-MS-RFF and RFNN-Sig on the training set and for each RFNN on the test set.",
        _both(_with_features(RFNN[1:], splits="train"), _with_features(RFNN, splits="test")),
    ),
    Claim(
        "beats k-NN in training",
        "On the training set, all RANDSMAP decoders surpass the k-NN decoder in L2 accuracy",
        *TRAFFIC,
        "The L2 error of every RANDSMAP row is below k-NN's on the training set.",
        _compared(RANDSMAP, "k-NN", splits="train", every=True, factor=1.0),
    ),
    Claim(
        "only Sig beats k-NN",
        "On the testing set, only RANDSMAP-Sig achieves a lower L2 error than k-NN",
        *TRAFFIC,
        "Of the three feature maps, each at its best P, RANDSMAP-Sig alone has a test error below k-NN's.",
        _only_sigmoid_beats_knn,
    ),
    Claim(
        "better than k-NN in Linf",
        "for the Linf error [...], all RANDSMAP variants outperform k-NN",
        *TRAFFIC,
        "The Linf error of every RANDSMAP row is below k-NN's on the test set.",
        _compared(RANDSMAP, "k-NN", "rel_linf", splits="test", every=True, factor=1.0),
    ),
    Claim(
        "which map is best in Linf",
        "RANDSMAP-MS-RFF is most accurate for P=N/4, while RANDSMAP-RFF is best for P=N",
        *TRAFFIC,
        "These maps have the lowest Linf error on the test set at these P.",
        _both(_best_map("RANDSMAP-MS-RFF", "rel_linf", 0.25), _best_map("RANDSMAP-RFF", "rel_linf", 1.0)),
    ),
    Claim(
        "images: as accurate as k-NN",
        "all RANDSMAP decoders [...] matching or surpassing its reconstruction accuracy on both training and "
        "testing sets",
        *IMAGES,
        "At P = N every RANDSMAP's L2 error is at most 5 % above k-NN's, on training and test set.",
        _compared(RANDSMAP, "k-NN", fraction=1.0, every=True),
    ),
    Claim(
        "images: fewer features conserve better",
        "conservation error improves as P decreases",
        *IMAGES,
        "With the paper's closed form the mean conservation error grows from P = N/4 to N/2 to N, for each map, on "
        "training and test set.",
        _with_features(PRINTED, "conservation", grows=True),
    ),
    Claim(
        "images: Linf at P = N",
        "for P=N, all variants achieve similar L2 errors, but RANDSMAP-MS-RFF attains the best Linf error",
        *IMAGES,
        "On the test set at P = N the L2 errors differ by at most 25 %, and RANDSMAP-MS-RFF has the lowest Linf error.",
        _both(_similar_maps, _best_map("RANDSMAP-MS-RFF", "rel_linf", 1.0)),
    ),
    Claim(
        "images: Fourier best at P = N/4",
        "the most accurate [...] RANDSMAP variant is that with vanilla Fourier features for low P=N/4",
        *IMAGES,
        "RANDSMAP-RFF has the lowest L2 error on the test set at P = N/4.",
        _best_map("RANDSMAP-RFF", "rel_l2", 0.25),
    ),
    Claim(
        "crowd: more accurate than k-NN",
        "here they also surpass it in reconstruction accuracy, achieving <6% relative L2 testing error versus >8% "
        "for k-NN",
        *CROWD,
        "Every RANDSMAP row's test error is below that of k-NN, solved to convergence (the levels are those of the "
        "paper's data).",
        _compared(RANDSMAP, "k-NN", splits="test", every=True, factor=1.0),
    ),
    Claim(
        "crowd: Sig best",
        "The RANDSMAP-Sig variant is slightly more accurate than the Fourier feature variants",
        *CROWD,
        "RANDSMAP-Sig has the lowest L2 error on the test set at P = N.",
        _best_map("RANDSMAP-Sig", "rel_l2", 1.0),
    ),
    Claim(
        "manifolds: faster than DDM",
        "faster in both training and inference than the DDM [...] decoders [..., though] inference times [...] "
        "become comparable to those of DDM",
        *ROLL_AND_CURVE,
        "DDM by the printed eigenvalue rule takes longer than the slowest RFNN row in training, and at least half "
        "as long in inference.",
        _both(
            _compared(RFNN, "DDM", "seconds", splits="train", every=True, factor=1.0),
            _compared(RFNN, "DDM", "seconds", splits="test", every=True, factor=2.0),
        ),
    ),
    Claim(
        "manifolds: faster than k-NN",
        "faster in both training and inference than the [...] k-NN decoders",
        *ROLL_AND_CURVE,
        "k-NN, solved to convergence by this package, takes longer than the slowest RFNN row, in training and in "
        "inference.",
        _compared(RFNN, "k-NN", "seconds", every=True, factor=1.0),
    ),
    Claim(
        "manifolds: more accurate",
        "RFNN decoders, particularly the RFNN-Sig one, consistently achieve higher reconstruction accuracy [...] "
        "compared to both numerical analysis-based DDM and k-NN approaches",
        "App. F",
        MANIFOLDS,
        "The best RFNN-Sig row has a lower L2 error than DDM by the printed eigenvalue rule and than k-NN, solved "
        "to convergence, on the test set (in training App. F itself finds k-NN better).",
        _compared("RFNN-Sig", ("DDM", "k-NN"), splits="test", factor=1.0),
    ),
    Claim(
        "S-curve: all more accurate out of sample",
        "all RFNN variants are more accurate than DDM and k-NN decoders in out-of-sample data",
        *CURVE,
        "At P = N every RFNN's test error is below DDM's (printed eigenvalue rule) and below k-NN's.",
        _compared(RFNN, ("DDM", "k-NN"), splits="test", fraction=1.0, every=True, factor=1.0),
    ),
    Claim(
        "Swiss roll: two per cent",
        "Increasing N from 1000 to 2000 reduces the reconstruction error of all kernel-based decoders (RFNN and "
        "DDM) to about 2%",
        *ROLL,
        "With N = 2000 the test errors of all RFNN rows and of DDM are between 1.5 and 2.5 % (the roll is known, so "
        "the level can be compared).",
        _within((*RFNN, "DDM"), "rel_l2", low=0.015, high=0.025, splits="test"),
        n_train=2000,
    ),
    Claim(
        "many scales beat one",
        "successfully captures multiscale features that single-scale kernel methods fail to represent",
        *CONCLUSIONS,
        "RANDSMAP-MS-RFF at P = N has a test error at least 5 % below that of the better of RANDSMAP-RFF at P = N "
        "and the Gaussian kernel decoder (oscillations are not measured).",
        _compared("RANDSMAP-MS-RFF", ("RANDSMAP-RFF", KERNEL), splits="test", fraction=1.0, factor=0.95),
    ),
    Claim(
        "the kernel limit",
        "its equivalence to deterministic kernel methods in expectation in the deterministic limit",
        "Sec. 6; Sec. 4.1",
        FIELDS,
        "For P to infinity the test error of RANDSMAP-RFF is that of the Gaussian kernel decoder, its limit; no run "
        "goes there.",
        _limit_of_features,
    ),
)


def judge(results: Sequence[StudyResult], *, missing: bool = True) -> list[Verdict]:
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
    parts = _parts(row for result in results if result.options.get("data") is None for row in result.rows)
    paper = _parts(paper_rows(), paper=True)
    verdicts = []
    for claim in CLAIMS:
        if not parts.keys().isdisjoint(claim.datasets):
            datasets = [d for d in claim.datasets if missing or d in parts]
            verdict, measured = _verdict(claim, datasets, parts)
            verdicts.append(Verdict(claim, verdict, measured, _verdict(claim, datasets, paper)[0]))
    return verdicts


def _parts(rows, paper=False):
    """{data set: {training size: `Measured`}}."""
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for row in rows:
        found.setdefault(row["dataset"], {}).setdefault(row["n_train"], []).append(row)
    return {dataset: {n: Measured(part, paper=paper) for n, part in sizes.items()} for dataset, sizes in found.items()}


def _verdict(claim, datasets, parts):
    """("holds", "does not hold" or "cannot be compared", the figures or the reason in words)."""
    answers: list[bool | None] = []
    texts = []
    for dataset in datasets:
        sizes = parts.get(dataset, {})
        judged = [n for n in sizes if claim.n_train in (None, n)]
        if not judged:
            answers.append(None)
            texts.append(f"{NAMES[dataset]}: not run" + (f" with N = {claim.n_train}" if sizes else ""))
        for n in judged:
            try:
                holds, text = claim.check(sizes[n])
            except _Missing as missing:
                holds, text = None, str(missing)
            answers.append(holds)
            size = f", N = {n}" if len(sizes) > 1 else ""
            prefix = {None: "cannot be compared, ", True: "", False: "no, "}[holds]
            texts.append(f"{NAMES[dataset]}{size}: {prefix}{text}")
    verdict = FAILS if False in answers else UNKNOWN if None in answers else HOLDS
    return verdict, ". ".join(texts)


def claims_markdown(results: Sequence[StudyResult]) -> str:
    """The verdicts as a Markdown table, for documents.

    Parameters
    ----------
    results : sequence of StudyResult

    Returns
    -------
    str

    Examples
    --------
    >>> from randsmap.studies import claims_markdown
    >>> claims_markdown([]).splitlines()[0][:24]
    '| the paper says | where'
    """
    header = ("the paper says", "where", "it holds if", "verdict", "measured", "by the paper's own tables")
    lines = [markdown_row(header), "|" + "---|" * len(header)]
    for verdict in judge(results):
        claim = verdict.claim
        quote = f"\u201c{claim.quote}\u201d"
        cells = (quote, claim.where, claim.criterion, verdict.verdict, verdict.measured, verdict.paper)
        lines.append(markdown_row(cells, bold=3))
    return "\n".join(lines) + "\n"
