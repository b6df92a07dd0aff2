"""Verdicts on the paper's testable sentences, computed from the studies' rows.

``data/claims.toml`` has the sentences, each with the rows (case, measure, relation, number) that make it true. A
sentence "holds" in every data set that it is about, "does not hold" for one counterexample, or "cannot be compared".
"""

from __future__ import annotations

import operator
import tomllib
from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from randsmap.reports import percent
from randsmap.studies import _result
from randsmap.studies._result import QUANTITIES, Row, StudyResult, case_text, documented, features_text, slot

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot be compared"
_NAMES = {"swiss_roll": "Swiss roll", "s_curve": "S-curve", "lwr": "traffic", "mri": "images", "hughes": "crowd"}
_MEASURES = dict(zip(QUANTITIES, ("L2 error", "Linf error", "conservation error", "time")))
_RELATIONS = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "between": lambda value, ends: (ends[0] <= value) & (value <= ends[1]),
}

Claim = dict[str, Any]
_Key = tuple[str, str, float | None]  # split, decoder, P / N


def read_claims() -> list[Claim]:
    """The claims with the keys of the data file; names of groups are replaced by what is in them."""
    table = tomllib.loads(_result.data_file("claims.toml"))

    def expand(about: dict[str, Any], key: str) -> None:
        names = about.get(key, [])
        names = [names] if isinstance(names, str) else names
        about[key] = [each for name in names for each in table["groups"].get(name, [name])]

    for claim in table["claims"]:
        expand(claim, "datasets")
        for test in claim["tests"]:
            expand(test, "case")
            expand(test, "against")
    return list(table["claims"])


def judge(results: Sequence[StudyResult], *, missing: bool = True) -> list[Claim]:
    """The claims about data sets of the results, without the user's own, in the order of the paper's argument.

    Three more keys: "verdict", "measured" (figures, or why there are none) and "paper" (its own tables' verdict).
    If not `missing`, data sets without results are left out of a claim.
    """
    ours = _by_size(row for result in results if result.options.get("data") is None for row in result.rows)
    paper = _by_size(_result.paper_rows(), is_paper=True)
    claims = [claim for claim in read_claims() if not ours.keys().isdisjoint(claim["datasets"])]
    for claim in claims:
        datasets = [d for d in claim["datasets"] if missing or d in ours]
        claim["verdict"], claim["measured"] = _verdict(claim, datasets, ours)
        claim["paper"] = _verdict(claim, datasets, paper)[0]
    return claims


def _by_size(rows: Iterable[Row], is_paper: bool = False) -> dict[str, dict[int, list[Row]]]:
    """{data set: {training size: rows}}, with the "names" that claims have for the decoder of a row."""
    # the paper's RANDSMAP is also the closed form, and its one DDM is the starred one, "DDM-r"
    found: dict[str, dict[int, list[Row]]] = {}
    for row in rows:
        names = [row["decoder"]]
        if is_paper and names[0].startswith("RANDSMAP"):
            names.append(f"{names[0]}-training")
        if names[0].startswith("DDM-r") or (is_paper and names[0] == "DDM"):
            names.append("DDM-r")
        found.setdefault(row["dataset"], {}).setdefault(row["n_train"], []).append({**row, "names": names})
    return found


def _verdict(claim, datasets, parts):
    """(verdict, the figures or the reason in words) of a claim over some data sets."""
    answers, texts = [], []
    for dataset in datasets:
        sizes = parts.get(dataset, {})
        judged = [n for n in sizes if claim.get("n_train", n) == n]
        if not judged:
            answers.append(None)
            texts.append(f"{_NAMES[dataset]}: not run" + (f" with N = {claim['n_train']}" if sizes else ""))
        for n in judged:
            try:
                found = [_evaluate(test, sizes[n]) for test in claim["tests"]]
                holds, text = all(holds for holds, _ in found), "; ".join(dict.fromkeys(text for _, text in found))
            except LookupError as error:  # a figure of the test is missing
                holds, text = None, error.args[0]
            answers.append(holds)
            size = f", N = {n}" if len(sizes) > 1 else ""
            texts.append(f"{_NAMES[dataset]}{size}: {'no, ' if holds is False else ''}{text}")
    verdict = FAILS if False in answers else UNKNOWN if None in answers else HOLDS
    return verdict, ". ".join(texts)


# --- one test: (does it hold, what was measured) -------------------------------------------------
def _evaluate(test, rows):
    splits = [test["splits"]] if "splits" in test else ["train", "test"]
    if test["against"] == ["fewer features"]:
        return _evaluate_steps(test, rows, splits)
    if test.get("paired"):
        return _evaluate_ratios(test, rows, splits)
    if test["against"]:
        return _evaluate_against_lowest(test, rows, splits)
    values = _figures(rows, test, test["case"], splits)
    ends = {"smallest": min, "largest": max}
    ends.pop({"<=": "smallest", ">": "largest"}.get(test["relation"]), None)
    texts = (f"{name} {_figure(values, end(values, key=values.get), test)}" for name, end in ends.items())
    return _holds(test, values.values()), ", ".join(texts)


