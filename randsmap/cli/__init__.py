"""The `randsmap` command: parses, calls the package and prints.

Options are tables from "name METAVAR" to the help; the metavar tells the type, and "# Title" begins a group. Those
that are parameters of estimators take type, default and the beginning of the help from the declaration. `_commands` has
one function for each command, and is imported when a command runs; it prints, and returns what --json prints instead.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import json
import linecache
import math
import os
import re
import signal
import sys
import textwrap
import traceback
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, TextIO

import randsmap
from randsmap._interface.parameters import option_of
from randsmap._io.files import expanded

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (0; 1 after an error of the user's; 130 after Ctrl-C).

    Errors that are not the user's are raised, as all are with --debug.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process if not given.
    """
    try:
        words = _with_negative_bounds(sys.argv[1:] if argv is None else argv)
        arguments = parser_for(words).parse_args(words, argparse.Namespace(words=words))
    finally:
        tell("", end="")  # flush what argparse has printed, to a closed pipe too
    # messages must not mix with the output
    to_stdout = any(_is_stdout(getattr(arguments, name, None)) for name in ("out", "error"))
    spoken = sys.stderr if to_stdout else sys.stdout
    elsewhere = contextlib.redirect_stdout(spoken)
    silent = contextlib.redirect_stdout(io.StringIO() if arguments.quiet or arguments.json else spoken)
    with _as_a_command(), elsewhere:
        try:
            command = getattr(import_module("randsmap.cli._commands"), arguments.command)
            with silent, import_module("randsmap._io.progress").show_progress(not arguments.quiet):
                found = import_module("randsmap._interface.callers").quiet(command)(arguments)
            if arguments.json:
                tell(json.dumps(_plain(found or {})))
        except KeyboardInterrupt:
            tell("randsmap: interrupted", sys.stderr)
            return 130
        except Exception as error:
            if arguments.debug or not _is_of_the_user(error):
                raise
            tell(f"{painted('randsmap: error:', 'red', sys.stderr)} {_in_words(error, arguments)}", sys.stderr)
            return 1
    return 0


def _plain(value: Any) -> Any:
    """A result in JSON's types: NaN and infinity become null, since JSON has neither."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    value = value.item() if hasattr(value, "item") else value
    return (value if abs(value) < math.inf else None) if isinstance(value, float | int) else value and str(value)


def _in_words(error: Exception, arguments: argparse.Namespace) -> str:
    """The message of an error, with options instead of the arguments of Python that they set."""
    if isinstance(error, MemoryError):
        return f"out of memory: {error}"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    options = {str(details["dest"]): flag for flag, details in _DETAILS.items() if "dest" in details}
    options |= {"n_components": "--components", "n_trials": "--trials", "families": "--decoder", "tol": "--tol"}
    options |= {name: f"--{name.replace('_', '-')}" for name in vars(arguments) if "_" in name and name not in options}
    text = str(error).replace("kind='features'", "no --table").replace("kind='table'", "--table")
    return re.sub(
        rf"(?<![-\w.])({'|'.join(options)})\b(=?)", lambda found: options[found[1]] + " " * len(found[2]), text
    )


def _with_negative_bounds(argv: Sequence[str]) -> list[str]:
    """The arguments, with a blank before negative numbers of --bounds: argparse reads -1e-3 and -inf as options."""
    return [
        re.sub(r"^-(?=\.?\d|(?i:inf))", " -", word) if "--bounds" in argv[max(0, i - 2) : i] else word
        for i, word in enumerate(argv)
    ]


def _is_of_the_user(error: Exception) -> bool:
    """True for errors of files and memory, and for errors that a `raise` statement of this package raised."""
    # other errors (of an operator, NumPy, a failed import) are defects of the package and need the traceback
    if isinstance(error, OSError | MemoryError):
        return True
    if isinstance(error, ImportError):
        return error.name is None  # an import statement sets the name; messages of this package name the remedy
    if not isinstance(error, TypeError | ValueError):
        return False
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    source = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
    ours = frame.f_globals.get("__name__", "").partition(".")[0] in ("randsmap", "sklearn")
    return ours and (source.startswith("raise") or not source)  # frozen programs have no source


@contextlib.contextmanager
def _as_a_command() -> Iterator[None]:
    """Print warnings without the line of source; SIGTERM of a batch system is an exception, which cleans up."""
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, warnings, "formatwarning", warnings.formatwarning)
        warnings.formatwarning = lambda message, *_, **__: f"{warning_sign()} {message}\n"
        with contextlib.suppress(ValueError):  # not the main thread
            before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
            stack.callback(signal.signal, signal.SIGTERM, signal.SIG_DFL if before is None else before)
        yield


def _is_stdout(path: str | os.PathLike[str] | None) -> bool:
    try:
        return path is not None and os.path.samestat(os.stat(path), os.fstat(sys.stdout.fileno()))
    except (AttributeError, OSError, ValueError):  # no such file, or no file behind sys.stdout
        return False


def tell(text: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Print what the stream can encode, whether or not someone still reads it."""
    stream = sys.stdout if stream is None else stream
    if stream is None:  # the process has no console
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), end=end, file=stream, flush=True)
    except BrokenPipeError:  # `| head`: the work goes on, the output goes nowhere
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


