"""Files that users have, read into the arrays that were written."""

import base64
import contextlib
import io
import re
import runpy
import struct
import sys
import tracemalloc
import warnings
import zipfile
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.io import loadmat, netcdf_file, savemat

import randsmap
from randsmap import datasets, read_snapshots
from randsmap._io.matlab import NUMBERS, mat_arrays
from randsmap.snapshots import read_array, read_columns, read_labels, transposed_evidence

TIMES = np.arange(7.0)
FIELDS = np.random.default_rng(0).normal(size=(7, 3, 5))  # (time, y, x)
IN_COLUMNS = np.moveaxis(FIELDS, 0, -1)  # as MATLAB users keep them
MATLAB_HEADER = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"


def write_mat73(path, **arrays):
    """What MATLAB's save -v7.3 writes: HDF5 behind a header of 512 bytes, axes reversed, classes as attributes."""
    h5py = pytest.importorskip("h5py")
    classes = {"f8": "double", "f4": "single", "u1": "uint8", "u2": "char"}
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            array = np.atleast_2d(array)
            dataset = file.create_dataset(name, data=array.T)
            dataset.attrs["MATLAB_class"] = np.bytes_(classes[array.dtype.str[1:]])
        file.create_dataset("#refs#/a", data=np.zeros((4, 4)))  # where MATLAB keeps the contents of cells
    with open(path, "r+b") as file:
        file.write(MATLAB_HEADER)


def write_h5(path, **arrays):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[f"run/{name}"] = array
        file["title"] = "a run"


def write_xarray(path, **arrays):
    xarray = pytest.importorskip("xarray")
    variables = {name: (("xy" if np.ndim(a) == 3 else "y")[: np.ndim(a) - 1] + "k", a) for name, a in arrays.items()}
    dataset = xarray.Dataset({k: (tuple(dims), a) for k, (dims, a) in variables.items()}, coords={"k": TIMES})
    if path.suffix == ".zarr":
        pytest.importorskip("zarr")
        dataset.to_zarr(path, consolidated=False)
    else:
        dataset.to_netcdf(path, engine="scipy")


