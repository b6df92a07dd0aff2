"""Model files: fitted models on disk, exact to the bit, safe to load from anyone.

``model.save(path)`` writes a file, `load` gives the model back. A file is an ``.npz`` without
pickles or object arrays: a manifest in JSON (the classes by name, their parameters, checksums) and
the arrays, named by where they belong (``decoder_.coef_``), so that `numpy.load` can read them
without this package. `randsmap.persistence._archive` describes the bytes.

What can be stored: the package's own classes named in `CLASSES`, with parameters that are numbers,
strings, None, arrays of numbers, lists and tuples of such, and other stored objects. A parameter
that is a `numpy.random.RandomState` or `Generator` is stored as None: its draws are in the fitted
attributes, but a second `fit` of the loaded model draws others. NumPy scalars come back as Python's
numbers. Transformers and regressors of scikit-learn or of the user are refused by `save`, since
only a pickle can hold them.

Loading runs no code of the file's choosing: only classes of `CLASSES` are made, and each fitted
attribute is checked against its class's declaration (type, shape, finite values, index ranges,
agreement with the other attributes), so that a crafted file gets a ValueError too, never a compiled
kernel reading beyond an array.

To make a class storable, declare its fitted attributes, all of them, in a dictionary ``_state`` of
the class (the kinds are in `randsmap._interface.state`)::

    _state = {"n_features_in_": Count("d"), "weights_": Array("d", "P"), "offsets_": Array("P")}

and add a line to `CLASSES`. Rules:

- ``__init__`` only stores its arguments, as scikit-learn asks; a class that is no scikit-learn
  estimator has no parameters, only ``_state``.
- What is declared NOT_SAVED is not stored; a method ``_restore()`` makes it from the others, and also
  makes the checks that a declaration cannot express (ValueError). What a BLAS computed is stored,
  not derived.
- A transformer has `_n_features_out`, a regressor `_n_outputs`, so that the parts of a model are
  known to fit.
- A parameter that is used after `fit` belongs in ``_state`` as well (as `_exact` of
  RANDSMAPDecoder): parameters in a file are not checked, as in a constructor.
- A parameter that is missing in a file takes its default. If anything else changes, `VERSION` grows.
"""

from __future__ import annotations

import math
import os
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from randsmap._interface.state import NOT_SAVED, check_state, is_optional
from randsmap._io.files import expanded, write_atomically
from randsmap.maps.frozen import is_image, load_image
from randsmap.persistence import _archive

__all__ = ["load", "save"]

