"""The commands and their options.

Options are tables from "name METAVAR" to the help; the metavar tells the type. Those that are parameters of estimators
take type, default and the beginning of the help from the declaration.
"""

from __future__ import annotations

import argparse
import contextlib

import randsmap
from randsmap._interface.parameters import option_of
from randsmap._io.files import expanded

# feature map -> (class name, tuned parameter)
FEATURES = {
    "sigmoid": ("SigmoidFeatures", "slope"),
    "fourier": ("FourierFeatures", "length_scale"),
    "multiscale": ("MultiscaleFourierFeatures", "max_frequency"),
}
ONE_DECODER = ("features", "value", "n_features", "regularization")  # options that replace the search

# data set -> (function of randsmap.datasets, description)
_DATASETS = {
    "swiss-roll": ("make_swiss_roll", "Swiss roll, 3 coordinates"),
    "s-curve": ("make_s_curve", "S-curve in 20 dimensions"),
    "lwr": ("make_lwr", "LWR traffic, 400 cells"),
    "rotated-images": ("make_rotated_images", "rotations of one image, 128 x 128 cells"),
    "hughes": ("make_hughes", "Hughes crowd in a corridor with an obstacle, 200 x 50 cells"),
}
_DATASET = {
    "--out FILE": ".npy (fields) or .npz (fields and all that belongs to them)",
    "--seed S": "seed (default 0)",
    "--picture FILE.png": "also draw the data (needs matplotlib)",
}
_TRAJECTORIES = {"--trajectories N": None, "--snapshots N": "snapshots of each trajectory"}
_SIZES = {
    **dict.fromkeys(_DATASETS, {"--samples N": None}),
    **dict.fromkeys(("lwr", "hughes"), _TRAJECTORIES),
    "rotated-images": {
        "--samples N": None,
        "--image FILE": "your own image: .npy, .mat (variable D, slice 4) or a picture",
    },
}

# study -> (description, help of --data)
_SNAPSHOTS = "your own snapshots instead, one field per row, in a file as for `randsmap fit`"
STUDIES = {
    "swiss-roll": ("Swiss roll, M = 3", _SNAPSHOTS),
    "s-curve": ("S-curve in 20 dimensions", _SNAPSHOTS),
    "lwr": ("LWR traffic, M = 400", _SNAPSHOTS),
    "mri": (
        "rotations of one image, M = 128 x 128",
        "your own image: .npy, .mat (variable D, slice 4: the paper's) or a picture",
    ),
    "hughes": ("Hughes crowd, M = 200 x 50", _SNAPSHOTS),
}
_STUDY = {
    "--quick": "3 grid values, P = N/4 only, 2 runs, for hughes less data: the table lists what was left out",
    "--runs R": "draws of the features to take medians over (default: 100; 2 with --quick)",
    "--decoders LABEL[,LABEL]": "only these rows of the table",
    "--seed S": "seed of data, split and draws (default 0)",
    "--feature-seed S": "seed of the draws of features in the runs instead of --seed",
    "--training-form": "with the paper's closed form, which conserves mass at training points (one SVD per run; "
    "default: yes, for hughes no)",
    "--auto": "with decoders and encoders that are searched for by held-out errors (default: yes, with --quick no)",
    "--out DIR": "folder for tables, report and finished pieces (default: randsmap-study/STUDY, with --quick "
    "randsmap-study-quick/STUDY; of all studies without STUDY)",
}
_SPLIT = (
    "random (default): single snapshots, the paper's; trajectory: whole trajectories go to training, validation or "
    "test set (lwr, hughes)"
)
_NORMALIZATION = (
    "hughes: scale the density to integral 1 before it is integrated (default), or only its snapshots after"
)

_DEBUG = "show the traceback of an error"
_KEY = "array of that file, where it has several"


def _input(what, metavar, text):
    """Options for the input file, and how to read it."""
    return {
        f"input {metavar}": text,
        "--key NAME": f"array of the {what}, in a file that has several",
        "--transpose": f"the last axis counts the {what}: they are columns, not rows",
    }


