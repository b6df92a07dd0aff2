"""The `randsmap` command."""

import argparse
import pickle
import sys
from pathlib import Path
from zipfile import BadZipFile

__all__ = ["main"]

# feature map -> (class name, tuned parameter, values tried)
_FEATURES = {
    "sigmoid": ("SigmoidFeatures", "slope"),
    "fourier": ("FourierFeatures", "length_scale"),
    "multiscale": ("MultiscaleFourierFeatures", "max_frequency"),
}

_PICKLE_NOTE = (
    "MODEL is a pickle file: load only models that you made yourself or trust, because loading a "
    "pickle can run code, and use the same versions of randsmap and scikit-learn."
)


def main(argv=None):
    """Run the command line; returns the exit status (0; 1 a failure that is told; 130 Ctrl-C)."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.command(arguments)
    except KeyboardInterrupt:
        print("randsmap: interrupted", file=sys.stderr)
        return 130
    except (OSError, MemoryError, TypeError, ValueError, pickle.UnpicklingError) as error:
        what = "out of memory: " if isinstance(error, MemoryError) else ""
        print(f"randsmap: error: {what}{error}", file=sys.stderr)
        return 1
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        prog="randsmap",
        description="Decode latent coordinates back to physical fields without losing mass.",
    )
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

    fit = commands.add_parser(
        "fit",
        help="fit a model to your own snapshots",
        description="Fit diffusion maps and a conservative random-feature decoder to the snapshots. "
        "The feature map's hyperparameter is tuned on a fifth of them unless it is given. "
        + _PICKLE_NOTE,
    )
    fit.add_argument("snapshots", type=Path, metavar="SNAPSHOTS.npy",
                     help="fields, one a row: (n_samples, n_cells)")
    fit.add_argument("--out", type=Path, required=True, metavar="MODEL", help="model file to write")
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
    fit.add_argument("--invariants", choices=("mass", "none"), default="mass",
                     help="what every decoded field keeps exactly (default mass: the sum of the cells)")
    fit.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the draws (default 0)")
    fit.set_defaults(command=_fit)

    for name, run, inputs, output, text in (
        ("encode", _encode, "SNAPSHOTS.npy", "LATENTS.npy", "latent coordinates of snapshots"),
        ("decode", _decode, "LATENTS.npy", "FIELDS.npy", "fields at latent coordinates"),
    ):
        command = commands.add_parser(name, help=text, description=f"{text.capitalize()}. {_PICKLE_NOTE}")
        command.add_argument("model", type=Path, metavar="MODEL")
        command.add_argument("input", type=Path, metavar=inputs)
        command.add_argument("--out", type=Path, required=True, metavar=output)
        command.set_defaults(command=run)

    evaluate = commands.add_parser(
        "evaluate",
        help="reconstruction errors of a model on snapshots",
        description="Encode and decode the snapshots and print the errors over the samples. "
        + _PICKLE_NOTE,
    )
    evaluate.add_argument("model", type=Path, metavar="MODEL")
    evaluate.add_argument("input", type=Path, metavar="SNAPSHOTS.npy")
    evaluate.add_argument("--out", type=Path, metavar="ERRORS.csv",
                          help="also write the errors of every sample")
    evaluate.set_defaults(command=_evaluate)
    return parser


def _count_or_fraction(text):
    try:
        return int(text)
    except ValueError:
        return float(text)


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


def _fit(arguments):
    import numpy as np

    import randsmap
    from randsmap._validation import check_matrix

    snapshots = _load_array(arguments.snapshots)
    # their own number type goes to the decoder: its tolerance for the invariants depends on it
    check_matrix(snapshots, str(arguments.snapshots), min_rows=2)
    _check_folder(arguments.out)
    class_name, parameter = _FEATURES[arguments.features]
    features = getattr(randsmap, class_name)(n_features=arguments.n_features)
    if arguments.value is not None:
        features.set_params(**{parameter: arguments.value})
    decoder = randsmap.RANDSMAPDecoder(
        features,
        regularization=arguments.regularization,
        invariants=None if arguments.invariants == "none" else arguments.invariants,
        random_state=arguments.seed,
    )
    encoder = randsmap.DiffusionMaps(n_components=arguments.components, alpha=arguments.alpha)
    if arguments.value is None:
        value = _tuned_value(encoder, decoder, parameter, snapshots, arguments.seed)
        decoder.set_params(**{f"features__{parameter}": value})
    model = randsmap.ManifoldModel(encoder, decoder).fit(snapshots)
    _write(arguments.out, lambda file: pickle.dump(model, file))
    errors = randsmap.metrics.relative_l2(snapshots, model.reconstruct(snapshots))
    print(f"{len(snapshots)} snapshots of {snapshots.shape[1]} cells -> {arguments.components} "
          f"latent coordinates; mean relative L2 error on them {np.mean(errors):.4g}")
    print(f"written: {arguments.out}")


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
    _save_array(arguments.out, _load_model(arguments.model).transform(_load_array(arguments.input)))


def _decode(arguments):
    model = _load_model(arguments.model)
    _save_array(arguments.out, model.inverse_transform(_load_array(arguments.input)))


def _evaluate(arguments):
    import numpy as np

    from randsmap import metrics

    model = _load_model(arguments.model)
    F = _load_array(arguments.input)
    F_hat = model.reconstruct(F)
    errors = {name: getattr(metrics, name)(F, F_hat)
              for name in ("relative_l2", "relative_linf", "conservation_error")}
    if arguments.out is not None:
        rows = zip(*(values.tolist() for values in errors.values()))
        text = "\n".join([",".join(errors), *(",".join(map(repr, row)) for row in rows)]) + "\n"
        _write(arguments.out, lambda file: file.write(text.encode()))
    print(f"{'':20}{'mean':>12}{'median':>12}{'5 %':>12}{'95 %':>12}{'max':>12}")
    for name, values in errors.items():
        figures = [values.mean(), *np.percentile(values, [50, 5, 95]), values.max()]
        print(f"{name:20}" + "".join(f"{figure:12.4g}" for figure in figures))


def _load_array(path):
    import numpy as np

    with open(path, "rb") as file:
        try:
            array = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, BadZipFile) as error:
            raise ValueError(f"{path} is not a .npy file of numbers: {error}") from None
        if not isinstance(array, np.ndarray):
            names = ", ".join(array.files)
            raise ValueError(f"{path} is an .npz archive (of {names}): save the array as a .npy file")
    return array


def _load_model(path):
    from randsmap import ManifoldModel

    try:
        with open(path, "rb") as file:
            model = pickle.load(file)
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(f"{path} is not a model file: {type(error).__name__}: {error}") from None
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
