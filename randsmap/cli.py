"""The `randsmap` command."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from randsmap._files import expanded, is_stream, save_arrays, writable_target, write_atomically

__all__ = ["main"]

# feature map -> (class name, tuned parameter, values tried)
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

_SNAPSHOTS = "your own snapshots instead: .npy (n_samples, n_cells), one field a row"
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
    with _stopped_by_sigterm(), contextlib.redirect_stdout(sys.stderr) if to_stdout else contextlib.nullcontext():
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
        description="Fit diffusion maps and a conservative random-feature decoder to the snapshots. "
        "The feature map's hyperparameter is tuned on a fifth of them unless it is given. "
        "MODEL is an .npz file without pickles, the one that randsmap.load reads.",
    )
    fit.add_argument(
        "snapshots", type=expanded, metavar="SNAPSHOTS.npy", help="fields, one a row: (n_samples, n_cells)"
    )
    fit.add_argument(
        "--out", type=expanded, required=True, metavar="MODEL", help="model file to write, such as model.npz"
    )
    fit.add_argument("--components", type=int, default=2, metavar="D", help="latent dimension (default 2)")
    fit.add_argument(
        "--alpha", type=float, default=1.0, help="density normalisation of the diffusion maps, 0 to 1 (default 1)"
    )
    fit.add_argument(
        "--features", choices=tuple(_FEATURES), default="sigmoid", help="feature map of the decoder (default sigmoid)"
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
        default=1.0,
        metavar="P",
        help="a count (500) or a multiple of the number of samples (0.25); default 1.0",
    )
    fit.add_argument(
        "--regularization", type=float, default=1e-3, metavar="LAMBDA", help="ridge parameter (default 1e-3)"
    )
    fit.add_argument(
        "--encoder-samples",
        type=int,
        metavar="N",
        help="fit the encoder to N of the snapshots, chosen at random (default: all); for files "
        "larger than memory, with --n-features as a count",
    )
    fit.add_argument(
        "--invariants",
        choices=("auto", "mass", "none"),
        default="auto",
        help="what every decoded field keeps exactly: the mass (sum of the cells), nothing, or (auto, the "
        "default) the mass where it is the same in all snapshots",
    )
    fit.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the draws (default 0)")
    fit.set_defaults(command=_fit)

    for name, run, inputs, output, text in (
        ("encode", _encode, "SNAPSHOTS.npy", "LATENTS.npy", "latent coordinates of snapshots"),
        ("decode", _decode, "LATENTS.npy", "FIELDS.npy", "fields at latent coordinates"),
    ):
        command = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        command.add_argument("model", type=expanded, metavar="MODEL")
        command.add_argument("input", type=expanded, metavar=inputs)
        command.add_argument("--out", type=expanded, required=True, metavar=output)
        command.set_defaults(command=run)

    evaluate = commands.add_parser(
        "evaluate",
        help="reconstruction errors of a model on snapshots",
        description="Encode and decode the snapshots and print the errors over the samples.",
    )
    evaluate.add_argument("model", type=expanded, metavar="MODEL")
    evaluate.add_argument("input", type=expanded, metavar="SNAPSHOTS.npy")
    evaluate.add_argument("--out", type=expanded, metavar="ERRORS.csv", help="also write the errors of every sample")
    evaluate.set_defaults(command=_evaluate)
    return parser


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
    if arguments.training_form is not None:
        words.append("--training-form" if arguments.training_form else "--no-training-form")
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
    from randsmap.studies import format_table, run_study, write_csv, write_markdown

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
        command=command,
    )
    write_csv(result.rows, out / "table.csv")
    write_markdown(result, out / "table.md")
    _say(f"{result.title}, {result.section}\n")
    _say(format_table(result.rows))
    for cut in result.cuts:
        _say(cut)
    _say(f"written: {out / 'table.csv'}, {out / 'table.md'}")
    _tell_report(lambda studies: studies.write_report(result, out))
    return result


def _tell_report(write):
    """Write a report and say where; without matplotlib say that there is none."""
    try:
        from randsmap import studies

        _say(f"written: {write(studies)}\n")
    except ImportError as error:
        _say(f"no report: {error}\n")


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
        return plotting.plot_space_time(bunch.data[first], bunch.times[first], bunch.cell_centers)
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
    )


def _fit(arguments):
    import numpy as np

    import randsmap
    from randsmap._mmap import Snapshots, is_large, load_npy
    from randsmap._progress import show_progress
    from randsmap._validation import check_matrix

    snapshots = load_npy(arguments.snapshots)
    large = is_large(snapshots)
    # their own number type goes to the decoder: its tolerance for the invariants depends on it
    if large:
        numbers = Snapshots(snapshots, str(arguments.snapshots))
        _check_large(arguments, snapshots)
    else:
        numbers = check_matrix(snapshots, str(arguments.snapshots), min_rows=2)
    writable_target(arguments.out)
    if arguments.out.suffix.lower() == ".npy":
        raise ValueError(f"--out is the model file, not an array: {arguments.out}")
    with show_progress():  # of the whole file, before any work; fit would name a row of the part it is given
        invariants = _found_invariants(arguments, numbers, snapshots.dtype)
    class_name, parameter = _FEATURES[arguments.features]
    features = getattr(randsmap, class_name)(n_features=arguments.n_features)
    if arguments.value is not None:
        features.set_params(**{parameter: arguments.value})
    decoder = randsmap.RANDSMAPDecoder(
        features, regularization=arguments.regularization, invariants=invariants, random_state=arguments.seed
    )
    encoder = randsmap.DiffusionMaps(n_components=arguments.components, alpha=arguments.alpha)
    if arguments.value is None:
        sample = snapshots
        if arguments.encoder_samples is not None and arguments.encoder_samples < len(snapshots):
            chosen = np.sort(
                np.random.default_rng(arguments.seed).choice(
                    len(snapshots), max(2, arguments.encoder_samples), replace=False
                )
            )
            sample = numbers.take(chosen).astype(snapshots.dtype) if large else snapshots[chosen]
        value = _tuned_value(encoder, decoder, parameter, sample, arguments.seed)
        decoder.set_params(**{f"features__{parameter}": value})
    model = randsmap.ManifoldModel(encoder, decoder, encoder_samples=arguments.encoder_samples)
    with show_progress():
        model.fit(snapshots)
        model.save(arguments.out)
        (errors,) = _errors(model, snapshots, "l2")
    _say(
        f"{len(snapshots)} snapshots of {snapshots.shape[1]} cells -> {arguments.components} "
        f"latent coordinates, {len(model.decoder_.coef_) - 1} features; mean relative L2 error on the "
        f"snapshots {np.mean(errors):.4g}"
    )
    _say(f"written: {arguments.out}")


def _found_invariants(arguments, snapshots, dtype):
    """What the decoder is to keep of these snapshots: "mass" or None; says so where it was not asked for."""
    from randsmap.invariants._affine import AffineInvariants

    found = None
    if arguments.invariants != "none":
        try:
            mass = AffineInvariants.from_data(snapshots, invariants="mass", dtype=dtype).values[0]
            found, text = "mass", f"the mass, {mass:.6g} in every snapshot, which decoded fields keep exactly"
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
        AffineInvariants.from_data(snapshots, invariants=None, dtype=dtype)
    if arguments.invariants == "auto":
        _say(f"invariants: {text}")
    return found


def _check_large(arguments, snapshots):
    """What a file that is not held in memory needs, before any work."""
    n, M = snapshots.shape
    if arguments.encoder_samples is None and 8 * n * M >= _LARGEST_TRAINING_SET:
        raise ValueError(
            f"{arguments.snapshots} holds {n} snapshots of {M} cells, which the model file would have "
            "to hold as well: give --encoder-samples, a number of snapshots that fits into memory"
        )
    if not isinstance(arguments.n_features, int):
        raise ValueError(
            f"{arguments.snapshots} is large: give --n-features as a count (500), not as a multiple "
            "of the number of snapshots"
        )


def _errors(model, snapshots, *names):
    """Errors (name by name) of the snapshots' reconstructions, a block of a large file at a time.

    "l2" and "linf", relative, but scaled for empty and tiny snapshots; "conservation", absolute, of what the
    model promises to keep.
    """
    import numpy as np

    from randsmap import metrics
    from randsmap._mmap import Snapshots, is_large, row_blocks

    if not len(snapshots):
        raise ValueError("there are no snapshots to evaluate the model on")
    C = getattr(model.decoder_, "invariant_matrix_", None)
    functions = {
        "l2": lambda: partial(metrics.scaled_l2, reference=metrics.median_norm(metrics.field_norms(snapshots))),
        "linf": lambda: partial(
            metrics.scaled_linf, reference=metrics.median_norm(metrics.field_norms(snapshots, "linf"))
        ),
        "conservation": lambda: partial(
            metrics.conservation_error, invariants="mass" if C is None or C.shape[1] == 0 else C
        ),
    }
    chosen = [functions[name]() for name in names]
    numbers = Snapshots(snapshots, "the snapshots") if is_large(snapshots) else snapshots
    parts = []
    for _, F in row_blocks(numbers, "evaluating"):
        F_hat = model.reconstruct(F)
        parts.append([function(F, F_hat) for function in chosen])
    return list(map(np.concatenate, zip(*parts)))


def _tuned_value(encoder, decoder, parameter, snapshots, seed):
    """Best value on a held-out fifth."""
    from sklearn.base import clone
    from sklearn.model_selection import train_test_split

    from randsmap.tuning import default_values, tune

    if len(snapshots) < 10:
        raise ValueError(f"tuning needs at least 10 snapshots, got {len(snapshots)}; give --value")
    F_train, F_validation = train_test_split(snapshots, test_size=0.2, random_state=seed)
    encoder = clone(encoder)
    Y_train = encoder.fit_transform(F_train)
    Y_validation = encoder.transform(F_validation)
    grid = {f"features__{parameter}": default_values(parameter)}
    result = tune(decoder, grid, Y_train, F_train, Y_validation, F_validation, progress=True)
    value = result.best_params_[f"features__{parameter}"]
    edge = " (an edge of the grid: a better value may lie beyond)" if any(result.on_edge_.values()) else ""
    _say(f"tuned {parameter} = {value:.4g}{edge}; validation relative L2 error {result.best_error_:.4g}")
    return value


def _encode(arguments):
    from randsmap._progress import show_progress

    writable_target(arguments.out)  # fail before the work is done
    model = _load_model(arguments.model)
    snapshots = _load_rows(arguments.input, "snapshots", model.n_features_in_, "cells")
    with show_progress():
        latents = model.transform(snapshots)
    _save_array(arguments.out, latents)


def _decode(arguments):
    from randsmap import _mmap
    from randsmap._progress import show_progress

    writable_target(arguments.out)
    model = _load_model(arguments.model)
    latents = _load_rows(arguments.input, "latents", len(model.get_feature_names_out()), "coordinates")
    shape = len(latents), model.n_features_in_
    if 8 * shape[0] * shape[1] < _mmap.LARGE:
        _save_array(arguments.out, model.inverse_transform(latents))
        return
    with show_progress():
        _mmap.write_npy(arguments.out, shape, lambda fields: model.inverse_transform(latents, out=fields))
    _say(f"written: {arguments.out} {shape}")


def _evaluate(arguments):
    import numpy as np

    from randsmap import metrics
    from randsmap._progress import show_progress

    if arguments.out is not None:
        writable_target(arguments.out)
    model = _load_model(arguments.model)
    snapshots = _load_rows(arguments.input, "snapshots", model.n_features_in_, "cells")
    names = {"relative_l2": "l2", "relative_linf": "linf", "conservation_error": "conservation"}
    with show_progress():
        errors = dict(zip(names, _errors(model, snapshots, *names.values())))
    if arguments.out is not None:
        rows = zip(*(values.tolist() for values in errors.values()))
        text = "\n".join([",".join(errors), *(",".join(map(repr, row)) for row in rows)]) + "\n"
        write_atomically(arguments.out, lambda file: file.write(text.encode()))
    _say(f"{'':20}{'mean':>12}{'median':>12}{'5 %':>12}{'95 %':>12}{'max':>12}")
    for name, values in errors.items():
        figures = [values.mean(), *np.percentile(values, [50, 5, 95]), values.max()]
        _say(f"{name:20}" + "".join(f"{figure:12.4g}" for figure in figures))
    norms = metrics.field_norms(snapshots)
    small = int((norms < metrics.SMALLEST_SHARE * metrics.median_norm(norms)).sum())
    if small:
        _say(f"{small} field(s) are empty or below 1e-3 of the median norm: their errors are relative to that")


def _load_model(path):
    from randsmap import ManifoldModel, load

    model = load(path)
    if not isinstance(model, ManifoldModel):
        raise ValueError(f"{path} holds a {type(model).__name__}, not a model")
    return model


def _load_rows(path, what, n_columns, unit):
    """The array (n, n_columns) of a .npy file: snapshots of cells or latents of coordinates, one a row."""
    from randsmap._mmap import load_npy
    from randsmap._validation import refuse_other_dimensions

    rows = load_npy(path)
    refuse_other_dimensions(rows.shape, str(path))
    if rows.shape[1] != n_columns:
        raise ValueError(
            f"{path}: the {what} must have {n_columns} {unit} (columns), as those of the model, got shape {rows.shape}"
        )
    return rows


def _save_array(path, array):
    import numpy as np

    write_atomically(path, lambda file: np.save(file, array, allow_pickle=False))
    _say(f"written: {path} {array.shape}")


if __name__ == "__main__":
    sys.exit(main())
