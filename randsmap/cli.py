"""The `randsmap` command: parses, calls the package and prints."""

from __future__ import annotations

import argparse
import contextlib
import linecache
import math
import os
import shlex
import shutil
import signal
import sys
import textwrap
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from randsmap._io.files import expanded, is_stream, save_arrays, writable_target, write_atomically
from randsmap._io.progress import show_progress

__all__ = ["main"]

# feature map -> (class name, tuned parameter)
_FEATURES = {
    "sigmoid": ("SigmoidFeatures", "slope"),
    "fourier": ("FourierFeatures", "length_scale"),
    "multiscale": ("MultiscaleFourierFeatures", "max_frequency"),
}

# data set -> (function of randsmap.datasets, description)
_DATASETS = {
    "swiss-roll": ("make_swiss_roll", "Swiss roll, 3 coordinates"),
    "s-curve": ("make_s_curve", "S-curve in 20 dimensions"),
    "lwr": ("make_lwr", "LWR traffic, 400 cells"),
    "rotated-images": ("make_rotated_images", "rotations of one image, 128 x 128 cells"),
    "hughes": ("make_hughes", "Hughes crowd in a corridor with an obstacle, 200 x 50 cells"),
}

_SNAPSHOTS = "your own snapshots instead, one field per row, in a file as for `randsmap fit`"
# study -> (description, help of --data)
_STUDIES = {
    "swiss-roll": ("Swiss roll, M = 3", _SNAPSHOTS),
    "s-curve": ("S-curve in 20 dimensions", _SNAPSHOTS),
    "lwr": ("LWR traffic, M = 400", _SNAPSHOTS),
    "mri": (
        "rotations of one image, M = 128 x 128",
        "your own image: .npy, .mat (variable D, slice 4: the paper's) or a picture",
    ),
    "hughes": ("Hughes crowd, M = 200 x 50", _SNAPSHOTS),
}

_LARGEST_TRAINING_SET = 1 << 30  # bytes as float64: the model file of a command holds the training snapshots
_MOST_SEARCHED = 5000  # snapshots in a search: kernel decoders hold a matrix of all pairs, here 200 MB
_ONE_DECODER = ("features", "value", "n_features", "regularization")  # options that replace the search


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
        arguments = _parser(words).parse_args(words)
    finally:
        _print("", end="")  # flush what argparse has printed, to a closed pipe too
    # messages must not go where the output goes
    to_stdout = _is_stdout(getattr(arguments, "out", None))
    elsewhere = contextlib.redirect_stdout(sys.stderr) if to_stdout else contextlib.nullcontext()
    with _stopped_by_sigterm(), _warnings_in_a_line(), elsewhere:
        try:
            arguments.command(arguments)
        except KeyboardInterrupt:
            _print("randsmap: interrupted", sys.stderr)
            return 130
        except Exception as error:
            if arguments.debug or not _is_of_the_user(error):
                raise
            what = "out of memory: " if isinstance(error, MemoryError) else ""
            _print(f"randsmap: error: {what}{error}", sys.stderr)
            return 1
    return 0


def _is_of_the_user(error: Exception) -> bool:
    """True for errors of files and memory, and for those that a `raise` statement of this package made.

    Others (of an operator, NumPy, a failed import) are faults of the package, whose traceback is needed.
    """
    if isinstance(error, OSError | MemoryError):
        return True
    if isinstance(error, ImportError):
        return error.name is None  # an import statement names the module, a message of ours the remedy
    if not isinstance(error, TypeError | ValueError):
        return False
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    source = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
    ours = frame.f_globals.get("__name__", "").partition(".")[0] in ("randsmap", "sklearn")
    return ours and (source.startswith("raise") or not source)  # frozen programs have no source


def _with_negative_bounds(argv: Sequence[str]) -> list[str]:
    """The arguments, with a blank before negative numbers after --bounds: argparse takes -1e-3 and -inf for options."""
    return [
        f" {word}" if _is_negative(word) and "--bounds" in argv[max(0, i - 2) : i] else word
        for i, word in enumerate(argv)
    ]


def _is_negative(word: str) -> bool:
    with contextlib.suppress(ValueError):
        return word.startswith("-") and not math.isnan(float(word))
    return False


@contextlib.contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Print warnings as errors are printed, without the line of source."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"randsmap: warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


@contextlib.contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM, by which batch systems stop a job, into an exception: temporary files are removed."""
    try:
        before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _is_stdout(path):
    try:
        return path is not None and os.path.samestat(os.stat(path), os.fstat(sys.stdout.fileno()))
    except (AttributeError, OSError, ValueError):  # no such file, or no file behind sys.stdout
        return False


def _print(text, stream=None, end="\n"):
    """Print what the stream can encode, whether or not someone still reads it."""
    stream = sys.stdout if stream is None else stream
    if stream is None:  # of a process without a console
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), end=end, file=stream, flush=True)
    except BrokenPipeError:  # `| head`: the work goes on, the output goes nowhere
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _parser(argv):
    parser = argparse.ArgumentParser(
        prog="randsmap",
        description="Decode latent coordinates back to physical fields without losing mass.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument("--debug", action="store_true", help=_DEBUG)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (_add_study, _add_config, _add_dataset):
        add(commands)
    _add_fit(commands, _declared_options() if "fit" in argv else {})
    _add_commands_of_models(commands)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser, *_):
        from randsmap import __version__

        _print(f"randsmap {__version__}")
        parser.exit()


# -- Options: "name METAVAR" -> help; the metavar tells the type ----------------------------------------------
_DEBUG = "show the traceback of an error"
_FIELDS = (
    "fields, (n_samples, n_cells) or of any shape (n_samples, ny, nx), in .npy, .npz, .mat, .csv, .txt, .h5, .nc or "
    ".zarr"
)
_KEY = "array of that file, where it has several"


def _add_command(commands, name, run, text, description, options, **details):
    """A command with options; `details` are arguments of `add_argument`, by the names of the options' attributes."""
    command = commands.add_parser(name, help=text, description=description)
    for option, help_text in options.items():
        _add_option(command, *option.split(), text=help_text, details=details)
    # not with a default, which would replace that of `randsmap --debug COMMAND`
    command.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=_DEBUG)
    command.set_defaults(command=run)
    return command


