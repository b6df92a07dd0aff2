"""The commands: they read files, call the package, print and write."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import shutil
import sys
import textwrap
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

import randsmap
from randsmap._interface.arrays import check_samples, refuse_other_dimensions
from randsmap._interface.fields import flattened
from randsmap._interface.parameters import check_count
from randsmap._io.files import is_stream, save_arrays, writable_target, write_atomically
from randsmap._linalg import rows
from randsmap._linalg.scales import check_cell_weights
from randsmap.cli import FEATURES, ONE_DECODER, STUDIES, painted, parser_for, tell, warning_sign
from randsmap.cli._completion import script
from randsmap.decoders._auto import check_groups
from randsmap.invariants import (
    InvariantParameters,
    RunningInvariants,
    common_values,
    fit_estimator,
    kept_in_words,
    norm_weights,
)
from randsmap.maps.extrapolation import leverage_cost
from randsmap.maps.frozen import section_of
from randsmap.model._errors import WARNINGS, cautions_in_words, facts_in_words, held_out_errors, judged
from randsmap.snapshots import (
    HAVE_NAMES,
    check_target,
    is_npy_target,
    read_array,
    read_columns,
    read_labels,
    read_snapshots,
    warn_of_columns,
    write_array,
)
from randsmap.tuning._autotune import encoder_in_words

_LARGEST_TRAINING_SET = 1 << 30  # bytes as float64: the model file of a command holds the training snapshots
_ERRORS = {"relative_l2": ("relative L2, %", 100), "relative_linf": ("relative Linf, %", 100)}
_MOST_SEARCHED = 5000  # snapshots in a search: kernel decoders hold a matrix of all pairs, here 200 MB


def config(arguments):
    include = randsmap.get_include()
    flags = [f"-I{include}"] if arguments.cflags else []
    if arguments.libs:
        library = randsmap.decoders.library_path()
        flags += [library, *([] if os.name == "nt" else [f"-Wl,-rpath,{os.path.dirname(library)}", "-lm"])]
    if arguments.amalgamation is not None:
        arguments.amalgamation.mkdir(parents=True, exist_ok=True)
        for name in ("randsmap.h", "randsmap.c"):
            shutil.copyfile(os.path.join(include, name), arguments.amalgamation / name)
    elif not flags:
        raise ValueError("config needs --cflags, --libs or --amalgamation DIR")
    if flags:
        tell(" ".join(map(shlex.quote, flags)))
    return {"flags": flags, "written": arguments.amalgamation}


def export(arguments):
    _check_out(arguments)
    options = {"step_size": arguments.step_size} if arguments.name == "fmu" else {}
    getattr(randsmap.export, arguments.name)(randsmap.load(arguments.model), arguments.out, **options)
    return _written(arguments.out)


def _written(path, *what, note="", **facts):
    """Print what was written; return the facts for --json."""
    tell(" ".join([f"written: {path}", *map(str, what)]) + note)
    return {"written": path, **facts}


def completion(arguments):
    tell(text := script(parser_for(["fit"]), arguments.shell), end="")
    return {"script": text}


# -- study, dataset ------------------------------------------------------------------------------------------
def study(arguments):
    single = arguments.name != "all"
    base = arguments.out or Path("randsmap-study-quick" if arguments.quick else "randsmap-study")
    chosen = []
    for name in [arguments.name] if single else STUDIES:
        study, labels = _make_study(name, arguments), arguments.decoders
        if labels is not None and not single:  # the decoders of this study alone
            labels = [case.label for case in study.cases if case.label in labels]
        if labels != []:
            chosen.append((study, name, labels))
    if not chosen:
        raise ValueError(f"no study has a decoder {', '.join(arguments.decoders)}")
    results = []
    for study, name, labels in chosen:
        folder = name if arguments.data is None else f"{name}-{arguments.data.stem}"
        out = base if single and arguments.out is not None else base / folder
        results.append(_run_study(study, name, out, labels, arguments))
    if not single:
        _write_report(randsmap.studies.write_index, results, base)
    return {result.name: result.rows for result in results}


def _make_study(name, arguments):
    options = {}
    if name == "mri" and arguments.data is not None:
        options["image"] = arguments.data
    if name == "hughes":
        options["normalization"] = arguments.normalization
    return getattr(randsmap.studies, f"{name.replace('-', '_')}_study")(**options)


def _run_study(study, name, out, decoders, arguments):
    from randsmap.studies._report import sentences
    from randsmap.studies._result import BEST, terminal_width, write_csv, write_markdown

    studies = randsmap.studies
    shared = ("quick", "runs", "seed", "feature_seed", "split", "training_form")
    options = {option: getattr(arguments, option) for option in shared} | {"searched": arguments.auto}
    data, command = None if name == "mri" else arguments.data, _study_command(name, decoders, arguments)
    # `main` shows progress already
    result = studies.run_study(study, out=out, decoders=decoders, data=data, command=command, progress=False, **options)
    write_csv(result.rows, out / "table.csv")
    write_markdown(result, out / "table.md")
    for text in (f"{result.title}, {result.section}", *result.cuts):
        tell(textwrap.fill(text, terminal_width()))
    tell("")
    for line in studies.format_table(result.rows).splitlines():
        tell(painted(line, "bold") if line.endswith(BEST) else line)
    tell(f"written: {out / 'table.csv'}, {out / 'table.md'}")
    _write_report(studies.write_report, result, out, arguments.figures and arguments.figures / name)
    for sentence in sentences(result, []):
        tell(textwrap.fill(painted(sentence, "bold"), terminal_width()))
    return result


def _study_command(name, decoders, arguments):
    """The command that makes a study again, without defaults except the seed."""
    options = ["quick", "runs", "seed", "feature_seed", "split", "data", "training_form", "auto"]
    if name == "hughes":
        options.append("normalization")
    defaults = {"quick": False, "split": "random", "normalization": "before"}  # other defaults are None
    words = ["randsmap", "study", name]
    for option in options:
        value, flag = getattr(arguments, option), _flag(option)
        if value == defaults.get(option):
            continue
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, str(value)]
    if decoders is not None:
        words += ["--decoders", ",".join(decoders)]
    return shlex.join(words)


def _flag(name):
    return f"--{name.replace('_', '-')}"


def _write_report(write, *what):
    """Write a report and print its path, or why there is none: matplotlib is missing."""
    try:
        tell(f"report: {write(*what)}")
    except ImportError as error:
        tell(f"no report: {error}")


def dataset(arguments):
    out, picture = arguments.out, arguments.picture
    everything = out.suffix.lower() == ".npz"
    if not everything and out.suffix.lower() != ".npy" and not is_stream(out):
        raise ValueError(f"--out must name a .npy or .npz file, got {str(out)!r}")
    for path in filter(None, (out, picture)):
        writable_target(path)
    if picture is not None:
        randsmap.plotting.check_matplotlib()  # fail before the work is done
    sizes = ("n_trajectories", "snapshots_per_trajectory", "n_samples", "image")
    given = {name: value for name, value in vars(arguments).items() if name in sizes and value is not None}
    make = getattr(randsmap.datasets, f"make_{arguments.name.replace('-', '_')}")
    bunch = make(random_state=arguments.seed, **given, out=None if everything else out)
    if everything:
        arrays = {key: value for key, value in bunch.items() if isinstance(value, np.ndarray)}
        write_atomically(out, lambda file: save_arrays(file, arrays))
    found = _written(out, bunch.data.shape, shape=bunch.data.shape)
    if picture is not None:
        figure = _picture(arguments.name, bunch)
        write_atomically(picture, lambda file: figure.savefig(file, format="png", dpi=150))
        _written(picture)
    return found


def _picture(name, bunch):
    """The data set as the paper shows it."""
    plotting = randsmap.plotting
    if name == "rotated-images":
        some = plotting.spread_rows(len(bunch.data) + 1, 7)[
            :-1
        ]  # the last image, after a full turn, would repeat the first
        titles = [f"θ = {angle:.4g}°" for angle in np.rad2deg(bunch.angles[some])]
        return plotting.plot_fields(bunch.data[some], titles, shape=bunch.shape)
    if name in ("swiss-roll", "s-curve"):
        points = bunch.data if name == "swiss-roll" else bunch.data @ bunch.embedding
        label, axes = bunch.coordinate_names[0], ("x1", "x2", "x3")
        return plotting.plot_embedding(points, bunch.coordinates[:, 0], label=label, names=axes).figure
    first = bunch.trajectories == 0
    fields, times = bunch.data[first], bunch.times[first]
    if name == "lwr":
        return plotting.plot_space_time(fields, times, bunch.cell_centers).figure
    options = {"shape": bunch.shape, "extent": (20.0, 5.0), "mask": bunch.mask, "label": "density", "n_panels": 4}
    return plotting.plot_fields(fields, [f"t = {time:g}" for time in times], **options)


# -- fit -----------------------------------------------------------------------------------------------------
def fit(arguments):
    start = time.monotonic()
    one_decoder = [name for name in ONE_DECODER if getattr(arguments, name) is not None]
    search = not one_decoder
    _check_options(arguments, one_decoder)
    snapshots = read_snapshots(arguments.input, key=arguments.key, transpose=arguments.transpose)
    checked = _training_rows(arguments, snapshots, search)
    _check_out(arguments)
    if arguments.out.suffix.lower() == ".npy":
        raise ValueError(f"--out is the model file, not an array: {arguments.out}")
    n, facts = len(snapshots), {"data": f"{len(snapshots)} snapshots of {_by(snapshots.shape[1:])} cells"}
    groups, parameters = _groups_of(arguments, snapshots), _parameters_of(arguments, snapshots)
    # the whole file is checked before any work: a fit would count rows within its part
    kept = _kept(arguments, checked, flattened(snapshots, "snapshots")[1], snapshots.dtype, facts)
    count = arguments.encoder_samples
    if count is None and search and n > _MOST_SEARCHED:
        count = _MOST_SEARCHED
    sample, places, labels = snapshots, parameters, groups
    if count is not None and count < n:
        also = ", to which fields at parameters are fitted" if search and parameters is not None else ""
        facts["data"] += f"; {'search' if search else 'encoder'}: {count} of them (--encoder-samples){also}"
    if count is not None and count < n and not (search and parameters is None):
        # without a search: the rows on which the model fits its encoder
        chosen, sample = randsmap.model.sampled(snapshots, max(2, count), arguments.seed if search else 0)
        places, labels = (None if array is None else array[chosen] for array in (parameters, groups))
    few = arguments.components is not None or arguments.decoder is not None
    model = None
    if search and parameters is None:  # the last fit of a search uses all snapshots
        model = _searched(arguments, snapshots, groups, kept, facts, n_samples=count and max(4, count))
    elif not search or few:
        model = (_searched if search else _one_model)(arguments, sample, labels, kept, facts)
    if parameters is not None:
        data = (sample, places, labels) if search else (snapshots, parameters, groups)
        model = _parametric(arguments, model, *data, kept, facts)
    elif not search:
        held_out = held_out_errors(model, sample, groups=labels)
        model.fit(snapshots)
        model.held_out_ = judged(model, held_out, sample)
    if model.held_out_.n_snapshots < n:
        model.held_out_ = replace(model.held_out_, rows=chosen[model.held_out_.rows], n_snapshots=n)
    model.save(arguments.out)
    errors = randsmap.model.reconstruction_errors(model, snapshots, parameters=parameters)["relative_l2"]
    fitted, held_out = getattr(model, "model_", model), model.held_out_
    d = len(fitted.get_feature_names_out())
    found = encoder_in_words(fitted.encoder_) if hasattr(fitted, "encoder_") else type(fitted).__name__
    at_most = facts.pop("at most", "")
    facts["encoder"] = f"{found}; {d} coordinate{'' if d == 1 else 's'}{at_most}"
    facts["error"] = f"{held_out.in_short}; {100 * errors.mean():.3g} % on the training data"
    if arguments.verbose:
        facts["error"] += f"\n{held_out.in_words}"
    facts["saved"] = (
        f"{arguments.out} ({os.path.getsize(arguments.out) / 1e6:.1f} MB, {time.monotonic() - start:.0f} s)"
    )
    for name in ("data", "encoder", "decoder", "error", "hint", "saved"):
        if name in facts:
            tell(f"{painted(f'{name:<8}', 'bold')}  " + facts[name].replace("\n", "\n" + " " * 10))
    for text in cautions_in_words(fitted, snapshots, groups):
        tell(f"{warning_sign()} {text}", sys.stderr)
    if arguments.freezable:
        try:
            model.freeze()
        except (TypeError, ValueError) as error:
            tell(f"{warning_sign()} the model is written, but {error}", sys.stderr)
    numbers = {"error": held_out.mean, "standard_error": held_out.standard_error, "training_error": errors.mean()}
    return {"model": arguments.out, "n_components": d, "seconds": time.monotonic() - start, **numbers, "words": facts}


def _check_options(arguments, one_decoder):
    """Raise for options that exclude each other: options of the search and options of one decoder."""
    for option in ("components", "trials", "encoder_samples"):
        if getattr(arguments, option) is not None:
            check_count(getattr(arguments, option), _flag(option))
    for option in ("groups", "parameters", "cell_weights"):
        if getattr(arguments, f"{option}_key") is not None and getattr(arguments, option) is None:
            raise ValueError(f"{_flag(option)}-key names an array of the file of {_flag(option)}, which is missing")
    if arguments.decoder == ["auto"]:
        arguments.decoder = None
    randsmap.decoders.check_families(arguments.decoder, "--decoder", "auto")
    for option in ("decoder", "trials"):
        if one_decoder and getattr(arguments, option) is not None:
            other = _flag(one_decoder[0])
            raise ValueError(f"{_flag(option)} is for the search, which {other} switches off: leave one of them out")


def _training_rows(arguments, snapshots, search):
    """Checked rows of the snapshots. A large file is not read into memory, which restricts the options."""
    path = arguments.input
    checked = rows.Rows.of(flattened(snapshots, str(path))[0], str(path), min_rows=4 if search else 2)
    if not checked.mapped:
        return checked
    n, M = checked.shape
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
    return checked


def _kept(arguments, checked, layout, dtype, facts):
    """Invariants and bounds as parameters of estimators; notes the invariants among the facts of the data."""
    bounds = None if arguments.bounds is None else tuple(arguments.bounds)
    kept = {"cell_weights": _weights_of(arguments, layout), "bounds": bounds}
    if bounds is not None:
        try:
            fit_estimator(InvariantParameters(invariants=None, **kept), checked, dtype)
        except ValueError as error:
            what, of_fields, _ = str(error).partition("; bounds=None")
            where, remedy = (f"{arguments.input}: ", ", or leave --bounds out") if of_fields else ("--bounds: ", "")
            raise ValueError(f"{where}{what.removeprefix('bounds: ')}{remedy}") from None
    mass = None
    if arguments.invariants != "none":
        wanted = InvariantParameters(invariants="mass", cell_weights=kept["cell_weights"])
        given = RunningInvariants.of(wanted, checked.shape[1])
        mass, reason = common_values(checked, given, dtype)
        by = "" if kept["cell_weights"] is None else " by cell weights"
        if mass is not None:
            facts["data"] += f"; mass{by} {mass[0]:.6g}, conserved"
        elif arguments.invariants == "mass":
            remedy = "Is every row one field? --invariants none (or auto) switches the invariant off"
            raise ValueError(f"{arguments.input}: {reason}. {remedy}")
        else:
            masses = checked.times(given.matrix)
            facts["data"] += f"; masses{by} from {masses.min():.4g} to {masses.max():.4g}, not conserved"
    return {**kept, "invariants": None if mass is None else "mass"}


def _searched(arguments, snapshots, groups, kept, facts, n_samples=None):
    """The model with the least cross-validation error; adds its description to the facts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "|".join(WARNINGS))  # `fit` prints them, for all snapshots
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
            n_samples=n_samples,
        )
    _, decoder, *parts, _ = randsmap.tuning.search_summary(result)
    facts["decoder"] = decoder.removeprefix("decoder: ").rstrip(":")
    if parts and arguments.verbose:
        facts["decoder"] = "\n".join([facts["decoder"], *parts])
    elif parts:
        families = ", ".join(dict.fromkeys(part.split()[0] for part in parts))
        facts["decoder"] += f" ({families}; --verbose lists them)"
    limit = "by the snapshots' spectrum" if arguments.components is None else "by --components"
    facts["at most"] = f", at most {max(result.results_.n_components)} {limit}"
    more = randsmap.tuning.advised_components(result)
    if more is not None and arguments.parameters is None:  # the errors of the search are those of reconstructed fields
        (now,) = result.results_.error[result.results_.chosen]
        then = result.error_with_one_more_component_
        facts["hint"] = (
            f"{more} coordinates: about {100 * then:.2g} % instead of {100 * now:.2g} % in the search, although the "
            f"spectrum shows no other (--components {more})"
        )
    if result.on_edge_:
        text = f"{', '.join(result.on_edge_)} at the boundary of the search range: a better value may lie beyond"
        tell(f"{warning_sign()} {text}", sys.stderr)
    return result.best_model_


