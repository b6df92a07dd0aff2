"""The `randsmap` command."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from randsmap._io.files import expanded, is_stream, save_arrays, writable_target, write_atomically

__all__ = ["main"]

# feature map -> (class name, tuned parameter)
_FEATURES = {
    "sigmoid": ("SigmoidFeatures", "slope"),
    "fourier": ("FourierFeatures", "length_scale"),
    "multiscale": ("MultiscaleFourierFeatures", "max_frequency"),
}


# name on the command line -> (function of randsmap.datasets, what it is)
_DATASETS = {
    "swiss-roll": ("make_swiss_roll", "Swiss roll, 3 coordinates"),
    "s-curve": ("make_s_curve", "S-curve in 20 dimensions"),
    "lwr": ("make_lwr", "LWR traffic, 400 cells"),
    "rotated-images": ("make_rotated_images", "rotations of one image, 128 x 128 cells"),
    "hughes": ("make_hughes", "Hughes crowd in a corridor with an obstacle, 200 x 50 cells"),
}

_SNAPSHOTS = "your own snapshots instead, one field a row, in a file as for `randsmap fit`"
# name -> (what it is, what --data is)
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


# bytes (as float64) of snapshots that the model of a command may hold
_LARGEST_TRAINING_SET = 1 << 30
_MOST_SEARCHED = 5000  # snapshots among which a model is searched for: kernel decoders hold a matrix of all pairs
_WORTH_ONE_MORE = 0.7  # of the held-out error: one more coordinate is advised where it is less than that
_VARIANCE = 0.99999  # of the fields, in the modes that a model of parameters may have in place of few coordinates
_CLEARLY_BETTER = 0.9  # times the error with few coordinates
_FOLDS = 5  # of the snapshots whose fields a model of parameters has to predict
_SHARED = 3  # snapshots at each value of a parameter, from which on leaving out single ones tells little of new values
# files of arrays with names, whose labels of groups are no lines of text
_WITH_KEYS = (".npz", ".mat", ".h5", ".hdf5", ".nc", ".nc4", ".zarr")
# options that name one decoder with random features, in place of a search
_ONE_DECODER = ("features", "value", "n_features", "regularization")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (0; 1 a failure that is told; 130 Ctrl-C).

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process if not given.
    """
    try:
        arguments = _parser().parse_args(argv)
    finally:
        _say("", end="")  # what argparse has printed
    # what is said must not go where the output goes
    to_stdout = _is_stdout(getattr(arguments, "out", None))
    elsewhere = contextlib.redirect_stdout(sys.stderr) if to_stdout else contextlib.nullcontext()
    with _stopped_by_sigterm(), _warnings_in_a_line(), elsewhere:
        try:
            arguments.command(arguments)
        except KeyboardInterrupt:
            _say("randsmap: interrupted", sys.stderr)
            return 130
        except (ImportError, OSError, MemoryError, TypeError, ValueError) as error:
            what = "out of memory: " if isinstance(error, MemoryError) else ""
            _say(f"randsmap: error: {what}{error}", sys.stderr)
            return 1
    return 0


@contextlib.contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Warnings are told as errors are, without the line of source that gives them."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"randsmap: warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


@contextlib.contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """A batch system's way to say stop ends the block as an exception: no temporary file is left."""
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


