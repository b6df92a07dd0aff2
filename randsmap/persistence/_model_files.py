"""Model files: fitted models on disk, exact to the bit, safe to load from anyone.

A file is an ``.npz`` without pickles: a manifest in JSON (the classes by name, their parameters) and the arrays, named
by the attribute that holds them (``decoder_.coef_``). Parameters are numbers, strings, None, arrays of numbers, lists
and tuples of these, and other stored objects; NumPy scalars and strings come back as Python's, a random generator as
None. Loading makes classes of the package only, and checks each parameter and fitted attribute against its declaration.

To make a class storable, declare all of its fitted attributes in a dictionary ``_state`` of the class (the kinds are
in `randsmap._interface.state`), among them parameters that are used after `fit`. A class that is no public name of
`randsmap` also needs a line in `INNER`. Rules:

- ``__init__`` only stores its arguments, as scikit-learn asks. Other classes have no parameters, only ``_state``.
- An attribute that is declared NOT_SAVED is made from the others by a method ``_restore()``, which also makes the
  checks that a declaration cannot express (ValueError). The result of a BLAS is stored, not recomputed.
- A transformer has `_n_features_out` and a regressor `_n_outputs`, so that the parts of a model are known to fit.
- A parameter that is missing in a file takes its default. If anything else changes, `VERSION` grows.
"""

from __future__ import annotations

import inspect
import math
import os
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import randsmap
from randsmap._interface.state import NOT_SAVED, check_state, declared_state, is_computed, is_optional
from randsmap._io.files import expanded, write_atomically
from randsmap.maps.frozen import is_image, load_image
from randsmap.persistence import _archive

