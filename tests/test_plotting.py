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
    figure = plotting.plot_space_time(fields, [0, 1, 2, 3], np.linspace(0, 9, 10)).figure
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
    figure = plotting.plot_space_time(np.array([[0.0], [1.0], [0.0]]), [0.0, 1.0, 5.0]).figure
    x0, x1 = figure.axes[0].get_xlim()
    assert (x0, x1) == (-0.5, 7.0)
    assert figure.axes[0].get_ylabel() == "cell"
    assert len(plotting.plot_space_time([[1.0, 2.0]], [3.0]).figure.axes) == 2


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
    place = {"shape": (40, 10), "extent": (20.0, 5.0), "label": "density", "n_panels": 4}
    figure = plotting.plot_fields(fields, [f"t = {t:g}" for t in times], mask=~obstacle, **place)
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
    flat = plotting.plot_fields(fields, [f"t = {t:g}" for t in times], mask=~obstacle.ravel(), **place)
    assert (pixels(flat) == picture).all()
    free = plotting.plot_fields(fields, **place)
    assert area_of(pixels(free), OBSTACLE) < solid / 2


@pytest.mark.slow
def test_crowd_with_fewer_fields_has_fewer_panels():
    fields, times, _ = crowd()
    for n in (1, 2, 3):
        figure = plotting.plot_fields(fields[:n], times[:n], shape=(40, 10), label="density")
        assert len(figure.axes) == n + 1
        assert pixels(figure).std() > 10
    assert len(plotting.plot_fields(fields, shape=(40, 10), n_panels=4).axes) == 4
    assert pixels(plotting.plot_fields(np.zeros((1, 400)), shape=(40, 10), extent=(4, 1))).std() > 10


def test_images_are_grey_and_have_no_axes():
    rotated = make_rotated_images(6, shape=48)
    figure = plotting.plot_fields(rotated.data, list("abcdef"), shape=rotated.shape)
    assert [ax.get_title() for ax in figure.axes] == list("abcdef")
    picture = pixels(figure)
    assert area_of(picture, (0, 0, 0)) > 0.2 and len(np.unique(picture)) > 30
    # the drawn pictures differ from one another
    drawn = [np.asarray(ax.images[0].get_array()) for ax in figure.axes]
    assert all((drawn[0] != other).any() for other in drawn[1:])
    few = plotting.plot_fields(rotated.data[:2], shape=rotated.shape)
    assert len(few.axes) == 2 and few.axes[0].get_title() == ""


@pytest.mark.parametrize("dimension", [2, 3])
def test_embedding_is_coloured_by_the_coordinate(dimension):
    roll = make_swiss_roll(400, random_state=0)
    figure = plotting.plot_embedding(roll.data[:, :dimension], roll.coordinates[:, 0], label="theta").figure
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
    figure = plotting.plot_embedding(points, names=("a", "b")).figure
    assert len(figure.axes) == 1
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("a", "b")
    cyclic = plotting.plot_embedding(points, points[:, 0], cyclic=True)
    assert cyclic.get_cmap().name == "twilight"


def test_given_axes_are_used():
    figure = Figure()
    ax, other = figure.subplots(1, 2)
    assert plotting.plot_embedding(np.eye(2), [0, 1], ax=ax) is ax.collections[0]
    assert plotting.plot_space_time(np.eye(3), [0, 1, 2], ax=other) is other.collections[0]
    assert len(figure.axes) == 4
    with pytest.raises(ValueError, match="ax must be 3-dimensional"):
        plotting.plot_embedding(np.eye(3), ax=ax)


