"""Run a study: data, split, then all decoders of each `_part.Part`, what is noted and what was left out.

Each finished piece (latents, tuning of a decoder, one run) is a small file, so that an interrupted study can go on.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import randsmap
from randsmap._interface.callers import extrapolation_ignored
from randsmap._interface.parameters import check_choice, check_count
from randsmap._io.progress import ProgressBar, if_asked
from randsmap.studies._data import (
    file_description,
    load_data,
    random_split,
    seed_for,
    trajectory_split,
    user_data,
    user_sizes,
)
from randsmap.studies._definitions import NOTES
from randsmap.studies._figures import user_view
from randsmap.studies._part import Part, n_fits
from randsmap.studies._result import StudyResult, save_result
from randsmap.studies._store import open_pieces
from randsmap.studies._study import Study, quick_form
from randsmap.studies._table import Row, with_paper
from randsmap.studies._texts import documented

PAPER_RUNS = 100  # draws of the features over which the paper's tables have medians


@documented
def run_study(
    study: Study,
    *,
    out: str | os.PathLike[str],
    quick: bool = False,
    runs: int | None = None,
    decoders: Sequence[str] | None = None,
    seed: int = 0,
    feature_seed: int | None = None,
    split: str = "random",
    data: str | os.PathLike[str] | None = None,
    training_form: bool | None = None,
    searched: bool | None = None,
    command: str = "",
    progress: bool = True,
) -> StudyResult:
    """Run a study, or go on with one that was interrupted.

    Parameters
    ----------
    study : Study
    out : path
        Folder for the finished pieces and the result; created if missing.
    quick : bool
        Three grid values, one draw for tuning, P = N/4 only, 2 runs, and the study's smaller data if it has them.
    runs : int, optional
        Independent draws of the features, over which medians are taken; by default 100 as in the paper. Raising it
        later keeps the runs already done.
    decoders : sequence of str, optional
        Labels of the decoders to run; by default all.
    seed : int
        Fixes the data, the split and all draws.
    feature_seed : int, optional
        Seed of the features of the runs; data, split and tuned values depend on `seed` only.
    split : {"random", "trajectory"}
        "random" is the paper's split: neighbouring times of one trajectory are in training and test set.
    data : path, optional
        File of your own snapshots (n, n_cells) instead of the study's data, split in the same fractions.
    training_form : bool, optional
        Whether to run the paper's closed form too; by default as the study says.
    searched : bool, optional
        Whether to run the decoders that are searched for by held-out errors too; by default unless `quick`.
    command : str
        Command line to be named in the result.
    progress : bool
        Show a progress bar.

    Returns
    -------
    StudyResult
        Also in `out`, for `load_result`.

    Raises
    ------
    ValueError
        If `out` holds the pieces of another configuration, an argument is not valid, or the data do not suit the study.

    {run}
    >>> [row["split"] for row in result.rows]
    ['train', 'test']
    """
    out = Path(out)
    seed = check_count(seed, "seed", low=0)
    feature_seed = seed if feature_seed is None else check_count(feature_seed, "feature_seed", low=0)
    runs = check_count((2 if quick else PAPER_RUNS) if runs is None else runs, "runs")
    check_choice(split, "split", ("random", "trajectory"))
    if quick:
        study = quick_form(study)
    if split == "trajectory" and (data is not None or not study.has_trajectories):
        raise ValueError(f"{data or f'the data of {study.name}'} have no trajectories: only split='random' is possible")
    own = None if data is None else user_data(data, study.conserves)
    if own is not None:
        study = replace(study, sizes=user_sizes(study.sizes, len(own[0])))
    options = {
        "runs": runs,
        "quick": quick,
        "seed": seed,
        "feature_seed": feature_seed,
        "split": split,
        "training_form": study.training_form if training_form is None else training_form,
        "searched": not quick if searched is None else searched,
        "decoders": None if decoders is None else list(decoders),
        "data": None if data is None else Path(data).name,
    }
    # nothing is written before all arguments are checked
    chosen = _chosen(study, options)
    pieces = open_pieces(out, _configuration(study, options, own))
    if own is None:
        fields, about = load_data(study, out, seed, progress)
        view = study.view(about, fields.shape[1])
    else:
        fields, about, view = own[0], {}, user_view(own[0].shape[1], study.conserves)

    show = if_asked(progress)
    rows, arrays, findings = _run_parts(study, chosen, fields, about, view, options, pieces, show)
    result = StudyResult(
        name=study.name,
        title=_title(study, options, fields.shape[1]),
        section=study.section,
        notes=_notes(study, chosen, findings, options, fields.shape),
        cuts=_cuts(study, chosen, options),
        options=options,
        command=command,
        date=datetime.date.today().isoformat(),
        version=randsmap.__version__,
        rows=with_paper(rows, paper=own is None),
        arrays=arrays,
    )
    save_result(result, out)
    return result


def _run_parts(study, chosen, fields, about, view, options, pieces, show):
    """Rows, arrays and findings of the chosen decoders for all sizes of the study, under the context `show`."""
    rows: list[Row] = []
    arrays: dict[str, Any] = {}
    findings: list[str] = []
    total = sum(n_fits(case, study, options) for case in chosen) * len(study.sizes)
    with (
        show,
        ProgressBar(total, study.name, unit="fit") as bar,
        randsmap.show_progress(False),
        extrapolation_ignored(),  # held-out points may be far away
    ):
        for sizes in study.sizes:
            split_rows, groups = _split(len(fields), about, sizes, options)
            part = Part(study, fields, split_rows, groups, view=view, options=options, pieces=pieces, update=bar.update)
            rows += part.run(chosen)
            arrays.update({f"{part.name}/{key}": value for key, value in part.arrays().items()})
            findings += _findings(study, chosen, part, about)
    return rows, arrays, findings


def _title(study, options, n_cells):
    if options["data"] is None:
        return study.title or study.name
    return f"{options['data']} (M = {n_cells}), in the protocol of the study {study.name}"


def _configuration(study, options, own):
    """JSON values on which the pieces of a run depend."""
    return {
        "version": randsmap.__version__,
        "dataset": study.dataset,
        "data": own[1] if own else {k: repr(v) for k, v in file_description(study.data_options).items()},
        "split": [options["split"], *study.sizes],
        "encoder": repr(study.encoder),
        "decoders": {case.label: repr(case) for case in study.cases},
        "tuning": [study.tuning_draws, study.tuning_samples, study.tuning_left_out],
        "seed": options["seed"],
        "feature_seed": options["feature_seed"],
    }


def _split(n_samples, about, sizes, options):
    """Rows of the three sets, and the trajectories of the training set if whole ones are held out."""
    seed = seed_for(options["seed"], 1)  # all sizes deal from one shuffled deck
    if options["split"] == "random":
        return random_split(n_samples, sizes, seed), None
    rows = trajectory_split(about["trajectories"], sizes, seed)
    return rows, about["trajectories"][rows[0]]


def _findings(study, chosen, part, about):
    """Sentences on the embedding of the study's own data, and on the encoder that was tuned."""
    found = []
    if study.check_embedding is not None and about:
        found += study.check_embedding(part.latents(study.cases[0])["train"], about, part.rows["train"])
    tuned = next((case for case in chosen if case.encoder == "autotune"), None)
    if tuned is not None:
        found.append(f"The tuned encoder (N = {part.n_train}): {part.latents(tuned)['encoder']}.")
    return found


