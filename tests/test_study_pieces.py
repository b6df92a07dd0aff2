"""Pieces of a study on disk: made once, and trusted only with the right checksums."""

import numpy as np
import pytest

from randsmap.studies._result import open_pieces, stored

DATA = np.arange(12.0).reshape(4, 3)


def test_arrays_and_values_are_made_once(tmp_path):
    pieces = open_pieces(tmp_path, {"a": (1, 2)})
    made = []

    def make():
        made.append({"v": np.arange(3), "names": ("a", "b"), "number": 1.5})
        return made[-1]

    for _ in range(2):
        piece = stored(pieces / "x.npz", make)
        assert piece["v"].tolist() == [0, 1, 2] and piece["names"].tolist() == ["a", "b"] and piece["number"] == 1.5
    assert len(made) == 1
    assert open_pieces(tmp_path, {"a": [1, 2]}) == pieces  # a tuple is a list in the file


@pytest.fixture
def piece(tmp_path):
    """The piece that comes with a file of data, and how often it was made."""
    path = tmp_path / "data.npy"

    def write():
        get.calls += 1
        np.save(path, DATA)
        return {"times": np.arange(4.0)}

    def get():
        assert stored(tmp_path / "data.npz", write, path)["times"].tolist() == [0, 1, 2, 3]
        assert np.array_equal(np.load(path), DATA)

    get.calls = 0
    return get


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize("harm", ["flip", "cut", "no stamp", "bad stamp", "no data", "empty"])
def test_a_damaged_file_is_never_trusted(tmp_path, piece, harm, kind):
    piece()
    (path,), (stamp,) = tmp_path.glob(f"*.{kind}"), tmp_path.glob("*.sha256")
    content = bytearray(path.read_bytes())
    if harm == "flip":
        content[-1] ^= 1
        path.write_bytes(content)
    elif harm == "cut":
        path.write_bytes(content[:-8])
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "no data":
        path.unlink()
    elif harm == "no stamp":
        stamp.unlink()
    else:
        stamp.write_bytes(b"\xff\xfe")
    piece()
    assert piece.calls == 2
    piece()
    assert piece.calls == 2