def _add_option(command, name, *metavars, text, details):
    more = dict(details.get(name.lstrip("-").replace("-", "_"), {}))
    text = f"{more.pop('help')} {text}" if "help" in more else text
    if metavars:
        more = {"metavar": metavars[0] if len(metavars) == 1 else metavars, "type": _TYPES[metavars[0]], **more}
        more = more if len(metavars) == 1 else {"nargs": len(metavars), **more}
    elif "choices" not in more:
        more = {"action": "store_true", **more}
    command.add_argument(name, help=text, **more)


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
_SEED = {"default": 0}
_REQUIRED = {"required": True}


# -- config --------------------------------------------------------------------------------------------------
_CONFIG = {
    "--cflags": "flags for the compiler: where randsmap.h is",
    "--libs": "the library, and flags for the linker",
    "--amalgamation DIR": "copy randsmap.h and the library as one C99 file, randsmap.c, to this folder: for hosts "
    "without Python",
}


def _add_config(commands):
    _add_command(
        commands,
        "config",
        _config,
        "what a compiler needs to decode in C, C++ or Fortran",
        "Print flags for a compiler and a linker, to use frozen decoders by randsmap.h: "
        "cc $(randsmap config --cflags) loop.c $(randsmap config --libs).",
        _CONFIG,
    )


def _config(arguments):
    from randsmap.decoders import get_include, library_path

    flags = [f"-I{get_include()}"] if arguments.cflags else []
    if arguments.libs:
        library = library_path()
        flags += [library, *([] if os.name == "nt" else [f"-Wl,-rpath,{os.path.dirname(library)}", "-lm"])]
    if arguments.amalgamation is not None:
        arguments.amalgamation.mkdir(parents=True, exist_ok=True)
        for name in ("randsmap.h", "randsmap.c"):
            shutil.copyfile(os.path.join(get_include(), name), arguments.amalgamation / name)
    elif not flags:
        raise ValueError("config needs --cflags, --libs or --amalgamation DIR")
    if flags:
        _print(" ".join(map(shlex.quote, flags)))


# -- study ---------------------------------------------------------------------------------------------------
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


def _add_study(commands):
    study = commands.add_parser("study", help="run one of the paper's studies, or all")
    studies = study.add_subparsers(required=True, metavar="STUDY", dest="study")
    for name, (text, data) in {**_STUDIES, "all": ("all five studies", None)}.items():
        command = _add_command(
            studies,
            name,
            _study,
            text,
            f"{text[0].upper()}{text[1:]}. Make the data, split, encode; tune every decoder on the validation set, "
            "fit, test; print tables of errors next to the paper's and write them with the figures and a report. An "
            "interrupted study continues when the same command is given again.",
            {
                **_STUDY,
                **({} if name == "all" else {"--data FILE": data, "--split": _SPLIT}),
                **({"--normalization": _NORMALIZATION} if name in ("hughes", "all") else {}),
            },
            seed=_SEED,
            training_form={"action": argparse.BooleanOptionalAction},
            auto={"action": argparse.BooleanOptionalAction},
            split={"choices": ("random", "trajectory"), "default": "random"},
            normalization={"choices": ("before", "after"), "default": "before"},
        )
        if name == "all":
            command.set_defaults(data=None, split="random")


def _study(arguments):
    results = []
    base = arguments.out or Path("randsmap-study-quick" if arguments.quick else "randsmap-study")
    single = arguments.study != "all"
    names = [arguments.study] if single else list(_STUDIES)
    studies = [(name, _make_study(name, arguments)) for name in names]
    studies = [(name, study) for name, study in studies if _decoders_of(study, arguments, single) != []]
    if not studies:
        raise ValueError(f"no study has a decoder {', '.join(arguments.decoders)}")
    for name, study in studies:
        folder = name if arguments.data is None else f"{name}-{arguments.data.stem}"
        out = base if single and arguments.out is not None else base / folder
        results.append(_run_study(study, name, out, _decoders_of(study, arguments, single), arguments))
    if not single:
        _write_report(lambda studies: studies.write_index(results, base))


def _make_study(name, arguments):
    from randsmap import studies

    options = {}
    if name == "mri" and arguments.data is not None:
        options["image"] = arguments.data
    if name == "hughes":
        options["normalization"] = arguments.normalization
    return getattr(studies, f"{name.replace('-', '_')}_study")(**options)


def _decoders_of(study, arguments, single):
    """The labels asked for; with `study all` those that the study has."""
    if arguments.decoders is None or single:
        return arguments.decoders
    return [case.label for case in study.cases if case.label in arguments.decoders]