def _say(text, stream=None, end="\n"):
    """Print, whatever the stream can encode, and whether or not someone still reads it."""
    stream = sys.stdout if stream is None else stream
    if stream is None:  # of a process without a console
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), end=end, file=stream, flush=True)
    except BrokenPipeError:  # `| head`: the work goes on, what is printed goes nowhere
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _parser():
    parser = argparse.ArgumentParser(
        prog="randsmap",
        description="Decode latent coordinates back to physical fields without losing mass.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    _add_study(commands)
    _add_config(commands)

    dataset = commands.add_parser(
        "dataset",
        help="make a data set of the paper",
        description="Make a data set of the paper. FILE.npy holds the fields, one a row, and is "
        "written as they are computed; FILE.npz also holds times, parameters and intrinsic coordinates.",
    )
    names = dataset.add_subparsers(required=True, metavar="NAME")
    for name, (maker, text) in _DATASETS.items():
        command = names.add_parser(name, help=text)
        command.add_argument(
            "--out",
            type=expanded,
            required=True,
            metavar="FILE",
            help=".npy (fields) or .npz (fields and all that belongs to them)",
        )
        command.add_argument("--seed", type=int, default=0, metavar="S", help="seed (default 0)")
        command.add_argument(
            "--picture", type=expanded, metavar="FILE.png", help="also draw the data (needs matplotlib)"
        )
        if name in ("lwr", "hughes"):
            command.add_argument("--trajectories", type=int, dest="n_trajectories", metavar="N")
            command.add_argument(
                "--snapshots",
                type=int,
                dest="snapshots_per_trajectory",
                metavar="N",
                help="snapshots of each trajectory",
            )
        else:
            command.add_argument("--samples", type=int, dest="n_samples", metavar="N")
        if name == "rotated-images":
            command.add_argument(
                "--image",
                type=expanded,
                metavar="FILE",
                help="your own image: .npy, .mat (variable D, slice 4) or a picture",
            )
        command.set_defaults(command=_dataset, maker=maker, name=name)

    fit = commands.add_parser(
        "fit",
        help="fit a model to your own snapshots",
        description="Search, by errors on snapshots left out, for an encoder (diffusion maps of several widths, POD; "
        "with as few latent coordinates as do) and a decoder, and fit them to the snapshots. With --features, --value, "
        "--n-features or --regularization there is no search: diffusion maps and a decoder with random features are "
        "fitted, whose one hyperparameter is tuned on a fifth of the snapshots unless --value gives it. "
        "MODEL is an .npz file without pickles, the one that randsmap.load reads.",
    )
    fit.add_argument("snapshots", type=expanded, metavar="SNAPSHOTS", help=_FIELDS)
    _add_reading(fit, "snapshots")
    fit.add_argument(
        "--out", type=expanded, required=True, metavar="MODEL", help="model file to write, such as model.npz"
    )
    fit.add_argument(
        "--components",
        type=int,
        metavar="D",
        help="latent coordinates: at most so many (with --features etc. just so many); by default the number of "
        "eigenvectors of diffusion maps that are new directions",
    )
    fit.add_argument(
        "--decoder",
        type=_labels,
        metavar="FAMILY[,FAMILY]",
        help="search these families of decoders only, such as sigmoid, fourier, gaussian, matern, thin-plate, k-nn "
        "(another name lists all)",
    )
    fit.add_argument("--trials", type=int, metavar="N", help="trials of the search for a decoder (default 40)")
    fit.add_argument(
        "--groups",
        type=expanded,
        metavar="FILE",
        help="labels, one a snapshot, of trajectories or other groups, which are left out as a whole: .npy, text with "
        "one a line, or numbers in a file as of the snapshots",
    )
    _add_key(fit, "--groups-key")
    fit.add_argument(
        "--parameters",
        type=expanded,
        metavar="FILE",
        help="times or parameters of the snapshots, (n_samples,) or (n_samples, p), with --transpose also "
        "(p, n_samples), in .npy, text, or a file as of the snapshots: the model then predicts fields at new ones "
        "(randsmap predict). In place of few coordinates it has many POD modes where these clearly predict better, "
        "unless --components or --decoder is given",
    )
    _add_key(fit, "--parameters-key")
    fit.add_argument(
        "--alpha", type=float, default=1.0, help="density normalisation of the diffusion maps, 0 to 1 (default 1)"
    )
    fit.add_argument(
        "--features", choices=tuple(_FEATURES), help="feature map of the one decoder fitted (default sigmoid)"
    )
    fit.add_argument(
        "--value",
        type=float,
        metavar="V",
        help="slope (sigmoid), length scale (fourier) or maximal frequency (multiscale); tuned if not given",
    )
    fit.add_argument(
        "--n-features",
        type=_count_or_fraction,
        metavar="P",
        help="a count (500) or a multiple of the number of samples (0.25); default 1.0",
    )
    fit.add_argument("--regularization", type=float, metavar="LAMBDA", help="ridge parameter (default 1e-3)")
    fit.add_argument(
        "--encoder-samples",
        type=int,
        metavar="N",
        help="search for the model among N of the snapshots, chosen at random (default: all, 5000 at most), or, with "
        "--features etc., fit the encoder to them; for files larger than memory, with --n-features as a count",
    )
    fit.add_argument(
        "--invariants",
        choices=("auto", "mass", "none"),
        default="auto",
        help="what every decoded field keeps exactly: the mass (sum of the cells), nothing, or (auto, the "
        "default) the mass where it is the same in all snapshots",
    )
    fit.add_argument(
        "--cell-weights",
        type=expanded,
        metavar="FILE",
        help="volumes of the cells of a grid that is not uniform, one positive number a cell, flattened or in the "
        "shape of a field, in a file as of the snapshots: the mass is the sum of the cells by these",
    )
    _add_key(fit, "--cell-weights-key")
    # argparse takes -1e-3 and -inf for options
    fit._negative_number_matcher = re.compile(r"-(\.?\d|inf)")
    fit.add_argument(
        "--bounds",
        type=_bound,
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="every decoded value lies between these, numbers or none: --bounds 0 none for values not below 0",
    )
    fit.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the draws (default 0)")
    fit.set_defaults(command=_fit)

    for name, run, inputs, output, text in (
        ("encode", _encode, "snapshots", "LATENTS", "latent coordinates of snapshots"),
        ("decode", _decode, "latents", "FIELDS", "fields at latent coordinates"),
    ):
        command = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        command.add_argument("model", type=expanded, metavar="MODEL")
        help_of_input = _FIELDS if name == "encode" else "(n_samples, n_components), in a file as of snapshots"
        command.add_argument("input", type=expanded, metavar=inputs.upper(), help=help_of_input)
        _add_reading(command, inputs)
        _add_writing(command, output)
        command.set_defaults(command=run)

    predict = commands.add_parser(
        "predict",
        help="fields at new parameters or times",
        description="Fields at parameters or times, by a model of `randsmap fit --parameters`.",
    )
    predict.add_argument("model", type=expanded, metavar="MODEL")
    predict.add_argument(
        "input",
        type=expanded,
        metavar="PARAMETERS",
        help="(n,) or (n, p), in .npy, text with one row a line, or a file as of snapshots",
    )
    _add_key(predict, "--key")
    predict.add_argument("--transpose", action="store_true", help="(p, n): the parameters are columns, not rows")
    _add_writing(predict, "FIELDS")
    predict.set_defaults(command=_predict)

    evaluate = commands.add_parser(
        "evaluate",
        help="reconstruction errors of a model on snapshots",
        description="Encode and decode the snapshots and print the errors over the samples.",
    )
    evaluate.add_argument("model", type=expanded, metavar="MODEL")
    evaluate.add_argument("input", type=expanded, metavar="SNAPSHOTS", help=_FIELDS)
    _add_reading(evaluate, "snapshots")
    evaluate.add_argument(
        "--parameters",
        type=expanded,
        metavar="FILE",
        help="times or parameters of the snapshots: errors of the fields that a model of `fit --parameters` predicts",
    )
    _add_key(evaluate, "--parameters-key")
    evaluate.add_argument("--out", type=expanded, metavar="ERRORS.csv", help="also write the errors of every sample")
    evaluate.set_defaults(command=_evaluate)
    _add_report(commands)
    return parser


def _add_report(commands):
    report = commands.add_parser(
        "report",
        help="a page of pictures and tables on a model and snapshots",
        description="Write one HTML file on what a model makes of snapshots: embedding, errors, worst fields, mass, "
        "leverage (how far the snapshots are from those of the fit), and what was tuned. Needs the extra studies.",
    )
    report.add_argument("model", type=expanded, metavar="MODEL")
    report.add_argument("input", type=expanded, metavar="SNAPSHOTS", help=_FIELDS)
    _add_reading(report, "snapshots")
    report.add_argument("--out", type=expanded, required=True, metavar="FILE", help="such as report.html")
    report.add_argument(
        "--groups", type=expanded, metavar="FILE", help="labels of trajectories or other groups, as of `randsmap fit`"
    )
    _add_key(report, "--groups-key")
    report.add_argument(
        "--shape",
        type=int,
        nargs=2,
        metavar=("NY", "NX"),
        help="cells of a field in the plane (default: those of the model's fields, if they have a shape)",
    )
    report.set_defaults(command=_report)


_FIELDS = (
    "fields, (n_samples, n_cells) or of any shape (n_samples, ny, nx), in .npy, .npz, .mat, .csv, .txt, .h5, .nc or "
    ".zarr"
)


def _add_reading(command, what):
    """How the input of a command is to be read."""
    command.add_argument("--key", metavar="NAME", help=f"array of the {what}, in a file that has several")
    command.add_argument(
        "--transpose", action="store_true", help=f"the last axis counts the {what}: they are columns, not rows"
    )


def _add_key(command, option):
    """Which array of the file that stands before it."""
    command.add_argument(option, metavar="NAME", help="array of that file, where it has several")


def _add_writing(command, output):
    """Where the output of a command goes."""
    command.add_argument(
        "--out",
        type=expanded,
        required=True,
        metavar=output,
        help=f"file to write: .npy, .npz, .mat, .h5 (array or variable {output.lower()}), or .csv, .txt (a row each)",
    )
    command.add_argument(
        "--transpose-out",
        action="store_true",
        help=f"write the {output.lower()} as columns, as MATLAB users have them: the last axis counts them",
    )


def _add_config(commands):
    config = commands.add_parser(
        "config",
        help="what a compiler needs to decode in C, C++ or Fortran",
        description="Print flags for a compiler and a linker, to use frozen decoders by randsmap.h: "
        "cc $(randsmap config --cflags) loop.c $(randsmap config --libs).",
    )
    config.add_argument("--cflags", action="store_true", help="flags for the compiler: where randsmap.h is")
    config.add_argument("--libs", action="store_true", help="the library, and flags for the linker")
    config.add_argument(
        "--amalgamation",
        type=expanded,
        metavar="DIR",
        help="copy randsmap.h and the library as one C99 file, randsmap.c, to this folder: for hosts without Python",
    )
    config.set_defaults(command=_config)


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
    if not flags:
        return
    _say(" ".join(map(shlex.quote, flags)))


def _add_study(commands):
    study = commands.add_parser("study", help="run one of the paper's studies, or all")
    studies = study.add_subparsers(required=True, metavar="STUDY", dest="study")
    for name, (text, data) in {**_STUDIES, "all": ("all five studies", None)}.items():
        command = studies.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}. Make the data, split, encode; tune every decoder "
            "on the validation set, fit, test; print tables of errors beside the paper's and write "
            "them with the figures and a report. An interrupted study goes on when the same command "
            "is given again.",
        )
        command.add_argument(
            "--quick",
            action="store_true",
            help="3 grid values, P = N/4 only, 2 runs, for hughes less data: the table says what was left out",
        )
        command.add_argument(
            "--runs",
            type=int,
            metavar="R",
            help="draws of the features to take medians over (default: 100; 2 with --quick)",
        )
        command.add_argument("--decoders", type=_labels, metavar="LABEL[,LABEL]", help="only these rows of the table")
        command.add_argument(
            "--seed", type=int, default=0, metavar="S", help="seed of data, split and draws (default 0)"
        )
        command.add_argument(
            "--feature-seed", type=int, metavar="S", help="seed of the draws of features in the runs instead of --seed"
        )
        command.add_argument(
            "--training-form",
            action=argparse.BooleanOptionalAction,
            help="with the paper's closed form, which conserves mass at training "
            "points (one SVD a run; default: yes, for hughes no)",
        )
        command.add_argument(
            "--auto",
            action=argparse.BooleanOptionalAction,
            help="with decoders and encoders that are searched for by held-out errors (default: yes, with --quick no)",
        )
        command.add_argument(
            "--out",
            type=expanded,
            metavar="DIR",
            help=f"folder for tables, report and finished pieces (default: "
            f"randsmap-study/{'' if name == 'all' else name}, with --quick "
            f"randsmap-study-quick/{'' if name == 'all' else name})",
        )
        if data is not None:
            command.add_argument("--data", type=expanded, metavar="FILE", help=data)
        if name != "all":
            command.add_argument(
                "--split",
                choices=("random", "trajectory"),
                default="random",
                help="random (default): single snapshots, the paper's; trajectory: "
                "whole trajectories go to training, validation or test set (lwr, hughes)",
            )
        else:
            command.set_defaults(data=None, split="random")
        if name in ("hughes", "all"):
            command.add_argument(
                "--normalization",
                choices=("before", "after"),
                default="before",
                help="hughes: scale the density to integral 1 before it is integrated "
                "(default), or only its snapshots after",
            )
        command.set_defaults(command=_study)