def _output(what):
    """Options for the output file, and how to write it."""
    return {
        f"--out {what.upper()}": f"file to write: .npy, .npz, .mat, .h5 (array or variable {what}), or .csv, .txt (one "
        "row per line)",
        "--transpose-out": f"write the {what} as columns, as MATLAB users have them: the last axis counts them",
    }


_MODEL = {"model MODEL": None}
_OWN_VALUES = {
    "--invariant-values FILE": "values of the invariants of each field, (n,) or (n, q), in a file as of the latents: "
    "for a model of fields whose values vary (invariant_tol=1.0 in Python)"
}
_FIELDS = _input(
    "snapshots",
    "SNAPSHOTS",
    "fields, (n_samples, n_cells) or of any shape (n_samples, ny, nx), in .npy, .npz, .mat, .csv, .txt, .h5, .nc or "
    ".zarr",
)
_LATENTS = _input("latents", "LATENTS", "(n_samples, n_components), in a file as of snapshots")
_PARAMETERS = _input(
    "parameters", "PARAMETERS", "(n,) or (n, p), in .npy, text with one row per line, or a file as of snapshots"
)
_FIT = {
    **_FIELDS,
    "--out MODEL": "model file to write, such as model.npz",
    "--components D": "latent coordinates: at most so many (with --features etc. exactly so many); by default the "
    "number of eigenvectors of diffusion maps that are new directions",
    "--decoder FAMILY[,FAMILY]": "search these families of decoders only, such as sigmoid, fourier, gaussian, matern, "
    "thin-plate, k-nn (another name lists all)",
    "--trials N": "trials of the search for a decoder (default 40)",
    "--groups FILE": "labels, one per snapshot, of trajectories or other groups, which are left out as a whole: .npy, "
    "a text file with one label per line, or an array file as of the snapshots",
    "--groups-key NAME": _KEY,
    "--parameters FILE": "times or parameters of the snapshots, (n_samples,) or (n_samples, p), with --transpose also "
    "(p, n_samples), in .npy, text, or a file as of the snapshots: the model then predicts fields at new ones "
    "(randsmap predict). Instead of few coordinates it has many POD modes where these clearly predict better, unless "
    "--components or --decoder is given",
    "--parameters-key NAME": _KEY,
    "--alpha A": "(diffusion maps; default %(default)s)",
    "--features": "feature map of the one decoder fitted (default sigmoid)",
    "--value V": "slope (sigmoid), length scale (fourier) or maximal frequency (multiscale); tuned if not given",
    "--n-features P": "(such as 500 or 0.25; default 1.0)",
    "--regularization LAMBDA": "ridge parameter (default 1e-3)",
    "--encoder-samples N": "search for the model among N of the snapshots, chosen at random (default: all, 5000 at "
    "most), or, with --features etc., fit the encoder to them; for files larger than memory, with --n-features as a "
    "count",
    "--invariants": "what every decoded field keeps exactly: the mass (sum of the cells), nothing, or (auto, the "
    "default) the mass where it is the same in all snapshots",
    "--cell-weights FILE": "One positive number per cell, in a file as of the snapshots: the mass is the sum of the "
    "cells by these, and errors are measured in their norm.",
    "--cell-weights-key NAME": _KEY,
    "--bounds LOW HIGH": "Numbers or none: --bounds 0 none for values not below 0.",
    "--seed S": "seed of the draws (default 0)",
}
# command -> (summary, description, options)
_COMMANDS = {
    "config": (
        "what a compiler needs to decode in C, C++ or Fortran",
        "Print flags for a compiler and a linker, to use frozen decoders by randsmap.h: "
        "cc $(randsmap config --cflags) loop.c $(randsmap config --libs).",
        {
            "--cflags": "flags for the compiler: where randsmap.h is",
            "--libs": "the library, and flags for the linker",
            "--amalgamation DIR": "copy randsmap.h and the library as one C99 file, randsmap.c, to this folder: for "
            "hosts without Python",
        },
    ),
    "fit": (
        "fit a model to your own snapshots",
        "Search, by errors on snapshots left out, for an encoder (diffusion maps of several widths, POD; with as few "
        "latent coordinates as possible) and a decoder, and fit them to the snapshots. With --features, --value, "
        "--n-features or --regularization there is no search: diffusion maps and a decoder with random features are "
        "fitted, whose one hyperparameter is tuned on a fifth of the snapshots unless --value gives it. MODEL is an "
        ".npz file without pickles, which randsmap.load reads.",
        _FIT,
    ),
    "encode": (
        "latent coordinates of snapshots",
        "Encode snapshots: write their latent coordinates.",
        {**_MODEL, **_FIELDS, **_output("latents")},
    ),
    "decode": (
        "fields at latent coordinates",
        "Decode latent coordinates: write the fields at them.",
        {**_MODEL, **_LATENTS, **_OWN_VALUES, **_output("fields")},
    ),
    "predict": (
        "fields at new parameters or times",
        "Fields at parameters or times, by a model of `randsmap fit --parameters`.",
        {**_MODEL, **_PARAMETERS, **_OWN_VALUES, **_output("fields")},
    ),
    "evaluate": (
        "reconstruction errors of a model on snapshots",
        "Print the held-out error of the fit, then the errors of the encoded and decoded snapshots.",
        {
            **_MODEL,
            **_FIELDS,
            "--parameters FILE": "times or parameters of the snapshots: errors of the fields that a model of `fit "
            "--parameters` predicts",
            "--parameters-key NAME": _KEY,
            "--out ERRORS.csv": "also write the errors of every sample",
        },
    ),
    "report": (
        "a page of pictures and tables on a model and snapshots",
        "Write one HTML file on what a model makes of snapshots: embedding, errors, worst fields, mass, leverage (how "
        "far the snapshots are from those of the fit), and what was tuned. Needs the extra studies.",
        {
            **_MODEL,
            **_FIELDS,
            "--parameters FILE": "times or parameters of the snapshots: a report of the fields that a model of `fit "
            "--parameters` predicts",
            "--parameters-key NAME": _KEY,
            "--out FILE": "such as report.html",
            "--groups FILE": "labels of trajectories or other groups, as of `randsmap fit`",
            "--groups-key NAME": _KEY,
            "--shape NY NX": "cells of a field in the plane (default: those of the model's fields, if they have a "
            "shape)",
        },
    ),
}