def _run_study(study, name, out, decoders, arguments):
    from randsmap.studies import format_table, run_study, terminal_width, write_csv, write_markdown

    result = run_study(
        study,
        out=out,
        quick=arguments.quick,
        runs=arguments.runs,
        decoders=decoders,
        seed=arguments.seed,
        feature_seed=arguments.feature_seed,
        split=arguments.split,
        data=None if study.name == "mri" else arguments.data,
        training_form=arguments.training_form,
        searched=arguments.auto,
        command=_study_command(name, decoders, arguments),
    )
    write_csv(result.rows, out / "table.csv")
    write_markdown(result, out / "table.md")
    for text in (f"{result.title}, {result.section}", *result.cuts):
        _print(textwrap.fill(text, terminal_width()))
    _print(f"\n{format_table(result.rows)}")
    _print(f"written: {out / 'table.csv'}, {out / 'table.md'}")
    _write_report(lambda studies: studies.write_report(result, out))
    return result


def _study_command(name, decoders, arguments):
    """The command that makes a study again, without defaults except the seed."""
    options = ["quick", "runs", "seed", "feature_seed", "split", "data", "training_form", "auto"]
    if name == "hughes":
        options.append("normalization")
    command = _in_words(("study", name), arguments, options, quick=False, split="random", normalization="before")
    return command if decoders is None else f"{command} --decoders {shlex.quote(','.join(decoders))}"


def _in_words(command, arguments, options, **defaults):
    """The command with those options that differ from their defaults, which are None if not given here."""
    words = ["randsmap", *command]
    for option in options:
        value, flag = getattr(arguments, option), f"--{option.replace('_', '-')}"
        if isinstance(value, bool) and value != defaults.get(option):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif value != defaults.get(option):
            words += [flag, *(value if isinstance(value, list) else [value])]
    return shlex.join(map(str, words))


def _write_report(write):
    """Write a report and print its path, or why there is none: matplotlib is missing."""
    try:
        from randsmap import studies

        _print(f"report: {write(studies)}")
    except ImportError as error:
        _print(f"no report: {error}")


# -- dataset -------------------------------------------------------------------------------------------------
_DATASET = {
    "--out FILE": ".npy (fields) or .npz (fields and all that belongs to them)",
    "--seed S": "seed (default 0)",
    "--picture FILE.png": "also draw the data (needs matplotlib)",
}
_TRAJECTORIES = {"--trajectories N": None, "--snapshots N": "snapshots of each trajectory"}
_IMAGE = {"--image FILE": "your own image: .npy, .mat (variable D, slice 4) or a picture"}


def _add_dataset(commands):
    dataset = commands.add_parser(
        "dataset",
        help="make a data set of the paper",
        description="Make a data set of the paper. FILE.npy holds the fields, one per row, and is written as they are "
        "computed; FILE.npz also holds times, parameters and intrinsic coordinates.",
    )
    names = dataset.add_subparsers(required=True, metavar="NAME")
    for name, (maker, text) in _DATASETS.items():
        size = _TRAJECTORIES if name in ("lwr", "hughes") else {"--samples N": None}
        command = _add_command(
            names,
            name,
            _dataset,
            text,
            None,
            {**_DATASET, **size, **(_IMAGE if name == "rotated-images" else {})},
            out=_REQUIRED,
            seed=_SEED,
            trajectories={"dest": "n_trajectories"},
            snapshots={"dest": "snapshots_per_trajectory"},
            samples={"dest": "n_samples"},
        )
        command.set_defaults(maker=maker, name=name)


def _dataset(arguments):
    from randsmap import datasets

    out = arguments.out
    everything = out.suffix.lower() == ".npz"
    if not everything and out.suffix.lower() != ".npy" and not is_stream(out):
        raise ValueError(f"--out must name a .npy or .npz file, got {str(out)!r}")
    for path in (out, arguments.picture):
        if path is not None:
            writable_target(path)
    if arguments.picture is not None:
        from randsmap import plotting

        plotting.check_matplotlib()  # fail before the work is done
    sizes = ("n_trajectories", "snapshots_per_trajectory", "n_samples", "image")
    given = {size: getattr(arguments, size) for size in sizes if getattr(arguments, size, None) is not None}
    bunch = getattr(datasets, arguments.maker)(
        random_state=arguments.seed, progress=True, **given, out=None if everything else out
    )
    if everything:
        arrays = {key: value for key, value in bunch.items() if isinstance(value, np.ndarray)}
        write_atomically(out, lambda file: save_arrays(file, arrays))
    _print(f"written: {out} {bunch.data.shape}")
    if arguments.picture is not None:
        figure = _picture(arguments.name, bunch)
        write_atomically(arguments.picture, lambda file: figure.savefig(file, format="png", dpi=150))
        _print(f"written: {arguments.picture}")


def _picture(name, bunch):
    """The data set as the paper shows it."""
    from randsmap import plotting

    if name == "lwr":
        first = bunch.trajectories == 0
        return plotting.plot_space_time(bunch.data[first], bunch.times[first], bunch.cell_centers).figure
    if name == "hughes":
        first = bunch.trajectories == 0
        return plotting.plot_crowd(
            bunch.data[first], bunch.times[first], shape=bunch.shape, extent=(20.0, 5.0), obstacle=~bunch.mask
        )
    if name == "rotated-images":
        return plotting.plot_images(bunch.data, bunch.angles, shape=bunch.shape)
    points = bunch.data if name == "swiss-roll" else bunch.data @ bunch.embedding
    return plotting.plot_embedding(
        points, bunch.coordinates[:, 0], label=bunch.coordinate_names[0], names=("x1", "x2", "x3")
    ).figure


