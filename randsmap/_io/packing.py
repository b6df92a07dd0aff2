"""Physical values of arrays that are stored by the netCDF conventions (CF 2.5 and 8.1, NetCDF Users Guide)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

ATTRIBUTES = {
    *("_FillValue", "missing_value", "scale_factor", "add_offset"),
    *("valid_min", "valid_max", "valid_range", "_Unsigned"),
}
_UNCERTAIN = {"scale", "offset", "slope", "intercept", "gain", "nodata", *map(str.lower, ATTRIBUTES)}
# the netCDF library writes these where a program has written nothing
DEFAULT_FILLS = {"f4": 9.969209968386869e36, "f8": 9.969209968386869e36, "i2": -32767, "i4": -2147483647}


def uncertain(attributes: Iterable[str]) -> list[str]:
    """The attributes that may say how values are stored, but have no common meaning."""
    return sorted(name for name in attributes if name.lower() in _UNCERTAIN and name not in ATTRIBUTES)


def unpacked(values: NDArray[Any], attributes: Mapping[str, Any], unwritten: Any = None) -> NDArray[Any]:
    """The physical values, in float64 if they are packed; NaN where they are missing, not valid or `unwritten`."""
    given = {name: np.ravel(value) for name, value in attributes.items() if name in ATTRIBUTES}
    if unwritten is not None and unwritten == unwritten and unwritten:  # 0 is a value
        given["unwritten"] = np.ravel(unwritten)
    unsigned = str(given.pop("_Unsigned", np.array([""])).astype(str)[0]).lower()
    integers = values.dtype.kind in "iu"
    if integers and unsigned in ("true", "false"):
        values = values.view(f"{'u' if unsigned == 'true' else 'i'}{values.itemsize}")
    for name, numbers in given.items():
        if numbers.dtype.kind not in "buif" or len(numbers) != 1 + (name == "valid_range") and name != "missing_value":
            raise ValueError(f"its attribute {name} is {attributes[name]!r}, expected a number")
        if integers and numbers.dtype.kind in "iu" and name not in ("scale_factor", "add_offset"):
            given[name] = numbers.astype(values.dtype)  # -1 is 255 of unsigned bytes
    missing, result = np.zeros(values.shape, bool), values
    for fill in [fill for name in ("_FillValue", "missing_value", "unwritten") for fill in given.get(name, ())]:
        if values.dtype.kind == "f" and (4 in (values.itemsize, fill.itemsize) or abs(fill) > 1e10):  # 1e20 in float32
            with np.errstate(over="ignore"):
                missing |= values.astype("f4") == np.float32(fill)
        else:
            missing |= values == fill
    for name, operation in (("scale_factor", np.multiply), ("add_offset", np.add)):
        if name in given:
            result = operation(result, given[name][0], dtype=np.float64)
    low, high = given.get("valid_range", (None, None))
    low, high = given.get("valid_min", [low])[0], given.get("valid_max", [high])[0]
    for limit, beyond in ((low, np.less), (high, np.greater)):
        if limit is not None:  # of a packed array, in units of the type that it has
            missing |= beyond(result if integers and limit.dtype.kind == "f" else values, limit)
    if missing.any():
        result = result.astype(np.float64 if result.dtype.kind != "f" else result.dtype)
        result[missing] = np.nan
    return result