def _one_model(arguments, sample, groups, kept, facts):
    """Diffusion maps and one decoder with random features, not fitted; notes the value that was tuned."""
    class_name, parameter = FEATURES[arguments.features or "sigmoid"]
    value, n_features, regularization = (
        default if given is None else given
        for given, default in ((arguments.value, 1.0), (arguments.n_features, 1.0), (arguments.regularization, 1e-3))
    )
    features = getattr(randsmap, class_name)(value, n_features=n_features)
    decoder = randsmap.RANDSMAPDecoder(features, regularization=regularization, **kept, random_state=arguments.seed)
    d = arguments.components
    if d is None:
        estimate = randsmap.encoders.estimate_n_components
        d = estimate(sample, cell_weights=kept["cell_weights"]) if len(sample) > 2 else 1
    model = randsmap.ManifoldModel(randsmap.DiffusionMaps(n_components=d, alpha=arguments.alpha), decoder)
    if arguments.value is None:
        model.set_params(**_tuned(arguments, model, parameter, sample, groups, facts))
    value, tuned = getattr(model.decoder.features, parameter), facts.pop("tuned", "")
    facts["decoder"] = f"{type(decoder).__name__}, {n_features} {arguments.features or 'sigmoid'} features"
    facts["decoder"] += f"{' per snapshot' * isinstance(n_features, float)}, {parameter} {value:.4g}{tuned}"
    return model.set_params(encoder_samples=arguments.encoder_samples)