# -- Types ---------------------------------------------------------------------------------------------------
def _seed(text):
    number = int(text)
    if not 0 <= number < 1 << 32:  # the seeds that NumPy's generators of both kinds have
        raise argparse.ArgumentTypeError(f"a number from 0 to 2**32 - 1, got {text}")
    return number


def _bound(text):
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number or none, got {text!r}") from None


def _labels(text):
    return [label for label in text.split(",") if label]


def _count_or_fraction(text):
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(text)
    raise argparse.ArgumentTypeError(f"a count (500) or a multiple of the samples (0.25), got {text!r}")


_TYPES = {
    **dict.fromkeys(("FILE", "FILE.png", "ERRORS.csv", "DIR", "MODEL"), expanded),
    **dict.fromkeys(("SNAPSHOTS", "LATENTS", "FIELDS", "PARAMETERS"), expanded),
    **dict.fromkeys(("D", "N", "R", "NY"), int),
    **dict.fromkeys(("A", "V", "LAMBDA"), float),
    **dict.fromkeys(("LABEL[,LABEL]", "FAMILY[,FAMILY]"), _labels),
    **{"NAME": str, "S": _seed, "P": _count_or_fraction, "LOW": _bound},
}
# more arguments of `add_argument`; an option without a metavar and without these is a flag
_DETAILS = {
    "--seed": {"default": 0},
    "--split": {"choices": ("random", "trajectory"), "default": "random"},
    "--normalization": {"choices": ("before", "after"), "default": "before"},
    **dict.fromkeys(("--training-form", "--auto"), {"action": argparse.BooleanOptionalAction}),
    "--trajectories": {"dest": "n_trajectories"},
    "--snapshots": {"dest": "snapshots_per_trajectory"},
    "--samples": {"dest": "n_samples"},
    "--features": {"choices": tuple(FEATURES)},
    "--invariants": {"choices": ("auto", "mass", "none"), "default": "auto"},
}