_COLORS = {"red": 31, "yellow": 33, "bold": 1}  # of ANSI's terminals


def painted(text: str, color: str, stream: TextIO | None = None) -> str:
    """The text in a colour, or bold, on a terminal, unless NO_COLOR is set (no-color.org)."""
    stream = sys.stdout if stream is None else stream
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or os.name == "nt"
    return text if plain or stream is None or not stream.isatty() else f"\033[{_COLORS[color]}m{text}\033[0m"


def warning_sign() -> str:
    """What warnings begin with."""
    return painted("randsmap: warning:", "yellow", sys.stderr)


# -- The commands and their options ---------------------------------------------------------------------------
# feature map -> (class name, tuned parameter)
FEATURES = {
    "sigmoid": ("SigmoidFeatures", "slope"),
    "fourier": ("FourierFeatures", "length_scale"),
    "multiscale": ("MultiscaleFourierFeatures", "max_frequency"),
}
ONE_DECODER = ("features", "value", "n_features", "regularization")  # options that replace the search

# data set -> description
_DATASETS = {
    "swiss-roll": "Swiss roll, 3 coordinates",
    "s-curve": "S-curve in 20 dimensions",
    "lwr": "LWR traffic, 400 cells",
    "rotated-images": "rotations of one image, 128 x 128 cells",
    "hughes": "Hughes crowd in a corridor with an obstacle, 200 x 50 cells",
}
_IMAGE = "your own image: .npy, .mat (variable D, slice 4: the paper's) or a picture"
_DATASET = {
    "--out FILE": ".npy (fields) or .npz (fields and all that belongs to them)",
    "--seed S": "seed (default 0)",
    "--picture FILE.png": "also draw the data (needs matplotlib)",
}
_TRAJECTORIES = {"--trajectories N": "number of trajectories", "--snapshots N": "snapshots of each trajectory"}
_SAMPLES = {"--samples N": "number of samples"}
_SIZES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(_DATASETS, _SAMPLES),
    **dict.fromkeys(("lwr", "hughes"), _TRAJECTORIES),
    "rotated-images": {**_SAMPLES, "--image FILE": _IMAGE},
}

