"""Rotated images against SciPy and exact cases; image input; the winding number."""

import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat
from scipy.linalg import eigh
from scipy.spatial.distance import pdist, squareform

from randsmap.datasets import head_phantom, load_image, make_rotated_images, warn_unless_covered_once, winding_number

from helpers import python
from oracles import rotated_by_scipy

pytestmark = pytest.mark.kernels

EPS = np.finfo(float).eps


def random_image(shape, seed=0):
    return np.random.default_rng(seed).random(shape)


# -- the rotation ------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 2), (5, 5), (16, 16), (17, 32), (33, 8), (3, 70), (128, 128)])
def test_agrees_with_scipy(shape):
    image = random_image(shape)
    rotated = make_rotated_images(23, image=image)
    for x, angle in zip(rotated.data, rotated.angles):
        expected = rotated_by_scipy(image, angle)
        # a coordinate is wrong by a few eps times the size, the value by that times a difference
        tolerance = 16 * EPS * max(shape) * expected.max()
        np.testing.assert_allclose(x.reshape(shape), expected, rtol=0, atol=tolerance)


@settings(deadline=None, max_examples=60)
@given(
    height=st.integers(2, 40),
    width=st.integers(2, 40),
    n=st.integers(1, 12),
    exponent=st.integers(-138, 138),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape_sums_to_one_and_lies_in_the_images_range(height, width, n, exponent, seed):
    image = random_image((height, width), seed) * 10.0**exponent
    rotated = make_rotated_images(n, image=image)
    # lanes of n/8 additions and one product a pixel, relative to a sum of non-negative terms
    assert abs(rotated.data.sum(axis=1) - 1).max() <= (height * width / 8 + 8) * EPS
    assert rotated.data.min() >= 0
    np.testing.assert_allclose(
        rotated.data[0].reshape(height, width), image / image.sum(), rtol=(height * width / 8 + 8) * EPS
    )


def test_quarter_turns_are_exact():
    image = random_image((16, 16))
    rotated = make_rotated_images(8, image=image)
    for quarter in range(4):
        expected = np.rot90(image, quarter)
        x = rotated.data[2 * quarter].reshape(16, 16)
        # one scale for all pixels, which differs only by the order of its sum
        np.testing.assert_allclose(x, expected / expected.sum(), rtol=8 * EPS)
        assert (np.argsort(x, axis=None) == np.argsort(expected, axis=None)).all()


def test_positive_angles_turn_counter_clockwise():
    image = np.zeros((21, 21))
    image[10, 18] = 1  # on the right
    rotated = make_rotated_images(4, image=image)
    assert rotated.data[1].reshape(21, 21)[2, 10] == 1  # on top
    np.testing.assert_allclose(rotated.angles, [0, np.pi / 2, np.pi, 3 * np.pi / 2])


@pytest.mark.slow
def test_images_are_continuous_in_the_angle_at_the_border_too():
    # with a hard border a pixel at the edge would jump by its full value
    image = np.ones((32, 32))
    rotated = make_rotated_images(7200, image=image)
    step = 2 * np.pi / 7200 * 32 / np.sqrt(2)  # the largest distance a point moves
    value = 1 / 1024  # of a pixel inside, about
    assert abs(np.diff(rotated.data, axis=0)).max() < 2 * step * value


def test_nothing_outside_the_rotated_frame():
    rotated = make_rotated_images(8, image=np.ones((33, 33)))
    turned = rotated.data[1].reshape(33, 33)  # an eighth of a turn cuts the corners off
    assert turned[0, 0] == turned[0, -1] == turned[-1, 0] == turned[-1, -1] == 0
    assert turned[16, 16] > 0


def test_rotating_a_linear_picture_turns_its_gradient():
    # bilinear interpolation reproduces linear functions
    y, x = np.mgrid[:31, :31] - 15.0
    rotated = make_rotated_images(12, image=100 + 2 * x + y)
    inside = x**2 + y**2 < 14**2
    for picture, angle in zip(rotated.data, rotated.angles):
        c, s = np.cos(angle), np.sin(angle)
        expected = 100 + 2 * (c * x - s * y) + (s * x + c * y)
        ratio = picture.reshape(31, 31)[inside] / expected[inside]
        np.testing.assert_allclose(ratio, ratio[0], rtol=32 * EPS)


def test_threads_and_instruction_levels_give_the_same_bits(tmp_path, levels):
    code = (
        "import sys, numpy as np, randsmap\n"
        "from randsmap.datasets import make_rotated_images\n"
        "randsmap.set_num_threads(int(sys.argv[1]))\n"
        "image = np.random.default_rng(0).random((37, 41))\n"
        "np.save(sys.argv[2], make_rotated_images(101, image=image).data)\n"
    )
    results = []
    for threads, level in zip((1, 2, 5), (*levels, *levels, *levels)):
        path = tmp_path / f"{threads}.npy"
        python(code, threads, path, level=level, cwd=tmp_path)
        results.append(np.load(path))
    assert (results[0] == results[1]).all() and (results[0] == results[2]).all()


# -- the data set ------------------------------------------------


def test_default_is_the_studys_size():
    rotated = make_rotated_images(6)
    assert rotated.data.shape == (6, 128 * 128) and rotated.shape == (128, 128)
    assert rotated.coordinates.shape == (6, 1)
    np.testing.assert_allclose(rotated.angles, np.arange(6) * np.pi / 3)
    assert rotated.image.max() == 1
    np.testing.assert_allclose(rotated.data[0], rotated.image.ravel() / rotated.image.sum(), rtol=3000 * EPS)


def test_shuffle_permutes_the_same_images():
    plain = make_rotated_images(40, shape=24)
    shuffled = make_rotated_images(40, shape=24, shuffle=True, random_state=3)
    order = np.argsort(shuffled.angles)
    assert not (order == np.arange(40)).all()
    assert (shuffled.angles[order] == plain.angles).all()
    assert (shuffled.data[order] == plain.data).all()
    again = make_rotated_images(40, shape=24, shuffle=True, random_state=3)
    assert (again.angles == shuffled.angles).all()


def test_output_array_and_file(tmp_path):
    expected = make_rotated_images(50, shape=20).data
    out = np.empty((50, 400))
    assert make_rotated_images(50, shape=20, out=out).data is out
    assert (out == expected).all()
    mapped = make_rotated_images(50, shape=20, out=str(tmp_path / "i.npy")).data
    assert isinstance(mapped, np.memmap)
    assert (np.load(tmp_path / "i.npy") == expected).all()
    with pytest.raises(ValueError, match=r"out must have shape \(50, 400\), got \(50, 40\)"):
        make_rotated_images(50, shape=20, out=np.empty((50, 40)))


def test_progress_bar_ends_complete(capsys):
    make_rotated_images(70, shape=8, progress=True)
    assert "70/70" in capsys.readouterr().err


@pytest.mark.slow
def test_phantom_is_deterministic_and_has_the_heads_features():
    phantom = head_phantom()
    assert (phantom == head_phantom(128)).all()
    assert phantom.shape == (128, 128) and phantom.min() == 0 and 0.9 < phantom.max() < 1.1
    assert head_phantom((40, 90)).shape == (40, 90)
    # 0.17 half-widths right of the centre; the whole head stays in the frame when it turns
    y, x = np.mgrid[:128, :128] - 63.5
    head = phantom > 0
    assert np.hypot(x, y)[head].max() < 63
    middle = (x[head].max() + x[head].min()) / 2
    assert abs(middle - 0.17 * 64) <= 1
    assert abs((x[head].max() - x[head].min() + 1) / 2 - 0.80 * 0.69 * 64) <= 1
    assert abs((y[head].max() - y[head].min() + 1) / 2 - 0.80 * 0.92 * 64) <= 1
    # anti-aliased: averages of finer pictures, not samples
    fine = head_phantom(512).reshape(128, 4, 128, 4).mean(axis=(1, 3))
    assert abs(fine - phantom).mean() < 0.005
    # texture: the brain is not one grey
    assert phantom[80:90, 70:80].std() > 0.001


# -- the user's image ------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, bool, np.float16, np.float32, float])
def test_number_types_and_strides(dtype):
    image = (
        (random_image((12, 9)) * 200 > 60).astype(dtype)
        if dtype is bool
        else (random_image((12, 9)) * 200).astype(dtype)
    )
    image.flags.writeable = False
    expected = make_rotated_images(5, image=image.astype(float)).data
    for same in (image, np.asfortranarray(image), image[::-1][::-1], image.tolist()):
        assert (make_rotated_images(5, image=same).data == expected).all()


def test_loaded_image_is_never_the_callers():
    image = random_image((4, 4))
    loaded = load_image(image)
    loaded[:] = -1
    assert image.min() >= 0


def test_npy(tmp_path):
    image = (random_image((6, 7)) * 255).astype(np.uint8)
    np.save(tmp_path / "image.npy", image)
    assert (load_image(tmp_path / "image.npy") == image).all()
    assert (load_image(str(tmp_path / "image.npy")) == image).all()


def test_mat_takes_the_papers_slice(tmp_path):
    D = (random_image((8, 9, 1, 6)) * 88).astype(np.uint8)
    savemat(tmp_path / "mri.mat", {"D": D, "map": np.zeros((89, 3)), "siz": [8, 9, 6]})
    assert (load_image(tmp_path / "mri.mat") == D[:, :, 0, 3]).all()
    savemat(tmp_path / "volume.mat", {"D": D[:, :, 0]})
    assert (load_image(tmp_path / "volume.mat") == D[:, :, 0, 3]).all()
    savemat(tmp_path / "flat.mat", {"D": D[:, :, 0, 2].astype(float)})
    assert (load_image(tmp_path / "flat.mat") == D[:, :, 0, 2]).all()


def test_pictures(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    grey = (random_image((6, 7)) * 255).astype(np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    assert (load_image(tmp_path / "grey.png") == grey).all()
    deep = (random_image((6, 7)) * 65535).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert (load_image(tmp_path / "deep.png") == deep).all()
    Image.fromarray(random_image((6, 7)).astype(np.float32)).save(tmp_path / "real.tiff")
    np.testing.assert_array_equal(load_image(tmp_path / "real.tiff"), random_image((6, 7)).astype(np.float32))
    colour = np.repeat(grey[:, :, None], 3, axis=2)
    Image.fromarray(colour).save(tmp_path / "colour.png")
    assert abs(load_image(tmp_path / "colour.png") - grey).max() <= 1
    (tmp_path / "broken.png").write_bytes((tmp_path / "grey.png").read_bytes()[:40])
    (tmp_path / "text.png").write_text("no picture")
    for name in ("broken.png", "text.png"):
        with pytest.raises(ValueError, match=f"{name} cannot be read as a picture"):
            load_image(tmp_path / name)


def test_picture_without_pillow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"randsmap\[plots\]"):
        load_image(tmp_path / "x.png")


def test_bad_files(tmp_path):
    np.save(tmp_path / "object.npy", np.array([{"a": 1}, 2], dtype=object))
    with pytest.raises(ValueError, match="object.npy cannot be read as a .npy file .*[Oo]bject"):
        load_image(tmp_path / "object.npy")
    for content in (b"", b"garbage", b"\x93NUMPY\x01\x00v\x00{", b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((("):
        (tmp_path / "bad.npy").write_bytes(content)
        with pytest.raises(ValueError, match="bad.npy cannot be read as a .npy file"):
            load_image(tmp_path / "bad.npy")
        (tmp_path / "bad.mat").write_bytes(content)
        with pytest.raises(ValueError, match="bad.mat cannot be read as a .mat file"):
            load_image(tmp_path / "bad.mat")
    np.save(tmp_path / "whole.npy", random_image((50, 50)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:-100])
    with pytest.raises(ValueError, match="cut.npy cannot be read as a .npy file"):
        load_image(tmp_path / "cut.npy")
    savemat(tmp_path / "E.mat", {"E": np.ones((3, 3))})
    with pytest.raises(ValueError, match="E.mat cannot be read as a .mat file: it holds no"):
        load_image(tmp_path / "E.mat")
    savemat(tmp_path / "short.mat", {"D": np.ones((3, 3, 1, 2))})
    with pytest.raises(ValueError, match=r"at least 4 slices.* got \(3, 3, 1, 2\)"):
        load_image(tmp_path / "short.mat")
    savemat(tmp_path / "text.mat", {"D": "text"})
    with pytest.raises(ValueError, match="D must be an array of real numbers"):
        load_image(tmp_path / "text.mat")
    for name in ("no.npy", "no.mat", "no.png"):
        if name != "no.png" or "PIL" in sys.modules:
            with pytest.raises(FileNotFoundError, match=name):
                load_image(tmp_path / name)


@pytest.mark.parametrize(
    "image, error, message",
    [
        (np.full((3, 3), np.nan), ValueError, r"image must be finite, got NaN at \(0, 0\)"),
        ([[1, np.inf], [1, 1]], ValueError, "image must be finite, got inf"),
        ([[1, 0], [-0.5, 1]], ValueError, r"image must not be negative, got -0.5 at \(1, 0\)"),
        (np.zeros((3, 3)), ValueError, "image must not be zero everywhere"),
        (np.ones((3, 3, 3)), ValueError, r"two-dimensional \(height, width\), got shape \(3, 3, 3\)"),
        (np.ones(9), ValueError, "two-dimensional"),
        (np.ones((1, 9)), ValueError, "at least 2 row"),
        (np.ones((9, 1)), ValueError, "at least 2 column"),
        (np.ones((3, 3), complex), ValueError, "real numbers"),
        ([["a", "b"], ["c", "d"]], ValueError, "real numbers"),
    ],
)
def test_bad_images(image, error, message):
    with pytest.raises(error, match=message):
        make_rotated_images(4, image=image)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"n_samples": 0}, ValueError, "n_samples must be at least 1"),
        ({"shape": 1}, ValueError, "shape must be at least 2, got 1"),
        ({"shape": 2.0}, TypeError, "shape must be an integer"),
        ({"shape": (3, 4, 5)}, ValueError, r"\(height, width\)"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        make_rotated_images(**{"n_samples": 4, **arguments})


def test_content_that_leaves_the_frame_is_an_error_and_leaves_no_file(tmp_path):
    image = np.zeros((9, 9))
    image[0, 0] = 1
    with pytest.raises(ValueError, match="rotated by 0.785398 is zero everywhere"):
        make_rotated_images(8, image=image, out=tmp_path / "x.npy")
    assert not list(tmp_path.iterdir())


@settings(deadline=None, max_examples=40)
@given(old=st.tuples(st.integers(2, 30), st.integers(2, 30)), new=st.tuples(st.integers(2, 30), st.integers(2, 30)))
def test_another_shape_takes_area_averages(old, new):
    image = random_image(old)
    rotated = make_rotated_images(1, image=image, shape=new)
    assert rotated.shape == new
    # the mean over the frame is kept
    from randsmap.datasets._images import _area_averages

    averages = _area_averages(image, new)
    np.testing.assert_allclose(averages.mean(), image.mean(), rtol=1000 * EPS)
    assert averages.min() >= image.min() * (1 - 1e-12) and averages.max() <= image.max() * (1 + 1e-12)
    np.testing.assert_allclose(_area_averages(np.ones(old), new), 1, rtol=100 * EPS)


def test_halving_averages_blocks():
    image = random_image((8, 12))
    from randsmap.datasets._images import _area_averages

    np.testing.assert_allclose(
        _area_averages(image, (4, 3)), image.reshape(4, 2, 3, 4).mean(axis=(1, 3)), rtol=16 * EPS
    )


# -- the winding number ------------------------------------------------


def curve(turns, n=100, center=(0.0, 0.0), phase=0.3):
    t = 2 * np.pi * np.arange(n) / n
    return np.column_stack((np.cos(turns * t + phase), np.sin(turns * t + phase))) + center


@pytest.mark.parametrize("turns", [-3, -2, -1, 1, 2, 3, 7])
def test_winding_number_counts_turns(turns):
    points = curve(turns, center=(5.0, -3.0))
    assert winding_number(points) == turns
    assert winding_number(points[::-1]) == -turns
    assert winding_number(points * 1e-138) == turns
    assert winding_number(points * 1e138) == turns


def test_winding_number_zero_and_order_by_angle():
    # a thin figure of eight, off the crossing: once round to the left, once to the right
    t = 2 * np.pi * (np.arange(99) + 0.5) / 99
    eight = np.column_stack((np.sin(t), np.sin(2 * t) + 0.3 * np.cos(t) ** 2))
    assert winding_number(eight) in (-1, 0, 1)
    assert winding_number(np.column_stack((np.cos(t), 0.2 + np.cos(2 * t)))) == 0
    points, order = curve(1), np.random.default_rng(0).permutation(100)
    assert winding_number(points[order], 2 * np.pi * order / 100) == 1


def test_warning_says_what_is_wrong():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_unless_covered_once(curve(1)) == 1
        assert warn_unless_covered_once(curve(-1)) == -1
    with pytest.warns(UserWarning, match="2 times round, not once: images 1/2 of a turn apart"):
        assert warn_unless_covered_once(curve(2)) == 2
    t = 2 * np.pi * np.arange(50) / 50 + 0.1
    with pytest.warns(UserWarning, match="0 times round, not once: the two coordinates do not"):
        warn_unless_covered_once(np.column_stack((np.cos(t), 0.2 + np.cos(2 * t))))


@pytest.mark.parametrize(
    "latents, message",
    [
        (np.ones((5, 3)), "latents must have 2 columns, got 3"),
        (np.ones((2, 2)), "at least 3 row"),
        (np.ones((5, 2)), "goes through its centroid"),
        ([[0, np.nan]] * 4, "latents must be finite"),
    ],
)
def test_winding_number_of_bad_input(latents, message):
    with pytest.raises(ValueError, match=message):
        winding_number(latents)


def leading_pair(F, scale=0.5):
    """Leading two diffusion-map coordinates (alpha = 1), plain NumPy."""
    distance = pdist(F)
    K = np.exp(-(squareform(distance) ** 2) / (scale * np.median(distance)) ** 2)
    q = K.sum(axis=1)
    K /= np.outer(q, q)
    d = K.sum(axis=1)
    n = len(F)
    _, v = eigh(K / np.sqrt(np.outer(d, d)), subset_by_index=[n - 3, n - 1])
    return v[:, 1::-1] / v[:, 2:]


@pytest.mark.slow
@pytest.mark.parametrize("n, shape", [(500, 64), (300, 128)])
def test_embedding_of_the_phantom_covers_the_circle_once(n, shape):
    rotated = make_rotated_images(n, shape=shape)
    assert abs(warn_unless_covered_once(leading_pair(rotated.data))) == 1


def test_random_training_subset_of_the_study_covers_the_circle_once():
    rotated = make_rotated_images(2000, shape=32, shuffle=True, random_state=0)
    train = slice(0, 400)
    pair = leading_pair(rotated.data[train])
    assert abs(warn_unless_covered_once(pair, rotated.angles[train])) == 1


def test_embedding_of_a_half_turn_symmetric_image_covers_it_twice_and_warns():
    y, x = np.mgrid[:48, :48] - 23.5
    bar = np.exp(-((x / 16) ** 4) - (y / 5) ** 4)
    bar[20:28, 34:38] *= 1.02  # nearly symmetric
    rotated = make_rotated_images(400, image=bar)
    with pytest.warns(UserWarning, match="2 times round"):
        assert abs(warn_unless_covered_once(leading_pair(rotated.data))) == 2