def _bound(text):
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number or none, got {text!r}") from None


def _labels(text):
    return [label for label in text.split(",") if label]


class _Version(argparse.Action):
    def __call__(self, parser, *_):
        from randsmap import __version__

        _say(f"randsmap {__version__}")
        parser.exit()


def _count_or_fraction(text):
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    raise argparse.ArgumentTypeError(f"a count (500) or a multiple of the samples (0.25), got {text!r}")


def _study(arguments):
    results = []
    base = arguments.out or Path("randsmap-study-quick" if arguments.quick else "randsmap-study")
    single = arguments.study != "all"
    names = [arguments.study] if single else list(_STUDIES)
    studies = [(name, *_decoders_of(_make_study(name, arguments), arguments, single)) for name in names]
    studies = [(name, study, decoders) for name, study, decoders in studies if decoders != []]
    if not studies:
        raise ValueError(f"no study has a decoder {', '.join(arguments.decoders)}")
    for name, study, decoders in studies:
        out = base if single and arguments.out is not None else base / _folder_name(name, arguments)
        command = _command_line(name, decoders, arguments)
        results.append(_run_study(study, out, decoders, command, arguments))
    if not single:
        _tell_report(lambda studies: studies.write_index(results, base))


def _command_line(name, decoders, arguments):
    """The command that makes a study again; defaults are left out, but for the seed."""
    import shlex

    options = [("runs", None), ("seed", None), ("feature_seed", None), ("split", "random"), ("data", None)]
    if name == "hughes":
        options.append(("normalization", "before"))
    words = ["randsmap", "study", name, *(["--quick"] if arguments.quick else [])]
    for option, default in options:
        if getattr(arguments, option) != default:
            words += [f"--{option.replace('_', '-')}", str(getattr(arguments, option))]
    for option in ("training_form", "auto"):
        if getattr(arguments, option) is not None:
            words.append(f"--{'' if getattr(arguments, option) else 'no-'}{option.replace('_', '-')}")
    if decoders is not None:
        words += ["--decoders", ",".join(decoders)]
    return shlex.join(words)