def _evaluate_against_lowest(test, rows, splits):
    """Every figure of `case`, or the lowest, over the lowest figure of `against` on the same split."""
    texts, holds = [], True
    for split in splits:
        values, theirs = (_figures(rows, test, test[which], [split]) for which in ("case", "against"))
        if values.keys() == theirs.keys() and len(values) == 1:
            raise LookupError(f"there is only {_row_name(next(iter(values)))}")
        key, other = (min if test.get("best") else max)(values, key=values.get), min(theirs, key=theirs.get)
        holds &= _holds(test, [values[key]], theirs[other])
        texts.append(f"{_figure(values, key, test)} against {_figure(theirs, other, test)}")
    if "beyond" in test:
        raise LookupError(f"{test['beyond']}, with {'; '.join(texts)}")
    return holds, "; ".join(texts)


def _evaluate_ratios(test, rows, splits):
    """Figures of one decoder over those of another with the same number of features on the same split."""
    (name,), (other,) = test["case"], test["against"]
    values, theirs = (_figures(rows, test, [each], splits) for each in (name, other))
    label = next(iter(theirs))[1]
    pairs = [(value, theirs[split, label, P]) for (split, _, P), value in values.items() if (split, label, P) in theirs]
    if not pairs:
        raise LookupError(f"{name} and {label} have no feature count in common")
    # an error of exactly 0 is also a reference
    ratios = [value / max(reference, np.finfo(float).tiny) for value, reference in pairs]
    ends = dict.fromkeys(f"{end:.4g}" for end in (min(ratios), max(ratios)))  # one number if both have the same text
    text = f"{name}'s {_MEASURES[test['measure']]} is {' to '.join(ends)} times {label}'s"
    return _holds(test, ratios), text


def _evaluate_steps(test, rows, splits):
    """Figures over those at the next smaller number of features."""
    n_steps, wrong = 0, []
    for split in splits:
        for name in test["case"]:
            values = _figures(rows, test, [name], [split])
            label = next(iter(values))[1]
            if len(values) < 2:
                raise LookupError(f"{label} was run with one feature count only")
            for few, many in pairwise(sorted(values, key=lambda key: key[2])):
                n_steps += 1
                if not _holds(test, [values[many]], values[few]):
                    before, after = (f"{_value(values[key], test)} at {features_text(key[2])}" for key in (few, many))
                    wrong.append(f"{label} ({split}) from {before} to {after}")
    text = f"it {'falls' if test['relation'] == '>' else 'grows'} in {len(wrong) or 'none'} of {n_steps} steps"
    return not wrong, text + (f", such as {wrong[0]}" if wrong else "")


def _holds(test, values, reference=1.0):
    holds, bound = _RELATIONS[test["relation"]], np.asarray(test["number"]) * reference
    return all(holds(value, bound) for value in values)


def _figures(rows: list[Row], test: Claim, names: list[str], splits: list[str]) -> dict[_Key, float]:
    """Medians of the decoders' rows at the test's P; LookupError if a decoder without "?" has none."""
    found: dict[_Key, float] = {}
    measure, at = test["measure"], test.get("at")
    # decoders with "?" count if they were run; if none was, all are missing
    optional = [name.removesuffix("?") for name in names if name.endswith("?")]
    present = [name for name in optional if any(name in row["names"] for row in rows)]
    needed = [name for name in names if not name.endswith("?")] + (present or optional)
    known = [row for row in rows if row[f"{measure}_median"] is not None]
    if at is not None:
        known = [row for row in known if row["features_per_sample"] in (None, at)]
    for split, name in product(splits, needed):
        chosen = [row for row in known if row["split"] == split and name in row["names"]]
        if not chosen:
            size = "" if at is None else f" with {features_text(at)}"
            raise LookupError(f"there is no {_MEASURES[measure]} of {name}{size} ({split})")
        found |= {(split, *slot(row)): row[f"{measure}_median"] for row in chosen}
    return found


def _row_name(key):
    return f"{case_text(*key[1:])} ({key[0]})"


def _value(value, test):
    if test["measure"] == "conservation":
        return f"{value:.1e}"
    return f"{value:.3g} s" if test["measure"] == "seconds" else percent(value)


def _figure(values, key, test):
    return f"{_value(values[key], test)} of {_row_name(key)}"


@documented
def claims_markdown(results: Sequence[StudyResult]) -> str:
    """The verdicts as a Markdown table, for documents.

    {results} {returns_text} {example}
    """
    header = ("the paper says", "where", "it holds if", "verdict", "measured", "by the paper's own tables")
    lines = [_result.markdown_row(header), "|" + "---|" * len(header)]
    for claim in judge(results):
        cells = [claim[key] for key in ("where", "criterion", "verdict", "measured", "paper")]
        lines.append(_result.markdown_row([f"\u201c{claim['quote']}\u201d", *cells], bold=3))
    return "\n".join(lines) + "\n"
