import numpy as np
import pytest

from randsmap.datasets._common import cached

DATA = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def make():
    def write(path):
        write.calls += 1
        np.save(path, DATA)
        return {"data": DATA, "times": np.arange(4.0), "names": ("a", "b")}

    write.calls = 0
    return write


def test_made_once_for_each_description(tmp_path, make):
    for _ in range(3):
        data, about = cached(tmp_path, {"seed": 0, "n": 4}, make)
        assert np.array_equal(data, DATA)
        assert about["times"].tolist() == [0, 1, 2, 3] and about["names"].tolist() == ["a", "b"]
        assert set(about) == {"times", "names"}
    assert np.array_equal(cached(tmp_path, {"n": 4, "seed": 0}, make)[0], DATA)  # order does not count
    assert make.calls == 1
    cached(tmp_path, {"seed": 1, "n": 4}, make)
    assert make.calls == 2


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize("harm", ["flip", "cut", "no stamp", "bad stamp", "no data", "empty"])
def test_a_damaged_file_is_never_trusted(tmp_path, make, harm, kind):
    cached(tmp_path, {"seed": 0}, make)
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
    data, about = cached(tmp_path, {"seed": 0}, make)
    assert np.array_equal(data, DATA) and about["times"].tolist() == [0, 1, 2, 3]
    assert make.calls == 2
    cached(tmp_path, {"seed": 0}, make)
    assert make.calls == 2