def _chosen(study, options):
    """The cases to run, in the order of the table."""
    decoders = options["decoders"]
    if decoders is None:
        left_out = [kind for kind in ("training_form", "searched") if not options[kind]]
        return [case for case in study.cases if not any(getattr(case, kind) for kind in left_out)]
    known = [case.label for case in study.cases]
    unknown = [label for label in decoders if label not in known]
    if unknown or not decoders:
        raise ValueError(f"decoders must be among {', '.join(known)}, got {', '.join(unknown) or 'none'}")
    return [case for case in study.cases if case.label in decoders]


def _notes(study, chosen, findings, options, shape):
    notes = [*study.notes, *findings]
    if options["data"] is not None:
        data = (
            f"The data are {options['data']}, {shape[0]} snapshots of {shape[1]} cells, split in the study's fractions"
        )
        notes = [f"{data}; the paper's numbers do not belong to them."]
    notes += NOTES["every"]
    notes += NOTES["mass"] if study.conserves else []
    notes += [NOTES["searched"]] if any(case.searched for case in chosen) else []
    notes += [NOTES["ddm"].format(label=case.label) for case in chosen if case.by_map]
    if options["split"] == "trajectory":
        notes.append(NOTES["trajectory_split"])
    elif options["data"] is None and study.has_trajectories:
        notes.append(NOTES["random_split"])
    return notes


def _cuts(study, chosen, options):
    cuts = []
    if options["quick"]:
        cuts.append(
            "Quick run: three of the ten grid values of each hyperparameter, P = N/4 only, "
            "tuning on one draw of the features."
        )
        if study.quick_sizes:
            changed = ", ".join(f"{k} = {v}" for k, v in study.quick_options.items())
            cuts.append(
                f"Quick run: smaller data ({changed}), so no number of the paper belongs to "
                f"it: {study.sizes[0][0]} training points."
            )
    runs = options["runs"]
    if runs < PAPER_RUNS:
        cuts.append(f"{runs} run{'' if runs == 1 else 's'} instead of the paper's {PAPER_RUNS}.")
    if options["decoders"] is not None:
        return [*cuts, f"Only the decoders {', '.join(case.label for case in chosen)}."]
    if not options["training_form"] and any(case.training_form for case in study.cases):
        cuts.append("Without the paper's closed form (--training-form adds it).")
    if not options["searched"] and any(case.searched for case in study.cases):
        cuts.append("Without the decoders that are searched for (--auto adds them).")
    return cuts