# study -> description
STUDIES = {
    "swiss-roll": "Swiss roll, M = 3",
    "s-curve": "S-curve in 20 dimensions",
    "lwr": "LWR traffic, M = 400",
    "mri": "rotations of one image, M = 128 x 128",
    "hughes": "Hughes crowd, M = 200 x 50",
}
_FIGURES = {"--figures DIR": "folder for the pictures as PDF files for print, 89 or 183 mm wide, and their arrays"}
_STUDY = {
    "--quick": "3 grid values, P = N/4 only, 2 runs, for hughes less data: the table lists what was left out",
    "--runs R": "draws of the features to take medians over (default: 100; 2 with --quick)",
    "--decoders LABEL[,LABEL]": "only these rows of the table",
    "--seed S": "seed of data, split and draws (default 0)",
    "--feature-seed S": "seed of the draws of features in the runs instead of --seed",
    "--training-form": "with the paper's closed form, which conserves mass at training points (one SVD per run; "
    "default: yes, for hughes no)",
    "--auto": "with decoders and encoders found by a search (default: yes, with --quick no)",
    **_FIGURES,
    "--out DIR": "folder for tables, report and finished pieces (default: randsmap-study/STUDY, with --quick "
    "randsmap-study-quick/STUDY; of all studies without STUDY)",
}
_OWN_DATA = {
    "--data FILE": "your own snapshots instead, one field per row, in a file as for `randsmap fit`",
    "--split": "random (default): single snapshots, the paper's; trajectory: whole trajectories go to training, "
    "validation or test set (lwr, hughes)",
}
_NORMALIZATION = {
    "--normalization": "hughes: scale the density to integral 1 before it is integrated (default), or only its "
    "snapshots after"
}
_STUDY_OPTIONS = {
    **dict.fromkeys(STUDIES, {**_STUDY, **_OWN_DATA}),
    "mri": {**_STUDY, **_OWN_DATA, "--data FILE": _IMAGE},
    "hughes": {**_STUDY, **_OWN_DATA, **_NORMALIZATION},
    "all": {**_STUDY, **_NORMALIZATION},
}
_STUDY_TEXT = (
    "{}. Make the data, split, encode; tune every decoder on the validation set, fit, test; print tables of errors "
    "next to the paper's and write them with the figures and a report. An interrupted study continues when the same "
    "command is given again."
)

_EVERYWHERE = {
    "--quiet": "print nothing but warnings and errors, and show no progress",
    "--verbose": "fit: also print all parts of a median decoder, and how the error was found",
    "--json": "print the results as one JSON object, relative errors as fractions",
    "--debug": "show the traceback of an error",
}
_KEY = "array of that file, if it has several"


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
        "--transpose-out": f"write the {what} as columns, as in MATLAB: the last axis counts them",
    }