# -- fit -----------------------------------------------------------------------------------------------------
_FIT = {
    **_input("snapshots", "SNAPSHOTS", _FIELDS),
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
    "most), or, with --features etc., fit the encoder to them; for files larger than memory, with "
    "--n-features as a count",
    "--invariants": "what every decoded field keeps exactly: the mass (sum of the cells), nothing, or (auto, the "
    "default) the mass where it is the same in all snapshots",
    "--cell-weights FILE": "One positive number per cell, in a file as of the snapshots: the mass is the sum of the "
    "cells by these.",
    "--cell-weights-key NAME": _KEY,
    "--bounds LOW HIGH": "Numbers or none: --bounds 0 none for values not below 0.",
    "--seed S": "seed of the draws (default 0)",
}


def _declared_options():
    """Type, default and help of options that are parameters of estimators, from their declarations."""
    from randsmap import DiffusionMaps, SigmoidFeatures
    from randsmap._interface.parameters import option_of
    from randsmap.invariants import InvariantParameters

    declared = {name: option_of(InvariantParameters, name) for name in ("cell_weights", "bounds")}
    declared["n_features"] = {**option_of(SigmoidFeatures, "n_features"), "default": None}  # None: there is a search
    declared["alpha"] = option_of(DiffusionMaps, "alpha")
    return declared


def _add_fit(commands, declared):
    _add_command(
        commands,
        "fit",
        _fit,
        "fit a model to your own snapshots",
        "Search, by errors on snapshots left out, for an encoder (diffusion maps of several widths, POD; with as few "
        "latent coordinates as possible) and a decoder, and fit them to the snapshots. With --features, --value, "
        "--n-features or --regularization there is no search: diffusion maps and a decoder with random features are "
        "fitted, whose one hyperparameter is tuned on a fifth of the snapshots unless --value gives it. MODEL is an "
        ".npz file without pickles, which randsmap.load reads.",
        _FIT,
        **declared,
        out=_REQUIRED,
        features={"choices": tuple(_FEATURES)},
        invariants={"choices": ("auto", "mass", "none"), "default": "auto"},
        seed=_SEED,
    )


def _fit(arguments):
    from randsmap.model import reconstruction_errors
    from randsmap.model._manifold import sampled
    from randsmap.snapshots import read_snapshots

    search = all(getattr(arguments, name) is None for name in _ONE_DECODER)
    _check_options(arguments, search)
    snapshots = read_snapshots(arguments.input, key=arguments.key, transpose=arguments.transpose)
    rows = _training_rows(arguments, snapshots, search)
    writable_target(arguments.out)
    _refuse_own_input(arguments, "input", "groups", "parameters", "cell_weights")
    if arguments.out.suffix.lower() == ".npy":
        raise ValueError(f"--out is the model file, not an array: {arguments.out}")
    n = len(snapshots)
    groups, parameters = _labels_of(arguments, n), _parameters_for(arguments, n)
    with show_progress():  # over the whole file, before any work; a fit would name a row of the part it is given
        kept = _kept(arguments, rows, snapshots)
    count = arguments.encoder_samples
    if count is None and search and n > _MOST_SEARCHED:
        count = _MOST_SEARCHED
        _print(f"searching among {count} of the {n} snapshots (--encoder-samples for another number)")
    sample, fields, places, labels = snapshots, snapshots, parameters, groups
    if count is not None and count < n:
        # without a search those that the model takes for its encoder
        chosen, sample = sampled(snapshots, max(2, count), arguments.seed if search else 0)
        if search:
            fields, places, labels = sample, _at(chosen, parameters), _at(chosen, groups)
    with show_progress():
        model = _searched(arguments, sample, labels, kept) if search else _one_model(arguments, sample, kept)
        if parameters is not None:
            model = _parametric(arguments, model, fields, places, labels, search, kept)
        elif not search:
            model.fit(snapshots)
        model.save(arguments.out)
        if parameters is None:
            error = -model.score(snapshots)
        else:
            error = reconstruction_errors(model, snapshots, parameters=parameters)["relative_l2"].mean()
    _print_fit(arguments, getattr(model, "model_", model), snapshots, error, search)


def _at(rows, array):
    return None if array is None else array[rows]


def _training_rows(arguments, snapshots, search):
    """Checked rows of the snapshots; a large file is not held in memory, which needs other options."""
    from randsmap._interface.fields import flattened
    from randsmap._linalg.rows import Rows

    rows = Rows.of(flattened(snapshots, str(arguments.input))[0], str(arguments.input), min_rows=4 if search else 2)
    if not rows.mapped:
        return rows
    path, (n, M) = arguments.input, rows.shape
    if arguments.encoder_samples is None and (search or 8 * n * M >= _LARGEST_TRAINING_SET):
        instead = ", or --n-features as a count (500) for a decoder fitted to all" if search else ""
        raise ValueError(
            f"{path} is large, {n} snapshots of {M} cells: give --encoder-samples, a number of snapshots (2000) that "
            f"fits into memory and into the model file, to which the encoder is fitted{instead}"
        )
    if not search and (arguments.parameters is not None or not isinstance(arguments.n_features, int)):
        raise ValueError(
            f"{path} is large: give --n-features as a count (500), not as a multiple of the number of snapshots, and "
            "no --parameters, or leave the options of one decoder out, for a search among --encoder-samples"
        )
    return rows


