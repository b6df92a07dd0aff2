"""Files appear whole or not at all, where and as they are asked for."""

import errno
import os
import re
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import randsmap
from randsmap._io.files import is_intact, replaced_atomically, reserve, writable_target, write_atomically, write_checked
from randsmap._linalg import rows
from randsmap.cli import main

from helpers import small_model

posix = pytest.mark.skipif(os.name != "posix", reason="links, modes, pipes and devices of POSIX")


def put(path, content=b"new"):
    write_atomically(path, lambda file: file.write(content))


def python(code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


@pytest.fixture
def model(tmp_path):
    return small_model(tmp_path / "given")


# -- Links, modes, names ---------------------------------------------------------------------------


@posix
def test_a_symbolic_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "real").write_bytes(b"old")
    (tmp_path / "middle").symlink_to("far/real")
    (tmp_path / "link").symlink_to("middle")
    put(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "middle").is_symlink()
    assert (tmp_path / "far" / "real").read_bytes() == b"new" and not (tmp_path / "far" / "real").is_symlink()
    (tmp_path / "dangling").symlink_to("far/other")
    put(tmp_path / "dangling")
    assert (tmp_path / "far" / "other").read_bytes() == b"new" and (tmp_path / "dangling").is_symlink()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        put(tmp_path / "loop")
    assert {p.name for p in (tmp_path / "far").iterdir()} == {"real", "other"}


@posix
def test_an_existing_file_keeps_its_mode_and_a_new_one_follows_the_umask(tmp_path):
    path = tmp_path / "file"
    for mode in (0o664, 0o600, 0o755, 0o222):
        path.write_bytes(b"old")
        path.chmod(mode)
        put(path)
        assert stat.S_IMODE(path.stat().st_mode) == mode
        path.unlink()
    before = os.umask(0o027)
    try:
        put(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@posix
def test_a_file_that_nobody_may_write_is_refused(tmp_path, model, capsys):
    path = tmp_path / "file.npy"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(PermissionError, match="file.npy"):
        put(path)
    assert main(["encode", str(model / "m.npz"), str(model / "F.npy"), "--out", str(path)]) == 1
    assert "file.npy" in capsys.readouterr().err
    assert path.read_bytes() == b"old" and stat.S_IMODE(path.stat().st_mode) == 0o444
    assert {p.name for p in tmp_path.iterdir()} == {"file.npy", "given"}


def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path):
    for name in ("n" * 255, "\u00e9" * 127):
        put(tmp_path / name)
        assert (tmp_path / name).read_bytes() == b"new"
    with pytest.raises(OSError) as error:
        put(tmp_path / ("n" * 256))
    assert error.value.errno == errno.ENAMETOOLONG and "n" * 256 in str(error.value)