def test_input_is_not_changed():
    fields, times, obstacle = crowd()
    for array in (fields, times, obstacle):
        array.flags.writeable = False
    plotting.plot_fields(fields, times, shape=(40, 10), mask=obstacle)
    plotting.plot_space_time(fields, times)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: plotting.plot_space_time(np.eye(3), [0, 1]), "times must have length 3, got 2"),
        (lambda: plotting.plot_space_time(np.eye(3), [0, 2, 1]), "times must be ascending, got 1 after 2"),
        (lambda: plotting.plot_space_time(np.eye(3) * np.nan, [0, 1, 2]), "fields must be finite"),
        (lambda: plotting.plot_fields(np.ones((2, 9)), shape=(2, 4)), "fields must have 8 columns, got 9"),
        (
            lambda: plotting.plot_fields(np.ones((2, 8)), shape=8),
            "shape must be the numbers of cells along the axes of a field, got 8",
        ),
        (lambda: plotting.plot_fields(np.ones((2, 8)), ["a"], shape=(2, 4)), "titles must have length 2, got 1"),
        (lambda: plotting.animate_comparison([[1, 2]], [[1, 2], [3, 4]]), "as many fields, 1 at least, got 1 and 2"),
        (lambda: plotting.plot_fields(np.ones((2, 8)), shape=(2, 4), extent=(0, 1)), "extent must be pos"),
        (lambda: plotting.plot_fields(np.ones((2, 8)), shape=(2, 4), mask=np.ones(8)), "boolean"),
        (lambda: plotting.plot_fields(np.ones((2, 8)), shape=(2, 4), n_panels=0), "n_panels must be"),
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
        "figure = plotting.plot_embedding(np.eye(3), [0, 1, 2]).figure\n"
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
    assert [ax.get_title() for ax in figure.axes] == ["a", "b", "", ""]
    truth, found = (line.get_ydata() for line in figure.axes[0].lines)
    zero, error = (line.get_ydata() for line in figure.axes[2].lines)  # below, so that it covers nothing
    assert (truth == x).all() and (found == x + 1).all() and (error == found - truth).all() and not any(zero)
    assert [ax.get_xlabel() for ax in figure.axes] == ["", "", "position x", "position x"]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim() != figure.axes[2].get_ylim()
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
    assert len(images["absolute error"]) == 3 and len(images["reference"]) == 1
    assert len({(image.norm.vmin, image.norm.vmax) for image in images["absolute error"]}) == 1
    assert images["absolute error"][0].norm.vmax == 0.5
    shown = images["reference"][0].get_array()
    assert shown.shape == ((8, 4) if extent is None else (4, 8)) and shown.mask.sum() == 4
    pixels(figure)


def test_reconstructions_refuse_what_does_not_fit():
    field = np.ones((3, 4))
    with pytest.raises(ValueError, match=r"b must have shape \(3, 4\) or be flattened, got \(4, 3\)"):
        plotting.plot_reconstructions(field, {"a": field, "b": field.T})
    with pytest.raises(ValueError, match="at least one"):
        plotting.plot_reconstructions(field, {})
    with pytest.raises(ValueError, match="must be a line or a plane"):
        plotting.plot_reconstructions(np.ones((2, 2, 2)), {"a": np.ones((2, 2, 2))})
    with pytest.raises(ValueError, match="mask must be boolean"):
        plotting.plot_reconstructions(field, {"a": field}, mask=field)
    with pytest.raises(ValueError, match="NaN|finite"):
        plotting.plot_reconstructions(field, {"a": field * np.nan})


def square_mesh():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5]])
    return points, np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]])


def test_a_line_a_plane_and_a_mesh_are_fields():
    x = np.linspace(0, 1, 12)
    line = plotting.plot_field(x**2, positions=x, label="density", color="k")
    assert (line.get_xdata() == x).all() and (line.get_ydata() == x**2).all() and line.get_color() == "k"
    assert line.axes.get_ylabel() == "density" and line.axes.get_xlabel() == "position x"
    flat = plotting.plot_field(x, shape=(3, 4), extent=(0, 2, -1, 1), cmap="magma", label="density")
    assert (np.asarray(flat.get_array()) == x.reshape(3, 4)).all() and flat.get_cmap().name == "magma"
    assert flat.get_extent() == [0, 2, -1, 1] and flat.origin == "lower"
    assert flat.figure.axes[1].get_ylabel() == "density"
    plain = plotting.plot_field(x.reshape(3, 4), origin="upper", colorbar=False)
    assert plain.origin == "upper" and len(plain.figure.axes) == 1
    points, triangles = square_mesh()
    for n in (5, 4):  # a value for each point, or for each triangle
        values = np.arange(float(n))
        drawn = plotting.plot_field(values, mesh=(points, triangles))
        assert (np.asarray(drawn.get_array()).ravel() == values).all()
        assert drawn.get_clim() == (0, n - 1)
        assert pixels(drawn.figure).std() > 10