def _declared():
    """Details of options that are parameters of estimators, from their declarations."""
    return {
        "--cell-weights": option_of(randsmap.RANDSMAPDecoder, "cell_weights"),
        "--bounds": option_of(randsmap.RANDSMAPDecoder, "bounds"),
        "--alpha": option_of(randsmap.DiffusionMaps, "alpha"),
        "--n-features": {**option_of(randsmap.SigmoidFeatures, "n_features"), "default": None},  # None: a search
    }


# -- The parser ----------------------------------------------------------------------------------------------
def parser_for(argv):
    """The parser of these arguments; what other commands need is not imported."""
    parser = argparse.ArgumentParser(
        prog="randsmap",
        description="Decode latent coordinates back to physical fields without losing mass.",
        allow_abbrev=False,
    )
    version = f"randsmap {randsmap.__version__}"
    parser.add_argument("--version", action="version", version=version, help="print the version and exit")
    parser.add_argument("--debug", action="store_true", help=_DEBUG)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_studies(commands)
    _add_datasets(commands)
    for name, (text, description, options) in _COMMANDS.items():
        details = _declared() if name == "fit" and "fit" in argv else {}
        _add_command(commands, name, name, text, description, options, details)
    return parser


def _add_studies(commands):
    study = commands.add_parser("study", help="run one of the paper's studies, or all")
    studies = study.add_subparsers(required=True, metavar="STUDY", dest="study")
    for name, (text, data) in {**STUDIES, "all": ("all five studies", None)}.items():
        description = (
            f"{text[0].upper()}{text[1:]}. Make the data, split, encode; tune every decoder on the validation set, "
            "fit, test; print tables of errors next to the paper's and write them with the figures and a report. An "
            "interrupted study continues when the same command is given again."
        )
        options = dict(_STUDY)
        if name != "all":
            options.update({"--data FILE": data, "--split": _SPLIT})
        if name in ("hughes", "all"):
            options["--normalization"] = _NORMALIZATION
        _add_command(studies, name, "study", text, description, options).set_defaults(data=None, split="random")


def _add_datasets(commands):
    dataset = commands.add_parser(
        "dataset",
        help="make a data set of the paper",
        description="Make a data set of the paper. FILE.npy holds the fields, one per row, and is written as they are "
        "computed; FILE.npz also holds times, parameters and intrinsic coordinates.",
    )
    names = dataset.add_subparsers(required=True, metavar="NAME")
    for name, (maker, text) in _DATASETS.items():
        command = _add_command(names, name, "dataset", text, None, {**_DATASET, **_SIZES[name]})
        command.set_defaults(maker=maker, name=name)


def _add_command(commands, name, function, text, description, options, details=None):
    """A command that runs a function of `_commands`."""
    command = commands.add_parser(name, help=text, description=description)
    for option, help_text in options.items():
        flag, *metavars = option.split()
        more = {**_DETAILS.get(flag, {}), **(details or {}).get(flag, {})}
        help_text = f"{more.pop('help')} {help_text}" if "help" in more else help_text
        if metavars:
            more = {
                "metavar": metavars[0] if len(metavars) == 1 else tuple(metavars),
                "type": _TYPES[metavars[0]],
                **more,
            }
        if len(metavars) > 1:
            more["nargs"] = len(metavars)
        if not metavars and "choices" not in more:
            more.setdefault("action", "store_true")
        if flag == "--out":
            more["required"] = function not in ("study", "evaluate")
        command.add_argument(flag, help=help_text, **more)
    # not with a default, which would replace that of `randsmap --debug COMMAND`
    command.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=_DEBUG)
    command.set_defaults(command=function)
    return command