def _tuned(arguments, model, parameter, snapshots, groups, facts):
    """The best value of a parameter of the features on a fifth of the snapshots, or of the groups."""
    if len(snapshots) < 10:
        raise ValueError(f"tuning needs at least 10 snapshots, got {len(snapshots)}; give --value")
    fields, _ = flattened(snapshots, "the snapshots")
    split = (ShuffleSplit if groups is None else GroupShuffleSplit)(20, test_size=0.2, random_state=arguments.seed)
    splits = split.split(fields, groups=check_groups(groups, len(fields)))
    # the first groups that leave half of the snapshots, for groups of any size
    training, validation = (fields[part] for part in max(splits, key=lambda s: min(len(s[0]), len(fields) // 2)))
    grid = {f"decoder__features__{parameter}": randsmap.tuning.default_values(parameter)}
    result = randsmap.tune(model, grid, None, training, None, validation)
    edge = " at the boundary of the grid: a better value may lie beyond" if any(result.on_edge_.values()) else ""
    facts["tuned"] = f" (tuned{edge})"
    return result.best_params_


def _parametric(arguments, model, snapshots, parameters, groups, kept, facts):
    """The fitted model of fields at parameters, by default the plain one; adds errors to the facts."""
    models, kept = (None, kept) if model is None else ([model], {})
    options = {"n_trials": arguments.trials, "random_state": arguments.seed, **kept}
    result = randsmap.tuning.choose_parametric(models, parameters, snapshots, groups=groups, **options)
    if model is None:
        errors = zip(("all POD modes", "all modes of the quantiles of the mass"), result.held_out_errors_)
        words = ", ".join(f"{100 * error:.2g} % by {name}" for name, error in errors)
        facts["decoder"] = f"kernel regression at parameters: cross-validation error {words}"
    repeated = [f"parameter {j} takes {count} values" for j, count in result.repeated_values_.items()]
    if groups is None and repeated:
        facts["hint"] = (
            f"{', '.join(repeated)}: snapshots left out had others at their values, and fields at new values may be "
            "far worse. --groups FILE with a label for each value of one of them leaves whole values out"
        )
    return result.best_model_


def _by(shape):
    return " x ".join(map(str, shape))


# -- encode, decode, predict, evaluate, report ---------------------------------------------------------------
def encode(arguments):
    _check_out(arguments, check_target)  # fail before the work is done
    model = _model_of(arguments)
    snapshots = _read_fields(arguments, model)
    latents = model.transform(snapshots)
    return _write(arguments, latents, "latents")


def decode(arguments):
    _check_out(arguments, check_target)
    model = _model_of(arguments)
    d = len(model.get_feature_names_out())
    latents = _read(arguments, read_array, ((d,),), f"latents must have {d} coordinate(s) (columns)")
    return _write_fields(arguments, model.inverse_transform, latents, model.field_shape_)


def predict(arguments):
    _check_out(arguments, check_target)
    model = _model_of(arguments, at_parameters=True)
    p = model.n_features_in_
    parameters = _read(arguments, partial(read_columns, width=p), ((p,),), f"parameters must have {p} column(s)")
    return _write_fields(arguments, model.predict, parameters, model.field_shape_)


def evaluate(arguments):
    _check_out(arguments)
    model, fitted, snapshots, parameters = _model_and_data(arguments)
    errors = randsmap.model.reconstruction_errors(model, snapshots, parameters=parameters)
    for text in facts_in_words(model, snapshots):
        tell(text)
    if parameters is None and hasattr(model, "regressor_"):
        tell("These are errors of encoding and decoding: give --parameters FILE for those of fields at parameters.")
    if arguments.out is not None:
        table = zip(*(values.tolist() for values in errors.values()), strict=True)
        text = "\n".join([",".join(errors), *(",".join(map(repr, row)) for row in table)]) + "\n"
        write_atomically(arguments.out, lambda file: file.write(text.encode()))
    tell(painted(f"{'':20}{'mean':>12}{'median':>12}{'5 %':>12}{'95 %':>12}{'largest':>12}", "bold"))
    found = {}
    for name, values in errors.items():
        figures = [values.mean(), *np.percentile(values, [50, 5, 95]), values.max()]
        label, unit = _ERRORS.get(name, (name.replace("_", " "), 1))
        tell(f"{label:20}" + "".join(f"{unit * figure:12.3g}" for figure in figures))
        found[name] = dict(zip(("mean", "median", "p05", "p95", "max"), figures, strict=True))
    kept = getattr(randsmap.invariants.decoding_part(model), "invariants_", None)
    if kept is not None:
        tell(f"the model enforces {_kept_in_words(kept.matrix, kept.cell_weights, kept.lower, kept.upper)}")
    metrics = randsmap.metrics
    norms = metrics.field_norms(snapshots, cell_weights=norm_weights(fitted.field_shape_, fitted))
    small = int((norms < metrics.SMALLEST_SHARE * metrics.median_norm(norms)).sum())
    if small:
        tell(f"{small} field(s) are empty or below 1e-3 of the median norm: their errors are relative to that")
    held_out = getattr(model, "held_out_", None)
    return {"held_out_error": None if held_out is None else held_out.mean, "n_snapshots": len(snapshots), **found}


# -- freeze, info --------------------------------------------------------------------------------------------
def freeze(arguments):
    _check_out(arguments)
    model = randsmap.load(arguments.model)
    if not hasattr(model, "freeze"):
        why = "is an image" if isinstance(model, randsmap.FrozenDecoder) else "decodes no fields"
        raise ValueError(f"{arguments.model} holds a {type(model).__name__}, which {why}: give a model of randsmap fit")
    kind = "table" if arguments.table else "features"
    options = {"precision": arguments.precision, "tol": arguments.tol, "kind": kind, "error_bar": arguments.error_bar}
    if arguments.distil is not None:
        options["distil"] = _kernels(check_count(arguments.distil, "--distil"), model)
    if arguments.latents is not None:
        options["latents"] = read_array(arguments.latents)
    image = model.freeze(**options)
    image.save(arguments.out)
    if arguments.distil is not None:
        tell(f"distilled: mean relative L2 error {100 * image.distilled_error_:.2g} % from the fields of the decoder")
    return _written(arguments.out, f"({image.nbytes} bytes):", repr(image), bytes=image.nbytes)


def _kernels(n, model):
    """A decoder of n kernels, not fitted, with the invariants and bounds of the model's decoder."""
    kept, options = getattr(randsmap.invariants.decoding_part(model), "invariants_", None), {}
    if kept is not None and kept.matrix.shape[1]:
        options = {"invariants": kept.matrix, "invariant_values": kept.values}
    if kept is not None and kept.lower is not None:
        options["bounds"] = tuple(np.reshape(bound, model.field_shape_) for bound in (kept.lower, kept.upper))
    # several kernels and scales, by experience with blends of several data sets
    shape = {"nu": 2.5, "degree": 1, "length_scale": 2.0, "regularization": 1e-8}
    return randsmap.KernelDecoder("matern", n_centers=n, **shape, **options)


def info(arguments):
    path, found = arguments.model, randsmap.load(arguments.model)
    if isinstance(found, randsmap.FrozenDecoder):
        facts, parts = dict(_facts_of_image(found)), []
    else:
        version = randsmap.persistence.read_archive(path)[0]["randsmap"]
        facts = {"model": f"{type(found).__name__} of randsmap {version}, {os.path.getsize(path)} bytes"}
        facts, parts = facts | dict(_facts_of_model(found)), list(randsmap.reports.settings(found))
        parts = parts or [(repr(found), [])]
    for name, text in facts.items():
        tell(f"{painted(f'{name:<14}', 'bold')}  {text}")
    for what, table in parts:
        tell("\n  ".join([painted(what, "bold"), *(f"{name}: {value}" for name, value in table[1:])]))
    return facts


def _facts_of_image(image):
    part, version = partial(section_of, source := image.linear_map.kernel.source), np.frombuffer(source, "u4", 4)[3]
    size = f"{image.nbytes} bytes, version {version} of the format"
    yield "image", f"{type(image).__name__}: {image.kind} in {image.precision} ({size}), for C and Python"
    yield "fields", _fields_in_words(image.field_shape_)
    points = "latents" if part("input") is None else "parameters"
    yield points, f"{image.n_components}; {image.n_features} functions of them"
    sums, weights, fixed = part("invariants"), part("cell_weights"), part("constant_cells")
    sums, fixed = np.zeros((0, 1)) if sums is None else sums, [] if fixed is None else fixed[0]
    bounds = [None if bound is None else np.delete(bound, fixed) for bound in (part("lower"), part("upper"))]
    yield "enforces", _kept_in_words(sums.T, None if weights is None else weights.ravel(), *bounds)
    if image.distilled_error_:
        yield "distilled", f"mean relative L2 error {100 * image.distilled_error_:.2g} % from another decoder's fields"
    yield "encoder", "yes" if isinstance(image, randsmap.FrozenModel) else "no, the image holds a decoder alone"
    yield from _error_bar(image)


def _facts_of_model(model):
    part, shape = randsmap.invariants.decoding_part(model), getattr(model, "field_shape_", None)
    if shape is not None:
        yield "fields", _fields_in_words(shape)
        if norm_weights(shape, model) is not None:
            yield "cell weights", "yes: the mass is the weighted sum, and errors are measured in the weighted norm"
    if hasattr(model, "predict"):
        yield "parameters" if hasattr(model, "regressor_") else "latents", str(model.n_features_in_)
    encoder = model if hasattr(model, "transform") else getattr(model, "model_", None)
    if hasattr(getattr(encoder, "encoder_", encoder), "get_feature_names_out"):  # another package's may have no names
        names = list(encoder.get_feature_names_out())
        yield "latents", f"{len(names)} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
    kept = getattr(part, "invariants_", None)
    if kept is not None:
        yield "enforces", _kept_in_words(kept.matrix, kept.cell_weights, kept.lower, kept.upper)
        values = "differ from field to field" if kept.varying else ", ".join(map(repr, kept.values.tolist()))
        yield from [("their values", values)] if len(kept.values) else []
    points = getattr(getattr(part, "fitted", None), "training_points", None)
    if points is not None:
        yield "training points", f"{len(points)}"
    if hasattr(model, "held_out_"):
        yield "error", "no cross-validation error is stored" if model.held_out_ is None else model.held_out_.in_words
    yield from _error_bar(model)
    try:
        yield (
            "image for C",
            f"{model.freeze().nbytes} bytes" if hasattr(model, "freeze") else "no, it decodes no fields",
        )
    except (TypeError, ValueError) as error:
        yield "image for C", f"no: {error}"


def _fields_in_words(shape):
    return f"{math.prod(shape)} cells" + (f", {_by(shape)}" if len(shape) > 1 else "")


def _kept_in_words(*kept):
    sums, bounds = kept_in_words(*kept)
    return " and ".join(filter(None, (sums, bounds and f"values {bounds}"))) or "nothing"


def _error_bar(model):
    """The error bar of a model, if it is known or found in less than minutes."""
    part = randsmap.invariants.decoding_part(model)
    if getattr(model, "calibrated_", None) or not hasattr(part, "fit") or leverage_cost(part) <= 1e12:
        bar = getattr(model, "error_bar_", None)
        if bar is not None:
            yield (
                "error bar",
                f"errors of 90 % of the fields left out: below {100 * np.quantile(bar.errors, 0.9):.2g} %",
            )


def report(arguments):
    if arguments.out.suffix.lower() in (".npy", ".npz"):
        raise ValueError(f"--out is the page, such as report.html, not an array or a model: {arguments.out}")
    _check_out(arguments)
    model, _, snapshots, parameters = _model_and_data(arguments)
    data = {"parameters": parameters, "groups": _groups_of(arguments, snapshots), "shape": arguments.shape}
    title, command = f"{arguments.model.name} on {arguments.input.name}", shlex.join(["randsmap", *arguments.words])
    words = {"title": title, "command": command, "figures": arguments.figures}
    path = randsmap.reports.write_model_report(model, snapshots, arguments.out, **data, **words)
    tell(f"report: {path}")
    return {"written": path}


# -- Models and arrays in files ------------------------------------------------------------------------------
def _model_of(arguments, at_parameters=False):
    """The model of fields and latents in a file, also within a `ParametricModel`; or that with `at_parameters`."""
    path = arguments.model
    model = randsmap.load(path)
    if isinstance(model, randsmap.ParametricModel):
        if at_parameters:
            return model
        held = model.held_out_  # errors of fields at parameters, without points at latents
        model.model_.held_out_ = None if held is None else replace(held, points=None, norms=None)
        return model.model_
    if at_parameters:
        what = f"{type(model).__name__}, which has no parameters"
        raise ValueError(f"{path} holds a {what}: randsmap fit --parameters makes a ParametricModel")
    if not isinstance(model, randsmap.ManifoldModel):
        raise ValueError(f"{path} holds a {type(model).__name__}, not a model: give what randsmap fit wrote")
    return model


def _model_and_data(arguments):
    """The model in a file, that of fields and latents in it, snapshots, and parameters or None."""
    at_parameters = arguments.parameters is not None
    model = _model_of(arguments, at_parameters)
    fitted = model.model_ if at_parameters else model
    snapshots = _read_fields(arguments, fitted)
    return model, fitted, snapshots, _parameters_of(arguments, snapshots, model.n_features_in_)


def _read_fields(arguments, model):
    """The input file as fields (n, M) or (n, *shape) for a fitted model, with their labels."""
    M, shape = model.n_features_in_, model.field_shape_
    cells = f"snapshots must have {f'{M} cells (columns)' if len(shape) == 1 else f'the shape {shape}'}"
    given = _read(arguments, partial(read_array, fields=True), ((M,), shape), cells)
    if len(given) == M:  # a square array, which fits with and without --transpose
        warn_of_columns(given, arguments.input, arguments.transpose)
    return given


def _read(arguments, read, shapes, expectation):
    """The input file. Unless a row has one of the shapes (of equal size), ValueError with a hint at the cause."""
    path = arguments.input
    given = read(path, key=arguments.key, transpose=arguments.transpose)
    if given.ndim < 2 or (given.ndim > 2 and len(shapes[-1]) == 1):
        refuse_other_dimensions(given.shape, str(path))
    if given.shape[1:] in shapes:
        return given
    hint = f". They do with{'out' if arguments.transpose else ''} --transpose"
    if given.size != shapes[0][0] * (len(given) if arguments.transpose else given.shape[-1]):
        hint = _other_array(arguments, "input", "key")
    raise ValueError(f"{path}: the {expectation}, as those of the model, got shape {given.shape}{hint}")


def _other_array(arguments, name, option):
    """A hint that the option with the name of an array may be missing."""
    may_be = getattr(arguments, option) is None and getattr(arguments, name).suffix.lower() in HAVE_NAMES
    return f". If they are another array of the file, {_flag(option)} names it" if may_be else ""


def _parameters_of(arguments, snapshots, width=None):
    """Parameters (n, p) of --parameters, or None; where the snapshots are columns, theirs may be as well."""
    path, n = arguments.parameters, len(snapshots)
    if path is None:
        return None
    parameters = _read_option(read_columns, arguments, "parameters", width=width)
    columns = parameters.shape[1] == n
    if len(parameters) != n and columns and arguments.transpose:
        parameters = parameters.T
    if len(parameters) == n:
        check_samples(**{f"snapshots of {arguments.input}": snapshots, f"parameters of {path}": parameters})
        if parameters.shape == snapshots.shape and parameters.shape[1] > 1 and np.array_equal(parameters, snapshots):
            raise ValueError(f"{path}: parameters are the snapshots themselves: --parameters-key names the other array")
        return parameters
    remedy = _other_array(arguments, "parameters", "parameters_key")
    remedy = f" rows of {n} numbers, one column for each: give it transposed" if columns else remedy
    raise ValueError(f"{path} must hold one row for each of the {n} snapshots, got {len(parameters)}{remedy}")


def _read_option(read, arguments, name, **how):
    """The result of `read` for the file of an option; errors name the option that selects the array."""
    try:
        return read(getattr(arguments, name), key=getattr(arguments, f"{name}_key"), **how)
    except ValueError as error:
        raise ValueError(str(error).replace("--key", f"--{name.replace('_', '-')}-key")) from error


def _groups_of(arguments, snapshots):
    """Labels (n,) of --groups, or None."""
    path, n = arguments.groups, len(snapshots)
    if path is None:
        return None
    labels = _read_option(read_labels, arguments, "groups", n=n)
    if labels.ndim > 1 and max(labels.shape) == labels.size == n:  # a row vector of MATLAB
        labels = labels.squeeze()
    if labels.shape != (n,):
        got = f"{len(labels)} labels" if labels.ndim == 1 else f"an array of shape {labels.shape}"
        got += _other_array(arguments, "groups", "groups_key")
        raise ValueError(f"{path} must hold one label for each of the {n} snapshots, got {got}")
    check_samples(**{f"snapshots of {arguments.input}": snapshots, f"labels of {path}": labels})
    labels = np.asarray(labels)
    if len(np.unique(labels)) < 2:
        raise ValueError(f"{path} must name at least two groups, one of which can be left out, got {labels[0]} alone")
    return labels


def _weights_of(arguments, layout):
    """Weights (M,) of --cell-weights for the cells of fields of this layout, or None."""
    path, shape = arguments.cell_weights, layout.shape
    if path is None:
        return None
    weights = _read_option(read_array, arguments, "cell_weights")
    if weights.size != math.prod(shape) or (weights.shape != shape and max(weights.shape) != weights.size):
        hint = _other_array(arguments, "cell_weights", "cell_weights_key")
        hint = f". Reshape them: reshape({layout.n_cells})" if weights.size == layout.n_cells else hint
        raise ValueError(f"{path} must hold one weight for each of {_by(shape)} cells, got shape {weights.shape}{hint}")
    if weights.ndim == 2 and weights.shape != shape:  # the names of a text's rows or columns are those of the cells
        layout.compare(weights.T if len(weights) > 1 else weights, str(path))
    return check_cell_weights(weights if weights.shape == shape else np.ravel(weights), layout, str(path))


def _check_out(arguments, check=writable_target):
    """Raise if --out or --error is a file that the command reads, or cannot be written."""
    for option in ("out", "error"):
        out = getattr(arguments, option, None)
        if out is None:
            continue
        for name in ("model", "input", "groups", "parameters", "cell_weights", "invariant_values", "latents"):
            path = getattr(arguments, name, None)
            with contextlib.suppress(OSError):  # the path does not exist, or raises an error when it is read
                if path is not None and os.path.samefile(path, out):
                    raise ValueError(f"--{option} {out} would replace {path}, which is read: give another name")
        check(out)
    if getattr(arguments, "error", None) is not None and arguments.error == arguments.out:
        raise ValueError(f"--error {arguments.error} would replace the fields of --out: give another name")


def _write(arguments, array, name):
    write_array(arguments.out, array, name, transpose=arguments.transpose_out)
    note = ", as columns" if arguments.transpose_out else ""
    return _written(arguments.out, array.shape, note=note, shape=array.shape)


def _write_fields(arguments, decode, X, shape):
    """decode(X), fields of that shape; large ones of a .npy file are computed in the file."""
    if arguments.invariant_values is not None:
        decode = partial(decode, invariant_values=read_array(arguments.invariant_values))
    if arguments.error is not None:
        coverage = {} if arguments.coverage is None else {"coverage": arguments.coverage}
        decode = partial(decode, return_error=True, **coverage)
    elif arguments.coverage is not None:
        raise ValueError("--coverage is the probability of the errors: give --error FILE")
    errors = []

    def fill(fields):
        found = decode(X, out=fields)
        errors.extend(found[1:] if arguments.error is not None else ())
        return fields

    shape, path = (len(X), *shape), arguments.out
    check_target(path, math.prod(shape))
    if 8 * math.prod(shape) < rows.LARGE or not is_npy_target(path) or arguments.transpose_out:
        result = _write(arguments, fill(np.empty(shape)), "fields")
    else:
        rows.write_npy(path, shape, fill)
        result = _written(path, shape, shape=shape)
    for found in errors:
        write_array(arguments.error, found, "errors")
        figures = f", median {100 * np.median(found):.3g} %, largest {100 * found.max():.3g} %" if len(found) else ""
        _written(arguments.error, found.shape, note=figures)
    return result