def _print_fit(arguments, fitted, snapshots, error, search):
    d = len(fitted.get_feature_names_out())
    cells = " x ".join(map(str, snapshots.shape[1:]))
    features = "" if search else f", {len(fitted.decoder_.coef_) - 1} features"
    _print(
        f"{len(snapshots)} snapshots of {cells} cells -> {d} latent coordinate{'' if d == 1 else 's'}{features}; mean "
        f"relative L2 error on the snapshots {error:.4g}"
    )
    _print(f"written: {arguments.out}")


def _check_options(arguments, search):
    """Refuse options that do not go together: those of the search with those of one decoder."""
    from randsmap.decoders._families import check_families

    for name in ("components", "trials", "encoder_samples"):
        if getattr(arguments, name) is not None and getattr(arguments, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(arguments, name)}")
    for name in ("groups", "parameters", "cell_weights"):
        if getattr(arguments, f"{name}_key") is not None and getattr(arguments, name) is None:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option}-key names an array of the file of {option}, which is missing")
    if arguments.decoder == ["auto"]:
        arguments.decoder = None
    try:
        check_families(arguments.decoder)
    except ValueError as error:
        raise ValueError(str(error).replace("families", "--decoder", 1).replace("None", "auto")) from None
    searching = ("decoder", "trials", "groups") if arguments.parameters is None else ("decoder", "trials")
    given = [name for name in searching if getattr(arguments, name) is not None]
    if given and not search:
        one = next(name for name in _ONE_DECODER if getattr(arguments, name) is not None).replace("_", "-")
        raise ValueError(
            f"--{given[0]} is for the search for a model, which --{one} switches off: leave one of them out"
        )


def _kept(arguments, rows, snapshots):
    """What decoded fields keep, as parameters of estimators; prints what `auto` found."""
    kept = {
        "cell_weights": _weights_of(arguments, snapshots.shape[1:]),
        "bounds": None if arguments.bounds is None else tuple(arguments.bounds),
    }
    _check_bounds(arguments, rows, snapshots.dtype, kept)
    return {**kept, "invariants": _invariants(arguments, rows, snapshots.dtype, kept["cell_weights"])}


def _invariants(arguments, rows, dtype, weights):
    """ "mass" or None, and prints which where `auto` decides."""
    from randsmap.invariants import Invariants, common_values

    if arguments.invariants == "none":
        return None
    mass, reason = common_values(rows, Invariants.of(rows.shape[1], cell_weights=weights), dtype)
    if mass is None and arguments.invariants == "mass":
        raise ValueError(
            f"{arguments.input}: {reason}. Is every row one field? On the command line --invariants none (or auto) "
            "switches the invariant off"
        )
    by = "" if weights is None else " by the cells' weights"
    text = (
        f"none, since not every snapshot has the same mass ({reason.partition('. ')[0]}). Is every row one field? "
        "--invariants mass makes this an error"
    )
    if mass is not None:
        text = f"the mass{by}, {mass[0]:.6g} in every snapshot, which decoded fields keep exactly"
    if arguments.invariants == "auto":
        _print(f"invariants: {text}")
    return None if mass is None else "mass"


def _check_bounds(arguments, rows, dtype, kept):
    """ValueError that names the file, or the option, where the snapshots are not within --bounds."""
    from randsmap.invariants import Invariants, fit_invariants

    if kept["bounds"] is None:
        return
    try:
        fit_invariants(rows, Invariants.of(rows.shape[1], invariants=None, **kept), dtype)
    except ValueError as error:
        what, of_fields, _ = str(error).partition("; bounds=None")
        where, remedy = (f"{arguments.input}: ", ", or leave --bounds out") if of_fields else ("--bounds: ", "")
        raise ValueError(f"{where}{what.removeprefix('bounds: ')}{remedy}") from None


def _searched(arguments, snapshots, groups, kept):
    """The model that held-out errors choose; prints what it is."""
    import randsmap
    from randsmap.tuning import search_summary
    from randsmap.tuning._summary import advised_components

    result = randsmap.autotune(
        snapshots,
        n_components="auto",
        max_components=arguments.components,
        alpha=arguments.alpha,
        groups=groups,
        n_trials=40 if arguments.trials is None else arguments.trials,
        families=arguments.decoder,
        **kept,
        random_state=arguments.seed,
    )
    encoder, *others = search_summary(result)
    limit = "by the snapshots' spectrum" if arguments.components is None else "by --components"
    d, most = result.best_model_.encoder_.n_components, max(result.results_.n_components)
    for line in (f"{encoder}; latent coordinates: {d}, at most {most} {limit}", *others):
        _print(line)
    more = advised_components(result)
    if more is not None:
        _print(
            f"with {more} coordinates it would be about {result.one_more_error_:.2g}, although the spectrum shows no "
            f"other: try --components {more}"
        )
    if result.on_edge_:
        _print(
            f"randsmap: warning: {', '.join(result.on_edge_)} at an edge of what was searched: a better value may lie "
            "beyond",
            sys.stderr,
        )
    return result.best_model_