def _make_study(name, arguments):
    from randsmap import studies

    options = {}
    if name == "mri" and arguments.data is not None:
        options["image"] = arguments.data
    if name == "hughes":
        options["normalization"] = arguments.normalization
    return getattr(studies, f"{name.replace('-', '_')}_study")(**options)


def _decoders_of(study, arguments, single):
    """The study and the labels asked for; of `all` those that the study has."""
    if arguments.decoders is None or single:
        return study, arguments.decoders
    return study, [case.label for case in study.cases if case.label in arguments.decoders]


def _folder_name(name, arguments):
    return name if arguments.data is None else f"{name}-{arguments.data.stem}"


def _run_study(study, out, decoders, command, arguments):
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
        command=command,
    )
    write_csv(result.rows, out / "table.csv")
    write_markdown(result, out / "table.md")
    for text in (f"{result.title}, {result.section}", *result.cuts):
        _say(textwrap.fill(text, terminal_width()))
    _say(f"\n{format_table(result.rows)}")
    _say(f"written: {out / 'table.csv'}, {out / 'table.md'}")
    _tell_report(lambda studies: studies.write_report(result, out))
    return result


def _tell_report(write):
    """Write a report and say where; without matplotlib say that there is none."""
    try:
        from randsmap import studies

        _say(f"report: {write(studies)}")
    except ImportError as error:
        _say(f"no report: {error}")


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
        import numpy as np

        arrays = {key: value for key, value in bunch.items() if isinstance(value, np.ndarray)}
        write_atomically(out, lambda file: save_arrays(file, arrays))
    _say(f"written: {out} {bunch.data.shape}")
    if arguments.picture is not None:
        figure = _picture(arguments.name, bunch)
        write_atomically(arguments.picture, lambda file: figure.savefig(file, format="png", dpi=150))
        _say(f"written: {arguments.picture}")


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


def _fit(arguments):
    import numpy as np

    import randsmap
    from randsmap._interface.fields import flattened
    from randsmap._interface.validation import check_matrix
    from randsmap._io.progress import show_progress
    from randsmap._linalg.rows import Snapshots, is_large
    from randsmap.snapshots import read_snapshots

    search = all(getattr(arguments, name) is None for name in _ONE_DECODER)
    _check_options(arguments, search)
    snapshots = read_snapshots(arguments.snapshots, key=arguments.key, transpose=arguments.transpose)
    rows, layout = flattened(snapshots, str(arguments.snapshots))
    large = is_large(rows)
    # their own number type goes to the decoder: its tolerance for the invariants depends on it
    if large:
        numbers = Snapshots(rows, str(arguments.snapshots))
        _check_large(arguments, rows, search)
    else:
        numbers = check_matrix(rows, str(arguments.snapshots), min_rows=4 if search else 2)
    writable_target(arguments.out)
    _refuse_own_input(arguments, "snapshots", "groups", "parameters", "cell_weights")
    if arguments.out.suffix.lower() == ".npy":
        raise ValueError(f"--out is the model file, not an array: {arguments.out}")
    groups = _labels_of(arguments, len(snapshots))
    parameters = None if arguments.parameters is None else _parameters_for(arguments, len(snapshots))
    kept = {"cell_weights": None, "bounds": None if arguments.bounds is None else tuple(arguments.bounds)}
    if arguments.cell_weights is not None:
        kept["cell_weights"] = _weights_of(arguments, snapshots.shape[1:])
    with show_progress():  # of the whole file, before any work; fit would name a row of the part it is given
        kept["invariants"] = _found_invariants(arguments, numbers, snapshots.dtype, **kept)
    count = arguments.encoder_samples
    if count is None and search and len(snapshots) > _MOST_SEARCHED:
        count = _MOST_SEARCHED
        _say(f"searching among {count} of the {len(snapshots)} snapshots (--encoder-samples for another number)")
    chosen, sample = slice(None), snapshots
    if count is not None and count < len(snapshots):
        rng = np.random.default_rng(arguments.seed)
        chosen = np.sort(rng.choice(len(snapshots), max(2, count), replace=False))
        part = numbers[chosen].astype(rows.dtype) if large else rows[chosen]
        sample = layout.restored(part)
    with show_progress():
        if search:
            model = _searched(arguments, sample, None if groups is None else groups[chosen], kept)
            fields = sample
        else:
            model, fields = _one_model(arguments, sample, kept), snapshots
        if parameters is not None:
            X = parameters[chosen] if search else parameters
            modes = None
            if search and arguments.components is None and arguments.decoder is None:
                modes = randsmap.ManifoldModel(randsmap.POD(_VARIANCE, **kept))
            model = _parametric(model, X, fields, groups[chosen] if groups is not None else None, arguments, modes)
        elif not search:
            model.fit(snapshots)
        model.save(arguments.out)
        (errors,) = _errors(model, rows, "l2", parameters=parameters)
    fitted = getattr(model, "model_", model)
    d = fitted._n_features_out
    features = "" if search else f", {len(fitted.decoder_.coef_) - 1} features"
    _say(
        f"{len(snapshots)} snapshots of {' x '.join(map(str, snapshots.shape[1:]))} cells -> {d} latent "
        f"coordinate{'' if d == 1 else 's'}{features}; mean relative L2 error on the snapshots {np.mean(errors):.4g}"
    )
    _say(f"written: {arguments.out}")


def _check_options(arguments, search):
    """Options of the search do not go with those of one decoder."""
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