def test_row_0_of_a_plane_is_below_or_above():
    field = np.zeros((2, 2))
    field[0] = 1
    for origin, bright in (("lower", 1), ("upper", 0)):
        drawn = plotting.plot_field(field, origin=origin, colorbar=False)
        drawn.axes.set_axis_off()
        picture = pixels(drawn.figure)
        half = len(picture) // 2
        parts = [area_of(part, HIGH) for part in (picture[:half], picture[half:])]
        assert parts[bright] > 10 * parts[1 - bright]


def test_differences_are_neutral_at_0():
    truth = np.array([[1.0, 2.0], [3.0, 4.0]])
    *_, drawn = plotting.plot_comparison(truth, truth + [[0.0, 1.0], [-3.0, 0.0]])
    assert drawn.get_clim() == (-3, 3)
    assert (np.asarray(drawn.get_array()) == [[0, 1], [-3, 0]]).all()
    *_, line = plotting.plot_comparison([1.0, 2.0], [1.5, 2.0])
    assert line.get_ydata().tolist() == [0.5, 0]
    *_, same = plotting.plot_comparison(truth, truth)
    assert same.get_clim() == (-1, 1)


def test_comparison_of_lines_takes_one_axes_or_two():
    truth, decoded = np.array([0.0, 1.0, 2.0]), np.array([0.5, 1.0, 1.0])
    lines = plotting.plot_comparison(truth, decoded, label="density")
    assert [line.get_ydata().tolist() for line in lines] == [[0, 1, 2], [0.5, 1, 1], [0.5, 0, -1]]
    assert lines[0].axes is lines[1].axes is not lines[2].axes
    ax = Figure().add_subplot()
    assert {line.axes for line in plotting.plot_comparison(truth, decoded, ax=ax)} == {ax}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["reference", "decoded", "error"]
    with pytest.raises(ValueError, match="ax must be 1 or 2 axes for such fields, got 3"):
        plotting.plot_comparison(truth, decoded, ax=Figure().subplots(1, 3))


@pytest.mark.parametrize("place", [{"shape": (2, 2)}, {"mesh": square_mesh()}], ids=["plane", "mesh"])
def test_comparison_of_planes_and_meshes_has_one_scale(place):
    truth = np.arange(4.0)
    axes = Figure(layout="constrained").subplots(1, 3)
    first, second, difference = plotting.plot_comparison(truth, truth * 2, ax=axes, **place)
    assert [artist.axes for artist in (first, second, difference)] == list(axes)
    assert first.get_clim() == second.get_clim() == (0, 6) and difference.get_clim() == (-3, 3)
    with pytest.raises(ValueError, match="ax must be 3 axes for such fields, got 1"):
        plotting.plot_comparison(truth, truth, ax=axes[0], **place)


def test_errors_over_rows_and_times():
    errors = np.array([1e-3, 0.0, 1e-1, 1e-2])
    points, median = plotting.plot_errors(errors)
    assert points.get_ydata().tolist() == [1e-3, 5e-4, 1e-1, 1e-2]  # 0 at half the smallest other
    assert points.axes.get_yscale() == "log" and points.axes.get_xlabel() == "row"
    points, _ = plotting.plot_errors(errors, [0.0, 0.1, 0.2, 0.4], label="e")
    assert points.get_xdata().tolist() == [0.0, 0.1, 0.2, 0.4]
    assert (points.axes.get_xlabel(), points.axes.get_ylabel()) == ("time", "e")
    low, high = plotting.plot_errors(np.zeros(3))[0].axes.get_ylim()
    assert 0 < low < high