def test_folders_are_named_where_they_are_wrong(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder, expected the name of a file"):
        put(tmp_path)
    with pytest.raises(FileNotFoundError, match="folder .*no.* does not exist"):
        put(tmp_path / "no" / "file")


@pytest.mark.slow
def test_a_home_is_written_out(tmp_path, monkeypatch, model):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    put("~/file")
    assert (tmp_path / "file").read_bytes() == b"new"
    fitted = randsmap.load("~/given/m.npz")
    fitted.save("~/again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (model / "m.npz").read_bytes()
    made = randsmap.datasets.make_swiss_roll(20, random_state=0, out="~/roll.npy")
    assert np.array_equal(np.load(tmp_path / "roll.npy"), made.data)
    assert main(["encode", "~/given/m.npz", "~/given/F.npy", "--out=~/Y.npy"]) == 0
    assert np.array_equal(np.load(tmp_path / "Y.npy"), np.load(model / "Y.npy"))
    assert main(["dataset", "s-curve", "--samples=9", "--out=~/s.npy"]) == 0
    assert main(["fit", "~/given/F.npy", "--out=~/m2.npz", "--value=3", "--components=1"]) == 0
    assert main(["evaluate", "~/m2.npz", "~/given/F.npy", "--out=~/e.csv"]) == 0
    assert {"s.npy", "m2.npz", "e.csv"} <= {p.name for p in tmp_path.iterdir()}


# -- Pipes and devices -----------------------------------------------------------------------------


@posix
def test_a_device_is_written_to_and_stays_one(model):
    before = os.stat("/dev/null")
    for arguments in (
        ["encode", model / "m.npz", model / "F.npy"],
        ["decode", model / "m.npz", model / "Y.npy"],
        ["evaluate", model / "m.npz", model / "F.npy"],
        ["fit", model / "F.npy", "--value", 3],
        ["dataset", "swiss-roll", "--samples", 9],
    ):
        assert main([str(a) for a in [*arguments, "--out", "/dev/null"]]) == 0
    after = os.stat("/dev/null")
    assert stat.S_ISCHR(after.st_mode) and (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    if os.path.exists("/dev/full"):
        with pytest.raises(OSError, match="No space left on device.*/dev/full"):
            put("/dev/full")


@posix
@pytest.mark.parametrize("command", ["encode", "decode", "fit", "dataset"])
def test_a_pipe_is_written_to(tmp_path, model, monkeypatch, command):
    monkeypatch.setattr(rows, "LARGE", 1)  # decode through a memory map, where it may be one
    pipe, received = tmp_path / ("pipe" if command == "fit" else "pipe.npy"), tmp_path / "received"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.write_bytes(pipe.read_bytes()))
    reader.start()
    arguments = {
        "encode": ["encode", model / "m.npz", model / "F.npy"],
        "decode": ["decode", model / "m.npz", model / "Y.npy"],
        "fit": ["fit", model / "F.npy", "--value", 3, "--n-features", 10],
        "dataset": ["dataset", "swiss-roll", "--samples", 40],
    }[command]
    assert main([str(a) for a in [*arguments, "--out", pipe]]) == 0
    reader.join(60)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    if command == "fit":
        assert randsmap.load(received).n_features_in_ == 8
    elif command == "dataset":
        expected = randsmap.datasets.make_swiss_roll(40, random_state=0).data
        assert np.array_equal(np.load(received), expected)
    else:
        assert len(np.load(received)) == 30


@pytest.mark.slow
@posix
def test_the_standard_output_as_file_holds_the_array_alone(tmp_path, model):
    command = "import sys; from randsmap.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["encode", model / "m.npz", model / "F.npy", "--out", "/dev/stdout"]
    for name in ("pipe", "file"):
        with open(tmp_path / name, "wb") as file:
            result = subprocess.run(
                [sys.executable, "-P", "-c", command, *arguments],
                stdout=file if name == "file" else subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=120,
            )
        assert result.returncode == 0 and b"written: /dev/stdout" in result.stderr
        if name == "pipe":
            (tmp_path / name).write_bytes(result.stdout)
        assert (tmp_path / name).read_bytes() == (model / "Y.npy").read_bytes()


# -- Failures --------------------------------------------------------------------------------------


def test_errors_name_the_file_and_never_the_temporary_one(tmp_path, monkeypatch):
    def fail(number):
        def failing(*arguments, **options):
            raise OSError(number, os.strerror(number))

        return failing

    path = tmp_path / "file"
    for name, number in (("replace", errno.EXDEV), ("fsync", errno.EIO)):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, fail(number))
            with pytest.raises(OSError) as error:
                put(path)
        assert ".tmp" not in str(error.value)
    with pytest.raises(OSError) as error, replaced_atomically(path) as temporary:
        os.rename(temporary, tmp_path / "moved")
    assert str(path) in str(error.value) and ".tmp" not in str(error.value)
    with pytest.raises(OSError, match="No space left on device.*file"):
        write_atomically(path, fail(errno.ENOSPC))
    assert {p.name for p in tmp_path.iterdir()} == {"moved"}


@posix
@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="nothing is forbidden to the superuser")
def test_a_folder_that_may_not_be_written_is_told_by_the_files_name(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError) as error:
        put(tmp_path / "file")
    assert str(tmp_path / "file") in str(error.value) and ".tmp" not in str(error.value)
    tmp_path.chmod(0o700)