def _searched(arguments, snapshots, groups, kept):
    """The model that held-out errors choose; says what it is."""
    import randsmap

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
    encoder, table = result.best_model_.encoder_, result.decoder_results_
    most = max(result.results_.n_components)
    limit = "by the snapshots' spectrum" if arguments.components is None else "by --components"
    _say(f"encoder: {_encoder_text(encoder)}; latent coordinates: {encoder._n_features_out}, at most {most} {limit}")
    decoders = [_trial_text(table, i) for i in table.chosen.nonzero()[0]]
    _say(f"decoder: {decoders[0] if len(decoders) == 1 else f'the median of {len(decoders)}:'}")
    for text in decoders if len(decoders) > 1 else ():
        _say(f"  {text}")
    _say(f"held-out relative L2 error {result.held_out_error_:.4g}")
    if result.one_more_error_ < _WORTH_ONE_MORE * result.held_out_error_:
        d = encoder._n_features_out + 1
        _say(
            f"with {d} coordinates it would be about {result.one_more_error_:.2g}, although the spectrum shows no "
            f"other: try --components {d}"
        )
    if result.on_edge_:
        _say(
            f"randsmap: warning: {', '.join(result.on_edge_)} at an edge of what was searched: a better value may lie "
            "beyond",
            sys.stderr,
        )
    return result.best_model_


def _encoder_text(encoder):
    d = encoder._n_features_out
    if not hasattr(encoder, "selected_"):
        return f"{type(encoder).__name__}, {d} mode{'' if d == 1 else 's'}"
    modes = ", ".join(map(str, encoder.selected_))
    width = f"epsilon {encoder.epsilon_:.4g} ({encoder.epsilon_scale:.3g} of the median distance)"
    return f"diffusion maps, {width}, eigenvector{'' if d == 1 else 's'} {modes}"


def _trial_text(table, i):
    """A trial of the search for decoders in words."""
    import numpy as np

    lengths = [table[name][i] for name in table if name.startswith("length_scale_")]
    details = [f"nu {table.nu[i]:g}"] if np.isfinite(table.nu[i]) else []
    details.append(f"length scale{'' if len(lengths) == 1 else 's'} " + ", ".join(f"{x:.3g}" for x in lengths))
    if np.isfinite(table.regularization[i]):
        details.append(f"regularization {table.regularization[i]:.2g}")
    if table.n_neighbors[i]:
        details.append(f"{table.n_neighbors[i]} neighbour{'' if table.n_neighbors[i] == 1 else 's'}")
    return f"{table.family[i]} ({'; '.join(details)})"


def _one_model(arguments, sample, kept):
    """Diffusion maps and one decoder with random features, not fitted yet; says what was tuned."""
    import randsmap
    from randsmap.encoders import estimate_n_components

    class_name, parameter = _FEATURES[arguments.features or "sigmoid"]
    n_features = 1.0 if arguments.n_features is None else arguments.n_features
    features = getattr(randsmap, class_name)(n_features=n_features)
    regularization = 1e-3 if arguments.regularization is None else arguments.regularization
    decoder = randsmap.RANDSMAPDecoder(features, regularization=regularization, **kept, random_state=arguments.seed)
    d = arguments.components
    if d is None:
        d = estimate_n_components(sample) if len(sample) > 2 else 1
    encoder = randsmap.DiffusionMaps(n_components=d, alpha=arguments.alpha)
    value = arguments.value
    if value is None:
        value = _tuned_value(encoder, decoder, parameter, sample, arguments.seed)
    decoder.set_params(**{f"features__{parameter}": value})
    return randsmap.ManifoldModel(encoder, decoder, encoder_samples=arguments.encoder_samples)


def _parametric(model, parameters, snapshots, groups, arguments, modes=None):
    """The model of fields at parameters; says how well it predicts snapshots left out of its fit.

    modes: another model, which is taken if it predicts them clearly better.
    """
    import numpy as np

    import randsmap

    parametric = randsmap.ParametricModel(model)
    error = _error_at_parameters(parametric, parameters, snapshots, groups, arguments.seed)
    told = ""
    if modes is not None:
        other = randsmap.ParametricModel(modes)
        error_of_modes = _error_at_parameters(other, parameters, snapshots, groups, arguments.seed)
        if error_of_modes < _CLEARLY_BETTER * error:
            told = (
                f" from {modes.encoder.n_components:.3%} of the variance in POD modes, {error:.4g} from the "
                "coordinates above: the modes are taken, --components keeps few coordinates"
            )
            parametric, error = other, error_of_modes
    _say(f"held-out relative L2 error of fields at parameters {error:.4g}{told}")
    counts = [len(np.unique(column)) for column in parameters.T]
    most = len(parameters) / _SHARED
    shared = [f"parameter {j} takes {c} values" for j, c in enumerate(counts) if 1 < c <= most]
    if groups is None and len(counts) > 1 and shared:
        _say(
            f"{', '.join(shared)}: snapshots left out had others at their values, and fields at new values may be far "
            "worse. --groups FILE with a label for each value of one of them leaves whole values out"
        )
    return parametric.fit(parameters, snapshots, groups=groups)


def _error_at_parameters(parametric, parameters, snapshots, groups, seed):
    """Mean relative L2 error of the fields that are left out, in folds, of the fit of a model of parameters."""
    import numpy as np
    from sklearn.base import clone
    from sklearn.model_selection import GroupKFold, KFold

    from randsmap import metrics
    from randsmap._io.progress import steps
    from randsmap.maps.extrapolation import extrapolation_ignored

    if groups is None:
        folds = KFold(min(_FOLDS, len(parameters)), shuffle=True, random_state=seed)
    else:
        folds = GroupKFold(min(_FOLDS, len(np.unique(groups))))
    reference = metrics.median_norm(metrics.field_norms(snapshots))
    errors = np.empty(len(parameters))
    splits = folds.split(parameters, groups=groups)
    for _, (train, test) in zip(steps(folds.get_n_splits(), 1, "held-out errors"), splits):
        with warnings.catch_warnings(), extrapolation_ignored():
            warnings.simplefilter("ignore", UserWarning)  # the last fit gives them again
            known = None if groups is None or len(np.unique(groups[train])) < 2 else groups[train]
            fitted = clone(parametric).fit(parameters[train], snapshots[train], groups=known)
            predicted = fitted.predict(parameters[test])
        errors[test] = metrics.scaled_l2(snapshots[test], predicted, reference=reference)
    return errors.mean()