_MODEL = {"model MODEL": "model of `randsmap fit`"}
_OWN_VALUES = {
    "--invariant-values FILE": "values of the invariants of each field, (n,) or (n, q), in a file of any input format: "
    "for a model of fields whose values vary (invariant_tol=1.0 in Python)"
}
_ERROR = {
    "--error FILE": "also write the error bars (n,): the relative L2 error that a field does not exceed with the "
    "probability --coverage",
    "--coverage P": "(with --error; default 0.9)",
}
_AT_PARAMETERS = {
    "--parameters FILE": "times or parameters of the snapshots, at which a model of `fit --parameters` predicts the "
    "fields that are compared with them",
    "--parameters-key NAME": _KEY,
}
_FIELDS = _input(
    "snapshots",
    "SNAPSHOTS",
    "fields, (n_samples, n_cells) or of any shape (n_samples, ny, nx), in .npy, .npz, .mat, .csv, .txt, .h5, .nc or "
    ".zarr; or a folder or pattern ('steps/*.npy') of files with one field each",
)
_LATENTS = _input("latents", "LATENTS", "(n_samples, n_components), in a file of any format of snapshots")
_PARAMETERS = _input(
    "parameters", "PARAMETERS", "(n,) or (n, p), in a file of any format of snapshots, text with one row per line"
)
_FIT = {
    "# Input": "",
    **_FIELDS,
    "--groups FILE": "labels of trajectories or other groups, one per snapshot, in text with one label per line, or "
    "a file of any format of snapshots: whole groups are left out in cross-validation",
    "--groups-key NAME": _KEY,
    "--parameters FILE": "times or parameters of the snapshots, (n_samples,) or (n_samples, p), with --transpose also "
    "(p, n_samples), in a file of any format of snapshots: the model then predicts fields at new parameters "
    "(randsmap predict), by all POD modes or by quantiles of the mass; with --components or --decoder by few "
    "coordinates and a search for a decoder",
    "--parameters-key NAME": _KEY,
    "# Model": "",
    "--components D": "largest number of latent coordinates (with --features etc. their number; default: estimated "
    "from the spectrum of diffusion maps)",
    "--invariants": "what every decoded field satisfies exactly: the mass (sum of the cells), nothing, or (auto, "
    "the default) the mass if it is the same in all snapshots",
    "--bounds LOW HIGH": "Numbers or none: --bounds 0 none for values not below 0.",
    "--cell-weights FILE": "A file of any format of snapshots, one number per cell. Mass is the weighted sum of the "
    "cells, and errors are measured in the weighted norm.",
    "--cell-weights-key NAME": _KEY,
    "--alpha A": "(diffusion maps; default %(default)s)",
    "# Search": "",
    "--decoder FAMILY[,FAMILY]": "families of decoders to search, such as sigmoid, fourier, gaussian, matern, "
    "thin-plate, k-nn (another name lists all)",
    "--trials N": "trials of the search for a decoder, or for kernels of parameters (default 40)",
    "--encoder-samples N": "select and fit the encoder on N snapshots (default: all, 5000 at most), and the decoder on "
    "all; with --parameters fit both to these N. For files larger than memory, with --features etc. and "
    "--n-features as a count",
    "--seed S": "seed of the draws (default 0)",
    "--freezable": "check that `randsmap freeze` can make an image of the model",
    "# One decoder, instead of a search": "",
    "--features": "feature map (default sigmoid)",
    "--value V": "slope (sigmoid), length scale (fourier) or maximal frequency (multiscale); tuned if not given",
    "--n-features P": "(such as 500 or 0.25; default 1.0)",
    "--regularization LAMBDA": "ridge parameter (default 1e-3)",
    "# Output": "",
    "--out MODEL": "model file to write, such as model.npz",
}
_FREEZE = {
    **_MODEL,
    "--out FILE": "image to write, such as model.rsm",
    "--precision": "number type of the coefficients (default float64); invariants hold equally well in both",
    "--tol TOL": "relative L2 error of a smaller image with fewer modes, or of a table (default 1e-7)",
    "--table": "a table of fields over one or two latent coordinates, equally fast for any number of features",
    "--latents FILE": "latents like those that will be decoded, for --tol and --table of models that store none (POD)",
    "--error-bar": "store the error bar of the fields (randsmap_error in C)",
    "--distil N": "freeze a decoder of N kernels that is fitted to the fields of the model (at --latents, or over all "
    "training latents), and print its error: for decoders that cannot be frozen or are slow, such as blends",
}
# command -> (summary, description, options; none if there are commands below it), in the order of use
_COMMANDS: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "fit": (
        "fit a model to your own snapshots",
        "Select an encoder (POD, Isomap, diffusion maps of several widths; with as few latent coordinates as possible) "
        "and a decoder by cross-validation, and fit them to the snapshots. With --features, --value, "
        "--n-features or --regularization there is no search: diffusion maps and a decoder with random features are "
        "fitted, whose one hyperparameter is tuned on a fifth of the snapshots unless --value gives it. MODEL is an "
        ".npz file without pickles, which randsmap.load reads.",
        _FIT,
    ),
    "evaluate": (
        "reconstruction errors of a model on snapshots",
        "Print the cross-validation error of the fit, then the errors of the encoded and decoded snapshots.",
        {**_MODEL, **_FIELDS, **_AT_PARAMETERS, "--out ERRORS.csv": "also write the errors of every sample"},
    ),
    "report": (
        "a page of figures and tables on a model and snapshots",
        "Write one HTML file on a model and snapshots: embedding, errors, worst fields, mass, leverage (distance from "
        "the training data), and tuned parameters. Needs the extra studies.",
        {
            **_MODEL,
            **_FIELDS,
            **_AT_PARAMETERS,
            "--out FILE": "such as report.html",
            **_FIGURES,
            "--groups FILE": "labels of trajectories or other groups, as of `randsmap fit`",
            "--groups-key NAME": _KEY,
            "--shape NY NX": "cells of a field in the plane (default: those of the model's fields, if they have a "
            "shape)",
        },
    ),
    "info": (
        "what a model file or an image holds",
        "Print the shapes of fields and latents, enforced invariants and bounds, errors, and the fitted parameters.",
        {"model FILE": "model of `randsmap fit` or image of `randsmap freeze`"},
    ),
    "encode": (
        "latent coordinates of snapshots",
        "Encode snapshots: write their latent coordinates.",
        {**_MODEL, **_FIELDS, **_output("latents")},
    ),
    "decode": (
        "fields at latent coordinates",
        "Decode latent coordinates: write the fields at them.",
        {**_MODEL, **_LATENTS, **_OWN_VALUES, **_ERROR, **_output("fields")},
    ),
    "predict": (
        "fields at new parameters or times",
        "Fields at parameters or times, by a model of `randsmap fit --parameters`.",
        {**_MODEL, **_PARAMETERS, **_OWN_VALUES, **_ERROR, **_output("fields")},
    ),
    "freeze": (
        "an image of a model, for loops in C and other languages",
        "Write a model as one file that randsmap.h opens in C, C++ and Fortran (randsmap config), and randsmap.load in "
        "Python. Decoded fields are bit-identical to those of a one-row call. The image also encodes.",
        _FREEZE,
    ),
    "export": ("a decoder in the format of other programs", None, {}),
    "export fmu": (
        "a unit for co-simulation (FMI 3.0)",
        "Write a unit for co-simulation by FMI 3.0: its inputs are latent coordinates, its output is the field. It "
        "runs on this machine's operating system, without Python.",
        {**_MODEL, "--out FILE": "such as decoder.fmu", "--step-size H": "proposed time between communications"},
    ),
    "export onnx": (
        "an ONNX graph in float64",
        "Write an ONNX graph from latent coordinates to fields, with bounds or invariants. Needs the package onnx.",
        {**_MODEL, "--out FILE": "such as decoder.onnx"},
    ),
    "config": (
        "compiler flags to decode in C, C++ or Fortran",
        "Print flags for a compiler and a linker, to use frozen decoders by randsmap.h: "
        "cc $(randsmap config --cflags) loop.c $(randsmap config --libs).",
        {
            "--cflags": "flags for the compiler: where randsmap.h is",
            "--libs": "the library, and flags for the linker",
            "--amalgamation DIR": "copy randsmap.h and the library as one C99 file, randsmap.c, to this folder: for "
            "hosts without Python",
        },
    ),
    "completion": (
        "completion of commands and options for a shell",
        "Print a script that completes commands, options and their values in a shell.",
        {"shell": "bash, zsh or fish"},
    ),
    "dataset": (
        "make a data set of the paper",
        "Make a data set of the paper. FILE.npy holds the fields, one per row, and is written as they are computed; "
        "FILE.npz also holds times, parameters and intrinsic coordinates.",
        {},
    ),
    **{f"dataset {name}": (text, None, {**_DATASET, **_SIZES[name]}) for name, text in _DATASETS.items()},
    "study": (
        "run one of the paper's studies, or all",
        "Run a study of the paper and print its errors next to the paper's.",
        {},
    ),
    **{
        f"study {name}": (text, _STUDY_TEXT.format(text[0].upper() + text[1:]), _STUDY_OPTIONS[name])
        for name, text in {**STUDIES, "all": "all five studies"}.items()
    },
}
# heading -> commands
_GROUPS = {
    "Your data": ("fit", "evaluate", "report", "info", "encode", "decode", "predict"),
    "Other programs": ("freeze", "export", "config", "completion"),
    "The paper": ("dataset", "study"),
}
_EXAMPLES = {
    "": """
  randsmap fit snapshots.npy --out model.npz
  randsmap evaluate model.npz new.npy
  randsmap report model.npz new.npy --out report.html""",
    "fit": """
  randsmap fit snapshots.npy --out model.npz
  randsmap fit run.mat --key U --transpose --groups trajectories.txt --out model.npz
  randsmap fit snapshots.npy --parameters times.csv --bounds 0 none --out model.npz
  randsmap fit 'steps/*.npy' --out model.npz
  randsmap fit large.npy --encoder-samples 2000 --n-features 500 --out model.npz""",
    "decode": """
  randsmap decode model.npz latents.npy --out fields.npy --error errors.npy""",
    "freeze": """
  randsmap freeze model.npz --out model.rsm
  cc $(randsmap config --cflags) loop.c $(randsmap config --libs)""",
    "study": """
  randsmap study lwr --quick
  randsmap study all --out results""",
    "completion": """
  randsmap completion bash > ~/.local/share/bash-completion/completions/randsmap
  source <(randsmap completion zsh)                   (in ~/.zshrc)
  randsmap completion fish > ~/.config/fish/completions/randsmap.fish""",
}


