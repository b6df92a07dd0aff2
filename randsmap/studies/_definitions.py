"""The five studies of the paper: data, splits, encoder, grids, and how its text was read."""

import os
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import randsmap
from randsmap._interface.parameters import check_choice, document
from randsmap.studies._figures import View, point_view
from randsmap.studies._study import Study, paper_cases, searched_cases
from randsmap.studies._texts import data_file

_Function = TypeVar("_Function", bound=Callable[..., Study])

_TABLE: dict[str, Any] = tomllib.loads(data_file("studies.toml"))
NOTES: dict[str, Any] = _TABLE["notes"]  # of more than one study


def _documented(function: _Function) -> _Function:
    """Fill the line {rest} of a study's docstring."""
    name = function.__name__
    rest = f"""\
Returns
-------
Study

Examples
--------
>>> from randsmap.studies import {name}
>>> {name}().dataset
'{name.removesuffix("_study")}'"""
    return document(function, {"rest": rest})


def _study(name: str, **options: Any) -> Study:
    """A study of the data file, with the paper's decoders and those that are searched for."""
    about = {key: _as_tuples(value) for key, value in _TABLE["studies"][name].items()}
    encoder, conserves = randsmap.DiffusionMaps(**about.pop("encoder")), about.get("conserves", True)
    starred, ranges = about.get("starred"), about.pop("ranges")
    cases = paper_cases(ranges, conserves=conserves, d=encoder.n_components, starred=starred)
    about["cases"] = (*cases, *searched_cases(conserves=conserves))
    about["notes"] = tuple(_TABLE["texts"].get(note, note) for note in about["notes"])
    return Study(name, name.replace("-", "_"), encoder=encoder, **{**about, **options})


def _as_tuples(value):
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


@_documented
def swiss_roll_study() -> Study:
    """The Swiss roll as the paper describes it, sparse (N = 1000) and dense (N = 2000).

    Diffusion maps with alpha = 1, w_1 = 0.12 and d = 2; ten values of each hyperparameter over the paper's range.

    {rest}
    """
    return _study(
        "swiss-roll",
        make_data=randsmap.datasets.make_swiss_roll,
        view=lambda about, _: point_view(about, (0, 1, 2), ("x1", "x2", "x3")),
    )


@_documented
def s_curve_study() -> Study:
    """The S-curve in 20 dimensions as the paper describes it.

    N = 1000; diffusion maps with alpha = 1, w_1 = 0.2 and d = 2. Eigenvectors by non-harmonic selection: the first and
    the third, which the paper's caption names, do not resolve the width.

    {rest}
    """
    return _study(
        "s-curve",
        make_data=randsmap.datasets.make_s_curve,
        view=lambda about, _: point_view(about, (0, 5, 19), ("x1", "x6", "x20")),
    )


@_documented
def lwr_study() -> Study:
    """The traffic study (Lighthill, Whitham, Richards) as the paper describes it.

    12000 snapshots of 100 trajectories, split at random into 2000 for training, 2000 for validation and 8000 for
    testing; diffusion maps with alpha = 0 and d = 2; lambda = 1e-3; ten values of each hyperparameter over the paper's
    range.

    {rest}
    """
    return _study("lwr", make_data=randsmap.datasets.make_lwr, view=_traffic_view)


def _traffic_view(about, _):
    # shocks have formed at t = 15
    return View((0, 1, 2), intrinsic=_times_and_trajectories(about), axes={"x": about["cell_centers"]}, target=15.0)


def _times_and_trajectories(about):
    return {"time": about["times"], "trajectory": about["trajectories"]}


@_documented
def mri_study(image: str | os.PathLike[str] | None = None) -> Study:
    """The study of rotated images as the paper describes it.

    3600 rotations of one image, 720 for training, 720 for validation and 2160 for testing; diffusion maps with alpha =
    1, w_1 = 0.5 and d = 2.

    Parameters
    ----------
    image : path, optional
        Your own image (see `randsmap.datasets.make_rotated_images`); by default the head phantom.

    {rest}
    """
    study = _study(
        "mri", make_data=randsmap.datasets.make_rotated_images, view=_image_view, check_embedding=_check_embedding
    )
    if image is None:
        return study
    notes = (f"The image is {Path(image).name}.", *study.notes[1:])
    return replace(study, data_options={"image": str(image)}, notes=notes)


def _image_view(about, _):
    height, width = (int(size) for size in about["shape"])
    return View(
        shown=(3, 0, 4),  # statistics along the rows, then along the columns
        axes={"row": np.arange(float(height)), "column": np.arange(float(width))},
        intrinsic={"angle": about["angles"]},
        color="angle",
        target=0.0,
        with_axes=False,
    )


def _check_embedding(latents, about, rows):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        number = randsmap.datasets.warn_unless_covered_once(latents, about["angles"][rows])
    for warning in caught:
        warnings.warn(warning.message, stacklevel=2)
    return [
        f"While the image makes one turn its embedding goes round {abs(number)} time"
        f"{'' if abs(number) == 1 else 's: angles share latent points, errors mean little'}."
    ]


@_documented
def hughes_study(normalization: str = "before") -> Study:
    """The study of Hughes's crowd in a corridor with an obstacle as the paper describes it.

    30000 snapshots of 80 trajectories, split at random into 5000 for training, 5000 for validation and 20000 for
    testing; diffusion maps with alpha = 1, w_1 = 0.4 and d = 10.

    Parameters
    ----------
    normalization : {"before", "after"}, default "before"
        See `randsmap.datasets.make_hughes`.

    {rest}
    """
    study = _study(
        "hughes",
        make_data=randsmap.datasets.make_hughes,
        data_options={"normalization": normalization},
        view=_crowd_view,
    )
    reading = _TABLE["texts"][check_choice(normalization, "normalization", ("before", "after"))]
    return replace(study, notes=tuple(reading if note == "normalization" else note for note in study.notes))


def _crowd_view(about, _):
    nx, ny = (int(size) for size in about["shape"])
    x, y = about["cell_centers"].reshape(nx, ny, 2).transpose(2, 0, 1)
    return View(
        shown=(0, 3, 1),
        axes={"x": x[:, 0].copy(), "y": y[0].copy()},
        intrinsic=_times_and_trajectories(about),
        mask=about["mask"].reshape(nx, ny),
        target=10.0,  # the crowd passes the obstacle
    )