def _labels_of(arguments, n):
    """Labels of --groups, (n,), from an array of a file as of the snapshots or the lines of a text file; or None."""
    import numpy as np

    from randsmap._linalg.rows import load_npy
    from randsmap.snapshots import read_array

    path, key = arguments.groups, arguments.groups_key
    if path is None:
        return None
    if key is not None or path.suffix.lower() in _WITH_KEYS:
        labels = np.asarray(read_array(path, key=key))
        labels = labels.reshape(-1) if labels.size == n else labels  # MATLAB's vectors are rows or columns
    elif _is_npy(path):
        labels = load_npy(path)
    else:
        labels = np.array(_lines(path))
    if labels.shape != (n,):
        raise ValueError(
            f"{path} must hold one label for each of the {n} snapshots, got "
            + (f"{len(labels)} labels" if labels.ndim == 1 else f"an array of shape {labels.shape}")
        )
    if len(np.unique(labels)) < 2:
        raise ValueError(f"{path} must name at least two groups, one of which can be left out, got {labels[0]} alone")
    return labels


def _parameters_of(path, key=None, width=None):
    """Parameters (n, p) from text with one row a line, or from a file of an array; p is `width`, if that is known."""
    import numpy as np

    from randsmap._interface.validation import check_matrix
    from randsmap.snapshots import read_array

    if path.suffix.lower() not in ("", ".txt") or _is_npy(path):
        values = np.asarray(read_array(path, key=key))
        if values.ndim == 2 and len(values) == 1 and values.shape[1] != width:  # a vector, as MATLAB has it
            values = values[0]
    else:
        try:
            rows = [[float(word) for word in line.replace(",", " ").split()] for line in _lines(path)]
            values = np.array(rows, dtype=float)
        except ValueError:
            raise ValueError(f"{path} is neither a .npy file nor text with one row of numbers a line") from None
    return check_matrix(values[:, None] if values.ndim == 1 else values, str(path), min_rows=0)


def _weights_of(arguments, shape):
    """Weights (M,) of the cells of fields of this shape, from a file of an array."""
    import numpy as np

    from randsmap.invariants._bounds import check_cell_weights
    from randsmap.snapshots import read_array

    path = arguments.cell_weights
    weights = np.asarray(read_array(path, key=arguments.cell_weights_key))
    if weights.size != math.prod(shape) or (weights.shape != shape and max(weights.shape) != weights.size):
        raise ValueError(
            f"{path} must hold one weight for each of {' x '.join(map(str, shape))} cells, got shape {weights.shape}"
        )
    return check_cell_weights(weights.reshape(-1), weights.size, str(path))


def _parameters_for(arguments, n, width=None):
    """Parameters (n, p) of --parameters; where the snapshots are columns, theirs may be, too."""
    path, key = arguments.parameters, arguments.parameters_key
    parameters = _parameters_of(path, key, width)
    if len(parameters) == n:
        return parameters
    columns = parameters.shape[1] == n
    if columns and arguments.transpose:
        return parameters.T.copy()
    raise ValueError(
        f"{path} must hold one row for each of the {n} snapshots, got {len(parameters)}"
        + (f" rows of {n} numbers, one column for each: give it transposed" if columns else "")
    )


def _is_npy(path):
    with open(path, "rb") as file:
        return file.read(6) == b"\x93NUMPY"