def _one_model(arguments, sample, kept):
    """Diffusion maps and one decoder with random features, not fitted; prints the value that was tuned."""
    import randsmap
    from randsmap.encoders import estimate_n_components

    class_name, parameter = _FEATURES[arguments.features or "sigmoid"]
    features = getattr(randsmap, class_name)(1.0 if arguments.value is None else arguments.value)
    features.set_params(n_features=1.0 if arguments.n_features is None else arguments.n_features)
    regularization = 1e-3 if arguments.regularization is None else arguments.regularization
    decoder = randsmap.RANDSMAPDecoder(features, regularization=regularization, **kept, random_state=arguments.seed)
    d = arguments.components
    if d is None:
        d = estimate_n_components(sample) if len(sample) > 2 else 1
    model = randsmap.ManifoldModel(randsmap.DiffusionMaps(n_components=d, alpha=arguments.alpha), decoder)
    if arguments.value is None:
        model.set_params(**_tuned(arguments, model, parameter, sample))
    return model.set_params(encoder_samples=arguments.encoder_samples)


def _tuned(arguments, model, parameter, snapshots):
    """The best value of a parameter of the features on a fifth of the snapshots; prints it."""
    from sklearn.model_selection import train_test_split

    from randsmap._interface.fields import flattened
    from randsmap.tuning import default_values, tune

    if len(snapshots) < 10:
        raise ValueError(f"tuning needs at least 10 snapshots, got {len(snapshots)}; give --value")
    rows, _ = flattened(snapshots, "the snapshots")
    training, validation = train_test_split(rows, test_size=0.2, random_state=arguments.seed)
    grid = {f"decoder__features__{parameter}": default_values(parameter)}
    result = tune(model, grid, None, training, None, validation, progress=True)
    (value,) = result.best_params_.values()
    edge = " (an edge of the grid: a better value may lie beyond)" if any(result.on_edge_.values()) else ""
    _print(f"tuned {parameter} = {value:.4g}{edge}; validation relative L2 error {result.best_error_:.4g}")
    return result.best_params_


def _parametric(arguments, model, snapshots, parameters, groups, search, kept):
    """The fitted model of fields at parameters; prints its held-out error."""
    import randsmap
    from randsmap.tuning import choose_parametric

    models, share = [model], 0.99999  # of the variance, in the modes that are compared with few coordinates
    if search and arguments.components is None and arguments.decoder is None:
        models.append(randsmap.ManifoldModel(randsmap.POD(share, **kept)))
    result = choose_parametric(models, parameters, snapshots, groups=groups, random_state=arguments.seed)
    errors, why = result.held_out_errors_, ""
    if result.best_index_ > 0:
        why = (
            f" from {share:.3%} of the variance in POD modes, {errors[0]:.4g} from the coordinates above: the "
            "modes are taken, --components keeps few coordinates"
        )
    _print(f"held-out relative L2 error of fields at parameters {errors[result.best_index_]:.4g}{why}")
    repeated = [f"parameter {j} takes {count} values" for j, count in result.repeated_values_.items()]
    if groups is None and repeated:
        _print(
            f"{', '.join(repeated)}: snapshots left out had others at their values, and fields at new values may be "
            "far worse. --groups FILE with a label for each value of one of them leaves whole values out"
        )
    return result.best_model_


# -- encode, decode, predict, evaluate, report ---------------------------------------------------------------
def _encode(arguments):
    _check_array_target(arguments)  # fail before the work is done
    model = _load_model(arguments.model)
    snapshots = _read_fields(arguments, model)
    with show_progress():
        latents = model.transform(snapshots)
    _write_array(arguments, latents, "latents")


def _decode(arguments):
    _check_array_target(arguments)
    model = _load_model(arguments.model)
    latents = _read_latents(arguments, len(model.get_feature_names_out()))
    _write_fields(arguments, model.inverse_transform, latents, model.field_shape_)


def _predict(arguments):
    _check_array_target(arguments)
    model = _load_parametric(arguments.model)
    parameters = _read_parameters(arguments, model.n_features_in_)
    _write_fields(arguments, model.predict, parameters, model.field_shape_)


def _evaluate(arguments):
    from randsmap import metrics
    from randsmap.model import reconstruction_errors

    if arguments.out is not None:
        _refuse_own_input(arguments, "model", "input", "parameters")
        writable_target(arguments.out)
    model = (_load_model if arguments.parameters is None else _load_parametric)(arguments.model)
    fitted = getattr(model, "model_", model) if arguments.parameters is not None else model
    snapshots = _read_fields(arguments, fitted)
    parameters = _parameters_for(arguments, len(snapshots), getattr(model, "n_features_in_", None))
    with show_progress():
        errors = reconstruction_errors(model, snapshots, parameters=parameters)
    if arguments.out is not None:
        rows = zip(*(values.tolist() for values in errors.values()), strict=True)
        text = "\n".join([",".join(errors), *(",".join(map(repr, row)) for row in rows)]) + "\n"
        write_atomically(arguments.out, lambda file: file.write(text.encode()))
    _print(f"{'':20}{'mean':>12}{'median':>12}{'5 %':>12}{'95 %':>12}{'max':>12}")
    for name, values in errors.items():
        figures = [values.mean(), *np.percentile(values, [50, 5, 95]), values.max()]
        _print(f"{name:20}" + "".join(f"{figure:12.4g}" for figure in figures))
    kept = getattr(getattr(fitted, "decoder_", None), "invariants_", None)
    if kept is not None:
        sums, bounds = kept.in_words
        _print(
            f"the model keeps {' and '.join(filter(None, (sums, bounds and f'values {bounds}'))) or 'nothing exactly'}"
        )
    norms = metrics.field_norms(snapshots)
    small = int((norms < metrics.SMALLEST_SHARE * metrics.median_norm(norms)).sum())
    if small:
        _print(f"{small} field(s) are empty or below 1e-3 of the median norm: their errors are relative to that")


