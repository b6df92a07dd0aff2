"""Everything that writes files, on a disk that is full: a clear error, the old file as it was, nothing left, no signal.

A file system of a few megabytes where one may be mounted (the superuser of Linux), and a limit on the size of files.
"""

import contextlib
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from helpers import small_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="needs resource limits, and small file systems"),
]

MEGABYTE = 1 << 20


class mounted:
    """A file system of so many bytes in a folder, while the block runs; the test is skipped where none may be."""

    def __init__(self, folder, size):
        self.folder, self.size = folder, size

    def __enter__(self):
        if os.geteuid() != 0:
            pytest.skip("mounting a small file system takes the superuser")
        command = ["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", self.folder]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("no file system may be mounted here")

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.folder], check=True)


def python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


GIVEN = """
import sys, warnings
import numpy as np, randsmap
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
latents = rng.uniform(size=(40, 2))
fields = 1 + np.sin(3 * latents @ rng.normal(size=(2, 9000)))
fields /= fields.sum(axis=1, keepdims=True)
decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(n_features=50), random_state=0).fit(latents, fields)
model = randsmap.ManifoldModel(randsmap.POD(2), decoder).fit(fields)
"""
# what writes to `path`, each more than a megabyte; what it needs is made before there is no space
WAYS = {
    "model": ("", "model.save(path)"),
    "part of a model": ("from randsmap.persistence import save", "save(decoder, path)"),
    "image": ("frozen = decoder.freeze()", "frozen.save(path)"),
    "image of a model": ("frozen = model.freeze(precision='float32')", "frozen.save(path)"),
    "data set": ("make = randsmap.datasets.make_swiss_roll", "make(60_000, out=path)"),
    "traffic": ("make = randsmap.datasets.make_lwr", "make(6, snapshots_per_trajectory=60, t_end=0.3, out=path)"),
    "studies' result": (
        "from study_example import example_result; from randsmap.studies._result import save_result; import pathlib\n"
        "result = example_result(); result.arrays['big'] = rng.normal(size=(300, 1000))",
        "save_result(result, pathlib.Path(path).parent)",
    ),
    "report": (
        "from study_example import example_result; from randsmap.studies import _report; import pathlib\n"
        "result = example_result(); result.notes.append('long ' * 250000)",
        "_report.write_report(result, pathlib.Path(path).parent)",
    ),
    "cache": (
        "from randsmap._io.files import write_checked",
        "write_checked(path, lambda file: np.save(file, fields))",
    ),
    "chunk": (
        "import dask.array as da, randsmap.distributed as distributed\n"
        "decoded = distributed.inverse_transform(decoder, da.from_array(latents, chunks=(20, 2)))",
        "import dask\nwith dask.config.set(scheduler='threads'): [np.save(path, block) for block in decoded.blocks]",
    ),
}


SMALL = {"limit": f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({MEGABYTE}, {MEGABYTE}))", "disk": ""}
EACH = """
import json
spaces = {way: dict(globals()) for way in ways}
for way, (prepare, _) in ways.items():
    exec(prepare, spaces[way])
exec(limit)
for way, (_, write) in ways.items():
    spaces[way]["path"] = targets[way]
    try:
        exec(write, spaces[way])
    except OSError as error:
        print(json.dumps([way, error.errno, str(error)]), flush=True)
"""


@pytest.fixture(scope="module", params=SMALL)
def written(request, tmp_path_factory):
    """All the ways, one after the other in one process, where a file has a megabyte at most.

    {way: its file}, and {way: number and message of the error}.
    """
    folder = tmp_path_factory.mktemp("small")
    with mounted(folder, MEGABYTE) if request.param == "disk" else contextlib.nullcontext():
        names, targets = {"studies' result": "figures.npz", "report": "report.html"}, {}
        for i, way in enumerate(WAYS):
            targets[way] = folder / str(i) / names.get(way, "given.npy")
            targets[way].parent.mkdir()
            targets[way].write_bytes(b"what was there")
        given = {
            "ways": WAYS,
            "targets": {way: str(path) for way, path in targets.items()},
            "limit": SMALL[request.param],
        }
        lines = [f"import sys; sys.path.append({os.path.dirname(__file__)!r})", GIVEN]
        result = python("\n".join([*lines, *(f"{name} = {value!r}" for name, value in given.items()), EACH]))
        assert result.returncode == 0, result  # no signal: what a map cannot hold would be SIGBUS
        said = {way: (number, message) for way, number, message in map(json.loads, result.stdout.splitlines())}
        yield targets, said


@pytest.mark.parametrize("way", WAYS)
def test_a_write_that_fails_leaves_what_was_there(way, written):
    targets, said = written
    number, message = said[way]
    told = number in (28, 27)  # no space left on device, file too large
    assert told or way == "chunk" and "requested and" in message, message  # NumPy's own words have no number
    if way == "chunk":  # dask's and NumPy's to write; what the package decodes does not hide the error
        return
    assert str(targets[way]) in message, message
    assert targets[way].read_bytes() == b"what was there"
    assert list(targets[way].parent.iterdir()) == [targets[way]]


# -- The command line ------------------------------------------------------------------------------
COMMAND = "import sys; from randsmap.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def model(tmp_path):
    return small_model(tmp_path / "given")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, 4 * MEGABYTE):
        yield folder


def test_a_full_disk_is_told_and_nothing_is_left(small_disk, model):
    np.save(model / "many.npy", np.tile(np.load(model / "Y.npy"), (2500, 1)))  # 4.8 MB of fields
    for arguments in (
        ["decode", model / "m.npz", model / "many.npy", "--out", small_disk / "F.npy"],
        ["dataset", "lwr", "--trajectories", 22, "--snapshots", 60, "--out", small_disk / "F.npy"],
        ["dataset", "swiss-roll", "--samples", 200_000, "--out", small_disk / "F.npz"],
    ):
        result = python(COMMAND, *arguments)
        assert result.returncode == 1, result
        assert f"{arguments[-1]}: no space left on device" in result.stderr
        assert not list(small_disk.iterdir())


def test_a_memory_map_made_by_the_user_on_a_full_disk_raises(small_disk, model):
    code = """
        import sys, numpy as np, randsmap
        model, Y = randsmap.load(sys.argv[1]), np.load(sys.argv[2])
        out = np.lib.format.open_memmap(sys.argv[3], "w+", np.float64, (4500 * 30, 8))
        try:
            model.inverse_transform(np.tile(Y, (4500, 1)), out=out)
        except OSError as error:
            print(error)
    """
    result = python(code, model / "m.npz", model / "Y.npy", small_disk / "F.npy")
    assert result.stdout == f"[Errno 28] No space left on device: '{small_disk / 'F.npy'}'\n", result


def test_a_limit_on_file_sizes_is_told(tmp_path, model):
    code = """
        import resource, sys
        from randsmap.cli import main
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
        sys.exit(main(["dataset", "swiss-roll", "--samples", "100000", "--out", sys.argv[1]]))
    """
    result = python(code, tmp_path / "F.npy")
    assert result.returncode == 1 and f"{tmp_path / 'F.npy'}: file too large" in result.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"given"}