def _lines(path):
    """Lines of a text file without those that are empty at its end."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").rstrip().splitlines()]
    except UnicodeDecodeError:
        raise ValueError(f"{path} is neither a .npy file nor text") from None
    if "" in lines:
        raise ValueError(f"line {lines.index('') + 1} of {path} is empty")
    return lines


def _found_invariants(arguments, snapshots, dtype, cell_weights, bounds):
    """What the decoder is to keep of these snapshots: "mass" or None; says so where it was not asked for."""
    from randsmap.invariants import Invariants, fit_invariants

    found = None

    def fit(**given):
        return fit_invariants(snapshots, Invariants.of(snapshots.shape[1], cell_weights=cell_weights, **given), dtype)

    if bounds is not None:
        try:
            fit(invariants=None, bounds=bounds)
        except ValueError as error:
            what, of_fields, _ = str(error).partition("; bounds=None")
            where, remedy = (f"{arguments.snapshots}: ", ", or leave --bounds out") if of_fields else ("--bounds: ", "")
            raise ValueError(f"{where}{what.removeprefix('bounds: ')}{remedy}") from None
    if arguments.invariants != "none":
        try:
            mass = fit(invariants="mass").values[0]
            by = "" if cell_weights is None else " by the cells' weights"
            found, text = "mass", f"the mass{by}, {mass:.6g} in every snapshot, which decoded fields keep exactly"
        except ValueError as error:
            if arguments.invariants == "mass":
                raise ValueError(
                    f"{arguments.snapshots}: {error}. Is every row one field? On the command line "
                    "--invariants none (or auto) switches the invariant off"
                ) from None
            text = (
                f"none, since not every snapshot has the same mass ({str(error).partition('. ')[0]}). Is every row one "
                "field? --invariants mass makes this an error"
            )
    if found is None:  # raises if it was something else
        fit(invariants=None)
    if arguments.invariants == "auto":
        _say(f"invariants: {text}")
    return found


def _check_large(arguments, snapshots, search):
    """What a file that is not held in memory needs, before any work."""
    n, M = snapshots.shape
    if arguments.encoder_samples is None and 8 * n * M >= _LARGEST_TRAINING_SET:
        raise ValueError(
            f"{arguments.snapshots} holds {n} snapshots of {M} cells, which the model file would have "
            "to hold as well: give --encoder-samples, a number of snapshots that fits into memory"
        )
    if search and arguments.encoder_samples is None:
        raise ValueError(
            f"{arguments.snapshots} is large: give --encoder-samples, a number of snapshots (2000) to search for a "
            "model among, or --n-features as a count (500) for a decoder fitted to all"
        )
    if not search and not isinstance(arguments.n_features, int):
        raise ValueError(
            f"{arguments.snapshots} is large: give --n-features as a count (500), not as a multiple "
            "of the number of snapshots"
        )
    if arguments.parameters is not None and not search:
        raise ValueError(
            f"{arguments.snapshots} is large: with --parameters a model is searched for among --encoder-samples of the "
            "snapshots; leave out the options of one decoder"
        )


def _errors(model, snapshots, *names, parameters=None):
    """Errors (name by name) of the snapshots' reconstructions, a block of a large file at a time.

    With parameters (n, p) those of the fields that a model of parameters predicts.

    "l2" and "linf", relative, but scaled for empty and tiny snapshots; "conservation", absolute, of what the
    model promises to keep; "outside", absolute, of its bounds, if it has any.
    """
    import numpy as np

    from randsmap import metrics
    from randsmap._linalg.rows import Snapshots, is_large, row_blocks
    from randsmap.invariants._bounds import outside

    if not len(snapshots):
        raise ValueError("there are no snapshots to evaluate the model on")
    fitted = model if parameters is None else model.model_
    decoder = getattr(fitted, "decoder_", None)
    C, kept = getattr(decoder, "invariant_matrix_", None), getattr(decoder, "invariants_", None)
    functions = {
        "l2": lambda: partial(metrics.scaled_l2, reference=metrics.median_norm(metrics.field_norms(snapshots))),
        "linf": lambda: partial(
            metrics.scaled_linf, reference=metrics.median_norm(metrics.field_norms(snapshots, "linf"))
        ),
        "conservation": lambda: partial(
            metrics.conservation_error, invariants="mass" if C is None or C.shape[1] == 0 else C
        ),
    }
    if kept is not None and kept.lower is not None:
        functions["outside"] = lambda: (
            lambda _, F_hat: outside(F_hat.reshape(len(F_hat), -1), kept.lower, kept.upper).max(axis=1)
        )
    chosen = [functions[name]() for name in names if name in functions]
    numbers = Snapshots(snapshots, "the snapshots") if is_large(snapshots) else snapshots
    parts = []
    for start, F in row_blocks(numbers, "evaluating"):
        F_hat = model.reconstruct(F) if parameters is None else model.predict(parameters[start : start + len(F)])
        parts.append([function(F, F_hat) for function in chosen])
    return list(map(np.concatenate, zip(*parts)))


def _tuned_value(encoder, decoder, parameter, snapshots, seed):
    """Best value on a held-out fifth."""
    from sklearn.base import clone
    from sklearn.model_selection import train_test_split

    from randsmap._interface.fields import flattened
    from randsmap.tuning import default_values, tune

    if len(snapshots) < 10:
        raise ValueError(f"tuning needs at least 10 snapshots, got {len(snapshots)}; give --value")
    rows = flattened(snapshots, "the snapshots")[0]
    F_train, F_validation = train_test_split(rows, test_size=0.2, random_state=seed)
    encoder = clone(encoder)
    Y_train = encoder.fit_transform(F_train)
    Y_validation = encoder.transform(F_validation)
    grid = {f"features__{parameter}": default_values(parameter)}
    result = tune(decoder, grid, Y_train, F_train, Y_validation, F_validation, progress=True)
    value = result.best_params_[f"features__{parameter}"]
    edge = " (an edge of the grid: a better value may lie beyond)" if any(result.on_edge_.values()) else ""
    _say(f"tuned {parameter} = {value:.4g}{edge}; validation relative L2 error {result.best_error_:.4g}")
    return value


def _check_array_target(arguments):
    """Raise where --out is a file that the command reads, or cannot be written as what its ending says."""
    from randsmap.snapshots import check_target

    _refuse_own_input(arguments, "model", "input")
    check_target(arguments.out)


def _refuse_own_input(arguments, *names):
    """ValueError where --out is one of these arguments, which would be lost."""
    for path in filter(None, (getattr(arguments, name) for name in names)):
        with contextlib.suppress(OSError):  # of a path that is not there yet, or is told when it is read
            if os.path.samefile(path, arguments.out):
                raise ValueError(f"--out {arguments.out} would replace {path}, which is read: give another name")


def _encode(arguments):
    from randsmap._io.progress import show_progress

    _check_array_target(arguments)  # fail before the work is done
    model = _load_model(arguments.model)
    snapshots = _load_fields(arguments, model)
    with show_progress():
        latents = model.transform(snapshots)
    _save_array(arguments, latents, "latents")


def _decode(arguments):
    _check_array_target(arguments)
    model = _load_model(arguments.model)
    latents = _load_latents(arguments, len(model.get_feature_names_out()))
    _save_fields(arguments, model.inverse_transform, latents, model.field_shape_)


def _predict(arguments):
    _check_array_target(arguments)
    model = _load_parametric(arguments.model)
    p = model.n_features_in_
    parameters = _parameters_of(arguments.input, arguments.key, None if arguments.transpose else p)
    if arguments.transpose and len(parameters) == p:
        parameters = parameters.T.copy()
    if parameters.shape[1] != p:
        hint = ""
        if len(parameters) == p and not arguments.transpose:
            hint = ". It does with --transpose"
        elif arguments.key is None and arguments.input.suffix.lower() in _WITH_KEYS:
            hint = ". If they are another array of the file, --key names it"
        raise ValueError(
            f"{arguments.input} must hold {p} parameters a row, got an array of shape {parameters.shape}{hint}"
        )
    _save_fields(arguments, model.predict, parameters, model.field_shape_)


def _save_fields(arguments, decode, X, shape):
    """decode(X), fields of that shape, through a memory map where they are large and go to a .npy file as they are."""
    import numpy as np

    from randsmap._io.progress import show_progress
    from randsmap._linalg import rows
    from randsmap.snapshots import check_target, is_npy_target

    shape, path = (len(X), *shape), arguments.out
    check_target(path, math.prod(shape))
    mapped = 8 * math.prod(shape) >= rows.LARGE and is_npy_target(path) and not arguments.transpose_out
    if not mapped:
        _save_array(arguments, decode(X, out=np.empty(shape)), "fields")
        return
    with show_progress():
        rows.write_npy(path, shape, lambda fields: decode(X, out=fields))
    _say(f"written: {path} {shape}")


def _evaluate(arguments):
    import numpy as np

    from randsmap import metrics
    from randsmap._io.progress import show_progress

    if arguments.out is not None:
        _refuse_own_input(arguments, "model", "input", "parameters")
        writable_target(arguments.out)
    if arguments.parameters is None:
        model, parameters = _load_model(arguments.model), None
        snapshots = _load_fields(arguments, model)
    else:
        model = _load_parametric(arguments.model)
        snapshots = _load_fields(arguments, model.model_)
        parameters = _parameters_for(arguments, len(snapshots), model.n_features_in_)
    names = {
        "relative_l2": "l2",
        "relative_linf": "linf",
        "conservation_error": "conservation",
        "outside_bounds": "outside",
    }
    with show_progress():
        errors = dict(zip(names, _errors(model, snapshots, *names.values(), parameters=parameters)))
    if arguments.out is not None:
        rows = zip(*(values.tolist() for values in errors.values()))
        text = "\n".join([",".join(errors), *(",".join(map(repr, row)) for row in rows)]) + "\n"
        write_atomically(arguments.out, lambda file: file.write(text.encode()))
    _say(f"{'':20}{'mean':>12}{'median':>12}{'5 %':>12}{'95 %':>12}{'max':>12}")
    for name, values in errors.items():
        figures = [values.mean(), *np.percentile(values, [50, 5, 95]), values.max()]
        _say(f"{name:20}" + "".join(f"{figure:12.4g}" for figure in figures))
    part = getattr(getattr(model, "model_", model), "decoder_", None)
    if hasattr(part, "invariants_"):
        sums, bounds = part.invariants_.in_words
        kept = [text for text in (sums, bounds and f"values {bounds}") if text]
        _say(f"the model keeps {' and '.join(kept) or 'nothing exactly'}")
    norms = metrics.field_norms(snapshots)
    small = int((norms < metrics.SMALLEST_SHARE * metrics.median_norm(norms)).sum())
    if small:
        _say(f"{small} field(s) are empty or below 1e-3 of the median norm: their errors are relative to that")


def _report(arguments):
    from randsmap._io.progress import show_progress
    from randsmap.reports import write_model_report

    if arguments.out.suffix.lower() in (".npy", ".npz"):
        raise ValueError(f"--out is the page, such as report.html, not an array or a model: {arguments.out}")
    _refuse_own_input(arguments, "model", "input", "groups")
    writable_target(arguments.out)
    model = _load_model(arguments.model)
    snapshots = _load_fields(arguments, model)
    groups = _labels_of(arguments, len(snapshots))
    words = ["randsmap", "report", arguments.model, arguments.input, "--out", arguments.out]
    words += [] if arguments.key is None else ["--key", arguments.key]
    words += ["--transpose"] if arguments.transpose else []
    words += [] if arguments.groups is None else ["--groups", arguments.groups]
    words += [] if arguments.groups_key is None else ["--groups-key", arguments.groups_key]
    words += [] if arguments.shape is None else ["--shape", *arguments.shape]
    with show_progress():
        path = write_model_report(
            model,
            snapshots,
            arguments.out,
            groups=groups,
            shape=arguments.shape,
            title=f"{arguments.model.name} on {arguments.input.name}",
            command=shlex.join(map(str, words)),
        )
    _say(f"report: {path}")


def _load_model(path):
    """The model of fields and latents; of a model of parameters the one inside."""
    from randsmap import ManifoldModel, ParametricModel, load

    model = load(path)
    if isinstance(model, ParametricModel):
        model = model.model_
    if not isinstance(model, ManifoldModel):
        raise ValueError(f"{path} holds a {type(model).__name__}, not a model")
    return model


def _load_fields(arguments, model):
    """The fields of a command's input file as rows (n, M) for a fitted model."""
    from randsmap._interface.fields import flattened
    from randsmap._interface.validation import refuse_other_dimensions
    from randsmap.snapshots import read_array, warn_of_columns

    path, M, shape = arguments.input, model.n_features_in_, model.field_shape_
    given = read_array(path, key=arguments.key, transpose=arguments.transpose, fields=True)
    if given.ndim < 2 or (given.ndim > 2 and len(shape) == 1):
        refuse_other_dimensions(given.shape, str(path))
    rows, _ = flattened(given, str(path))
    if rows.shape[1] != M or (given.ndim > 2 and given.shape[1:] != shape):
        cells = f"{M} cells (columns)" if len(shape) == 1 else f"the shape {shape}"
        raise ValueError(
            f"{path}: the snapshots must have {cells}, as those of the model, got shape {given.shape}"
            f"{_transposing(arguments, given, M)}"
        )
    if len(rows) == M:  # both ways fit
        warn_of_columns(given, path, arguments.transpose)
    return rows