FORMAT, VERSION = "randsmap model", 1
# classes with `_state` that are no public names of the package -> their module
INNER = {
    "AffineInvariants": "invariants",
    "FieldShape": "_interface.fields",
    "HarmonicFit": "decoders._kernel",
    "HeldOutErrors": "model._held_out",
    "KernelFit": "decoders._kernel",
    "NystroemExtension": "encoders._nystroem",
    "ModeCoordinates": "encoders._pod",
    "RidgeFit": "decoders._ridge_fit",
    "KNNFit": "decoders._knn",
    "BlendFit": "decoders._blended",
    "TransformerBasis": "maps.linear_map",
    "Labels": "_interface.labels",
}
_MAX_DEPTH = 20  # of parameters within parameters: a list may hold itself
_MAX_OBJECTS = 400  # blends of 12 decoders of random features, of fields and of latents over parameters, are 230
_NAMES = "feature_names_in_"  # of scikit-learn, in an estimator that was fitted on a data frame


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file.

    Parameters
    ----------
    model : fitted estimator of this package
        `ManifoldModel`, or an encoder, decoder or feature map alone.
    path : path
        Usually with the ending ``.npz``. The file is written whole or not at all.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        Before `fit`.
    TypeError
        If a part or a parameter cannot be stored without a pickle; the message names it.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import pathlib, tempfile, randsmap
    >>> features = randsmap.SigmoidFeatures(3.0, n_features=5, random_state=0).fit([[0.0], [1.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "features.npz")
    ...     randsmap.persistence.save(features, path)
    ...     again = randsmap.load(path)
    >>> again, bool((again.weights_ == features.weights_).all())
    (SigmoidFeatures(n_features=5, random_state=0, slope=3.0), True)
    """
    writer = _Writer()
    writer.add(model, "", 0)
    if writer.objects[-1]["state"] is None:
        check_is_fitted(model, next(iter(declared_state(type(model)))))
    if len(writer.objects) > _MAX_OBJECTS:
        raise TypeError(f"the model has {len(writer.objects)} parts, at most {_MAX_OBJECTS} fit")
    manifest = {"format": FORMAT, "version": VERSION, "randsmap": randsmap.__version__, "objects": writer.objects}
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
        Equal to the saved one to the bit; its arrays are C-contiguous and writeable. A `FrozenDecoder` or
        `FrozenModel` if its own `save` has written the file.

    Raises
    ------
    ValueError
        If the file is no model file, damaged, cut off, forged, or of another version of the format.
    OSError
        If it cannot be read.

    Notes
    -----
    No code of the file runs, and it takes no more memory than its size. A forged file can hold a model that decodes
    nonsense: the digest detects damage, not who wrote the file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, randsmap
    >>> t = np.linspace(0, 1, 30)[:, None]
    >>> line = np.hstack([t, 1 - t])
    >>> model = randsmap.ManifoldModel(randsmap.POD(1)).fit(line)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.npz")
    ...     model.save(path)
    ...     again = randsmap.load(path)
    >>> bool((again.reconstruct(line) == model.reconstruct(line)).all())
    True
    """
    path = expanded(path)
    if os.path.isfile(path):  # a pipe is not waited for
        with open(path, "rb") as file:
            if is_image(file.read(8)):
                return load_image(path)
    try:
        return _restored(*_archive.read(path))
    # a forged manifest may hold any value in any place: this is what its use raises
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a valid model file: {error}") from error


def storable_class(name: str) -> Any:
    """The class of this name that a file can hold; None if there is none."""
    if name in INNER:
        return getattr(import_module(f"randsmap.{INNER[name]}"), name)
    found = getattr(randsmap, name) if name in dir(randsmap) else None
    return found if isinstance(found, type) and hasattr(found, "_state") else None


def _stored(kind: Any) -> dict[str, Any]:
    """The fitted attributes of a class that a file holds, by name, with their declarations."""
    return {name: how for name, how in declared_state(kind).items() if how is not NOT_SAVED}


# -- Objects to a manifest -------------------------------------------------------------------------
class _Writer:
    """Objects and arrays in the order in which they go into a file, each once."""

    def __init__(self):
        self.objects, self.arrays = [], {}
        self._known = {}  # id -> place in the file, and the object, which keeps its id its own

    def add(self, value, path, depth):
        """Index of an object in the list; the objects that it refers to come before it."""
        name = type(value).__name__
        if type(value) is not storable_class(name):
            raise TypeError(
                f"{path.strip('.') or 'the model'} is of class {type(value).__module__}.{name}, which a model file "
                "cannot hold (it holds estimators of randsmap); use pickle, for files that only you and those who "
                "trust you load"
            )
        if id(value) in self._known:
            return self._known[id(value)][0]
        params = value.get_params(deep=False) if isinstance(value, BaseEstimator) else {}
        # of batches the solution is stored in place of the sums
        stored = value.storable() if hasattr(value, "storable") else value
        entry = {"class": name}
        for part, values in (("params", params), ("state", self._state(stored, path, params))):
            entry[part] = values and {k: self._value(v, path + k, depth) for k, v in values.items()}
        if entry["state"] is not None:  # after the parts: one that no file can hold is named first
            check_state(stored)
        self._known[id(value)] = len(self.objects), (value, stored)
        self.objects.append(entry)
        return len(self.objects) - 1

    def _state(self, value, path, params):
        """The fitted attributes of an object by name; None if it is not fitted."""
        attributes, stored = vars(value), _stored(type(value))
        unknown = set(attributes) - set(params) - set(declared_state(type(value))) - {_NAMES}
        unknown = sorted(name for name in unknown if not is_computed(type(value), name))
        if unknown:
            raise TypeError(
                f"{path}{unknown[0]}: a model file does not keep attributes that {type(value).__name__} does not "
                f"declare, got {', '.join(unknown)}"
            )
        state = {name: attributes[name] for name in stored if name in attributes}
        if state and _NAMES in attributes:
            state[_NAMES] = attributes[_NAMES].tolist()
        return state or None

    def _value(self, value, path, depth):
        """A parameter or attribute as JSON."""
        if depth > _MAX_DEPTH:
            raise TypeError(f"{path} is nested too deeply for a model file")
        if isinstance(value, np.generic) and value.dtype.kind in "biufU":
            value = float(value) if value.dtype.kind == "f" else value.item()
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:  # its repr, as JSON has it, is exact
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, (np.random.RandomState, np.random.Generator)):
            return None
        if type(value) is np.ndarray and value.dtype.char in "Ug":  # as what they hold
            value = value.tolist() if value.dtype.char == "U" else value.astype(float)
        if type(value) in (np.ndarray, np.memmap):
            if value.dtype.newbyteorder("<").str not in _archive.DTYPES:
                raise TypeError(f"{path} has elements of type {value.dtype}, which a model file cannot hold")
            name, _ = self._known.setdefault(id(value), (path, value))
            self.arrays.setdefault(name, value)
            return {"array": name}
        if type(value) in (list, tuple):
            items = [self._value(v, f"{path}.{i}", depth + 1) for i, v in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        return {"object": self.add(value, f"{path}.", depth + 1)}


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
    kind = storable_class(entry["class"])
    if kind is None:
        raise ValueError(f"unknown class {entry['class']!r}")
    value = _new_object(kind, {k: _restored_value(v, objects, arrays) for k, v in entry["params"].items()})
    if entry["state"] is None:
        return value
    state = {k: _restored_value(v, objects, arrays) for k, v in entry["state"].items()}
    names, stored = state.pop(_NAMES, None), _stored(kind)
    if not {k for k, how in stored.items() if not is_optional(how)} <= set(state) <= set(stored):
        raise ValueError(f"{kind.__name__} has other attributes: {', '.join(sorted(state))}")
    vars(value).update(state)
    check_state(value)
    if names is not None:
        if type(names) is not list or len(names) != value.n_features_in_ or {*map(type, names)} != {str}:
            raise ValueError(f"{kind.__name__}.{_NAMES} is not one string a feature")
        vars(value)[_NAMES] = np.array(names, dtype=object)
    if hasattr(value, "_restore"):
        value._restore()
    return value


def _new_object(kind, params):
    """An object with these parameters, which are checked as far as its class declares them."""
    if not issubclass(kind, BaseEstimator):
        if params:
            raise ValueError(f"{kind.__name__} has no parameters")
        return kind.__new__(kind)
    unknown = set(params) - set(inspect.signature(kind).parameters)
    if unknown:
        raise ValueError(f"{kind.__name__} has no parameter {min(unknown)}")
    for name, declared in getattr(kind, "_parameters", {}).items():
        if name in params:
            declared.check(params[name], name)
    return kind(**params)


def _restored_value(value, objects, arrays):
    """A parameter or attribute from JSON."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise ValueError("a number is too large")
        return value
    if type(value) is list:
        return [_restored_value(v, objects, arrays) for v in value]
    ((tag, content),) = value.items()
    if tag == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if tag == "tuple" and type(content) is list:
        return tuple(_restored_value(content, objects, arrays))
    if tag == "array" and type(content) is str:
        return arrays[content]
    if tag == "object" and type(content) is int and 0 <= content < len(objects):
        return objects[content]
    raise ValueError(f"a value is tagged {tag!r}")
