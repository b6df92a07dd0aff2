"""Swiss roll and S-curve against the paper's formulas; seeds, threads and output."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import randsmap
from randsmap.datasets import make_s_curve, make_swiss_roll

EPS = np.finfo(float).eps


def test_swiss_roll_without_noise_is_the_papers_formula():
    roll = make_swiss_roll(4000, noise=0.0, random_state=1)
    theta, z = roll.coordinates.T
    x = np.stack([(theta + 0.1 * z) * np.sin(theta) / 4, (theta + 0.1 * z) * np.cos(theta) / 4, z], 1)
    assert roll.data.shape == (4000, 3)
    np.testing.assert_allclose(roll.data, x, rtol=0, atol=8 * EPS * abs(x).max())
    assert roll.coordinate_names == ("theta", "z")


def test_s_curve_without_noise_is_the_papers_formula_in_an_orthonormal_frame():
    curve = make_s_curve(4000, noise=0.0, random_state=1)
    theta, w = curve.coordinates.T
    z = np.stack([np.sin(theta), w, np.sign(theta) * (np.cos(theta) - 1)], 1)
    assert curve.data.shape == (4000, 20)
    np.testing.assert_allclose(curve.embedding.T @ curve.embedding, np.eye(3), atol=20 * EPS)
    np.testing.assert_allclose(curve.data, z @ curve.embedding.T, rtol=0, atol=16 * EPS)
    np.testing.assert_allclose(curve.data @ curve.embedding, z, rtol=0, atol=100 * EPS)


@pytest.mark.parametrize(
    "make, low, high, noise",
    [(make_swiss_roll, [np.pi, -5], [4 * np.pi, 5], 0.05), (make_s_curve, [-1.5 * np.pi, 0], [1.5 * np.pi, 1], 0.01)],
)
def test_coordinates_are_uniform_and_noise_has_the_papers_size(make, low, high, noise):
    n = 20000
    points = make(n, random_state=3)
    assert (points.coordinates >= low).all() and (points.coordinates < high).all()
    u = (points.coordinates - low) / np.subtract(high, low)
    # Kolmogorov-Smirnov distance, 1e-6 level: sqrt(ln(2e6) / 2n)
    for column in u.T:
        distance = abs(np.sort(column) - (np.arange(n) + 0.5) / n).max()
        assert distance < np.sqrt(np.log(2e6) / (2 * n))
    assert abs(np.corrcoef(u.T)[0, 1]) < 5 / np.sqrt(n)

    if make is make_swiss_roll:
        from randsmap.datasets._manifolds import swiss_roll

        residual = points.data - swiss_roll(*points.coordinates.T)
    else:
        from randsmap.datasets._manifolds import s_curve

        residual = points.data @ points.embedding - s_curve(*points.coordinates.T)
    np.testing.assert_allclose(residual.std(axis=0), noise, rtol=5 / np.sqrt(2 * n))
    np.testing.assert_allclose(residual.mean(axis=0), 0, atol=5 * noise / np.sqrt(n))


def test_random_orthonormal_frames_do_not_prefer_a_direction():
    # every row of R has E|row|^2 = 3 / 20
    frames = np.array([make_s_curve(1, random_state=k).embedding for k in range(400)])
    np.testing.assert_allclose((frames**2).sum(axis=2).mean(axis=0), 3 / 20, atol=0.03)
    np.testing.assert_allclose(frames.mean(axis=0), 0, atol=5 / np.sqrt(20 * 400))


@pytest.mark.parametrize("make", [make_swiss_roll, make_s_curve])
def test_seeds(make):
    a, b, c = (make(300, random_state=s).data for s in (0, 0, 1))
    assert (a == b).all() and not (a == c).all()
    rng = np.random.default_rng(5)
    first = make(50, random_state=rng).data
    assert not (first == make(50, random_state=rng).data).all()
    assert (first == make(50, random_state=np.random.default_rng(5)).data).all()
    state = np.random.RandomState(5)
    assert (make(50, random_state=state).data == make(50, random_state=5).data).all()


@pytest.mark.parametrize("make", [make_swiss_roll, make_s_curve])
def test_any_number_of_threads_gives_the_same_bits(make):
    try:
        results = []
        for threads in (1, 2, 5):
            randsmap.set_num_threads(threads)
            results.append(make(30000, random_state=7))
    finally:
        randsmap.set_num_threads(None)
    for other in results[1:]:
        assert (other.data == results[0].data).all()
        assert (other.coordinates == results[0].coordinates).all()


@pytest.mark.parametrize("make, m", [(make_swiss_roll, 3), (make_s_curve, 20)])
def test_output_array_and_file(make, m, tmp_path):
    expected = make(9000, random_state=0).data
    out = np.empty((9000, m))
    assert make(9000, random_state=0, out=out).data is out
    assert (out == expected).all()
    path = tmp_path / "points.npy"
    mapped = make(9000, random_state=0, out=path).data
    assert isinstance(mapped, np.memmap)
    assert (np.load(path) == expected).all()
    assert [p.name for p in tmp_path.iterdir()] == ["points.npy"]
    # a memory-mapped array of the caller's
    own = np.lib.format.open_memmap(tmp_path / "own.npy", mode="w+", dtype=float, shape=(9000, m))
    make(9000, random_state=0, out=own)
    assert (np.load(tmp_path / "own.npy") == expected).all()


def test_output_on_disk_needs_little_memory(tmp_path):
    n = 200_000
    make_s_curve(10, random_state=0)
    tracemalloc.start()
    try:
        make_s_curve(n, random_state=0, out=tmp_path / "x.npy")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n * 20 * 8 / 2  # the coordinates (n, 2) and a few blocks


def test_failure_leaves_an_older_file_alone(tmp_path):
    path = tmp_path / "points.npy"
    path.write_bytes(b"old")
    from randsmap.datasets import _common

    def fill(array):
        array[:] = 1
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        _common.fill_output(path, (3, 2), fill)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["points.npy"]


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 300), m=st.integers(3, 40), noise=st.floats(0, 10))
def test_any_size(n, m, noise):
    curve = make_s_curve(n, n_features=m, noise=noise, random_state=0)
    assert curve.data.shape == (n, m) and curve.coordinates.shape == (n, 2)
    assert np.isfinite(curve.data).all()
    assert make_swiss_roll(n, noise=noise, random_state=0).data.shape == (n, 3)


def test_progress_bar_ends_complete(capsys):
    make_swiss_roll(20000, random_state=0, progress=True)
    error = capsys.readouterr().err
    assert "Swiss roll" in error and "20000/20000" in error
    make_swiss_roll(100, random_state=0)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"n_samples": 0}, ValueError, "n_samples must be at least 1, got 0"),
        ({"n_samples": 2.5}, TypeError, "n_samples must be an integer"),
        ({"noise": -0.1}, ValueError, "noise must be finite and >= 0"),
        ({"noise": np.nan}, ValueError, "noise"),
        ({"random_state": "x"}, ValueError, "seed"),
        ({"n_samples": 5, "out": np.empty((5, 4))}, ValueError, r"out must have shape \(5, 3\)"),
        ({"n_samples": 5, "out": np.empty((5, 3), np.float32)}, TypeError, "out must be a float64"),
        ({"n_samples": 5, "out": 3}, TypeError, "path of a .npy file"),
        ({"n_samples": 5, "out": "points.txt"}, ValueError, "must name a .npy file"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        make_swiss_roll(**arguments)


def test_s_curve_needs_three_dimensions():
    with pytest.raises(ValueError, match="n_features must be at least 3, got 2"):
        make_s_curve(10, n_features=2)