def _report(arguments):
    from randsmap.reports import write_model_report

    if arguments.out.suffix.lower() in (".npy", ".npz"):
        raise ValueError(f"--out is the page, such as report.html, not an array or a model: {arguments.out}")
    _refuse_own_input(arguments, "model", "input", "groups")
    writable_target(arguments.out)
    model = _load_model(arguments.model)
    snapshots = _read_fields(arguments, model)
    groups = _labels_of(arguments, len(snapshots))
    options = ("out", "key", "transpose", "groups", "groups_key", "shape")
    with show_progress():
        path = write_model_report(
            model,
            snapshots,
            arguments.out,
            groups=groups,
            shape=arguments.shape,
            title=f"{arguments.model.name} on {arguments.input.name}",
            command=_in_words(("report", arguments.model, arguments.input), arguments, options, transpose=False),
        )
    _print(f"report: {path}")


_MODEL = {"model MODEL": None}
_FIELDS_OF_MODEL = {**_MODEL, **_input("snapshots", "SNAPSHOTS", _FIELDS)}
_LATENTS = _input("latents", "LATENTS", "(n_samples, n_components), in a file as of snapshots")
_PARAMETERS = _input(
    "parameters", "PARAMETERS", "(n,) or (n, p), in .npy, text with one row per line, or a file as of snapshots"
)
_EVALUATE = {
    "--parameters FILE": "times or parameters of the snapshots: errors of the fields that a model of `fit "
    "--parameters` predicts",
    "--parameters-key NAME": _KEY,
    "--out ERRORS.csv": "also write the errors of every sample",
}
_REPORT = {
    "--out FILE": "such as report.html",
    "--groups FILE": "labels of trajectories or other groups, as of `randsmap fit`",
    "--groups-key NAME": _KEY,
    "--shape NY NX": "cells of a field in the plane (default: those of the model's fields, if they have a shape)",
}
# command -> (function, summary, description, options)
_OF_MODELS = {
    "encode": (
        _encode,
        "latent coordinates of snapshots",
        "Encode snapshots: write their latent coordinates.",
        {**_FIELDS_OF_MODEL, **_output("latents")},
    ),
    "decode": (
        _decode,
        "fields at latent coordinates",
        "Decode latent coordinates: write the fields at them.",
        {**_MODEL, **_LATENTS, **_output("fields")},
    ),
    "predict": (
        _predict,
        "fields at new parameters or times",
        "Fields at parameters or times, by a model of `randsmap fit --parameters`.",
        {**_MODEL, **_PARAMETERS, **_output("fields")},
    ),
    "evaluate": (
        _evaluate,
        "reconstruction errors of a model on snapshots",
        "Encode and decode the snapshots and print the errors over the samples.",
        {**_FIELDS_OF_MODEL, **_EVALUATE},
    ),
    "report": (
        _report,
        "a page of pictures and tables on a model and snapshots",
        "Write one HTML file on what a model makes of snapshots: embedding, errors, worst fields, mass, leverage (how "
        "far the snapshots are from those of the fit), and what was tuned. Needs the extra studies.",
        {**_FIELDS_OF_MODEL, **_REPORT},
    ),
}


def _add_commands_of_models(commands):
    for name, (run, text, description, options) in _OF_MODELS.items():
        out = {} if name == "evaluate" else {"out": _REQUIRED}
        _add_command(commands, name, run, text, description, options, **out)


# -- Models and arrays in files ------------------------------------------------------------------------------
def _load_model(path):
    """The model of fields and latents; that inside a model of parameters."""
    from randsmap import ManifoldModel, ParametricModel, load

    model = load(path)
    if isinstance(model, ParametricModel):
        model = model.model_
    if not isinstance(model, ManifoldModel):
        raise ValueError(f"{path} holds a {type(model).__name__}, not a model")
    return model


def _load_parametric(path):
    from randsmap import ParametricModel, load

    model = load(path)
    if not isinstance(model, ParametricModel):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, which knows no parameters: randsmap fit --parameters makes a "
            "ParametricModel"
        )
    return model


def _read_fields(arguments, model):
    """The input file as rows (n, M) for a fitted model."""
    from randsmap._interface.arrays import refuse_other_dimensions
    from randsmap._interface.fields import flattened
    from randsmap.snapshots import read_array, warn_of_columns

    path, M, shape = arguments.input, model.n_features_in_, model.field_shape_
    given = read_array(path, key=arguments.key, transpose=arguments.transpose, fields=True)
    if given.ndim < 2 or (given.ndim > 2 and len(shape) == 1):
        refuse_other_dimensions(given.shape, str(path))
    rows, _ = flattened(given, str(path))
    if rows.shape[1] != M or (given.ndim > 2 and given.shape[1:] != shape):
        cells = f"{M} cells (columns)" if len(shape) == 1 else f"the shape {shape}"
        raise _other_width(arguments, given, f"snapshots must have {cells}", M)
    if len(rows) == M:  # both ways fit
        warn_of_columns(given, path, arguments.transpose)
    return rows