def test_many_errors_are_a_median_and_a_range():
    rng = np.random.default_rng(0)
    errors = rng.uniform(1, 2, 30000)
    errors[12345] = 100.0
    band, line, _ = plotting.plot_errors(errors)
    assert len(line.get_xdata()) == 300
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.max() == 100.0 and abs(line.get_ydata() - 1.5).max() < 0.3


def test_errors_of_groups_are_lines_and_the_worst_stands_out():
    errors = np.array([1.0, 2.0, 3.0, 9.0, 8.0, 1.0])
    lines = plotting.plot_errors(errors, groups=["b", "b", "a", "c$", "c$", "a"])
    assert [line.get_ydata().tolist() for line in lines] == [[3, 1], [1, 2], [9, 8]]
    texts = [text.get_text() for text in lines[0].axes.get_legend().get_texts()]
    assert texts == ["each other group", r"group c\$ (largest mean)"]
    assert lines[2].get_color() != lines[1].get_color() == lines[0].get_color()
    pixels(lines[0].figure)
    (alone,) = plotting.plot_errors([1.0, 2.0], [5.0, 4.0], groups=[0, 0])
    assert alone.get_xdata().tolist() == [4.0, 5.0]


def test_leverage_beyond_the_limit_stands_out():
    points, beyond, line = plotting.plot_leverage([0.1, 200.0, 0.0, np.inf], [0.01, 0.5, 0.02, 1.0], limit=100.0)
    assert len(points.get_offsets()) == 2 and beyond.get_offsets().tolist() == [[200.0, 0.5]]
    assert line.get_xdata() == [100.0, 100.0]
    assert len(plotting.plot_leverage([0.1, 0.2], [0.0, 0.0])) == 1


def test_embedding_of_one_coordinate_and_in_logarithmic_colours():
    points = plotting.plot_embedding(np.array([[3.0], [1.0]]), [1e-3, 0.0], log=True)
    assert points.get_offsets().tolist() == [[0, 3], [1, 1]]
    assert points.norm.vmin == 1e-3 and points.axes.get_xlabel() == "row"


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: plotting.plot_field(np.ones(6), shape=(2, 4)), r"field must have 2 x 4 = 8 cells, got 6 in an"),
        (lambda: plotting.plot_field(np.ones((2, 3)), extent=(0, 1)), "extent must have length 4"),
        (lambda: plotting.plot_field(np.ones((2, 3)), extent=(1, 0, 0, 1)), "left < right"),
        (lambda: plotting.plot_field(np.ones((2, 3)), origin="left"), "origin must be"),
        (lambda: plotting.plot_field(np.ones(3), positions=[0, 2, 1]), "positions must be ascending"),
        (lambda: plotting.plot_field([1.0, np.nan]), "field must be finite"),
        (lambda: plotting.plot_field(np.ones(3), mesh=square_mesh()), "5 points or 4 triangles of the mesh, got 3"),
        (lambda: plotting.plot_field(np.ones(5), mesh=square_mesh()[0]), "mesh must be a pair"),
        (lambda: plotting.plot_field(np.ones(5), mesh=(np.ones((5, 2)), [[0, 1, 5]])), "name its points, 0 to 4"),
        (lambda: plotting.plot_field(np.ones(5), mesh=(np.ones((5, 2)), [[0.0, 1, 2]])), "must be integers of shape"),
        (lambda: plotting.plot_comparison([1.0, 2.0], [1.0]), r"decoded must have shape \(2,\) like truth"),
        (lambda: plotting.plot_errors([-1.0]), "errors must be at least 0, got -1"),
        (lambda: plotting.plot_errors([1.0], groups=[1, 2]), "groups must have length 1"),
        (lambda: plotting.plot_errors([1.0], [1.0, 2.0]), "times must have length 1"),
        (lambda: plotting.plot_leverage([1.0], [1.0, 2.0]), "leverage must have length 2"),
        (lambda: plotting.plot_leverage([np.nan], [1.0]), "leverage must be finite"),
    ],
)
def test_bad_fields_and_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_truth_itself_among_the_reconstructions():
    truth = np.random.default_rng(0).uniform(size=(6, 7))
    for fields in ({"same": truth}, {"same": truth, "half": truth / 2}):
        figure = plotting.plot_reconstructions(truth, fields)
        figure.canvas.draw()
        assert [ax.get_title() for ax in figure.axes].count("absolute error") == len(fields)


