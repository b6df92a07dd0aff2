"""The `randsmap` command."""

import argparse
import sys
from functools import partial
from pathlib import Path

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


def main(argv=None):
    """Run the command line; returns the exit status (0; 1 a failure that is told; 130 Ctrl-C)."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.command(arguments)
    except KeyboardInterrupt:
        print("randsmap: interrupted", file=sys.stderr)
        return 130
    except (ImportError, OSError, MemoryError, TypeError, ValueError) as error:
        what = "out of memory: " if isinstance(error, MemoryError) else ""
        print(f"randsmap: error: {what}{error}", file=sys.stderr)
        return 1
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        prog="randsmap",
        description="Decode latent coordinates back to physical fields without losing mass.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    study = commands.add_parser("study", help="run one of the paper's studies")
    studies = study.add_subparsers(required=True, metavar="STUDY")
    lwr = studies.add_parser(
        "lwr",
        help="LWR traffic, M = 400",
        description="Traffic study: make the data, split 2000/2000/8000, tune on the validation set, "
        "fit, test, and print a table of errors beside the paper's. An interrupted study "
        "goes on when the same command is given again.",
    )
    lwr.add_argument("--quick", action="store_true",
                     help="3 grid values, P = N/4 only, 2 runs: within a minute on two cores")
    lwr.add_argument("--runs", type=int, metavar="R",
                     help="draws of the features to take medians over (default: 100; 2 with --quick)")
    lwr.add_argument("--seed", type=int, default=0, metavar="S", help="seed of everything (default 0)")
    lwr.add_argument("--out", type=Path, metavar="DIR",
                     help="folder for table.csv and the finished pieces (default: "
                     "randsmap-study/lwr, with --quick randsmap-study/lwr-quick)")
    lwr.set_defaults(command=_study_lwr)

    dataset = commands.add_parser(
        "dataset",
        help="make a data set of the paper",
        description="Make a data set of the paper. FILE.npy holds the fields, one a row, and is "
        "written as they are computed; FILE.npz also holds times, parameters and intrinsic coordinates.",
    )
    names = dataset.add_subparsers(required=True, metavar="NAME")
    for name, (maker, text) in _DATASETS.items():
        command = names.add_parser(name, help=text)
        command.add_argument("--out", type=Path, required=True, metavar="FILE",
                             help=".npy (fields) or .npz (fields and all that belongs to them)")
        command.add_argument("--seed", type=int, default=0, metavar="S", help="seed (default 0)")
        command.add_argument("--picture", type=Path, metavar="FILE.png",
                             help="also draw the data (needs matplotlib)")
        if name in ("lwr", "hughes"):
            command.add_argument("--trajectories", type=int, dest="n_trajectories", metavar="N")
            command.add_argument("--snapshots", type=int, dest="snapshots_per_trajectory", metavar="N",
                                 help="snapshots of each trajectory")
        else:
            command.add_argument("--samples", type=int, dest="n_samples", metavar="N")
        if name == "rotated-images":
            command.add_argument("--image", type=Path, metavar="FILE",
                                 help="your own image: .npy, .mat (variable D, slice 4) or a picture")
        command.set_defaults(command=_dataset, maker=maker, name=name)

    fit = commands.add_parser(
        "fit",
        help="fit a model to your own snapshots",
        description="Fit diffusion maps and a conservative random-feature decoder to the snapshots. "
        "The feature map's hyperparameter is tuned on a fifth of them unless it is given. "
        "MODEL is an .npz file without pickles, the one that randsmap.load reads.",
    )
    fit.add_argument("snapshots", type=Path, metavar="SNAPSHOTS.npy",
                     help="fields, one a row: (n_samples, n_cells)")
    fit.add_argument("--out", type=Path, required=True, metavar="MODEL", help="model file to write, such as model.npz")
    fit.add_argument("--components", type=int, default=2, metavar="D",
                     help="latent dimension (default 2)")
    fit.add_argument("--alpha", type=float, default=1.0,
                     help="density normalisation of the diffusion maps, 0 to 1 (default 1)")
    fit.add_argument("--features", choices=tuple(_FEATURES), default="sigmoid",
                     help="feature map of the decoder (default sigmoid)")
    fit.add_argument("--value", type=float, metavar="V",
                     help="slope (sigmoid), length scale (fourier) or maximal frequency (multiscale); "
                     "tuned if not given")
    fit.add_argument("--n-features", type=_count_or_fraction, default=1.0, metavar="P",
                     help="a count (500) or a multiple of the number of samples (0.25); default 1.0")
    fit.add_argument("--regularization", type=float, default=1e-3, metavar="LAMBDA",
                     help="ridge parameter (default 1e-3)")
    fit.add_argument("--encoder-samples", type=int, metavar="N",
                     help="fit the encoder to N of the snapshots, chosen at random (default: all); for files "
                     "larger than memory, with --n-features as a count")
    fit.add_argument("--invariants", choices=("mass", "none"), default="mass",
                     help="what every decoded field keeps exactly (default mass: the sum of the cells)")
    fit.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the draws (default 0)")
    fit.set_defaults(command=_fit)

    for name, run, inputs, output, text in (
        ("encode", _encode, "SNAPSHOTS.npy", "LATENTS.npy", "latent coordinates of snapshots"),
        ("decode", _decode, "LATENTS.npy", "FIELDS.npy", "fields at latent coordinates"),
    ):
        command = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        command.add_argument("model", type=Path, metavar="MODEL")
        command.add_argument("input", type=Path, metavar=inputs)
        command.add_argument("--out", type=Path, required=True, metavar=output)
        command.set_defaults(command=run)

    evaluate = commands.add_parser(
        "evaluate",
        help="reconstruction errors of a model on snapshots",
        description="Encode and decode the snapshots and print the errors over the samples.",
    )
    evaluate.add_argument("model", type=Path, metavar="MODEL")
    evaluate.add_argument("input", type=Path, metavar="SNAPSHOTS.npy")
    evaluate.add_argument("--out", type=Path, metavar="ERRORS.csv",
                          help="also write the errors of every sample")
    evaluate.set_defaults(command=_evaluate)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser, *_):
        from randsmap import __version__

        print(f"randsmap {__version__}")
        parser.exit()


def _count_or_fraction(text):
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    raise argparse.ArgumentTypeError(f"a count (500) or a multiple of the samples (0.25), got {text!r}")


def _study_lwr(arguments):
    from randsmap.studies import format_table, lwr_study, run_study, write_csv

    out = arguments.out
    if out is None:
        out = Path("randsmap-study", "lwr-quick" if arguments.quick else "lwr")
    rows = run_study(lwr_study(), out=out, quick=arguments.quick, runs=arguments.runs,
                     seed=arguments.seed)
    write_csv(rows, out / "table.csv")
    print(format_table(rows))
    print(f"written: {out / 'table.csv'}")


def _dataset(arguments):
    from randsmap import datasets

    out = arguments.out
    if out.suffix.lower() not in (".npy", ".npz"):
        raise ValueError(f"--out must name a .npy or .npz file, got {str(out)!r}")
    for path in (out, arguments.picture):
        if path is not None:
            _check_folder(path)
    sizes = ("n_trajectories", "snapshots_per_trajectory", "n_samples", "image")
    given = {size: getattr(arguments, size) for size in sizes
             if getattr(arguments, size, None) is not None}
    bunch = getattr(datasets, arguments.maker)(
        random_state=arguments.seed, progress=True, **given,
        out=out if out.suffix.lower() == ".npy" else None)
    if out.suffix.lower() == ".npz":
        import numpy as np

        arrays = {key: value for key, value in bunch.items() if isinstance(value, np.ndarray)}
        _write(out, lambda file: np.savez(file, **arrays))
    print(f"written: {out} {bunch.data.shape}")
    if arguments.picture is not None:
        figure = _picture(arguments.name, bunch)
        _write(arguments.picture, lambda file: figure.savefig(file, format="png", dpi=150))
        print(f"written: {arguments.picture}")


def _picture(name, bunch):
    """The data set as the paper shows it."""
    from randsmap import plotting

    if name == "lwr":
        first = bunch.trajectories == 0
        return plotting.plot_space_time(bunch.data[first], bunch.times[first], bunch.cell_centers)
    if name == "hughes":
        first = bunch.trajectories == 0
        return plotting.plot_crowd(bunch.data[first], bunch.times[first], shape=bunch.shape,
                                   extent=(20.0, 5.0), obstacle=~bunch.mask)
    if name == "rotated-images":
        return plotting.plot_images(bunch.data, bunch.angles, shape=bunch.shape)
    points = bunch.data if name == "swiss-roll" else bunch.data @ bunch.embedding
    return plotting.plot_embedding(points, bunch.coordinates[:, 0], label=bunch.coordinate_names[0],
                                   names=("x1", "x2", "x3"))


def _fit(arguments):
    import numpy as np

    import randsmap
    from randsmap._blocks import Snapshots, is_large, showing_progress
    from randsmap._validation import check_matrix
    from randsmap.invariants import AffineInvariants

    snapshots = _load_array(arguments.snapshots)
    large = is_large(snapshots)
    # their own number type goes to the decoder: its tolerance for the invariants depends on it
    if large:
        numbers = Snapshots(snapshots, str(arguments.snapshots))
        _check_large(arguments, snapshots)
    else:
        numbers = check_matrix(snapshots, str(arguments.snapshots), min_rows=2)
    _check_folder(arguments.out)
    if arguments.out.suffix.lower() == ".npy":
        raise ValueError(f"--out is the model file, not an array: {arguments.out}")
    invariants = None if arguments.invariants == "none" else arguments.invariants
    try:  # of the whole file, before any work; fit would name a row of the part it is given
        with showing_progress():
            AffineInvariants.from_data(numbers, invariants=invariants, dtype=snapshots.dtype)
    except ValueError as error:
        raise ValueError(f"{arguments.snapshots}: {error}. Is every row one field? On the command line "
                         "--invariants none switches the invariant off") from None
    class_name, parameter = _FEATURES[arguments.features]
    features = getattr(randsmap, class_name)(n_features=arguments.n_features)
    if arguments.value is not None:
        features.set_params(**{parameter: arguments.value})
    decoder = randsmap.RANDSMAPDecoder(
        features,
        regularization=arguments.regularization,
        invariants=invariants,
        random_state=arguments.seed,
    )
    encoder = randsmap.DiffusionMaps(n_components=arguments.components, alpha=arguments.alpha)
    if arguments.value is None:
        sample = snapshots
        if arguments.encoder_samples is not None and arguments.encoder_samples < len(snapshots):
            chosen = np.sort(np.random.default_rng(arguments.seed).choice(
                len(snapshots), max(2, arguments.encoder_samples), replace=False))
            sample = numbers.take(chosen).astype(snapshots.dtype) if large else snapshots[chosen]
        value = _tuned_value(encoder, decoder, parameter, sample, arguments.seed)
        decoder.set_params(**{f"features__{parameter}": value})
    model = randsmap.ManifoldModel(encoder, decoder, encoder_samples=arguments.encoder_samples)
    with showing_progress():
        model.fit(snapshots)
        model.save(arguments.out)
        (errors,) = _errors(model, snapshots, relative_l2=randsmap.metrics.relative_l2).values()
    print(f"{len(snapshots)} snapshots of {snapshots.shape[1]} cells -> {arguments.components} "
          f"latent coordinates, {len(model.decoder_.coef_) - 1} features; mean relative L2 error on the "
          f"snapshots {np.mean(errors):.4g}")
    print(f"written: {arguments.out}")


def _check_large(arguments, snapshots):
    """What a file that is not held in memory needs, before any work."""
    from randsmap.encoders import KEPT

    n, M = snapshots.shape
    if arguments.encoder_samples is None and 8 * n * M >= KEPT:
        raise ValueError(f"{arguments.snapshots} holds {n} snapshots of {M} cells, which the model file would have "
                         "to hold as well: give --encoder-samples, a number of snapshots that fits into memory")
    if not isinstance(arguments.n_features, int):
        raise ValueError(f"{arguments.snapshots} is large: give --n-features as a count (500), not as a multiple "
                         "of the number of snapshots")


def _errors(model, snapshots, **metrics):
    """Each metric of the snapshots and their reconstructions, a block of a large file at a time."""
    import numpy as np

    from randsmap._blocks import Snapshots, is_large, row_blocks

    numbers = Snapshots(snapshots, "the snapshots") if is_large(snapshots) else snapshots
    parts = []
    for _, F in row_blocks(numbers, "evaluating"):
        F_hat = model.reconstruct(F)
        parts.append([metric(F, F_hat) for metric in metrics.values()])
    return dict(zip(metrics, map(np.concatenate, zip(*parts))))


def _tuned_value(encoder, decoder, parameter, snapshots, seed):
    """Best value on a held-out fifth; the grid spans the scales that the latents suggest."""
    import numpy as np
    from sklearn.base import clone
    from sklearn.model_selection import train_test_split
    from tqdm import tqdm

    from randsmap.tuning import tune

    if len(snapshots) < 10:
        raise ValueError(f"tuning needs at least 10 snapshots, got {len(snapshots)}; give --value")
    F_train, F_validation = train_test_split(snapshots, test_size=0.2, random_state=seed)
    encoder = clone(encoder)
    Y_train = encoder.fit_transform(F_train)
    Y_validation = encoder.transform(F_validation)
    grid = np.geomspace(0.05, 2.0, 10) if parameter == "length_scale" else np.geomspace(0.5, 50.0, 10)
    with tqdm(total=len(grid), desc=f"tuning {parameter}", unit="fit") as bar:
        result = tune(decoder, {f"features__{parameter}": [float(v) for v in grid]},
                      Y_train, F_train, Y_validation, F_validation, callback=bar.update)
    value = result.best_params_[f"features__{parameter}"]
    edge = " (an edge of the grid: a better value may lie beyond)" if any(
        result.on_edge_.values()) else ""
    print(f"tuned {parameter} = {value:.4g}{edge}; validation relative L2 error "
          f"{result.errors_.min():.4g}")
    return value


def _encode(arguments):
    from randsmap._blocks import showing_progress

    with showing_progress():
        latents = _load_model(arguments.model).transform(_load_array(arguments.input))
    _save_array(arguments.out, latents)


def _decode(arguments):
    import numpy as np

    from randsmap import _blocks
    from randsmap.persistence import replaced_atomically

    model, latents = _load_model(arguments.model), _load_array(arguments.input)
    shape = len(latents) if latents.ndim else 0, model.n_features_in_
    if 8 * shape[0] * shape[1] < _blocks.LARGE:
        _save_array(arguments.out, model.inverse_transform(latents))
        return
    _check_folder(arguments.out)
    with _blocks.showing_progress(), replaced_atomically(arguments.out) as temporary:
        fields = np.lib.format.open_memmap(temporary, "w+", np.float64, shape)
        model.inverse_transform(latents, out=fields)
        fields.flush()
    print(f"written: {arguments.out} {shape}")


def _evaluate(arguments):
    import numpy as np

    from randsmap import metrics
    from randsmap._blocks import showing_progress

    model = _load_model(arguments.model)
    C = getattr(model.decoder_, "invariant_matrix_", None)  # what the model promises to keep
    with showing_progress():
        errors = _errors(
            model, _load_array(arguments.input), relative_l2=metrics.relative_l2,
            relative_linf=metrics.relative_linf,
            conservation_error=partial(metrics.conservation_error,
                                       invariants="mass" if C is None or C.shape[1] == 0 else C))
    if arguments.out is not None:
        rows = zip(*(values.tolist() for values in errors.values()))
        text = "\n".join([",".join(errors), *(",".join(map(repr, row)) for row in rows)]) + "\n"
        _write(arguments.out, lambda file: file.write(text.encode()))
    print(f"{'':20}{'mean':>12}{'median':>12}{'5 %':>12}{'95 %':>12}{'max':>12}")
    for name, values in errors.items():
        figures = [values.mean(), *np.percentile(values, [50, 5, 95]), values.max()]
        print(f"{name:20}" + "".join(f"{figure:12.4g}" for figure in figures))


def _load_array(path):
    """The array of a .npy file, memory-mapped if it is large."""
    import numpy as np

    from randsmap._blocks import is_large

    with open(path, "rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise ValueError(f"{path} is not a .npy file (numpy.save writes one)")
    try:
        try:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError):  # without elements, or cut off: reading it tells
            mapped = None
        return mapped if is_large(mapped) else np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a .npy file of numbers: {error}") from None


def _load_model(path):
    from randsmap import ManifoldModel, load

    model = load(path)
    if not isinstance(model, ManifoldModel):
        raise ValueError(f"{path} holds a {type(model).__name__}, not a model")
    return model


def _check_folder(path):
    """Fail before the work is done, not after."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder, expected the name of a file")
    if not path.parent.is_dir():
        raise ValueError(f"folder {path.parent} does not exist")


def _write(path, write):
    from randsmap.persistence import write_atomically

    _check_folder(path)
    write_atomically(path, write)


def _save_array(path, array):
    import numpy as np

    _write(path, lambda file: np.save(file, array, allow_pickle=False))
    print(f"written: {path} {array.shape}")


if __name__ == "__main__":
    sys.exit(main())