def _load_latents(arguments, d):
    """The latents (n, d) of a command's input file."""
    import numpy as np

    from randsmap._interface.validation import refuse_other_dimensions
    from randsmap.snapshots import read_array

    path = arguments.input
    latents = np.asarray(read_array(path, key=arguments.key, transpose=arguments.transpose))
    refuse_other_dimensions(latents.shape, str(path))
    if latents.shape[1] != d:
        raise ValueError(
            f"{path}: the latents must have {d} coordinates (columns), as those of the model, got shape {latents.shape}"
            f"{_transposing(arguments, latents, d)}"
        )
    return latents


def _transposing(arguments, given, width):
    """A hint where an array that does not fit would do so with its other axis first."""
    if given.size != width * (len(given) if arguments.transpose else given.shape[-1]):
        return ""
    return f". They do with{'out' if arguments.transpose else ''} --transpose"


def _load_parametric(path):
    from randsmap import ParametricModel, load

    model = load(path)
    if not isinstance(model, ParametricModel):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, which knows no parameters: randsmap fit --parameters makes a "
            "ParametricModel"
        )
    return model


def _save_array(arguments, array, name):
    from randsmap.snapshots import write_array

    write_array(arguments.out, array, name, transpose=arguments.transpose_out)
    columns = ", as columns" if arguments.transpose_out else ""
    _say(f"written: {arguments.out} {array.shape}{columns}")


if __name__ == "__main__":
    sys.exit(main())