@pytest.mark.slow
@posix
def test_leftovers_of_killed_runs_are_removed_by_the_next_and_others_files_stay(tmp_path):
    code = """
        import os, signal, sys, threading
        from randsmap._io.files import replaced_atomically
        with replaced_atomically(sys.argv[1]) as temporary:
            temporary.write_bytes(b"half")
            if sys.argv[2] == "wait":
                print("writing", flush=True)
                sys.stdin.read()
            os.kill(os.getpid(), signal.SIGKILL)
    """
    assert python(code, tmp_path / "file", "die").returncode == -signal.SIGKILL
    assert python(code, tmp_path / "other", "die").returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    running = subprocess.Popen(
        [sys.executable, "-P", "-c", textwrap.dedent(code), tmp_path / "file", "wait"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout.readline() == "writing\n"
    put(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert len(list(tmp_path.iterdir())) == 3  # the file, of the running process, of the other file
    running.communicate("")
    put(tmp_path / "file")
    put(tmp_path / "other")
    assert {p.name for p in tmp_path.iterdir()} == {"file", "other"}


def test_what_is_vouched_for_is_intact_until_a_digit_changes(tmp_path):
    path, other = tmp_path / "piece.json", tmp_path / "data"
    other.write_bytes(b"data")
    write_checked(path, lambda file: file.write(b'{"p95": 0.197}'), other)
    assert is_intact(path, other) and not is_intact(path) and not is_intact(other)
    path.write_bytes(b'{"p95": 0.997}')
    assert not is_intact(path, other)
    path.write_bytes(b'{"p95": 0.197}')
    other.write_bytes(b"date")
    assert not is_intact(path, other)


# -- Space on the disk -----------------------------------------------------------------------------


@posix
def test_space_is_reserved_before_a_map_is_written_to(tmp_path, model, monkeypatch):
    def full(descriptor, start, length):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    monkeypatch.setattr(rows, "LARGE", 1)
    loaded, Y = randsmap.load(model / "m.npz"), np.load(model / "Y.npy")
    before = {p.name for p in tmp_path.iterdir()}
    with pytest.raises(OSError, match="No space left on device.*F.npy"):
        randsmap.datasets.make_swiss_roll(10, out=tmp_path / "F.npy")
    assert main(["decode", str(model / "m.npz"), str(model / "Y.npy"), "--out", str(tmp_path / "F.npy")]) == 1
    assert {p.name for p in tmp_path.iterdir()} == before
    out = np.lib.format.open_memmap(tmp_path / "G.npy", "w+", np.float64, (30, 8))
    for view in (out, out[::-1][::-1]):
        with pytest.raises(OSError, match="No space left on device.*G.npy"):
            loaded.inverse_transform(Y, out=view)
    knn = randsmap.KNNDecoder(3).fit(Y, np.load(model / "F.npy"))
    with pytest.raises(OSError, match="No space left on device.*G.npy"):
        knn.predict(Y, out=out)
    private = np.memmap(tmp_path / "G.npy", np.float64, "c", 128, (30, 8))
    assert loaded.inverse_transform(Y, out=private) is private  # nothing of it goes to the file


@posix
@pytest.mark.parametrize("fallocate", [True, False])
def test_reserving_keeps_what_is_in_the_file_and_fills_its_holes(tmp_path, monkeypatch, fallocate):
    if not fallocate:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    array = np.lib.format.open_memmap(tmp_path / "F.npy", "w+", np.float64, (1000, 700))
    array[3], array[900] = 1.0, 2.0
    array.flush()
    expected = np.array(array)
    size = os.stat(tmp_path / "F.npy").st_size
    reserve(array[:500])
    half = os.stat(tmp_path / "F.npy").st_blocks
    reserve(array)
    status = os.stat(tmp_path / "F.npy")
    assert status.st_size == size and 512 * status.st_blocks >= size and half <= status.st_blocks
    assert np.array_equal(array, expected) and np.array_equal(np.load(tmp_path / "F.npy"), expected)
    (tmp_path / "F.npy").unlink()
    reserve(array)  # of a file that is gone nothing is known
    assert not (tmp_path / "F.npy").exists()


def test_a_map_of_a_data_set_cannot_be_written_to(tmp_path):
    makers = randsmap.datasets
    for make, options in (
        (makers.make_swiss_roll, {"n_samples": 5}),
        (makers.make_s_curve, {"n_samples": 5}),
        (makers.make_rotated_images, {"n_samples": 5, "shape": 16}),
        (makers.make_lwr, {"n_trajectories": 1, "snapshots_per_trajectory": 2, "t_end": 0.1}),
        (makers.make_hughes, {"n_trajectories": 1, "snapshots_per_trajectory": 2, "t_end": 0.1}),
    ):
        data = make(**options, out=tmp_path / "F.npy").data
        assert isinstance(data, np.memmap) and not data.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            data[0] = 0.0


def test_everything_that_writes_does_it_in_one_place():
    package = Path(randsmap.__file__).parent
    writers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for text in [path.read_text()]
        if re.search(r"os\.replace|mkstemp|NamedTemporary|write_text|write_bytes|open\([^)\n]*[\"'][wax]", text)
    }
    assert writers == {"_io/files.py"}


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_that_forbids_writing_is_an_error_before_anything_is_computed(tmp_path, there):
    folder = tmp_path / "results"
    folder.mkdir()
    if there:
        (folder / "file.npy").touch()
    folder.chmod(0o555)
    try:
        with pytest.raises(PermissionError, match="results gives no permission to write .*file.npy"):
            writable_target(folder / "file.npy")
    finally:
        folder.chmod(0o755)
    assert writable_target(folder / "file.npy").name == "file.npy"
    assert writable_target(os.devnull)