FORMAT, VERSION = "randsmap model", 1
# class -> its module in the package
CLASSES = {
    "AffineInvariants": "invariants",
    "FieldShape": "_interface.fields",
    "XarrayMetadata": "_interface.fields",
    "FourierFeatures": "features",
    "MaternFeatures": "features",
    "MonomialFeatures": "features",
    "MultiscaleFourierFeatures": "features",
    "SigmoidFeatures": "features",
    "DiffusionMaps": "encoders",
    "POD": "encoders",
    "RFNNDecoder": "decoders",
    "RANDSMAPDecoder": "decoders",
    "KNNDecoder": "decoders",
    "DoubleDiffusionMapsDecoder": "decoders",
    "KernelDecoder": "decoders",
    "BlendedDecoder": "decoders",
    "AutoDecoder": "decoders",
    "ScaledTransformer": "decoders",
    "ManifoldModel": "model",
    "ParametricModel": "model",
    "ShiftRegistration": "model",
}
_MAX_DEPTH = 20  # of parameters within parameters
_MAX_OBJECTS = 300  # blends of 12 decoders of random features, of fields and of latents over parameters, are 206
_NAMES = "feature_names_in_"  # scikit-learn's, of any estimator that was fitted on a data frame


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to the file `path`.

    Parameters
    ----------
    model : object of a class in `CLASSES`
        `ManifoldModel`, or an encoder, decoder or feature map alone.
    path : path
        Taken as it is, but for a leading ``~``; ``.npz`` is customary. The file is there whole or, if
        writing fails, as it was before. A symbolic link stays one, an existing file keeps its mode.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        Before `fit`.
    TypeError
        If a part or a parameter cannot be stored without a pickle; the message names it.
    ValueError
        If an attribute is not what `fit` makes it.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from randsmap import SigmoidFeatures, load
    >>> from randsmap.persistence import save
    >>> features = SigmoidFeatures(3.0, n_features=5, random_state=0).fit([[0.0], [1.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "features.npz")
    ...     save(features, path)
    ...     again = load(path)
    >>> again, bool((again.weights_ == features.weights_).all())
    (SigmoidFeatures(n_features=5, random_state=0, slope=3.0), True)
    """
    writer = _Writer()
    writer.add(model, "", 0)
    if writer.objects[-1]["state"] is None:
        check_is_fitted(model, next(iter(type(model)._state)))
    if len(writer.objects) > _MAX_OBJECTS:
        raise TypeError(f"the model has {len(writer.objects)} parts, at most {_MAX_OBJECTS} fit")
    manifest = {"format": FORMAT, "version": VERSION, "randsmap": version("randsmap"), "objects": writer.objects}
    write_atomically(path, lambda file: _archive.write(file, manifest, writer.arrays))


def load(path: str | os.PathLike[str]) -> Any:
    """The model that was saved to a file; safe for files from untrusted sources.

    Parameters
    ----------
    path : path
        A file written by `ManifoldModel.save` or `save`.

    Returns
    -------
    model
        Equal to the one saved, to the bit: its arrays are the same numbers, C-contiguous and
        writeable. A `FrozenDecoder` or `FrozenModel` of a file that its own `save` has
        written.

    Raises
    ------
    ValueError
        If the file is no model file, damaged, cut off or forged, or of a newer format.
    OSError
        If it cannot be read.

    Notes
    -----
    No code of the file's choosing runs, and memory is taken for the arrays alone, after their sizes
    are known to agree with the file's. What a forged file can do is to hold a model that decodes
    nonsense: a checksum tells damage, not who wrote it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, randsmap
    >>> angle = np.linspace(0, np.pi, 30)
    >>> arc = np.column_stack([np.cos(angle), np.sin(angle)]) ** 2
    >>> encoder, decoder = randsmap.DiffusionMaps(1), randsmap.RANDSMAPDecoder()
    >>> model = randsmap.ManifoldModel(encoder, decoder).fit(arc)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.npz")
    ...     model.save(path)
    ...     again = randsmap.load(path)
    >>> bool((again.reconstruct(arc) == model.reconstruct(arc)).all())
    True
    """
    path = expanded(path)
    if os.path.isfile(path):  # a pipe is not waited for
        with open(path, "rb") as file:
            if is_image(file.read(8)):
                return load_image(path)
    try:
        manifest, arrays = _archive.read(path)
        return _restored(manifest, arrays)
    # a forged manifest may hold any value in any place: this is what using it as another one raises
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a valid model file: {error}") from error


# -- Objects to a manifest -------------------------------------------------------------------------
def _class(name):
    return getattr(import_module(f"randsmap.{CLASSES[name]}"), name)


class _Writer:
    """Objects and arrays in the order in which they go into a file, each once."""

    def __init__(self):
        self.objects, self.arrays = [], {}
        self._index, self._kept = {}, []

    def add(self, value, path, depth):
        """Index of an object in the list; what it refers to comes before it."""
        name = type(value).__name__
        if name not in CLASSES or type(value) is not _class(name):
            raise TypeError(
                f"{path.strip('.') or 'the model'} is of class {type(value).__module__}.{name}, "
                f"which a model file cannot hold (it holds {', '.join(CLASSES)}); use pickle, for "
                "files that only you and those who trust you load"
            )
        if id(value) in self._index:
            return self._index[id(value)]
        params = value.get_params(deep=False) if isinstance(value, BaseEstimator) else {}
        if "_sums" in vars(value):  # of batches whose coefficients may not be solved for yet
            value.solve()
            value._keep_leverage()
        attributes = vars(value)
        stored = {k for k, kind in value._state.items() if kind is not NOT_SAVED}
        unknown = sorted(set(attributes) - set(params) - set(value._state) - {_NAMES})
        if unknown:
            raise TypeError(
                f"{path}{unknown[0]}: a model file does not keep attributes that "
                f"{name} does not declare, got {', '.join(unknown)}"
            )
        state = None
        if stored & set(attributes):
            state = {k: attributes[k] for k in value._state if k in stored and k in attributes}
            if _NAMES in attributes:
                state[_NAMES] = attributes[_NAMES].tolist()
        entry = {"class": name}
        for part, values in (("params", params), ("state", state)):
            entry[part] = values and {k: self._value(v, path + k, depth) for k, v in values.items()}
        if state is not None:  # after the parts: one that no file can hold is named first
            check_state(value)
        self.objects.append(entry)
        self._index[id(value)] = len(self.objects) - 1
        return self._index[id(value)]

    def _value(self, value, path, depth):
        """A parameter or attribute as JSON."""
        if depth > _MAX_DEPTH:
            raise TypeError(f"{path} is nested too deeply for a model file")
        if isinstance(value, np.generic) and value.dtype.str in _archive.DTYPES:
            value = value.item()
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:  # its repr, as JSON has it, is exact
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, (np.random.RandomState, np.random.Generator)):
            return None
        if type(value) in (np.ndarray, np.memmap):
            return {"array": self._array(value, path)}
        if type(value) in (list, tuple):
            items = [self._value(v, f"{path}.{i}", depth + 1) for i, v in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        return {"object": self.add(value, f"{path}.", depth + 1)}

    def _array(self, value, path):
        if value.dtype.newbyteorder("<").str not in _archive.DTYPES:
            raise TypeError(f"{path} has elements of type {value.dtype}, which a model file cannot hold")
        if id(value) not in self._index:
            self._kept.append(value)  # its id stays its own
            self._index[id(value)] = path
            self.arrays[path] = value
        return self._index[id(value)]


# -- A manifest to objects -------------------------------------------------------------------------
def _restored(manifest, arrays):
    """The last object of a manifest that may be forged."""
    if manifest["format"] != FORMAT:
        raise ValueError(f"its format is {manifest['format']!r}, not {FORMAT!r}")
    if manifest["version"] != VERSION or type(manifest["version"]) is not int:
        raise ValueError(
            f"its format has version {manifest['version']!r}, written by randsmap "
            f"{manifest.get('randsmap')!r}; this one reads version {VERSION}"
        )
    entries, objects = manifest["objects"], []
    if not 1 <= len(entries) <= _MAX_OBJECTS or entries[-1]["state"] is None:
        raise ValueError("it holds no fitted model")
    for entry in entries:
        if set(entry) != {"class", "params", "state"}:
            raise ValueError("an object is described badly")
        objects.append(_restored_object(entry, objects, arrays))
    return objects[-1]


def _restored_object(entry, objects, arrays):
    if entry["class"] not in CLASSES:
        raise ValueError(f"unknown class {entry['class']!r}")
    kind = _class(entry["class"])
    params = {k: _restored_value(v, objects, arrays, 0) for k, v in entry["params"].items()}
    if issubclass(kind, BaseEstimator):
        names = set(kind._get_param_names())
        if set(params) - names:
            raise ValueError(f"{kind.__name__} has no parameter {min(set(params) - names)}")
        value = kind(**params)
    elif params or entry["state"] is None:
        raise ValueError(f"{kind.__name__} has a state only")
    else:
        value = kind.__new__(kind)
    if entry["state"] is None:
        return value
    state = {k: _restored_value(v, objects, arrays, 0) for k, v in entry["state"].items()}
    names = state.pop(_NAMES, None)
    stored = {k for k, how in kind._state.items() if how is not NOT_SAVED}
    if not {k for k in stored if not is_optional(kind._state[k])} <= set(state) <= stored:
        raise ValueError(f"{kind.__name__} has other attributes: {', '.join(sorted(state))}")
    vars(value).update(state)
    check_state(value)
    if names is not None:
        if (
            not isinstance(names, list)
            or len(names) != value.n_features_in_
            or not all(type(name) is str for name in names)
        ):
            raise ValueError(f"{kind.__name__}.{_NAMES} is not one string a feature")
        vars(value)[_NAMES] = np.array(names, dtype=object)
    if hasattr(value, "_restore"):
        value._restore()
    return value


def _restored_value(value, objects, arrays, depth):
    if depth > _MAX_DEPTH + 1:
        raise ValueError("a parameter is nested too deeply")
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise ValueError("a number is too large")
        return value
    if type(value) is list:
        return [_restored_value(v, objects, arrays, depth + 1) for v in value]
    ((tag, content),) = value.items()
    if tag == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if tag == "tuple" and type(content) is list:
        return tuple(_restored_value(v, objects, arrays, depth + 1) for v in content)
    if tag == "array" and type(content) is str:
        return arrays[content]
    if tag == "object" and type(content) is int and 0 <= content < len(objects):
        return objects[content]
    raise ValueError(f"a value is tagged {tag!r}")