def test_no_errors_are_refused():
    with pytest.raises(ValueError, match="at least 1 value"):
        plotting.plot_errors([])


# -- Fields as the package takes and returns them ---------------------------------------------------------
LINE, PLANE = np.arange(12.0), np.arange(12.0).reshape(3, 4)
VOLUME = np.arange(24.0).reshape(2, 3, 4)  # of which the middle plane is drawn


def labelled(array):
    return pytest.importorskip("xarray").DataArray(array)


@pytest.mark.parametrize(
    "field, options, drawn",
    [
        (LINE[None], {}, LINE),
        (LINE[:, None], {}, LINE),
        (LINE, {"shape": (12,)}, LINE),
        (LINE[None, None], {"shape": (1, 12)}, LINE),
        (PLANE[None], {}, PLANE),
        (LINE[None], {"shape": [3, 4]}, PLANE),
        (PLANE, {"shape": np.array([3, 4])}, PLANE),
        (PLANE.tolist(), {}, PLANE),
        (VOLUME, {"shape": (2, 3, 4)}, VOLUME[1]),
        (VOLUME.ravel(), {"shape": (2, 3, 4)}, VOLUME[1]),
        (VOLUME[None], {"shape": (2, 3, 4)}, VOLUME[1]),
    ],
)
def test_one_field_in_any_arrangement(field, options, drawn):
    def values(artist):
        return np.asarray(artist.get_array() if drawn.ndim == 2 else artist.get_ydata())

    assert np.array_equal(values(plotting.plot_field(field, **options)), drawn)
    assert np.array_equal(values(plotting.plot_field(labelled(field), **options)), drawn)
    doubled = 2 * np.asarray(field)
    for artist, times in zip(plotting.plot_comparison(doubled, field, **options), (2, 1, -1)):
        assert np.array_equal(values(artist), times * drawn)
    figure = plotting.plot_reconstructions(field, {"a": doubled}, **options)
    shown = figure.axes[0].lines[0].get_ydata() if drawn.ndim == 1 else figure.axes[0].images[0].get_array()
    assert np.array_equal(np.asarray(shown), drawn)


def test_a_flattened_field_has_the_shape_of_the_other():
    for truth, decoded in ((PLANE, LINE), (LINE, PLANE[None]), (labelled(PLANE), LINE[None])):
        drawn = plotting.plot_comparison(truth, decoded)
        assert all(np.asarray(artist.get_array()).shape == (3, 4) for artist in drawn)
        figure = plotting.plot_reconstructions(truth, {"a": decoded}, mask=PLANE.ravel() > 1)
        assert np.asarray(figure.axes[0].images[0].get_array()).shape == (3, 4)


def test_a_mesh_takes_the_only_field_of_an_array():
    for values in (np.arange(5.0)[None], labelled(np.arange(5.0)), np.arange(5.0)[:, None]):
        drawn = plotting.plot_field(values, mesh=square_mesh())
        assert np.asarray(drawn.get_array()).ravel().tolist() == [0, 1, 2, 3, 4]
        assert len(plotting.plot_comparison(values, np.arange(5.0), mesh=square_mesh())) == 3