# -- Types ---------------------------------------------------------------------------------------------------
def _seed(text):
    number = int(text)
    if not 0 <= number < 1 << 32:  # the range of seeds of NumPy's legacy generator
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 2**32 - 1, got {text}")
    return number


def _bound(text):
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number or none, got {text!r}") from None


def _labels(text):
    return [label for label in text.split(",") if label]


def _count_or_fraction(text):
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(text)
    raise argparse.ArgumentTypeError(f"expected a count (500) or a multiple of the samples (0.25), got {text!r}")


_TYPES = {
    **dict.fromkeys(("FILE", "FILE.png", "ERRORS.csv", "DIR", "MODEL"), expanded),
    **dict.fromkeys(("SNAPSHOTS", "LATENTS", "FIELDS", "PARAMETERS"), expanded),
    **dict.fromkeys(("D", "N", "R", "NY"), int),
    **dict.fromkeys(("A", "V", "H", "LAMBDA", "TOL"), float),
    **dict.fromkeys(("LABEL[,LABEL]", "FAMILY[,FAMILY]"), _labels),
    **{"NAME": str, "S": _seed, "P": _count_or_fraction, "LOW": _bound},
}
# more arguments of `add_argument`; an option without a metavar and without these is a flag
_DETAILS: dict[str, dict[str, Any]] = {
    "--seed": {"default": 0},
    "--coverage": {"type": float},
    "--split": {"choices": ("random", "trajectory"), "default": "random"},
    "--normalization": {"choices": ("before", "after"), "default": "before"},
    **dict.fromkeys(("--training-form", "--auto"), {"action": argparse.BooleanOptionalAction}),
    "--trajectories": {"dest": "n_trajectories"},
    "--snapshots": {"dest": "snapshots_per_trajectory"},
    "--samples": {"dest": "n_samples"},
    "--features": {"choices": tuple(FEATURES)},
    "--invariants": {"choices": ("auto", "mass", "none"), "default": "auto"},
    "shell": {"choices": ("bash", "zsh", "fish")},
    "--precision": {"choices": ("float64", "float32"), "default": "float64"},
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
class _Parser(argparse.ArgumentParser):
    """A parser whose errors have few lines and suggest a correction of a misspelt option or command."""

    @property
    def actions(self):
        return self._actions

    def parse_known_args(self, args=None, namespace=None):
        known = self._option_string_actions
        for word in args:
            if word == "--" or (self._subparsers and not word.startswith("-")):  # the rest belongs to a command
                break
            flag = word.partition("=")[0]
            if flag.startswith("--") and flag not in known:
                self.error(f"there is no option {flag}{_meant(flag, known)}")
        return super().parse_known_args(args, namespace)

    def _check_value(self, action, value):
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            text = f"{value!r} is none of {', '.join(choices)}{_meant(value.lower(), choices)}"
            raise argparse.ArgumentError(action, text)

    def error(self, message):
        sign = painted(f"{self.prog}: error:", "red", sys.stderr)
        message = re.sub("invalid (int|float|_seed) value:", "expected a number, got", message)
        self.exit(2, f"{sign} {message}\nsee {self.prog} --help\n")


def _meant(word, known):
    close = [each for each in known if each.startswith(word)] or difflib.get_close_matches(word, known, 1, 0.7)
    return f"; did you mean {close[0]}?" if close else ""


def parser_for(argv):
    """The parser of these arguments; what other commands need is not imported."""
    epilog = ""
    for title, names in _GROUPS.items():
        epilog += "\n".join([f"{title}:", *(f"  {name:<12}{_COMMANDS[name][0]}" for name in names), "", ""])
    parser = _Parser(
        prog="randsmap",
        usage="%(prog)s COMMAND ... [options]",
        description="Reduced-order models that conserve mass: fit a model to snapshots, encode and decode fields.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"{epilog}Examples:{_EXAMPLES['']}\n\nrandsmap COMMAND --help describes a command.",
        allow_abbrev=False,
    )
    version = f"randsmap {randsmap.__version__}"
    parser.add_argument("--version", action="version", version=version, help="print the version and exit")
    for option, text in _EVERYWHERE.items():
        parser.add_argument(option, action="store_true", help=text)
    parsers = {"": parser.add_subparsers(prog="randsmap", required=True, metavar="COMMAND", help=argparse.SUPPRESS)}
    for path, (summary, description, options) in _COMMANDS.items():
        function, _, name = path.partition(" ")
        examples = _EXAMPLES.get(path)
        details = {**_DETAILS, "--out": {"required": function not in ("study", "evaluate")}}
        needed = [
            option for option in options if details.get(option.split()[0], {}).get("required", option[0] not in "-#")
        ]
        command = parsers[function if name else ""].add_parser(
            name or function,
            usage=" ".join(["%(prog)s", *(o if o[0] == "-" else o.split()[-1] for o in needed), "[options]"])
            if options
            else None,
            help=summary if name else None,
            description="\n".join(textwrap.wrap(description or f"{summary[0].upper()}{summary[1:]}.", 79)),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=examples and f"Examples:{examples}",
            allow_abbrev=False,
        )
        if not options:
            parsers[function] = command.add_subparsers(required=True, metavar="NAME", dest="name")
            command.set_defaults(data=None, split="random")  # of all studies
            continue
        if function == "fit" and "fit" in argv:
            details.update(_declared())
        group = command
        for option, text in options.items():
            if option.startswith("# "):
                group = command.add_argument_group(option[2:])
            else:
                _add_option(group, option, text, details)
        group = command.add_argument_group("All commands")
        for option, text in _EVERYWHERE.items():
            # without a default, which would replace the value of `randsmap --debug COMMAND`
            group.add_argument(option, action="store_true", default=argparse.SUPPRESS, help=text)
        command.set_defaults(command=function)
    return parser


def _add_option(command, option, text, details):
    flag, *metavars = option.split()
    more = dict(details.get(flag, {}))
    if "help" in more:
        text = f"{more.pop('help')} {text}"
    if len(metavars) > 1:
        more.update(metavar=tuple(metavars), nargs=len(metavars))
    elif metavars:
        more["metavar"] = metavars[0]
    elif "choices" not in more:
        more.setdefault("action", "store_true")
    if metavars:
        more.setdefault("type", _TYPES[metavars[0]])
    command.add_argument(flag, help=text, **more)