def _read_latents(arguments, d):
    """The input file as latents (n, d)."""
    from randsmap._interface.arrays import refuse_other_dimensions
    from randsmap.snapshots import read_numbers

    latents = read_numbers(arguments.input, key=arguments.key, transpose=arguments.transpose)
    refuse_other_dimensions(latents.shape, str(arguments.input))
    if latents.shape[1] != d:
        raise _other_width(arguments, latents, f"latents must have {d} coordinates (columns)", d)
    return latents


def _read_parameters(arguments, p):
    """The input file as parameters (n, p)."""
    from randsmap.snapshots import read_columns

    parameters = read_columns(arguments.input, key=arguments.key, width=p, transpose=arguments.transpose)
    if parameters.shape[1] != p:
        raise _other_width(arguments, parameters, f"parameters must be {p} per row", p)
    return parameters


def _other_width(arguments, given, expectation, width):
    """ValueError for an array of another width than the model's, with a hint at what may be meant."""
    from randsmap.snapshots import HAVE_NAMES

    hint = ""
    if given.size == width * (len(given) if arguments.transpose else given.shape[-1]):
        hint = f". They do with{'out' if arguments.transpose else ''} --transpose"
    elif arguments.key is None and arguments.input.suffix.lower() in HAVE_NAMES:
        hint = ". If they are another array of the file, --key names it"
    return ValueError(f"{arguments.input}: the {expectation}, as those of the model, got shape {given.shape}{hint}")


def _parameters_for(arguments, n, width=None):
    """Parameters (n, p) of --parameters, or None; where the snapshots are columns, theirs may be, too."""
    from randsmap.snapshots import read_columns

    path = arguments.parameters
    if path is None:
        return None
    parameters = read_columns(path, key=arguments.parameters_key, width=width)
    if len(parameters) == n:
        return parameters
    columns = parameters.shape[1] == n
    if columns and arguments.transpose:
        return parameters.T.copy()
    raise ValueError(
        f"{path} must hold one row for each of the {n} snapshots, got {len(parameters)}"
        + (f" rows of {n} numbers, one column for each: give it transposed" if columns else "")
    )


def _labels_of(arguments, n):
    """Labels (n,) of --groups, or None."""
    from randsmap.snapshots import read_labels

    path = arguments.groups
    if path is None:
        return None
    labels = read_labels(path, key=arguments.groups_key)
    labels = labels.reshape(-1) if max(labels.shape, default=0) == labels.size == n else labels  # rows of MATLAB
    if labels.shape != (n,):
        raise ValueError(
            f"{path} must hold one label for each of the {n} snapshots, got "
            + (f"{len(labels)} labels" if labels.ndim == 1 else f"an array of shape {labels.shape}")
        )
    if len(np.unique(labels)) < 2:
        raise ValueError(f"{path} must name at least two groups, one of which can be left out, got {labels[0]} alone")
    return labels


def _weights_of(arguments, shape):
    """Weights (M,) of --cell-weights for the cells of fields of this shape, or None."""
    from randsmap.invariants import check_cell_weights
    from randsmap.snapshots import read_numbers

    path = arguments.cell_weights
    if path is None:
        return None
    weights = read_numbers(path, key=arguments.cell_weights_key)
    if weights.size != math.prod(shape) or (weights.shape != shape and max(weights.shape) != weights.size):
        raise ValueError(
            f"{path} must hold one weight for each of {' x '.join(map(str, shape))} cells, got shape {weights.shape}"
        )
    return check_cell_weights(weights.reshape(-1), weights.size, str(path))


def _check_array_target(arguments):
    """Raise where --out is a file that the command reads, or cannot be written in the format of its ending."""
    from randsmap.snapshots import check_target

    _refuse_own_input(arguments, "model", "input")
    check_target(arguments.out)


def _refuse_own_input(arguments, *names):
    """ValueError where --out is one of these arguments, which would be lost."""
    for path in filter(None, (getattr(arguments, name) for name in names)):
        with contextlib.suppress(OSError):  # of a path that does not exist, or whose error comes when it is read
            if os.path.samefile(path, arguments.out):
                raise ValueError(f"--out {arguments.out} would replace {path}, which is read: give another name")


def _write_array(arguments, array, name):
    from randsmap.snapshots import write_array

    write_array(arguments.out, array, name, transpose=arguments.transpose_out)
    columns = ", as columns" if arguments.transpose_out else ""
    _print(f"written: {arguments.out} {array.shape}{columns}")


def _write_fields(arguments, decode, X, shape):
    """decode(X), fields of that shape; large ones of a .npy file are computed in the file."""
    from randsmap._linalg import rows
    from randsmap.snapshots import check_target, is_npy_target

    shape, path = (len(X), *shape), arguments.out
    check_target(path, math.prod(shape))
    if 8 * math.prod(shape) < rows.LARGE or not is_npy_target(path) or arguments.transpose_out:
        _write_array(arguments, decode(X, out=np.empty(shape)), "fields")
        return
    with show_progress():
        rows.write_npy(path, shape, lambda fields: decode(X, out=fields))
    _print(f"written: {path} {shape}")


if __name__ == "__main__":
    sys.exit(main())
