"""Pictures are drawn into memory with Agg and looked at pixel by pixel."""

import io
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure  # noqa: E402

from randsmap import plotting  # noqa: E402
from randsmap.datasets import make_rotated_images, make_swiss_roll  # noqa: E402


def pixels(figure):
    """The figure as an array (height, width, 3), through a PNG in memory."""
    from matplotlib.image import imread

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=60)
    file.seek(0)
    picture = imread(file, format="png")
    return (picture[:, :, :3] * 255).round().astype(int)


def area_of(picture, color, tolerance=3):
    return (abs(picture - np.asarray(color)).max(axis=2) <= tolerance).mean()


def color_of(name, value):
    import matplotlib

    return (np.array(matplotlib.colormaps[name](value)[:3]) * 255).round().astype(int)


LOW, HIGH = color_of("viridis", 0.0), color_of("viridis", 1.0)
OBSTACLE = (140, 140, 140)


def test_space_time_diagram_has_time_to_the_right_and_position_upwards():
    fields = np.zeros((4, 10))
    fields[3, 8:] = 1  # late, at the far end
    figure = plotting.plot_space_time(fields, [0, 1, 2, 3], np.linspace(0, 9, 10))
    assert isinstance(figure, Figure)
    ax, bar = figure.axes
    assert ax.get_xlabel() == "time t" and ax.get_ylabel() == "position x"
    assert bar.get_ylabel() == "density"
    picture = pixels(figure)
    box = ax.get_window_extent().transformed(figure.dpi_scale_trans.inverted()).extents * 60
    left, bottom, right, top = box
    inner = picture[int(picture.shape[0] - top) : int(picture.shape[0] - bottom), int(left) : int(right)]
    height, width = inner.shape[:2]
    assert area_of(inner[: height // 6, -width // 5 :], HIGH) > 0.8
    assert area_of(inner[height // 3 :], HIGH) == 0
    assert area_of(inner, LOW) > 0.8


def test_space_time_colours_reach_half_way_to_the_next_time():
    figure = plotting.plot_space_time(np.array([[0.0], [1.0], [0.0]]), [0.0, 1.0, 5.0])
    x0, x1 = figure.axes[0].get_xlim()
    assert (x0, x1) == (-0.5, 7.0)
    assert figure.axes[0].get_ylabel() == "cell"
    assert len(plotting.plot_space_time([[1.0, 2.0]], [3.0]).axes) == 2


def crowd():
    obstacle = np.zeros((40, 10), dtype=bool)
    obstacle[20:24, 3:7] = True
    fields = np.zeros((5, 40, 10))
    for k in range(5):
        fields[k, 8 * k : 8 * k + 4, 4:6] = 0.1 * (k + 1)
    fields[:, obstacle] = 0
    return fields.reshape(5, -1), np.arange(5) * 17.5, obstacle


@pytest.mark.slow
def test_crowd_at_four_times_with_the_obstacle_in_each():
    fields, times, obstacle = crowd()
    figure = plotting.plot_crowd(fields, times, shape=(40, 10), extent=(20.0, 5.0), obstacle=obstacle)
    panels = figure.axes[:-1]
    assert [ax.get_title() for ax in panels] == ["t = 0", "t = 17.5", "t = 52.5", "t = 70"]
    assert all(ax.get_xlim() == (0, 20) and ax.get_ylim() == (0, 5) for ax in panels)
    # one colour scale for all panels
    assert len({ax.images[0].get_clim() for ax in panels}) == 1
    assert panels[0].images[0].get_clim() == (0.0, 0.5)
    picture = pixels(figure)
    assert area_of(picture, LOW) > 0.3
    solid = area_of(picture, OBSTACLE)
    assert solid > 0.001
    flat = plotting.plot_crowd(fields, times, shape=(40, 10), extent=(20.0, 5.0), obstacle=obstacle.ravel())
    assert (pixels(flat) == picture).all()
    free = plotting.plot_crowd(fields, times, shape=(40, 10), extent=(20.0, 5.0))
    assert area_of(pixels(free), OBSTACLE) < solid / 2


@pytest.mark.slow
def test_crowd_with_fewer_fields_has_fewer_panels():
    fields, times, _ = crowd()
    for n in (1, 2, 3):
        figure = plotting.plot_crowd(fields[:n], times[:n], shape=(40, 10))
        assert len(figure.axes) == n + 1
        assert pixels(figure).std() > 10
    assert len(plotting.plot_crowd(fields, shape=(40, 10), n_panels=5).axes) == 6
    assert pixels(plotting.plot_crowd(np.zeros((1, 400)), shape=(40, 10))).std() > 10


def test_rotated_images_grid_shows_the_papers_six_angles():
    rotated = make_rotated_images(72, shape=48, shuffle=True, random_state=0)
    figure = plotting.plot_images(rotated.data, rotated.angles, shape=rotated.shape)
    assert [ax.get_title() for ax in figure.axes] == [f"θ = {60 * k}°" for k in range(6)]
    picture = pixels(figure)
    assert area_of(picture, (0, 0, 0)) > 0.2 and len(np.unique(picture)) > 30
    # the drawn pictures differ from one another
    drawn = [np.asarray(ax.images[0].get_array()) for ax in figure.axes]
    assert all((drawn[0] != other).any() for other in drawn[1:])
    few = plotting.plot_images(rotated.data[:2], shape=rotated.shape)
    assert len(few.axes) == 2 and few.axes[0].get_title() == ""


@pytest.mark.parametrize("dimension", [2, 3])
def test_embedding_is_coloured_by_the_coordinate(dimension):
    roll = make_swiss_roll(400, random_state=0)
    figure = plotting.plot_embedding(roll.data[:, :dimension], roll.coordinates[:, 0], label="theta")
    ax, bar = figure.axes
    assert bar.get_ylabel() == "theta"
    assert hasattr(ax, "get_zlabel") == (dimension == 3)
    points = ax.collections[0]
    assert (points.get_array() == roll.coordinates[:, 0]).all()
    figure.delaxes(bar)
    picture = pixels(figure)
    saturated = picture.max(axis=2) - picture.min(axis=2) > 60
    assert saturated.mean() > 0.01
    # both ends of the colour scale appear in the points, not only in the bar
    assert area_of(picture, HIGH, 40) > 0 and area_of(picture, LOW, 40) > 0


def test_embedding_without_colour_names_and_cyclic():
    points = np.random.default_rng(0).random((50, 2))
    figure = plotting.plot_embedding(points, names=("a", "b"))
    assert len(figure.axes) == 1
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("a", "b")
    cyclic = plotting.plot_embedding(points, points[:, 0], cyclic=True)
    assert cyclic.axes[0].collections[0].get_cmap().name == "twilight"


def test_given_axes_are_used():
    figure = Figure()
    ax, other = figure.subplots(1, 2)
    assert plotting.plot_embedding(np.eye(2), [0, 1], ax=ax) is figure
    assert plotting.plot_space_time(np.eye(3), [0, 1, 2], ax=other) is figure
    assert len(figure.axes) == 4
    with pytest.raises(ValueError, match="ax must be 3-dimensional"):
        plotting.plot_embedding(np.eye(3), ax=ax)


def test_input_is_not_changed():
    fields, times, obstacle = crowd()
    for array in (fields, times, obstacle):
        array.flags.writeable = False
    plotting.plot_crowd(fields, times, shape=(40, 10), obstacle=obstacle)
    plotting.plot_space_time(fields, times)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: plotting.plot_space_time(np.eye(3), [0, 1]), "times must have length 3, got 2"),
        (lambda: plotting.plot_space_time(np.eye(3), [0, 2, 1]), "times must be ascending, got 1 after 2"),
        (lambda: plotting.plot_space_time(np.eye(3) * np.nan, [0, 1, 2]), "fields must be finite"),
        (lambda: plotting.plot_crowd(np.ones((2, 9)), shape=(2, 4)), "fields must have 8 columns, got 9"),
        (lambda: plotting.plot_crowd(np.ones((2, 8)), shape=8), "shape must be two numbers"),
        (lambda: plotting.plot_crowd(np.ones((2, 8)), [0.0], shape=(2, 4)), "times must have length 2"),
        (lambda: plotting.plot_crowd(np.ones((2, 8)), shape=(2, 4), extent=(0, 1)), "extent must be pos"),
        (lambda: plotting.plot_crowd(np.ones((2, 8)), shape=(2, 4), obstacle=np.ones(8)), "boolean"),
        (lambda: plotting.plot_crowd(np.ones((2, 8)), shape=(2, 4), n_panels=0), "n_panels must be"),
        (lambda: plotting.plot_images(np.ones((2, 8)), [0.0], shape=(2, 4)), "angles must have length 2"),
        (lambda: plotting.plot_embedding(np.ones((2, 4))), "2 or 3 columns, got 4"),
        (lambda: plotting.plot_embedding(np.eye(2), [1.0]), "color must have length 2"),
        (lambda: plotting.plot_embedding(np.eye(2), names=["a"]), "names must have length 2"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def run(code, folder):
    # not in the checkout: its source tree has no kernels
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=folder)


@pytest.mark.slow
def test_importing_loads_no_matplotlib_and_drawing_no_pyplot(tmp_path):
    result = run(
        "import sys, numpy as np\n"
        "from randsmap import plotting\n"
        "assert 'matplotlib' not in sys.modules\n"
        "import io\n"
        "figure = plotting.plot_embedding(np.eye(3), [0, 1, 2])\n"
        "figure.savefig(io.BytesIO(), format='png')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n",
        tmp_path,
    )
    assert result.returncode == 0, result.stderr


def test_without_matplotlib_the_message_says_what_to_install(tmp_path):
    result = run(
        "import sys, numpy as np\n"
        "sys.modules['matplotlib'] = None\n"
        "from randsmap import plotting\n"
        "try:\n    plotting.plot_embedding(np.eye(2))\n"
        "except ImportError as error:\n    print(error)\n",
        tmp_path,
    )
    assert "pip install 'randsmap[plots]'" in result.stdout, result.stderr


def test_reconstructions_of_a_profile_show_truth_reconstruction_and_error():
    x = np.linspace(0, 1, 20)
    figure = plotting.plot_reconstructions(x, {"a": x + 1, "b": 0 * x}, positions=x, label="mass")
    assert [ax.get_title() for ax in figure.axes] == ["a", "b"]
    truth, found, error = (line.get_ydata() for line in figure.axes[0].lines)
    assert (truth == x).all() and (found == x + 1).all() and (error == found - truth).all()
    assert figure.axes[1].get_xlabel() == "position x"
    pixels(figure)


@pytest.mark.slow
@pytest.mark.parametrize("extent", [None, (4.0, 1.0)])
def test_reconstructions_of_a_plane_show_the_error_in_one_scale_and_hide_the_obstacle(extent):
    truth = np.arange(32.0).reshape(8, 4) / 32
    mask = np.ones((8, 4), dtype=bool)
    mask[3:5, 1:3] = False
    worse = np.where(mask, truth + 0.5, truth + 99)  # where there is nothing, nothing counts
    figure = plotting.plot_reconstructions(
        truth, {"good": truth + 0.01, "bad": worse, "same": truth + 0}, extent=extent, mask=mask
    )
    images = {ax.get_title(): [] for ax in figure.axes}
    for ax in figure.axes:
        if ax.images:
            images[ax.get_title()].append(ax.images[0])
    assert len(images["absolute error"]) == 3 and len(images["truth"]) == 1
    assert len({(image.norm.vmin, image.norm.vmax) for image in images["absolute error"]}) == 1
    assert images["absolute error"][0].norm.vmax == 0.5
    shown = images["truth"][0].get_array()
    assert shown.shape == ((8, 4) if extent is None else (4, 8)) and shown.mask.sum() == 4
    pixels(figure)


def test_reconstructions_refuse_what_does_not_fit():
    field = np.ones((3, 4))
    with pytest.raises(ValueError, match=r"b must have shape \(3, 4\) like truth, got \(4, 3\)"):
        plotting.plot_reconstructions(field, {"a": field, "b": field.T})
    with pytest.raises(ValueError, match="at least one"):
        plotting.plot_reconstructions(field, {})
    with pytest.raises(ValueError, match="one or two axes"):
        plotting.plot_reconstructions(np.ones((2, 2, 2)), {"a": np.ones((2, 2, 2))})
    with pytest.raises(ValueError, match="mask must be boolean"):
        plotting.plot_reconstructions(field, {"a": field}, mask=field)
    with pytest.raises(ValueError, match="NaN|finite"):
        plotting.plot_reconstructions(field, {"a": field * np.nan})