def test_arrays_of_fields_have_their_shape():
    fields = np.arange(24.0).reshape(2, 3, 4)
    for given, options in (
        (fields, {}),
        (labelled(fields), {}),
        (fields.reshape(2, 12), {"shape": (3, 4)}),
        (fields[:, None], {}),
        (np.stack([0 * fields, fields], axis=1), {}),  # (n, nz, ny, nx): the middle plane
    ):
        shown = [np.asarray(ax.images[0].get_array()) for ax in plotting.plot_fields(given, **options).axes]
        assert np.array_equal(shown, fields)
        panels = plotting.plot_fields(given, extent=(3, 4), **options).axes
        assert np.array_equal([np.asarray(ax.images[0].get_array()) for ax in panels], fields.transpose(0, 2, 1))
    for one in (PLANE, labelled(PLANE)):
        (ax,) = plotting.plot_fields(one, shape=(3, 4)).axes
        assert np.array_equal(np.asarray(ax.images[0].get_array()), PLANE)
    for lines in (PLANE, PLANE[:, None], labelled(PLANE)):
        diagram = plotting.plot_space_time(lines, [0.0, 1.0, 2.0])
        assert np.array_equal(np.asarray(diagram.get_array()).reshape(4, 3), PLANE.T)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: plotting.plot_field(np.ones((5, 3, 4))),
            r"got shape \(5, 3, 4\): give one of its fields, such as field",
        ),
        (lambda: plotting.plot_field(np.ones((5, 12)), shape=(3, 4)), "60 in an array .* such as field.0."),
        (lambda: plotting.plot_field(np.ones((4, 3)), shape=(3, 4)), r"must have shape \(3, 4\) or be flattened, got"),
        (lambda: plotting.plot_field(np.ma.masked_equal(LINE, 3)), "masked"),
        (lambda: plotting.plot_field(np.ones((0, 4))), r"must have cells, got shape \(0, 4\)"),
        (
            lambda: plotting.plot_comparison(np.ones((5, 3, 4)), np.ones((5, 3, 4))),
            "give one of its fields, such as truth",
        ),
        (lambda: plotting.plot_fields(np.ones((3, 12))), "fields must be planes, got 12 cells: shape must be two"),
        (lambda: plotting.plot_fields(np.ones((3, 12)), shape=(12,)), "fields must be planes"),
        (lambda: plotting.plot_space_time(np.ones((3, 4, 5)), [0, 1, 2]), r"lines, got fields of shape \(4, 5\)"),
    ],
)
def test_arrays_that_are_not_what_is_drawn(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_animation_shows_each_row_in_the_scale_of_all(tmp_path):
    rng = np.random.default_rng(0)
    for shape, options in (
        ((2, 2, 4), {}),
        ((2, 5), {"mesh": square_mesh()}),
        ((2, 6), {"ax": Figure().add_subplot()}),
    ):
        truth, decoded = rng.normal(size=(2, *shape))
        film = plotting.animate_comparison(truth, decoded, [0.0, 2.5], **options)
        film.save(tmp_path / "film.gif", writer="pillow", dpi=20)
        from PIL import Image

        with Image.open(tmp_path / "film.gif") as file:
            assert file.n_frames == 2
        figure = film._fig
        assert figure.get_suptitle() == "t = 2.5"
        low, high = min(truth.min(), decoded.min()), max(truth.max(), decoded.max())
        for ax, last in zip(figure.axes, (truth[-1], decoded[-1])):
            if ax.lines:
                assert ax.get_ylim()[0] <= low < high <= ax.get_ylim()[1]
                break
            (artist,) = ax.images or ax.collections
            np.testing.assert_array_equal(np.ravel(artist.get_array()), last.ravel())
            assert artist.get_clim() == (low, high)


# -- Style and curves -------------------------------------------------------------------------------


def test_a_style_gives_figures_the_width_of_a_column_and_leaves_no_trace():
    import matplotlib

    before = dict(matplotlib.rcParams)
    with plotting.style():
        widths = [plotting.new_figure(size).get_size_inches() for size in ((5.0, 4.0), (10.4, 5.2))]
        assert matplotlib.rcParams["pdf.fonttype"] == 42
    np.testing.assert_allclose(25.4 * np.array(widths), [[89, 71.182], [183, 91.665462]])
    with plotting.style(width=120):
        assert plotting.new_figure((5.0, 4.0)).get_figwidth() * 25.4 == pytest.approx(120)
    assert dict(matplotlib.rcParams) == before and plotting.new_figure((5.0, 4.0)).get_figwidth() == 5.0
    with pytest.raises(ValueError, match="width must be finite and > 0"), plotting.style(width=0):
        pass


def test_curves_of_several_values_are_medians_with_bands():
    values = np.random.default_rng(0).lognormal(size=(4, 101))
    one, many = plotting.plot_error_vs_dimension([1, 2, 4, 8], {"POD": [0.4, 0.2, 0.1, 0.0], "kernel": values})
    assert one.get_ydata().tolist() == [0.4, 0.2, 0.1, 0.05] and one.axes.get_yscale() == "log"
    np.testing.assert_allclose(many.get_ydata(), np.median(values, axis=1))
    (band,) = one.axes.collections
    drawn = band.get_paths()[0].vertices
    for k, x in enumerate([1, 2, 4, 8]):
        ends = drawn[drawn[:, 0] == x, 1]
        np.testing.assert_allclose([ends.min(), ends.max()], np.percentile(values[k], [5, 95]))
    assert [text.get_text() for text in one.axes.get_legend().get_texts()] == ["POD", "kernel"]


def test_spectra_are_sorted_and_relative_and_mass_errors_have_a_floor():
    (line,) = plotting.plot_spectrum({"POD": [1.0, 4.0, 2.0]})
    assert line.get_ydata().tolist() == [1.0, 0.5, 0.25] and line.get_xdata().tolist() == [1, 2, 3]
    exact, other = plotting.plot_conservation([1.0, 10.0], {"exact": [0.0, 1e-16], "other": [1e-3, 0.1]})
    assert exact.get_ydata().tolist() == [1e-17, 1e-16] and other.axes.get_xscale() == "log"
    for call, message in (
        (lambda: plotting.plot_spectrum({}), "curves must name at least one"),
        (lambda: plotting.plot_error_vs_dimension([2, 1], {"a": [1.0, 2.0]}), "dimensions must be ascending"),
        (lambda: plotting.plot_conservation([1.0], {"a": [1.0, 2.0]}), "a must have 1 rows, one for each place, got 2"),
        (lambda: plotting.plot_conservation([1.0], {"a": [[1.0, -0.1, 2.0]]}), "a must be at least 0, got -0.1"),
        (lambda: plotting.plot_spectrum({"a": []}), "a must have at least 1 value, got none"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_counts_have_whole_ticks_and_legends_fit_into_a_column():
    curves = {name: [1.0, 0.5] for name in (5, "_hidden", "a long name of a curve")}
    with plotting.style(width=89):
        for lines in (plotting.plot_spectrum(curves), plotting.plot_errors([0.1, 0.2], groups=["a" * 30, "b"])):
            ax = lines[0].axes
            pixels(ax.figure)
            assert all(tick == round(tick) for tick in ax.get_xticks())
            box = ax.get_legend().get_window_extent()
            assert box.x1 <= ax.figure.bbox.x1 and ax.get_position().width > 0.7
    assert [text.get_text() for text in plotting.plot_spectrum(curves)[0].axes.get_legend().get_texts()] == [
        "5",
        " _hidden",
        "a long name of a curve",
    ]


@pytest.mark.parametrize("shape", [(5, 50), (4, 300), (20, 30)])
def test_flat_planes_do_not_collapse_in_a_column(shape):
    plane = np.arange(float(np.prod(shape))).reshape(shape)
    with plotting.style(width=89):
        drawn = plotting.plot_comparison(plane, 1.1 * plane)
        axes, figure = [artist.axes for artist in drawn], drawn[0].figure
        pixels(figure)
        boxes = [ax.get_tightbbox() for ax in figure.axes]
    assert min(box.y0 for box in boxes) > -1 and max(box.y1 for box in boxes) < figure.bbox.y1 + 1
    assert axes[0].bbox.y0 > figure.axes[3].bbox.y1 and figure.axes[3].bbox.width > axes[0].bbox.width


def test_a_field_of_one_cell_is_visible():
    line, *_ = plotting.plot_comparison([1.0], [2.0])
    assert line.get_marker() == "o"