WRITERS = {
    "a.npz": np.savez,
    "a.mat": lambda path, **arrays: savemat(path, {**arrays, "title": "a run", "s": {"U": 1.0}}),
    "b.mat": write_mat73,
    "a.h5": write_h5,
    "a.hdf5": write_h5,
    "a.nc": write_xarray,
    "a.zarr": write_xarray,
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_only_array_of_two_axes_is_read_with_the_axes_it_was_written_with(tmp_path, name):
    WRITERS[name](tmp_path / name, U=IN_COLUMNS, time=TIMES)
    read = read_snapshots(tmp_path / name)
    np.testing.assert_array_equal(read, IN_COLUMNS, strict=isinstance(read, np.ndarray))
    np.testing.assert_array_equal(read_snapshots(tmp_path / name, transpose=True), FIELDS)
    key = "run/time" if "h" in name[2:4] else "time"
    assert np.array_equal(np.ravel(read_snapshots(tmp_path / name, key=key)), TIMES)


@pytest.mark.parametrize("name", WRITERS)
def test_of_several_arrays_one_has_to_be_named(tmp_path, name):
    WRITERS[name](tmp_path / name, U=IN_COLUMNS, V=2 * IN_COLUMNS[0])
    with pytest.raises(ValueError, match=r"several arrays: .*U \(3, 5, 7\), .*V \(5, 7\).*key \(--key\)"):
        read_snapshots(tmp_path / name)
    prefix = "run/" if "h" in name[2:4] else ""
    np.testing.assert_array_equal(read_snapshots(tmp_path / name, key=f"{prefix}V"), 2 * IN_COLUMNS[0])
    with pytest.raises(ValueError, match=r"no array 'W' of numbers; it has .*U \(3, 5, 7\)"):
        read_snapshots(tmp_path / name, key="W")


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1"])
def test_both_kinds_of_mat_files_give_one_array(tmp_path, dtype):
    U = (10 * abs(IN_COLUMNS)).astype(dtype)
    savemat(tmp_path / "a.mat", {"U": U})
    write_mat73(tmp_path / "b.mat", U=U)
    for transpose in (False, True):
        a, b = (read_snapshots(tmp_path / name, transpose=transpose) for name in ("a.mat", "b.mat"))
        np.testing.assert_array_equal(a, b, strict=True)
    savemat(tmp_path / "c.mat", {"U": U[0]}, format="4")
    np.testing.assert_array_equal(read_snapshots(tmp_path / "c.mat"), U[0])


def test_fields_of_structs_are_named_alike_in_both_kinds(tmp_path):
    savemat(tmp_path / "a.mat", {"data": {"U": IN_COLUMNS, "about": {"t": TIMES, "name": "a run"}}})
    h5py = pytest.importorskip("h5py")
    write_mat73(tmp_path / "b.mat")
    with h5py.File(tmp_path / "b.mat", "r+") as file:
        file["data/U"], file["data/about/t"] = IN_COLUMNS.T, TIMES[:, None]
        for name in ("data/U", "data/about/t"):
            file[name].attrs["MATLAB_class"] = np.bytes_("double")
    for name in ("a.mat", "b.mat"):
        np.testing.assert_array_equal(read_snapshots(tmp_path / name), IN_COLUMNS, strict=True)
        np.testing.assert_array_equal(read_snapshots(tmp_path / name, key="data.U"), IN_COLUMNS)
        np.testing.assert_array_equal(read_snapshots(tmp_path / name, key="data/about/t"), TIMES[None])
        with pytest.raises(ValueError, match=r"it has data/U \(3, 5, 7\), data/about/t \(1, 7\)"):
            read_snapshots(tmp_path / name, key="U")


def test_text_in_a_mat_file_is_no_array(tmp_path):
    write_mat73(tmp_path / "b.mat", U=IN_COLUMNS, label=np.array([[104, 101], [1, 2]], np.uint16))
    assert read_snapshots(tmp_path / "b.mat").shape == IN_COLUMNS.shape
    savemat(tmp_path / "a.mat", {"label": "text", "c": np.ones((2, 2)) * 1j})
    with pytest.raises(ValueError, match="complex128"):
        read_snapshots(tmp_path / "a.mat")
    with pytest.raises(ValueError, match=r"besides label \(char\)"):
        read_snapshots(tmp_path / "a.mat", key="label")


def test_xarray_keeps_coordinates(tmp_path):
    xarray = pytest.importorskip("xarray")
    U = xarray.DataArray(
        FIELDS.astype("f4"), dims=("time", "y", "x"), coords={"time": TIMES, "x": range(5)}, attrs={"units": "m"}
    )
    U.to_dataset(name="U").to_netcdf(tmp_path / "a.nc", engine="scipy")
    read = read_snapshots(tmp_path / "a.nc")
    xarray.testing.assert_equal(read, U)
    assert read.attrs == {"units": "m"} and read.dtype == np.float32 and read.dtype.isnative
    U.transpose("y", "x", "time").to_dataset(name="U").to_netcdf(tmp_path / "b.nc", engine="scipy")
    xarray.testing.assert_equal(read_snapshots(tmp_path / "b.nc", transpose=True).transpose("time", "y", "x"), U)


def test_a_zarr_array_is_read(tmp_path):
    zarr = pytest.importorskip("zarr")
    zarr.save(str(tmp_path / "a.zarr"), FIELDS)
    np.testing.assert_array_equal(read_snapshots(tmp_path / "a.zarr"), FIELDS, strict=True)


@pytest.mark.parametrize(
    "text",
    [
        "1,2,3\n4,5,6.5\n",
        "1 2 3\n4 5 6.5",
        "\n# made by hand\n1\t2 3\n\n4\t5\t6.5\n",
        "x;y;z\n1;2;3\n4;5;6.5\n",
        '"x, m","y","z"\n1,2,3\n4,5,6.5\n',
        ",a,b,c\n0,1,2,3\n1,4,5,6.5\n",
        '"","a","b","c"\n"r1",1,2,3\n"r2",4,5,6.5\n',
        "\N{ZERO WIDTH NO-BREAK SPACE}1,2,3\r\n4,5,6.5\r\n",
        ",0,1,2\n0,1,2,3\n1,4,5,6.5\n",  # columns without names, as pandas writes them
        "1,0;2;3\n4;5;6,5\n",  # decimal commas, as Excel writes them
        "x;y;z\n1,0;2,0;3e0\n4;5;6,5\n",
        "1,0 2,0\t3,0\n4 5 6,5\n",
        "1,0\t2,0\t3\n4,0\t5,0\t6,5\n",
        "1, 2, 3\n4, 5, 6.5\n",
        "x [m]\ty [m]\tz [m]\n1\t2\t3\n4\t5\t6.5\n",  # names with blanks
        '"x [m]"  "y [m]" z\n1 2 3\n4 5 6.5\n',
        "\tx\ty\tz\n0\t1\t2\t3\n1\t4\t5\t6.5\n",
        "\t1\t2\t3\n\t4\t5\t6.5\n",
        "1,2,3,\n4,5,6.5,\n",  # each line ends with a separator
        "x,y,z\n1,2,3,\n4,5,6.5,\n",
        "1|2|3\n4|5|6.5\n",
        "1.0D+00 2d0 3\n4 5 .65d1\n",  # Fortran
        "x y z\na 1 2 3\nb 4 5 6.5\n",  # R without quotes
        ",u,u,v\n0,1,2,3\n1,4,5,6.5\n",
        "x;y;z\n1;2;3\n\n\n4;5;6.5\n",
        '"x #1","x #2","x #3"\n1,2,3 # at rest\n4,5,6.5\n',
        "#Results!\n1 2 3\n#stop!\n4 5 6.5\n",
        "# x y z\n1 2 3\n4 5 6.5\n",  # numpy.savetxt
        "# Created by Octave\n# name: U\n# type: matrix\n# rows: 2\n# columns: 3\n 1 2 3\n 4 5 6.5\n\n\n",
        '"1","2","3"\n1,2,3\n4,5,6.5\n',  # quoted as no later line is
    ],
)
def test_text(tmp_path, text):
    for name in ("a.csv", "a.txt"):
        (tmp_path / name).write_bytes(text.encode())
        np.testing.assert_array_equal(read_snapshots(tmp_path / name), [[1, 2, 3], [4, 5, 6.5]])


def read_text(path, content, read=read_snapshots, **options):
    """What is read, and the warnings."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        return read(path, **options), " ".join(str(w.message) for w in told)


# a cell in the first line, a cell in any other, and the dialects that they may stand in
LOST = (
    "#BEZUG! #WERT! #\xa1VALOR! #NOM? #SPILL! #NV #N/D "
    "1.2345-101 ******** -nan(ind) <0.001 1.5f #NUM! #DIV/0! #N/A 1.#QNAN n.d. BDL missing O.5 NA -- 0x1F 1_000 1'000"
).split()


@pytest.mark.parametrize("word", LOST)
def test_a_word_that_is_no_number_is_named_wherever_it_stands(tmp_path, word):
    for separator, row in ((",", 0), (",", 1), ("  ", 0), (";", 1), ("\t", 0)):
        for column in (0, 2):
            lines = [["1.5", "2.5", "3.5"] for _ in range(4)]
            lines[row][column] = word
            text = "".join(separator.join(line) + "\n" for line in lines)
            for content in (text, text.encode("utf-16")):
                with pytest.raises(ValueError, match=f"a.csv .*: line {row + 1}, column {column + 1}: .* is no number"):
                    read_text(tmp_path / "a.csv", content)
    with pytest.raises(ValueError, match="line 1, column 1"):
        read_text(tmp_path / "a.csv", f"{word}\n1\n2\n")


TWO_LEVELS = "0,1,2,3\n1,4,5,6.5\n"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (f",u,u,v\n,0,1,0\n{TWO_LEVELS}", "first 2 lines are taken for names"),  # pandas
        (f",u,u,u\n,0.1,0.2,0.3\n{TWO_LEVELS}", "first 2 lines are taken for names"),
        (f",u,u,u\ncell,0.1,0.2,0.3\nrun,,,\n{TWO_LEVELS}", "first 3 lines are taken for names"),
        (f",u,u,u\n,0.1,0.2,0.3\n{TWO_LEVELS}".replace("\n0", "\n2020-01-01"), "first 2 lines are taken for names"),
        ("u,u,u\n1.0,2.0,3\n4,5,6.5\n", "occur several times: begin the line below with #"),
        (f"field,u,u,v\ncell,0,1,0\n{TWO_LEVELS}", "'field/cell', is taken for the numbers"),
        (f"field,u,u,v\ncell,0,1,0\ntime,,,\n{TWO_LEVELS}", "'time', is taken for the times"),
        (f",u,u,v\n,0,1,0\nrun,,,\n{TWO_LEVELS}", "'run', is taken for the numbers"),
        ("time,u,v,w\ns,m/s,m/s,m/s\n.1,1,2,3\n.2,4,5,6.5\n", "first 2 lines .* 'time', is taken for the times"),
        ("step,a,b,c\n0,1,2,3\n50,4,5,6.5\n", "'step', is taken for the times"),
        ("sample_id,a,b,c\n7,1,2,3\n3,4,5,6.5\n", "'sample_id', is taken for the numbers"),
        ("x,0,1,2\n0,1,2,3\n1,4,5,6.5\n", "'x', is taken for the numbers"),
        ("date,a,b,c\n2020-01-01 00:00,1,2,3\n2020-01-02 00:00,4,5,6.5\n", "'date', is taken for the times"),
        ("Datum;a;b;c\n01.02.2020;1,0;2,0;3,0\n02.02.2020;4,0;5,0;6,5\n", "'Datum', is taken for the times"),
        ("# t a b c\n.1 1 2 3\n.2 4 5 6.5\n", "'t', is taken for the times"),
        ("x [m] y [m]\n1 2 3\n4 5 6.5\n", "a line of names has 4 for 3 columns"),
        ("1,000;2,000;3,000\n4,000;5,000;6,500\n", "commas are taken for decimal marks"),
        ("1.000;2.000;3.000\n4.000;5.000;6.500\n", "points are taken for decimal marks"),
    ],
)
def test_what_is_assumed_of_a_text_is_told(tmp_path, text, warning):
    for content in (text, text.encode("utf-16")):
        read, told = read_text(tmp_path / "a.csv", content)
        assert read.tolist() == [[1, 2, 3], [4, 5, 6.5]] and re.search(warning, told)


@pytest.mark.parametrize(
    ("text", "fields", "values"),
    [
        ("3,4e+01\n5,6e-01\n", 2, 2),
        ("mine,a,b\n0,1,2\n1,3,4.5\n2,5,6\n", 2, 3),  # parameters may count
        ("a b\n1 1 2\n2 3 4.5\n3 5 6\n", 2, 3),
        ("0,1.5,2\n1,3,4\n2,5,6\n", 3, 3),
        ("3,4\n5,6\n", 2, 2),
    ],
)
def test_columns_that_may_count_the_rows_are_told(tmp_path, text, fields, values):
    for read, width in ((read_snapshots, fields), (read_array, values)):
        array, told = read_text(tmp_path / "a.csv", text, read)
        assert array.shape[1] == width
        assert ("counts the rows" in told) or ("separators of two columns" in told)


@pytest.mark.parametrize(
    ("head", "index", "told"),
    [
        (",,c0,c1,c2", "0,{k},", "^$"),
        ("run,t,c0,c1,c2", "7,{k}5,", "'run'.*numbers.*'t'.*times"),
        (",run,t,c0,c1,c2", "{k},7,{k}5,", "'run'.*numbers.*'t'.*times"),
        ("id,time,a,b,c", "7,{k}5,", "'id'.*numbers.*'time'.*times"),
        ("sim_time,x=0.1,x=0.2,x=3e1", "0.{k},", "'sim_time', is taken for the numbers"),
        ("year,u [0],u [1],u [2]", "199{k},", "'year', is taken for the numbers"),
        ("sim_time,a,b,c", "0.{k},", None),
        (",year,a,b,c", "{k},199{k},", "'year', is taken for the numbers"),
        ("run,case,a,b,c", "7,{k}5,", "'run'.*numbers.*'case'.*numbers"),
        (None, "0.{k},", None),
    ],
)
def test_columns_that_name_the_rows_are_left_out_or_told(tmp_path, head, index, told):
    values = np.random.default_rng(0).uniform(size=(6, 3)).round(3)
    rows = [index.format(k=k) + ",".join(map(str, row)) for k, row in enumerate(values)]
    read, warned = read_text(tmp_path / "a.csv", "\n".join([*filter(None, [head]), *rows]))
    np.testing.assert_array_equal(read[:, -3:], values)
    assert read.shape == (6, 3 + (told is None))
    assert re.search(told or "first column rises as no other does", warned)
    rows = [",".join(map(str, row)) + f",{k}.5" for k, row in enumerate(values)]
    told = read_text(tmp_path / "a.csv", "\n".join(["a,b,c,time", *rows]))[1]
    assert "'time' is taken for a cell: put it first" in told


@pytest.mark.parametrize(
    "text",
    [
        "0,1,2\n0.5,0.25,1\n",  # columns of pandas without an index
        "0,1,2\n5,3,8\n",
        "u,u,v\n0,1,0\n0.5,0.25,1\n",
        "-1,-1,1\n0,1,0\n0.5,0.25,1\n",
        "0,0,1\n0,1,0\n0.5,0.25,1\n",
        "time,u,v\n,0.1,0.2\n1,2,3\n",
        "time,u,v\nstart,0.1,0.2\n1,2,3\n",
        "x,0.1,0.2\n1,2,3\n",
        "1.234;2,5\n3;4\n",
        "0,05\n0,7\n",
        "1,15e+01\n3,5e+01\n",
        "1.5,2.5\n####,2.5\n",
        "x\n0,5\n0,7\n",
        '"1,000.5","2"\n"1","2"\n',
        "1 000;2,5\n1;2\n",
        "1,000,000;2\n1;2\n",
        "1,2,\n3,4,5\n",
        "1 2 3\n4 5\n",
        "a,b,c\n1,2,\n3,4,\n",
        "station,a\nA,1\nB,2\n",
        "a,b\n",
        "True,False\nTrue,True\n",
        "# name: U\n1 2\n# name: V\n3 4\n",
    ],
)
def test_a_text_that_may_be_read_in_two_ways_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match="a.csv cannot be read as text"):
        read_text(tmp_path / "a.csv", text)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("sparse matrix\n# nnz: 2\n# rows: 3\n# columns: 2", "type 'sparse matrix' is not read. Save double"),
        ("diagonal matrix\n# rows: 2\n# columns: 2", "type 'diagonal matrix'"),
        ("range\n# base, limit, increment", "type 'range'"),
        ("string\n# elements: 1\n# length: 3", "type 'string'"),
        ("matrix\n# ndims: 2", "type 'matrix'"),
        ("matrix\n# rows: 9\n# columns: 2", "its header states 9 rows, it has 2"),
        ("matrix\n# rows: 2\n# columns: 3", "its header states 3 columns, it has 2"),
        (None, "MatrixMarket's text is not read"),
    ],
)
@pytest.mark.parametrize("by", ["# Created by Octave 8\n", ""])
def test_text_with_a_head_is_what_the_head_states(tmp_path, head, reason, by):
    head = f"{by}# name: U\n# type: {head}" if head else "%%MatrixMarket matrix array real general"
    with pytest.raises(ValueError, match=f"a.txt .*{reason}"):
        read_text(tmp_path / "a.txt", f"{head}\n1 2\n3 4.5\n")
    table, told = read_text(tmp_path / "a.txt", "# rows: 9\n# name: a\n# type: RANS of a wing\n1 2\n3 4.5\n")
    assert table.tolist() == [[1, 2], [3, 4.5]] and not told


@pytest.mark.parametrize(
    ("text", "key", "warning"),
    [
        ("a\na\nb\n", None, ""),
        ("# runs\na\n\na\nb\n", None, ""),
        ("run\na\na\nb\n", None, "'run', is taken for the name"),
        ("run\na\na\nb\n", "run", ""),
        (",run\n0,a\n1,a\n2,b\n", None, ""),
        ("t;run\n.1;a\n.1;a\n.1;b\n", "run", ""),
        ("0,a\n1,a\n2,b\n", None, ""),
        ('"run"\n"1" "a"\n"2" "a"\n"3" "b"\n', None, ""),
    ],
)
def test_labels_are_read_in_the_dialects_of_tables(tmp_path, text, key, warning):
    for content in (text, text.encode("utf-16")):
        labels, told = read_text(tmp_path / "a.csv", content, read_labels, n=3, key=key)
        assert labels.tolist() == ["a", "a", "b"] and warning in told and bool(warning) == bool(told)
    assert read_text(tmp_path / "a.csv", "run 1\nrun 1\nrun 2\n", read_labels, n=3)[0].tolist() == ["run 1"] * 2 + [
        "run 2"
    ]
    labels, told = read_text(tmp_path / "a.csv", "# runs\nrun #1\nrun #1 # again\nrun #2\n", read_labels, n=3)
    assert labels.tolist() == ["run #1", "run #1", "run #2"] and "is taken for a comment, not" in told
    with pytest.raises(ValueError, match=r"a.csv\[1\] is '', no label"):
        read_text(tmp_path / "a.csv", ",run\n0,a\n1,\n2,b\n", read_labels, n=3)
    with pytest.raises(ValueError, match="2 columns of labels"):
        read_text(tmp_path / "a.csv", "x,a\ny,a\nz,b\n", read_labels, n=3)


PHYSICAL = np.arange(12.0).reshape(3, 4) + 0.5
GAPS = np.where(np.arange(12).reshape(3, 4) == 6, np.nan, PHYSICAL)
BYTES = np.arange(244.0, 256).reshape(3, 4)
PACKED = {
    "nothing": (PHYSICAL, {}, PHYSICAL),
    "scale": (np.rint(PHYSICAL * 2).astype("i2"), {"scale_factor": 0.5}, PHYSICAL),
    "offset": (np.rint(PHYSICAL * 2 - 50).astype("i2"), {"scale_factor": 0.5, "add_offset": 25.0}, PHYSICAL),
    "fill": (np.nan_to_num(GAPS, nan=-99.0), {"_FillValue": -99.0}, GAPS),
    "single": (np.nan_to_num(GAPS, nan=1e20).astype("f4"), {"missing_value": 1e20}, GAPS),
    "double": (np.nan_to_num(GAPS, nan=1e20), {"missing_value": np.float32(1e20)}, GAPS),
    "several": (np.nan_to_num(GAPS, nan=-2), {"missing_value": np.array([-1.0, -2])}, GAPS),
    "integers": (np.nan_to_num(GAPS * 2, nan=-9).astype("i4"), {"_FillValue": np.int32(-9), "scale_factor": 0.5}, GAPS),
    "low": (np.nan_to_num(GAPS, nan=-2), {"valid_min": 0.0}, GAPS),
    "high": (np.nan_to_num(GAPS * 2, nan=99).astype("i2"), {"valid_max": np.int16(90), "scale_factor": 0.5}, GAPS),
    "range": (np.nan_to_num(GAPS * 2, nan=99).astype("i2"), {"valid_range": [0.0, 45.0], "scale_factor": 0.5}, GAPS),
    "unsigned": (BYTES.astype("u1").view("i1"), {"_Unsigned": "true"}, BYTES),
    "signed": (BYTES.astype("u1"), {"_Unsigned": "false"}, BYTES - 256),
    "minus": (
        BYTES.astype("u1").view("i1"),
        {"_Unsigned": "true", "_FillValue": np.int8(-1)},
        np.where(BYTES == 255, np.nan, BYTES),
    ),
}


def write_packed(path, stored, attributes):
    if path.suffix == ".nc":
        h5netcdf = pytest.importorskip("h5netcdf")
        with h5netcdf.File(path, "w") as file:
            file.dimensions = {"k": 3, "x": 4}
            fill = attributes.get("_FillValue")
            variable = file.create_variable("U", ("k", "x"), stored.dtype, data=stored, fillvalue=fill)
            variable.attrs.update({name: value for name, value in attributes.items() if name != "_FillValue"})
    elif path.suffix == ".zarr":
        zarr = pytest.importorskip("zarr")
        as_json = {name: np.asarray(value).tolist() for name, value in attributes.items()}
        array = zarr.create_array(str(path), shape=stored.shape, dtype=stored.dtype, attributes=as_json)
        array[...] = stored
    else:
        if path.suffix == ".mat":
            write_mat73(path)
        with pytest.importorskip("h5py").File(path, "a") as file:
            dataset = file.create_dataset("U", data=stored.T if path.suffix == ".mat" else stored)
            dataset.attrs.update(attributes)


@pytest.mark.parametrize("ending", [".nc", ".h5", ".hdf5", ".mat", ".zarr"])
@pytest.mark.parametrize("name", PACKED)
def test_packed_and_missing_values_follow_the_netCDF_conventions(tmp_path, name, ending):
    stored, attributes, expected = PACKED[name]
    write_packed(tmp_path / f"a{ending}", stored, attributes)
    read = np.asarray(read_snapshots(tmp_path / f"a{ending}"))
    np.testing.assert_allclose(read, expected, rtol=1e-6 if stored.dtype == "f4" else 1e-15)
    assert read.dtype == (stored.dtype if name == "nothing" else read.dtype)


@pytest.mark.parametrize(
    "name",
    [
        *("FillValue", "fill_value", "FILLVAL", "missing", "MissingValue", "CodeMissingValue", "NODATA_value"),
        *("NoData", "ScaleFactor", "scaling_factor", "scale_offset", "Slope"),
    ],
)
def test_other_names_of_fills_and_scales_are_told(tmp_path, name):
    write_packed(tmp_path / "a.h5", PHYSICAL, {name: 0.5})
    with pytest.warns(UserWarning, match=f"read as stored, and these attributes are ignored: {name}"):
        read_snapshots(tmp_path / "a.h5")


@pytest.mark.parametrize("dtype", ["i2", "i4", "i8", "u2", "u4", "u8", "f4", "f8"])
def test_default_fills_of_the_netCDF_library_are_missing(tmp_path, dtype):
    fills = {"i2": -32767, "i4": -2147483647, "i8": -9223372036854775806}
    fills |= {"u2": 65535, "u4": 4294967295, "u8": 18446744073709551614}
    stored = np.arange(12).reshape(3, 4).astype(dtype)
    stored[2, 3] = fills.get(dtype, 9.969209968386869e36)
    write_packed(tmp_path / "a.nc", stored, {})
    assert np.argwhere(np.isnan(read_snapshots(tmp_path / "a.nc").to_numpy())).tolist() == [[2, 3]]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("case", ["zeros", "fill value", "attribute"])
def test_fills_in_groups_of_zarr_are_those_of_the_array(tmp_path, zarr_format, case):
    pytest.importorskip("xarray")
    group = pytest.importorskip("zarr").open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=zarr_format)
    names = {"dimension_names": ("k", "x")} if zarr_format == 3 else {}
    fill_value = {"fill_value": -99.0} if case == "fill value" else {}
    array = group.create_array("U", shape=(3, 4), dtype="f8", **names, **fill_value)
    array[...] = np.nan_to_num(GAPS, nan={"zeros": 0.0, "fill value": -99.0, "attribute": -9999.0}[case])
    if zarr_format == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = ["k", "x"]
    if case == "attribute":  # xarray writes it so in format 3
        encoded = base64.standard_b64encode(np.float64(-9999).tobytes()).decode()
        array.attrs["_FillValue"] = -9999.0 if zarr_format == 2 else encoded
    expected = np.nan_to_num(GAPS, nan=0) if case == "zeros" else GAPS
    np.testing.assert_array_equal(read_snapshots(tmp_path / "a.zarr"), expected)


@pytest.mark.parametrize("ending", [".nc", ".h5", ".mat", ".zarr"])
def test_attributes_without_a_common_meaning_are_told(tmp_path, ending):
    write_packed(tmp_path / f"a{ending}", PHYSICAL, {"scale": 0.5, "Add_Offset": 2.0})
    with pytest.warns(UserWarning, match="read as stored, and these attributes are ignored: Add_Offset, scale"):
        np.testing.assert_array_equal(read_snapshots(tmp_path / f"a{ending}"), PHYSICAL)
    write_packed(tmp_path / f"b{ending}", PHYSICAL, {"missing_value": "NaN?"})
    with pytest.raises(ValueError, match="its attribute missing_value is 'NaN\\?', expected a number"):
        read_snapshots(tmp_path / f"b{ending}")


def test_what_no_program_has_written_is_missing(tmp_path):
    h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("U", (3, 4), "f8", fillvalue=-99.0, chunks=(1, 4))[:2] = PHYSICAL[:2]
    zarr.create_array(str(tmp_path / "a.zarr"), shape=(3, 4), chunks=(1, 4), dtype="f8", fill_value=-99.0)[:2] = (
        PHYSICAL[:2]
    )
    with netcdf_file(tmp_path / "a.nc", "w") as file:
        file.createDimension("k", 3), file.createDimension("x", 4)
        file.createVariable("U", "f8", ("k", "x"))[:] = np.vstack([PHYSICAL[:2], np.full(4, 9.969209968386869e36)])
    for name in ("a.h5", "a.zarr", "a.nc"):
        read = np.asarray(read_snapshots(tmp_path / name))
        assert np.isnan(read[2]).all() and np.array_equal(read[:2], PHYSICAL[:2])


def test_times_that_are_not_the_first_axis_are_told(tmp_path):
    xarray = pytest.importorskip("xarray")
    U = xarray.DataArray(PHYSICAL, dims=("x", "time"), attrs={"units": "days"})  # no durations
    U.to_dataset(name="U").to_netcdf(tmp_path / "a.nc", engine="scipy")
    with pytest.warns(UserWarning, match=r"its axis 'time' is not the first.*\(--transpose\)"):
        np.testing.assert_array_equal(read_snapshots(tmp_path / "a.nc"), PHYSICAL)
    np.testing.assert_array_equal(read_snapshots(tmp_path / "a.nc", transpose=True), PHYSICAL.T)


DATES = np.arange("2020-01-01", "2020-01-05", dtype="M8[D]").astype("M8[ns]")


@pytest.mark.parametrize(
    ("axis", "name", "times", "attributes"),
    [
        ("valid_time", "valid_time", DATES, {}),
        ("record", "record", DATES, {}),
        ("record", "when", DATES, {}),
        ("record", "time", TIMES[:4], {}),
        ("ocean_time", "ocean_time", TIMES[:4], {"axis": "T"}),
        ("record", "record", TIMES[:4], {"standard_name": "time"}),
        ("record", "record", TIMES[:4], {"units": "days since 2000-01-01", "calendar": "noleap"}),
    ],
)
def test_times_are_known_by_their_coordinates(tmp_path, axis, name, times, attributes):
    xarray, _ = pytest.importorskip("xarray"), pytest.importorskip("h5netcdf")
    if "calendar" in attributes:
        pytest.importorskip("cftime")
    U = xarray.Dataset({"U": (("x", axis), PHYSICAL)}, coords={name: (axis, times, attributes)})
    U.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with pytest.warns(UserWarning, match=rf"its axis '{axis}' is not the first.*\(--transpose\)"):
        read_snapshots(tmp_path / "a.nc")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        read_snapshots(tmp_path / "a.nc", transpose=True)


@pytest.mark.parametrize(
    "format", ["csr", "csc", "coo", "bsr", "dia", "pydata", "mat", "mat73", "h5", "zarr", "octave"]
)
def test_sparse_matrices_are_refused_by_name(tmp_path, format):
    dense = np.random.default_rng(0).uniform(size=(5, 6))
    S = sparse.coo_array(np.where(dense > 0.6, dense, 0.0))
    parts = {"data": S.data, "indices": S.col, "indptr": np.arange(6)}
    name = "a.npz"
    if format == "pydata":
        np.savez(tmp_path / name, data=S.data, coords=np.array(S.coords), shape=S.shape, fill_value=0.0)
    elif format == "mat":
        name = "a.mat"
        savemat(tmp_path / name, {"S": S.tocsc()})
    elif format == "zarr":
        name, zarr = "a.zarr", pytest.importorskip("zarr")
        for part, array in parts.items():
            zarr.open_group(str(tmp_path / name)).create_array(part, data=array)
    elif format in ("h5", "mat73", "octave"):
        name = "a.mat" if format == "mat73" else "a.h5"
        names = dict(
            zip(
                parts,
                {"h5": parts, "mat73": ("data", "ir", "jc"), "octave": ("data", "ridx", "cidx")}[format],
                strict=True,
            )
        )
        write_mat73(tmp_path / name)
        with pytest.importorskip("h5py").File(tmp_path / name, "a") as file:
            for part, array in parts.items():
                file[f"S/{names[part]}"] = array
    else:
        sparse.save_npz(tmp_path / name, S.asformat(format))
    for key in (None, "data", "S/data"):
        with pytest.raises(ValueError, match=f"{name} .*sparse"):
            read_snapshots(tmp_path / name, key=key)


def test_an_array_beside_sparse_or_complex_ones_is_read_with_a_warning(tmp_path):
    savemat(tmp_path / "a.mat", {"S": sparse.eye_array(3), "U": PHYSICAL})
    np.savez(tmp_path / "a.npz", C=PHYSICAL * 1j, U=PHYSICAL)
    for name, other in (("a.mat", "S .sparse"), ("a.npz", "C .complex128")):
        with pytest.warns(UserWarning, match=rf"U is read; ignored: {other}\)"):
            read_snapshots(tmp_path / name)
        np.testing.assert_array_equal(read_snapshots(tmp_path / name, key="U"), PHYSICAL)


PASSED_OVER = {
    "sparse in a struct": ("a.mat", {"r": {"U": sparse.eye_array(5, format="csc")}}, r"r/U \(sparse"),
    "complex in a struct": ("a.mat", {"r": {"U": FIELDS * 1j}}, r"r/U \(complex128"),
    "structs": ("a.mat", {"r": np.array([(FIELDS,), (FIELDS,)], dtype=[("U", "O")])}, r"r \(struct"),
    "structs in a struct": ("a.mat", {"r": {"s": np.zeros(2, [("U", "O")])}}, r"r/s \(struct"),
    "cells": ("a.mat", {"U": np.array([FIELDS, FIELDS[:2]], dtype=object)}, r"U \(cell"),
    "cells in a struct": ("a.mat", {"r": {"U": np.array([FIELDS, 1.0], dtype=object)}}, r"r/U \(cell"),
    "objects": ("a.npz", {"U": np.array([{}])}, r"U \(object"),
    "dates": ("a.npz", {"U": np.zeros((8, 5), "M8[s]")}, r"U \(datetime64\[s\]"),
    "records": ("a.npz", {"U": np.zeros(8, [("a", "f8"), ("b", "f8")])}, r"U \(void128"),
    "parts": ("a.npz", {"a_data": TIMES, "a_indices": TIMES, "a_indptr": TIMES}, r"a \(sparse"),
    "table": ("a.h5", {"U": np.zeros(8, [("a", "f8"), ("b", "f8")])}, r"run/U \(table"),
    "parts in HDF5": ("a.h5", {"U_data": TIMES, "U_indices": TIMES, "U_indptr": TIMES}, r"run/U \(sparse"),
    "cells of -v7.3": ("b.mat", {}, r"c \(cell"),
    "group of zarr": ("a.zarr", {}, r"c \(sparse"),
    "group of netCDF": ("a.nc", {}, r"c \(sparse"),
}


@pytest.mark.parametrize("kind", PASSED_OVER)
def test_an_array_is_not_read_in_place_of_another_without_a_word(tmp_path, kind):
    name, arrays, passed_over = PASSED_OVER[kind]
    if name == "a.nc":
        with pytest.importorskip("h5netcdf").File(tmp_path / name, "w") as file:
            file.dimensions = {"k": 7, "x": 5}
            file.create_variable("mesh", ("k", "x"), "f8", data=FIELDS[:, 0])
            for part in ("data", "indices", "indptr"):
                file.create_variable(f"c/{part}", ("k",), "f8", data=TIMES)
    else:
        WRITERS[name](tmp_path / name, mesh=IN_COLUMNS[0], t=TIMES, **arrays)
    if name == "b.mat":
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / name, "a") as file:
            file.create_dataset("c", data=np.full((1, 2), file["mesh"].ref, object), dtype=h5py.ref_dtype)
            file["c"].attrs["MATLAB_class"] = np.bytes_("cell")
    elif name == "a.zarr":
        for part in ("data", "indices", "indptr"):
            pytest.importorskip("zarr").open_group(str(tmp_path / name)).create_array(f"c/{part}", data=TIMES)
    with pytest.warns(UserWarning, match=rf"mesh is read; ignored: {passed_over}[^,]*\)"):
        read_snapshots(tmp_path / name)


def test_arrays_in_groups_of_netCDF_and_zarr_are_found(tmp_path):
    xarray, _ = pytest.importorskip("xarray"), pytest.importorskip("h5netcdf")
    inner, outer = (xarray.Dataset({name: (("k", "x"), PHYSICAL)}) for name in ("U", "mesh"))
    outer.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    inner.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", group="run/1", mode="a")
    pytest.importorskip("zarr")
    outer.to_zarr(tmp_path / "a.zarr", consolidated=False)
    inner.to_zarr(tmp_path / "a.zarr", group="run/1", mode="a", consolidated=False)
    for name in ("a.nc", "a.zarr"):
        with pytest.raises(ValueError, match=r"several arrays: mesh \(3, 4\), run/1/U \(3, 4\)"):
            read_snapshots(tmp_path / name)
        np.testing.assert_array_equal(read_snapshots(tmp_path / name, key="run/1/U"), PHYSICAL)


@pytest.mark.parametrize(
    "kind", ["diagonal matrix", "float diagonal matrix", "permutation matrix", "string", "frame", "frame_table"]
)
def test_what_programs_store_in_parts_in_HDF5_is_refused(tmp_path, kind):
    with pytest.importorskip("h5py").File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("U")
        if "frame" in kind:
            group.attrs["pandas_type"], group.attrs["nblocks"] = np.bytes_(kind), 2
            group["block0_values"], group["block1_values"] = PHYSICAL, PHYSICAL[:, :1]
        else:
            group.attrs["OCTAVE_NEW_FORMAT"] = np.uint8(1)
            group["type"], group["value"] = np.bytes_(kind), np.ones((1, 4))
    with pytest.raises(ValueError, match=r"no array of numbers, besides U \((pandas table|.*matrix|string)"):
        read_snapshots(tmp_path / "a.h5")


@pytest.mark.parametrize("program", ["Octave", "Octave struct", "Julia", "R", "h5py", "HDF5 in a .mat file"])
def test_axes_of_HDF5_are_those_of_the_program_that_wrote_it(tmp_path, program):
    h5py = pytest.importorskip("h5py")
    path, key = tmp_path / ("a.mat" if ".mat" in program else "a.h5"), "U"
    with h5py.File(path, "w", userblock_size=512 if program == "Julia" else 0) as file:
        if program.startswith("Octave"):
            place = "U"
            if "struct" in program:
                place, key = "s/value/U", "s.U"
                file.create_group("s").attrs["OCTAVE_NEW_FORMAT"] = np.uint8(1)
            group = file.create_group(place)
            group.attrs["OCTAVE_NEW_FORMAT"] = np.uint8(1)
            group["type"], group["value"] = np.bytes_("matrix"), PHYSICAL.T
        else:
            file["U"] = PHYSICAL if "HDF5" in program or program == "h5py" else PHYSICAL.T
        if program == "R":
            file["U"].attrs["rhdf5-NA.OK"] = 1
    if program == "Julia":
        with open(path, "r+b") as file:
            file.write(b"HDF5-based Julia Data Format, version 0.1.1\0")
    with (
        pytest.warns(UserWarning, match="does not state that MATLAB") if ".mat" in program else contextlib.nullcontext()
    ):
        np.testing.assert_array_equal(read_snapshots(path), PHYSICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(read_snapshots(path, key=key), PHYSICAL)


@pytest.mark.parametrize(
    ("text", "advice"), [("# Created by Octave 8.4\n# name: U\n 1 2\n", "Octave.* -v7"), (" 1.0 2.0\n", "-ascii")]
)
def test_text_in_a_mat_file_is_explained(tmp_path, text, advice):
    with pytest.raises(ValueError, match=f"a.mat .* it is text .*{advice}"):
        read_text(tmp_path / "a.mat", text)


def test_npy_of_any_shape_and_large_ones_stay_in_their_file(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", FIELDS)
    np.testing.assert_array_equal(read_snapshots(tmp_path / "a.npy"), FIELDS, strict=True)
    monkeypatch.setattr(randsmap._linalg.rows, "LARGE", 64)
    for transpose in (False, True):
        read = read_snapshots(tmp_path / "a.npy", transpose=transpose)
        assert randsmap._linalg.rows.mapping_of(read) is not None


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.mat", "b.mat", "a.csv", "a.h5", "a.nc", "a.dat"])
def test_damaged_files_are_told(tmp_path, name):
    path = tmp_path / name
    path.write_bytes((MATLAB_HEADER if name == "b.mat" else b"") + b"\x80no numbers \xff\n1,2\n")
    for package in {"b.mat": ["h5py"], "a.h5": ["h5py"], "a.nc": ["xarray"]}.get(name, []):
        pytest.importorskip(package)
    with pytest.raises(ValueError, match=f"{name} "):
        read_snapshots(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_snapshots(path)


@pytest.mark.parametrize(
    "word", ["1.000,5", "1.5-10", "1,000,000", "\N{MINUS SIGN}1", "1'000", "1 000", "1\N{NO-BREAK SPACE}000"]
)
def test_a_first_row_of_foreign_numbers_is_no_line_of_names(tmp_path, word):
    (tmp_path / "a.csv").write_text(f"{word};2\n3;4\n", encoding="utf-8")
    with pytest.raises(ValueError, match="a.csv cannot be read as text"):
        read_snapshots(tmp_path / "a.csv")


@pytest.mark.parametrize("name", ["t", "Time", "time [s]", "t_ms", '"times"'])
def test_a_column_of_times_is_no_cell(tmp_path, name):
    for text in (f"{name},x1,x2\n0.1,1,2\n0.2,4,5\n", f",{name},x1,x2\n0,0.1,1,2\n1,0.2,4,5\n"):
        (tmp_path / "a.csv").write_text(text)
        with pytest.warns(UserWarning, match="a.csv: the first column, '.*', is taken for the times of the snapshots"):
            assert read_snapshots(tmp_path / "a.csv").tolist() == [[1, 2], [4, 5]]
        assert read_snapshots(tmp_path / "a.csv", key=name.strip('"')).tolist() == [[0.1], [0.2]]
    for text in (f"{name}\tx1\tx2\n0.1\t1\t2\n0.2\t4\t5\n", f'"{name}" "x1" x2\n0,1 1 2\n0,2 4 5\n'.replace('""', '"')):
        (tmp_path / "a.txt").write_text(text)
        with pytest.warns(UserWarning, match="a.txt: the first column"):
            assert read_snapshots(tmp_path / "a.txt").tolist() == [[1, 2], [4, 5]]
    with pytest.raises(ValueError, match="its columns are .*x1, x2: leave key"):
        read_snapshots(tmp_path / "a.csv", key="x3")
    (tmp_path / "a.csv").write_text(",".join(f"c{i}" for i in range(300)) + "\n" + ",".join("1" * 300) + "\n")
    with pytest.raises(ValueError, match=r"columns are c0, c1, (c\d, )*\.\.\., c299: leave key"):
        read_snapshots(tmp_path / "a.csv", key="x3")
    (tmp_path / "a.csv").write_text(f"{name}\n0.1\n0.2\n")
    assert read_snapshots(tmp_path / "a.csv").tolist() == [[0.1], [0.2]]
    (tmp_path / "a.csv").write_text("t_1,t_2\n0.1,1\n0.2,2\n")
    assert read_snapshots(tmp_path / "a.csv").tolist() == [[0.1, 1], [0.2, 2]]


def in_the_other_order(content):
    """A .mat file with its bytes in the order of the other kind of machines."""
    sizes = {3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}

    def swapped(kind, body):
        return elements(body) if kind == 14 else np.frombuffer(body, f"u{sizes.get(kind, 1)}").byteswap().tobytes()

    def elements(data):
        parts, start = [], 0
        while start < len(data):
            kind, size = struct.unpack_from("<2I", data, start)
            body, following = start + 8, 8 + size + -size % 8
            if kind >> 16:
                kind, size, body, following = kind & 0xFFFF, kind >> 16, start + 4, 8
                parts += [struct.pack(">2H", size, kind), swapped(kind, data[body : body + size]).ljust(4, b"\0")]
            else:
                content = swapped(kind, data[body : body + size])
                parts += [struct.pack(">2I", kind, len(content)), content, bytes(-len(content) % 8)]
            start += following
        return b"".join(parts)

    return content[:124] + b"\1\0MI" + elements(content[128:])


@pytest.mark.skipif(sys.byteorder == "big", reason="savemat writes the order of the machine")
@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?", ">f8", "f2"])
def test_mat_files_give_what_scipy_reads(dtype):
    rng = np.random.default_rng(0)
    for shape in ((3, 4), (1, 1), (0, 3), (2, 3, 4), (5,), (1, 5000)):
        U = rng.integers(0, 2 if dtype == "?" else 100, shape).astype(dtype)
        for compressed in (False, True):
            file = io.BytesIO()
            savemat(file, {"U": U, "an_array_with_a_long_name": np.asfortranarray(U)}, do_compression=compressed)
            files = [file.getvalue()] if compressed else [file.getvalue(), in_the_other_order(file.getvalue())]
            for content in files:
                arrays = mat_arrays(io.BytesIO(content))
                for name, expected in loadmat(file).items():
                    if name[0] != "_":
                        np.testing.assert_array_equal(arrays[name].read(), expected, strict=True)


def test_labels_may_be_text_in_a_mat_file(tmp_path):
    runs, rows = ["run 1", "run 22", "\u00e9"], np.array(["ab", "c"])
    for compressed in (False, True):
        savemat(
            tmp_path / "a.mat", {"g": np.array(runs, dtype=object), "t": rows, "k": [1, 2]}, do_compression=compressed
        )
        assert read_labels(tmp_path / "a.mat", 3, key="g").ravel().tolist() == runs
        assert read_labels(tmp_path / "a.mat", 2, key="t").tolist() == rows.tolist()
        assert read_labels(tmp_path / "a.mat", 2, key="k").tolist() == [[1, 2]]
    savemat(tmp_path / "a.mat", {"g": np.array([runs, np.eye(2)], dtype=object)})
    with pytest.raises(ValueError, match="a cell holds numbers, expected text"):
        read_labels(tmp_path / "a.mat", 2, key="g")


def forged_mat_files(rng):
    """Altered .mat files, each as it is and with its arrays compressed, so that their checksums are right."""
    file = io.BytesIO()
    named = {"U": FIELDS, "s": {"a": FIELDS[:2], "t": "text"}, "c": np.array([FIELDS[0], "x"], dtype=object)}
    savemat(file, named)
    content = file.getvalue()
    shapes = [k for k in range(132, len(content) - 4, 8) if content[k - 4 : k + 4] == b"\6\0\0\0\x08\0\0\0"]
    places = [[k + 5] for k in shapes] + [[k + 12] for k in shapes] + [[k + 19] for k in shapes]
    places += list(rng.integers(128, len(content), (150, 2)))
    for changed in places:
        forged = bytearray(content)
        for place in changed:
            forged[place] = rng.integers(256)
        yield bytes(forged)
        packed, start = [content[:128]], 128
        while start < len(content):
            end = start + 8 + int.from_bytes(content[start + 4 : start + 8], sys.byteorder)
            array = zlib.compress(forged[start:end])
            packed.append(struct.pack("=2I", 15, len(array)) + array)
            start = end
        yield b"".join(packed)
    # at this one SciPy's reader (1.13 to 1.17) ends the process
    yield content[:128] + bytes.fromhex(
        "0f00000038000000789ce3636060f000623620e600624e06086085f259a06c46200c85ca89801570f133b2710b30b1f30832"
        "73f04ab170f2098384013cd401b5"
    )


@pytest.mark.parametrize("seed", range(3))
def test_forged_mat_files_are_read_or_refused(tmp_path, seed):
    """Neither a crash nor another exception."""
    for content in forged_mat_files(np.random.default_rng(seed)):
        (tmp_path / "b.mat").write_bytes(content)
        for read, key in ((read_snapshots, "U"), (read_snapshots, "s/a"), (partial(read_labels, n=2), "c")):
            try:
                read(tmp_path / "b.mat", key=key)
            except ValueError as error:
                assert "b.mat" in str(error)


def test_a_mat_file_takes_no_more_memory_than_it_has_bytes_for():
    tracemalloc.start()
    try:
        for content in forged_mat_files(np.random.default_rng(3)):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with contextlib.suppress(ValueError):
                for array in mat_arrays(io.BytesIO(content)).values():
                    if array.kind in (NUMBERS, "char", "cell"):
                        with contextlib.suppress(ValueError):
                            array.read()
            # 64 kB: the state of zlib and its first block of output
            assert tracemalloc.get_traced_memory()[1] - before < 10 * len(content) + 65536
    finally:
        tracemalloc.stop()


def test_mat_files_give_the_type_of_the_class_whatever_numbers_are_stored(tmp_path):
    def element(kind, data):
        return struct.pack("=2I", kind, len(data)) + data + bytes(-len(data) % 8)

    # MATLAB stores doubles that are small integers in bytes, names of at most four letters within their tag
    small = struct.pack("=HH4s", 1, 1, b"U")
    head = element(6, struct.pack("=2I", 6, 0)) + element(5, struct.pack("=2i", 2, 3)) + small
    array = element(14, head + element(2, bytes(range(6))))
    # a string of MATLAB's new kind: its flags and name, and what only MATLAB reads
    names = b"".join(element(1, name) for name in (b"label", b"MCOS", b"string"))
    opaque = element(14, element(6, struct.pack("=2I", 17, 0)) + names)
    unnamed = element(14, element(6, struct.pack("=2I", 9, 0)) + element(5, struct.pack("=2i", 1, 8)) + element(1, b""))
    mark = b"\x00\x01IM" if sys.byteorder == "little" else b"\x01\x00MI"
    (tmp_path / "a.mat").write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + mark + array + opaque + unnamed)
    np.testing.assert_array_equal(read_snapshots(tmp_path / "a.mat"), [[0.0, 2, 4], [1, 3, 5]], strict=True)
    with pytest.raises(ValueError, match=r"it has U \(2, 3\), besides label \(class string\)"):
        read_snapshots(tmp_path / "a.mat", key="label")


@pytest.mark.parametrize("separator", [" ", ",", ";", "\t"])
def test_names_of_rows_are_no_cell_where_r_writes_them(tmp_path, separator):
    lines = (['"x1"', '"x 2"'], ['"1"', "0.5", "0.25"], ['"2"', "1.5", "1.25"])
    (tmp_path / "a.txt").write_text("".join(separator.join(line) + "\n" for line in lines))
    assert read_snapshots(tmp_path / "a.txt").tolist() == [[0.5, 0.25], [1.5, 1.25]]
    assert read_snapshots(tmp_path / "a.txt", key="x1").tolist() == [[0.5], [1.5]]
    (tmp_path / "a.txt").write_text("two words\n1 2 3\n4 5 6\n")
    with pytest.warns(UserWarning, match="a line of names has 2 for 3 columns"):
        assert read_snapshots(tmp_path / "a.txt").tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("line", [",2,3", '"",2,3', ",1,3", ",2.5,NA", ";2;3"])
def test_a_first_value_that_is_missing_is_told(tmp_path, line):
    (tmp_path / "a.csv").write_text(f"{line}\n4{line}\n".replace('4""', "4"))
    with pytest.raises(
        ValueError, match="a.csv .* line 1 .* may hold names or values. Begin it with # if it has names"
    ):
        read_snapshots(tmp_path / "a.csv")


@pytest.mark.parametrize("place", range(0, 20, 4))
def test_forged_mat_files_of_version_4_are_named(tmp_path, place):
    savemat(tmp_path / "a.mat", {"U": np.arange(12.0).reshape(3, 4)}, format="4")
    content = (tmp_path / "a.mat").read_bytes()
    for forged in (2**31 - 1, -1, 2**30, -(2**31), 0):
        (tmp_path / "b.mat").write_bytes(content[:place] + struct.pack("=i", forged) + content[place + 4 :])
        try:
            read_snapshots(tmp_path / "b.mat")
        except (ValueError, MemoryError) as error:
            assert "b.mat" in str(error)


def test_archives_that_begin_before_their_file_are_told(tmp_path):
    np.savez(tmp_path / "a.npz", U=FIELDS)
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[20:])
    with pytest.raises(ValueError, match="a.npz cannot be read as an .npz file"):
        read_snapshots(tmp_path / "a.npz")


@pytest.mark.parametrize("header", ["{'descr': '<f8', 'fort {", "{1: 2, 'descr': 3}", "{"])
def test_headers_that_are_no_dictionaries_are_told(tmp_path, header):
    np.save(tmp_path / "a.npy", FIELDS)
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data[:10] + header.encode().ljust(117) + b"\n" + data[128:])
    with pytest.raises(ValueError, match="a.npy is not a .npy file of numbers"):
        read_snapshots(tmp_path / "a.npy")


@pytest.mark.parametrize("line", ["1,,3", "1+2j,2,3", "NA,2,3", "0x10,2,3", "1,x,3", "--,2,3"])
def test_a_first_snapshot_that_is_incomplete_is_no_line_of_names(tmp_path, line):
    (tmp_path / "a.csv").write_text(f"{line}\n4,5,6\n7,8,9\n")
    with pytest.raises(ValueError, match="a.csv cannot be read as text .* line 1, column [12]: "):
        read_snapshots(tmp_path / "a.csv")


def test_a_comment_behind_the_first_snapshot_makes_no_names_of_it(tmp_path):
    (tmp_path / "a.csv").write_text("1,2 # at rest\n3,4.5\n")
    assert read_snapshots(tmp_path / "a.csv").tolist() == [[1, 2], [3, 4.5]]
    (tmp_path / "a.csv").write_text("\n\n")
    with pytest.raises(ValueError, match="it holds no numbers"):
        read_snapshots(tmp_path / "a.csv")


class _Bomb:
    def __reduce__(self):
        return pytest.fail, ("a pickle was executed",)


@pytest.mark.parametrize("shape", [(10**12, 10), (2**63, 1), (10**30, 2), (2**63, 0), (-1, 5), (True, 2), (9, 9), None])
def test_forged_headers_are_refused_before_memory_is_asked_for(tmp_path, shape):
    file = io.BytesIO()
    if shape is None:
        np.save(file, np.array([_Bomb()], dtype=object), allow_pickle=True)
    else:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    (tmp_path / "a.npy").write_bytes(file.getvalue() + bytes(64))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.write(tmp_path / "a.npy", "a.npy")
    for name in ("a.npy", "a.npz"):
        with pytest.raises(ValueError, match=f"{name} .*(declares|Object arrays|no array of numbers)"):
            read_snapshots(tmp_path / name)


def test_empty_data_spaces_of_HDF5_are_no_arrays(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["nothing"] = h5py.Empty("f8")
    with pytest.raises(ValueError, match="has no array of numbers"):
        read_snapshots(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["U"] = np.ones((3, 4))
    np.testing.assert_array_equal(read_snapshots(tmp_path / "a.h5"), np.ones((3, 4)))


def test_bytes_behind_an_array_are_told(tmp_path):
    for name, parts in (("a.npy", [FIELDS, FIELDS]), ("b.npy", [FIELDS[0], FIELDS])):
        with open(tmp_path / name, "wb") as file:
            for part in parts:
                np.save(file, part)
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.write(tmp_path / name, "a.npy")
        for path in (tmp_path / name, tmp_path / "a.npz"):
            with pytest.raises(ValueError, match=rf"{path.name} .*declares .* bytes.*several arrays as \.npz"):
                read_snapshots(path)


@pytest.mark.parametrize("name", ["a.h5", "a.nc"])
@pytest.mark.parametrize("missing", ["source", "array", "source of the source", None])
def test_virtual_arrays_whose_sources_are_missing_are_refused(tmp_path, missing, name):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / name
    if name == "a.nc":
        pytest.importorskip("h5netcdf")
    with h5py.File(tmp_path / "deep.h5", "w") as file:
        file["W" if missing == "array" else "U"] = PHYSICAL
    for name, source in (("b.h5", "deep.h5"), (path.name, "b.h5")):
        layout = h5py.VirtualLayout(PHYSICAL.shape, "f8")
        layout[:] = h5py.VirtualSource(source, "U", shape=PHYSICAL.shape)
        with h5py.File(tmp_path / name, "w") as file:
            made = file.create_virtual_dataset("U", layout, fillvalue=0)
            for axis, size in enumerate(PHYSICAL.shape if path.suffix == ".nc" else ()):
                file[f"x{axis}"] = np.arange(float(size))
                file[f"x{axis}"].make_scale(f"x{axis}")
                made.dims[axis].attach_scale(file[f"x{axis}"])
    gone = {"source": "b.h5", "array": "deep.h5/U", "source of the source": "deep.h5"}.get(missing)
    if gone is None:
        np.testing.assert_array_equal(read_snapshots(path, key="U"), PHYSICAL)
        return
    if missing != "array":
        (tmp_path / gone).unlink()
    with pytest.raises(ValueError, match=f"{path.name} .*U is virtual, and .* are missing: {gone}$"):
        read_snapshots(path)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_of_zarr_without_names_of_axes_are_read_as_they_are(tmp_path, zarr_format):
    zarr, _ = pytest.importorskip("zarr"), pytest.importorskip("xarray")
    path = tmp_path / "a.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=zarr_format)
    for name in ("U", "run/V"):
        group.create_array(name, data=PHYSICAL)
    with pytest.raises(ValueError, match=r"several arrays: U \(3, 4\), run/V \(3, 4\)"):
        read_snapshots(path)
    for place, key in ((path, "U"), (path, "run/V"), (path / "run", None), (path / "U", None)):
        np.testing.assert_array_equal(read_snapshots(place, key=key), PHYSICAL, strict=True)


def test_what_has_no_name_takes_no_key(tmp_path):
    np.save(tmp_path / "a.npy", FIELDS)
    (tmp_path / "a.csv").write_text("1,2.5\n")
    for name in ("a.npy", "a.csv"):
        with pytest.raises(ValueError, match="leave key"):
            read_snapshots(tmp_path / name, key="U")
    (tmp_path / "a.csv").write_text("a,b\n1,\n")
    with pytest.raises(ValueError, match="a.csv cannot be read as text .* column 2"):
        read_snapshots(tmp_path / "a.csv")
    np.save(tmp_path / "a.npy", np.array(["text"]))
    with pytest.raises(ValueError, match="must hold real numbers"):
        read_snapshots(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", TIMES)
    with pytest.raises(ValueError, match=r"\(7,\), which cannot be transposed"):
        read_snapshots(tmp_path / "a.npy", transpose=True)


@pytest.mark.parametrize(
    ("name", "package"), [("b.mat", "h5py"), ("a.h5", "h5py"), ("a.nc", "xarray"), ("a.zarr", "zarr")]
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, name, package):
    if name.endswith("zarr"):
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_bytes(MATLAB_HEADER)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs the package {package}.*pip install 'randsmap\[files\]'"):
        read_snapshots(tmp_path / name)


# -- Rows or columns -------------------------------------------------------------------------------
def usual_data():
    x, times = np.linspace(0, 1, 100), np.linspace(0, 10, 3000)[:, None]
    rng = np.random.default_rng(0)
    yield "traffic", datasets.make_lwr(4, 150, random_state=0).data
    yield "traffic, one run", datasets.make_lwr(1, 600, random_state=0).data
    yield "Swiss roll", datasets.make_swiss_roll(3000, random_state=0).data
    yield "S-curve", datasets.make_s_curve(3000, random_state=0).data
    yield "long wave", np.sin(2 * np.pi * (x - times)) * np.exp(-0.1 * times) + x
    yield "heat", np.exp(-times) * np.sin(np.pi * x) + np.exp(-4 * times) * np.sin(2 * np.pi * x)
    yield "front", 1 / (1 + np.exp(50 * (x - times / 10)))
    yield "noise", rng.normal(size=(2000, 50))
    yield "fluctuations", (lambda F: F - F.mean(axis=0))(np.sin(2 * np.pi * (x - times)) * np.exp(-0.1 * times))
    yield "constant", np.ones((200, 30))
    yield "integers", np.arange(6000).reshape(200, 30)
    yield "empty", np.zeros((0, 30))


def in_columns():
    x, rng = np.linspace(0, 1, 1000), np.random.default_rng(0)
    centre = np.linspace(0.3, 0.7, 60)[:, None]
    mass = datasets.make_lwr(2, 30, random_state=0).data
    yield "mass", mass
    yield "mass of fields of a shape", mass.reshape(len(mass), 20, 20)
    yield "bumps at random", np.exp(-(((x - rng.permutation(centre)) / 0.1) ** 2)) * rng.uniform(1, 2, (60, 1))
    yield "a bump that moves and grows", np.exp(-(((x - centre) / 0.1) ** 2)) * (1 + centre)


def test_the_hint_is_for_fields_in_columns_alone(tmp_path):
    for name, F in usual_data():
        assert transposed_evidence(F) is None, name
    for name, F in in_columns():
        assert transposed_evidence(F) is None, name
        columns = np.moveaxis(F, 0, -1)
        assert transposed_evidence(columns) is not None, name
        np.save(tmp_path / "F.npy", columns)
        with pytest.warns(UserWarning, match=rf"{F.shape[1]} snapshots of .*{len(F)} cells, but .*\(--transpose\)"):
            read_snapshots(tmp_path / "F.npy")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(read_snapshots(tmp_path / "F.npy", transpose=True), F)


def test_the_hint_reads_a_sample_of_large_files(tmp_path, monkeypatch):
    *_, (_, moving) = in_columns()
    np.save(tmp_path / "F.npy", moving.T)
    monkeypatch.setattr(randsmap._linalg.rows, "LARGE", 64)
    with pytest.warns(UserWarning, match="first and last rows agree"):
        read_snapshots(tmp_path / "F.npy")


@pytest.mark.parametrize(
    ("text", "rows", "warning"),
    [
        (",mu\n0,0.5\n1,0.6\n2,0.9\n", [[0.5], [0.6], [0.9]], ""),  # pandas and R: an index, one column
        ("t,T,p\n0,300,1\n1,310,2\n", [[300, 1], [310, 2]], "'t', is taken for the times"),  # T: a temperature
        ("u,u.1,u.2,u.3\n1,2,3,4.5\n5,6,7,8\n", [[1, 2, 3, 4.5], [5, 6, 7, 8]], ""),  # names made to differ
        ("#\tx\ty\n1\t2\n3\t4.5\n", [[1, 2], [3, 4.5]], ""),
        (
            "time,a,b\n0,1,5\n1,2,3\n2,3,9\n3,4,1\n4,5.5,2\n",
            [[1, 5], [2, 3], [3, 9], [4, 1], [5.5, 2]],
            "'time', is taken for the times",
        ),
    ],
)
def test_columns_of_rows_are_left_out_and_no_others(tmp_path, text, rows, warning):
    read, told = read_text(tmp_path / "a.csv", text)
    assert read.tolist() == rows and bool(told) == bool(warning)
    assert "rises" not in told and re.search(warning, told)


def test_rows_with_names_are_rows_and_quoted_labels_are_whole(tmp_path):
    with pytest.raises(ValueError, match="may hold names or values|no number"):
        read_text(tmp_path / "a.csv", ",u0,u1\nbaseline,0.1,0.2\n1,0.3,0.4\n2,0.5,0.6\n")
    labels, _ = read_text(tmp_path / "a.txt", '"run # 1"\n"run # 1"\n"run # 2"\n', read_labels, n=3)
    assert labels.tolist() == ["run # 1", "run # 1", "run # 2"]


def test_data_beside_indices_alone_are_no_sparse_matrix(tmp_path):
    F = np.arange(6.0).reshape(2, 3)
    np.savez(tmp_path / "a.npz", train_data=F, train_indices=np.arange(2))
    assert np.array_equal(read_snapshots(tmp_path / "a.npz", key="train_data"), F)


@pytest.mark.parametrize(
    "levels", [([0, 1], [0.1, 0.2]), ([1, 0], [0.2, 0.1]), ([0.5, 1.5], [1, 2, 3]), ([-1, 0, 2], [3.5, 2.5])]
)
def test_two_lines_of_numbers_that_are_a_product_may_be_names(tmp_path, levels):
    """As pandas writes columns of two levels without the index."""
    pandas = pytest.importorskip("pandas")
    columns = pandas.MultiIndex.from_product(levels)
    table = pandas.DataFrame(np.random.default_rng(0).uniform(size=(9, len(columns))), columns=columns)
    table.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match="line 1 without comments and blank lines may hold names or values"):
        read_snapshots(tmp_path / "a.csv")


def test_a_first_line_that_alone_rises_evenly_is_told(tmp_path):
    values = np.random.default_rng(0).uniform(size=(9, 5)).round(3).tolist()
    text = "\n".join(",".join(map(str, row)) for row in [[0.0, 0.25, 0.5, 0.75, 1.0], *values])
    read, told = read_text(tmp_path / "a.csv", text)
    assert len(read) == 10 and "first line rises evenly as no other does" in told
    assert not read_text(tmp_path / "a.csv", text.partition("\n")[2])[1]


@pytest.mark.parametrize("corner", ["0", "nan", "12"])
@pytest.mark.parametrize("positions", [range(12), np.linspace(0, 1, 12), np.linspace(0, 1, 12) ** 2])
@pytest.mark.parametrize("times", [range(40), range(1, 41), np.linspace(0, 1, 40)])
def test_a_grid_with_positions_and_times_is_told(tmp_path, corner, positions, times):
    values = np.random.default_rng(0).uniform(size=(40, 12))
    rows = [[t, *row] for t, row in zip(times, values, strict=True)]
    told = read_text(tmp_path / "a.csv", "\n".join(",".join(map(str, row)) for row in [[corner, *positions], *rows]))[1]
    assert re.search("first column (rises as no other does|counts the rows)", told)
    assert ("first line rises evenly" in told) == (positions[1] - positions[0] == pytest.approx(positions[-1] / 11))


@pytest.mark.parametrize(
    "name",
    "id ID index idx run label group sample case snapshot frame trajectory seed Re fold year run_id sample_no".split(),
)
def test_a_column_called_as_rows_are_is_no_cell_without_a_word(tmp_path, name):
    cells, row = ["pa", "pb", "pc", "pd"], "0.5,1.5,2.5,4.5"
    path, first = tmp_path / "a.csv", f"{','.join([name, *cells])}\n7,{row}\n3,{row}\n"
    assert re.search(f"{name!r}, is taken for the numbers", read_text(path, first)[1])
    assert read_snapshots(path, key=name).tolist() == [[7], [3]]
    read, told = read_text(path, f"{','.join([*cells, name])}\n{row},7\n{row},3\n")
    assert read.shape == (2, 5) and f"{name!r} is taken for a cell: put it first" in told
    read, told = read_text(path, f"c0,c1,c2,c3,target\n{row},7\n{row},3\n")
    assert read.shape == (2, 5) and "'target' is taken for a cell" in told
    if name in ("Re", "year", "group", "label"):  # as a parameter it is read
        read, told = read_text(path, first, read_array)
        assert read.shape == (2, 5) and not told


@pytest.mark.parametrize("line", ["#1.5,2,3", "# 1.5,2,3", "#REF,1,2", "#,1,2"])
@pytest.mark.parametrize("at", [0, 2, 5])
def test_a_comment_with_the_entries_of_a_row_is_told(tmp_path, line, at):
    rows = ["1.5,2.5,3.5"] * 5
    read, told = read_text(tmp_path / "a.csv", "\n".join([*rows[:at], line, *rows[at:]]))
    assert len(read) == 5 and f"line {at + 1} is passed over as a comment" in told


def test_names_of_rows_and_columns_of_a_text_are_kept(tmp_path):
    for text, rows, columns in (
        (",a,b\nr1,1,2\nr2,3,4\n", ["r1", "r2"], ["a", "b"]),
        (",x=0.5,x=1.5\n7,1,2\n3,3,4\n", [7, 3], ["x=0.5", "x=1.5"]),
        (",0,1\n1,1,2\n0,3,4\n", [1, 0], [0, 1]),
        ("a,b\n1,2\n3,4\n", None, ["a", "b"]),
        ("1,2\n3,4\n", None, None),
    ):
        for transpose in (False, True):
            table, _ = read_text(tmp_path / "a.csv", text, transpose=transpose)
            assert table.tolist() == ([[1, 3], [2, 4]] if transpose else [[1, 2], [3, 4]])
            names = [None if index is None else list(index) for index in (table.row_names, table.column_names)]
            assert names == ([columns, rows] if transpose else [rows, columns])


@pytest.mark.parametrize("name", ["a.nc", "b.nc", "a.zarr"])
def test_coordinates_and_variables_are_labels_and_parameters_by_their_names(tmp_path, name):
    pandas, xarray = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    pytest.importorskip("zarr" if "zarr" in name else "h5netcdf")
    days = pandas.date_range("2020-01-01", periods=3)
    runs = ("time", ["a", "a", "b"])
    coords = {"time": days, "mu": ("time", [0.5, 1.0, 1.5]), "run": runs}
    data = {"U": (("time", "x"), np.ones((3, 5))), "kind": runs, "p": ("time", [1.0, 2, 3]), "when": ("time", days)}
    data = xarray.Dataset(data, coords)
    path = tmp_path / name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr's, of text
        if "zarr" in name:
            data.to_zarr(path, consolidated=False)
        else:
            data.to_netcdf(path, engine="h5netcdf" if name == "a.nc" else "scipy")
        assert read_snapshots(path).shape == (3, 5)
        for key, values in {"mu": [0.5, 1, 1.5], "p": [1, 2, 3], "time": [0, 1, 2], "when": [0, 1, 2]}.items():
            assert read_snapshots(path, key=key).values.tolist() == values
            parameters = read_columns(path, key=key)
            assert parameters.values.tolist() == [[value] for value in values]
            assert (parameters.time.values == days.values).all()  # which the fields have
        for key, labels in {"run": ["a", "a", "b"], "kind": ["a", "a", "b"], "mu": [0.5, 1, 1.5]}.items():
            assert read_labels(path, 3, key=key).values.tolist() == labels
        with pytest.raises(ValueError, match="has no array 'run' of numbers; it has .*mu .*time"):
            read_snapshots(path, key="run")


def test_text_in_HDF5_and_npz_is_labels(tmp_path):
    h5py = pytest.importorskip("h5py")
    np.savez(tmp_path / "a.npz", U=np.ones((3, 5)), run=np.array(["a", "a", "b"]))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["U"], file["run"] = np.ones((3, 5)), ["a", "a", "b"]
    for name in ("a.npz", "a.h5"):
        assert read_labels(tmp_path / name, 3, key="run").tolist() == ["a", "a", "b"]
        assert read_snapshots(tmp_path / name).shape == (3, 5)
        with pytest.raises(ValueError, match="has no array 'run' of numbers"):
            read_snapshots(tmp_path / name, key="run")


# -- One file per time step -------------------------------------------------------------------------
@pytest.mark.parametrize("ending", ["npy", "txt"])
def test_step_files_are_ordered_by_their_numbers(tmp_path, ending):
    fields = np.random.default_rng(0).random((12, 7))
    for step in range(12):
        path = tmp_path / f"step_{step}.{ending}"
        np.save(path, fields[step]) if ending == "npy" else np.savetxt(path, fields[step], fmt="%.17g")
    (tmp_path / ".hidden").write_text("")
    for path in (tmp_path, tmp_path / "step_*"):
        np.testing.assert_array_equal(read_snapshots(path), fields)
    np.testing.assert_array_equal(read_snapshots(tmp_path / f"step_1?.{ending}"), fields[10:])


@pytest.mark.parametrize(
    "names",
    [
        ("t_0", "t_1e-05", "t_9.5e-05", "t_0.0001", "t_0.125", "t_0.25", "t_0.5", "t_1.0", "t_2", "t_10.25"),
        ("2020.1.5", "2020.1.10", "2020.2.1", "2020.10.1"),
        ("x1²2", "x1²10"),
        ("t_0.00", "t_0.05", "t_0.50", "t_2.00", "t_10.25"),
        ("run1.8", "run1.9", "run1.10", "run1.11", "run2.1"),
    ],
)
def test_step_files_of_times_and_dates_are_in_order(tmp_path, names):
    for i, name in enumerate(names):
        np.save(tmp_path / f"{name}.npy", np.full(3, i))
    assert read_snapshots(tmp_path)[:, 0].tolist() == list(range(len(names)))


def test_step_files_hold_planes_of_one_shape(tmp_path):
    fields = np.random.default_rng(0).random((3, 4, 5))
    for step in range(3):
        np.savez(tmp_path / f"{step}.npz", u=fields[step], t=np.arange(2.0))
    np.testing.assert_array_equal(read_snapshots(tmp_path, key="u"), fields)
    with pytest.raises(ValueError, match="no columns to transpose"):
        read_snapshots(tmp_path, transpose=True)
    np.savez(tmp_path / "3.npz", u=fields[0].T, t=np.arange(2.0))
    with pytest.raises(ValueError, match=r"3.npz holds a field of shape \(5, 4\), and .*0.npz one of \(4, 5\)"):
        read_snapshots(tmp_path)
    (tmp_path / "notes.txt").write_text("1")
    with pytest.raises(ValueError, match=r"several endings \(.npz, .txt\)"):
        read_snapshots(tmp_path)
    with pytest.raises(ValueError, match="folder without files"):
        (tmp_path / "empty").mkdir()
        read_snapshots(tmp_path / "empty")
    with pytest.raises(FileNotFoundError):
        read_snapshots(tmp_path / "none*.npy")


def write_openfoam_case(case, lengths, times, fields):
    """A row of boxes of these lengths, with a scalar p at each time."""

    def write(folder, name, kind, text):
        (case / folder).mkdir(parents=True, exist_ok=True)
        head = f"FoamFile {{ version 2.0; format ascii; class {kind}; object {name}; }}\n"
        (case / folder / name).write_text(head + text)

    def listed(entries):
        return f"{len(entries)}\n(\n" + "\n".join(map(str, entries)) + "\n)\n"

    def face(*points):
        return f"4({' '.join(map(str, points))})"

    n, x = len(lengths), np.concatenate([[0.0], np.cumsum(lengths)])
    sides = [
        (face(4 * i + a, 4 * i + b, 4 * i + 4 + b, 4 * i + 4 + a), i)
        for i in range(n)
        for a, b in ((0, 1), (1, 2), (2, 3), (3, 0))
    ]
    outer = [*sides, (face(3, 2, 1, 0), 0), (face(*range(4 * n, 4 * n + 4)), n - 1)]
    inner = [face(*range(4 * i, 4 * i + 4)) for i in range(1, n)]
    points = [f"({a} {b} {c})" for a in x for b, c in ((0, 0), (1, 0), (1, 1), (0, 1))]
    walls = f"1\n(\nwalls {{ type wall; nFaces {len(outer)}; startFace {n - 1}; }}\n)\n"
    for name, kind, text in (
        ("points", "vectorField", listed(points)),
        ("faces", "faceList", listed([*inner, *(corners for corners, _ in outer)])),
        ("owner", "labelList", listed([*range(n - 1), *(i for _, i in outer)])),
        ("neighbour", "labelList", listed(range(1, n))),
        ("boundary", "polyBoundaryMesh", walls),
    ):
        write("constant/polyMesh", name, kind, text)
    write("system", "controlDict", "dictionary", "startTime 0; endTime 9; deltaT 1; writeInterval 1;\n")
    for time, field in zip(times, fields):
        values = f"internalField nonuniform List<scalar>\n{listed(field.tolist())};\n"
        text = f"dimensions [0 0 0 0 0 0 0];\n{values}boundaryField {{ walls {{ type zeroGradient; }} }}\n"
        write(time, "p", "volScalarField", text)
    (case / "case.foam").touch()


def write_cgns(path, points, hexahedra, field):
    """A CGNS file as HDF5 stores it, with a field u of the cells."""
    h5py = pytest.importorskip("h5py")

    def node(parent, name, label, value=None):
        kinds = {"i": "I4", "f": "R8", "S": "C1"}
        value = None if value is None else np.asarray(value)
        made = parent.create_group(name, track_order=True) if name else parent
        if value is not None:
            kind = kinds[value.dtype.kind]
            stored = (
                np.frombuffer(value.item(), np.int8) if kind == "C1" else value.astype(kind.lower().replace("r", "f"))
            )
            made.create_dataset(" data", data=stored)
        texts = {"name": name or "HDF5 MotherNode", "label": label, "type": "MT" if value is None else kind}
        for key, text in texts.items():
            made.attrs.create(key, np.array(text.encode(), "S3" if key == "type" else "S33"))
        made.attrs["flags"] = np.array([1], np.int32)
        return made

    with h5py.File(path, "w", track_order=True) as file:
        root = node(file, "", "Root Node of HDF5 File")
        for name, text in ((" format", b"IEEE_LITTLE_32"), (" hdf5version", b"HDF5 Version 1.10.0".ljust(33, b"\0"))):
            root.create_dataset(name, data=np.frombuffer(text, np.int8))
        node(root, "CGNSLibraryVersion", "CGNSLibraryVersion_t", np.array([4.0]))
        base = node(root, "Base", "CGNSBase_t", [3, 3])
        zone = node(base, "Zone", "Zone_t", [[len(points)], [len(hexahedra)], [0]])
        node(zone, "ZoneType", "ZoneType_t", b"Unstructured")
        grid = node(zone, "GridCoordinates", "GridCoordinates_t")
        for axis, values in zip("XYZ", points.T):
            node(grid, f"Coordinate{axis}", "DataArray_t", values)
        cells = node(zone, "Cells", "Elements_t", [17, 0])  # HEXA_8
        node(cells, "ElementRange", "IndexRange_t", [1, len(hexahedra)])
        node(cells, "ElementConnectivity", "DataArray_t", 1 + np.ravel(hexahedra))
        solution = node(zone, "Solution", "FlowSolution_t")
        node(solution, "GridLocation", "GridLocation_t", b"CellCenter")
        node(solution, "u", "DataArray_t", field)


def test_mesh_files_give_fields_and_the_volumes_of_cells(tmp_path):
    pyvista = pytest.importorskip("pyvista")
    read = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "mesh_files.py"))["read_steps"]
    fields, lengths = np.random.default_rng(0).random((4, 3)), [1.0, 2.0, 3.0]
    write_openfoam_case(tmp_path, lengths, ["0", "0.5", "1", "10"], fields)
    corners = [[x, y, z] for x in (0.0, 1.0, 3.0, 6.0) for y, z in ((0, 0), (1, 0), (1, 1), (0, 1))]
    boxes = [range(4 * i, 4 * i + 8) for i in range(3)]
    plane = np.array([[0.0, 0, 0], [1, 0, 0], [3, 0, 0], [0, 2, 0], [1, 2, 0], [3, 2, 0]])
    cells = [4, 0, 1, 4, 3, 3, 1, 2, 5, 3, 1, 5, 4]
    flat = pyvista.UnstructuredGrid(cells, [pyvista.CellType.QUAD, *[pyvista.CellType.TRIANGLE] * 2], plane)
    for step, field in zip((0, 1, 2, 10), fields):
        write_cgns(tmp_path / f"step_{step}.cgns", np.array(corners), boxes, field)
        flat.cell_data["u"] = field
        flat.save(tmp_path / f"step_{step}.vtu")
    for pattern, name, sizes in (("*.vtu", "u", [2.0] * 3), ("*.cgns", "u", lengths), ("*.foam", "p", lengths)):
        found, volumes = read(sorted(map(str, tmp_path.glob(pattern))), name)
        np.testing.assert_allclose(found, fields, rtol=1e-7)  # VTK reads OpenFOAM in single precision
        np.testing.assert_allclose(volumes, sizes)
        with pytest.raises(ValueError, match="no field v has one value per cell, only .*" + name):
            read(map(str, tmp_path.glob(pattern)), "v")
