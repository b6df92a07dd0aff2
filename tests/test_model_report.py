"""Reports of small models: the page is parsed, its figures are compared with the arrays that they are of."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from sklearn.decomposition import PCA  # noqa: E402

import randsmap  # noqa: E402
from randsmap import cli, metrics, plotting, reports  # noqa: E402
from randsmap._linalg import rows  # noqa: E402
from randsmap.decoders._auto import check_groups  # noqa: E402
from randsmap.reports import write_model_report  # noqa: E402

from pages import Page  # noqa: E402

HOSTILE = "<b>&\"'><script>alert(1)</script>$\\frac{"


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Pictures with fewer pixels, for speed."""
    monkeypatch.setattr(reports, "DPI", 45)


@pytest.fixture(scope="module")
def bumps():
    x = np.linspace(0, 1, 30)
    fields = np.exp(-(((x - np.linspace(0.3, 0.7, 24)[:, None]) / 0.1) ** 2))
    return fields / fields.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def model(bumps):
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(5.0), random_state=0)
    return randsmap.ManifoldModel(randsmap.DiffusionMaps(2), decoder).fit(bumps[::2])


@pytest.mark.slow
def test_report_has_the_figures_of_the_model(model, bumps, tmp_path):
    texts = {"title": "bumps", "command": "do it again"}
    path = write_model_report(model, bumps, tmp_path / "deep" / "report.html", **texts, figures=tmp_path / "figures")
    written = sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert len(written) == 7 and {"errors.pdf", "worst-fields.pdf", "figures.npz"} < set(written)
    with np.load(tmp_path / "figures" / "figures.npz") as arrays:
        np.testing.assert_allclose(arrays["l2"], metrics.scaled_l2(bumps, model.reconstruct(bumps)))
        rows = arrays["rows"]  # of the fields that the page shows
        np.testing.assert_array_equal(arrays["truth"], bumps[rows])
        np.testing.assert_allclose(arrays["decoded"], model.reconstruct(bumps)[rows], rtol=0, atol=1e-12)
        assert arrays["l2"][rows[0]] == arrays["l2"].max()
    page = Page(path)
    page.check()
    assert len(page.pictures) == 6
    decoded = model.reconstruct(bumps)
    l2 = metrics.scaled_l2(bumps, decoded)
    worst = int(np.argmax(l2))
    figures = [l2.mean(), *np.percentile(l2, [50, 5, 95]), l2.max()]
    assert page.row("relative L2 error") == [*reports.percents(figures), str(worst)]
    mass = metrics.conservation_error(bumps, decoded) / bumps.sum(axis=1)
    assert float(page.row("error of the mass, relative")[4]) == pytest.approx(mass.max(), rel=1, abs=5e-16)
    leverage = model.leverage(model.transform(bumps))
    assert page.row("leverage")[4] == f"{leverage.max():.3g}"
    shown = np.argsort(-l2, kind="stable")[:12]  # of one column, with decimals that suit its smallest
    linf = metrics.scaled_linf(bumps, decoded)
    assert page.row(str(worst))[:2] == [reports.percents(l2[shown])[0], reports.percents(linf[shown])[0]]
    assert page.row("slope") == ["5"] and page.row("solver") == ["cholesky"]
    assert page.row("kernel width epsilon") == [f"{model.encoder_.epsilon_:.4g}"]
    assert "fitted to 50.0 % of these snapshots" in page.text
    assert "do it again" in page.text and page.text.count("bumps - randsmap") == 1


@pytest.mark.slow
def test_groups_have_their_means(model, bumps, tmp_path):
    groups = np.repeat([HOSTILE, "second", "third"], 8)
    page = Page(write_model_report(model, bumps, tmp_path / "r.html", groups=groups, title=HOSTILE, command=HOSTILE))
    page.check()
    assert len(page.pictures) == 6
    assert page.text.count(HOSTILE) == 3 and not page.all("script")
    means = metrics.scaled_l2(bumps, model.reconstruct(bumps)).reshape(3, 8).mean(axis=1)
    assert page.row("third", "8")[0] == reports.percents(means)[2]
    (first, *_) = [row for row in page.rows if row[1:2] == ["8"]]
    assert first[0][:10] == str([HOSTILE, "second", "third"][int(np.argmax(means))])[:10]
    with pytest.raises(ValueError, match=r"groups must have a label for each of 24 snapshots, got shape \(3,\)"):
        write_model_report(model, bumps, tmp_path / "r.html", groups=[1, 2, 3])


@pytest.mark.slow
@pytest.mark.parametrize(
    "encoder, decoder, n",
    [
        (randsmap.POD(3), None, 24),
        (randsmap.POD(1), randsmap.KNNDecoder(2), 24),
        (PCA(2), randsmap.KernelDecoder(), 24),
        (randsmap.DiffusionMaps(1), randsmap.DoubleDiffusionMapsDecoder(), 1),
        (randsmap.DiffusionMaps(2), randsmap.AutoDecoder(n_trials=4, random_state=0), 2),
    ],
)
def test_every_model_and_few_snapshots(encoder, decoder, n, bumps, tmp_path):
    model = randsmap.ManifoldModel(encoder, decoder).fit(bumps)
    page = Page(write_model_report(model, bumps[:n], tmp_path / "report.html"))
    page.check()
    assert ("leverage" in page.text) == hasattr(decoder, "leverage")
    assert ("Trials of the search" in page.text) == hasattr(model.decoder_, "results_")


@pytest.mark.slow
def test_fields_of_any_shape(bumps, tmp_path):
    model = randsmap.ManifoldModel(randsmap.POD(1)).fit(bumps)
    for shape in ((2, 3, 5), (30, 1)):
        page = Page(write_model_report(model, bumps, tmp_path / "report.html", shape=shape))
        page.check()
        assert ("the middle is shown" in page.text) == (len(shape) == 3)
    grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(5.0)), axis=2).reshape(-1, 2)
    corner = np.arange(24).reshape(4, 6)[:, :5].ravel()
    triangles = np.concatenate(
        [np.stack([corner, corner + 1, corner + 6], 1), np.stack([corner + 1, corner + 7, corner + 6], 1)]
    )
    Page(write_model_report(model, bumps, tmp_path / "report.html", mesh=(grid, triangles))).check()
    with pytest.raises(ValueError, match="shape must have the 30 cells of a field, got 5 x 7"):
        write_model_report(model, bumps, tmp_path / "report.html", shape=(5, 7))
    with pytest.raises(ValueError, match="a value for each of 30 points or 39 triangles|each of 29 points"):
        write_model_report(model, bumps, tmp_path / "report.html", mesh=(grid[:29], triangles[:5]))


@pytest.mark.slow
def test_the_models_own_shape_is_taken(bumps, tmp_path):
    model = randsmap.ManifoldModel(randsmap.POD(1)).fit(bumps)
    lines = write_model_report(model, bumps, tmp_path / "a.html").read_text()
    asked = write_model_report(model, bumps, tmp_path / "b.html", shape=(5, 6)).read_text()
    model.fit(bumps.reshape(-1, 5, 6))
    planes = write_model_report(model, bumps, tmp_path / "d.html").read_text()
    assert planes == asked != lines
    Page(tmp_path / "d.html").check()


def test_a_large_map_is_read_by_blocks_and_once(model, bumps, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "LARGE", 1)
    monkeypatch.setattr(rows, "block_rows", lambda M: 5)
    np.save(tmp_path / "fields.npy", bumps)
    mapped = np.load(tmp_path / "fields.npy", mmap_mode="r")
    read = []
    copied = rows.MappedRows.read
    monkeypatch.setattr(
        rows.MappedRows, "read", lambda self, which, cells=slice(None): read.append(which) or copied(self, which, cells)
    )
    found = reports.evaluate(model, mapped)
    assert [(rows.start, rows.stop) for rows in read] == [(0, 5), (5, 10), (10, 15), (15, 20), (20, 24)]
    whole = reports.evaluate(model, bumps)
    np.testing.assert_allclose(found.l2, whole.l2, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(found.latents, whole.latents, rtol=1e-9, atol=1e-12)
    assert (found.snapshots[[3, 7]] == bumps[[3, 7]]).all()


def test_errors_of_empty_fields_are_scaled(bumps):
    model = randsmap.ManifoldModel(randsmap.POD(2, invariants=None)).fit(bumps)
    fields = np.concatenate([bumps[:5], np.zeros((1, 30))])
    found = reports.evaluate(model, fields)
    np.testing.assert_allclose(found.l2, metrics.scaled_l2(fields, model.reconstruct(fields)), rtol=1e-12)
    np.testing.assert_allclose(found.linf, metrics.scaled_linf(fields, model.reconstruct(fields)), rtol=1e-12)
    assert not found.n_invariants and np.isfinite(found.invariants).all()
    with pytest.raises(ValueError, match="snapshots are 0 in every cell"):
        reports.evaluate(model, np.zeros((4, 30)))


def test_only_some_of_many_snapshots_are_examined(model, bumps, monkeypatch):
    monkeypatch.setattr(reports, "MOST_EXAMINED", 10)
    found = reports.evaluate(model, bumps)
    assert len(found.leverage) == len(found.examined) < 24
    assert int(np.argmax(found.l2)) in found.examined
    assert (found.leverage == model.leverage(found.latents[found.examined])).all()


def test_percentages_of_a_column_have_the_same_decimals():
    assert reports.percents([0.19, 0.191, 0.168, None, 1.0]) == ["19.0 %", "19.1 %", "16.8 %", "", "100.0 %"]
    assert reports.percents([0.00123, 0.5]) == ["0.123 %", "50.000 %"]
    assert reports.percents([0.0, 1e-15, 0.1, np.inf]) == ["0.0 %", "1e-13 %", "10.0 %", "inf %"]
    assert reports.percent(0.2) == "20.0 %"


def test_worst_fields_have_one_scale_and_one_bar_of_each_kind():
    fields = np.arange(24.0).reshape(2, 12)
    pairs = [(field, field + k) for k, field in enumerate(fields)]  # 0 to 11; 12 to 23, decoded as 13 to 24
    figure = reports._compared(pairs, ["first", "second"], (3, 4), None, 8.0)
    scales = [image.get_clim() for ax in figure.axes for image in ax.images]
    assert scales == 2 * [(0, 24), (0, 24), (-1, 1)] and len(figure.axes) == 8


def test_worst_rows_are_apart():
    errors = np.zeros(200)
    errors[[50, 51, 52, 120, 7]] = [5, 6, 4, 3, 1]
    assert reports.worst_rows(errors, None) == [51, 120, 7]
    assert reports.worst_rows(errors, np.arange(200) // 100) == [51, 120, 7]  # too few groups to choose from
    assert reports.worst_rows(errors, np.arange(200) // 53) == [51, 120, 53]
    assert reports.worst_rows(np.ones(1), None) == [0]


@pytest.mark.slow
def test_command_writes_the_report_and_names_it(model, bumps, tmp_path, capsys):
    names = {name: tmp_path / name for name in ("model.npz", "fields.npy", "groups.txt", "page.html")}
    model.save(names["model.npz"])
    np.save(names["fields.npy"], bumps)
    names["groups.txt"].write_text("\n".join("ab" * 12))
    arguments = ["report", str(names["model.npz"]), str(names["fields.npy"]), "--out", str(names["page.html"])]
    arguments += ["--groups", str(names["groups.txt"])]
    assert cli.main([*arguments, "--shape", "5", "6"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {names['page.html']}"
    page = Page(names["page.html"])
    page.check()
    assert "model.npz on fields.npy" in page.text and "--shape 5 6" in page.text
    before = names["page.html"].read_bytes()
    assert cli.main([*arguments, "--shape", "5", "7"]) == 1
    assert "shape must have the 30 cells of a field, got 5 x 7" in capsys.readouterr().err
    arguments[4] = str(names["model.npz"])
    assert cli.main(arguments) == 1
    assert "--out is the page" in capsys.readouterr().err
    assert names["page.html"].read_bytes() == before and isinstance(
        randsmap.load(names["model.npz"]), randsmap.ManifoldModel
    )


@pytest.mark.slow
def test_without_matplotlib_there_are_tables_and_words(model, bumps, tmp_path):
    model.save(tmp_path / "model.npz")
    np.save(tmp_path / "fields.npy", bumps)
    code = (
        "import sys, numpy as np\n"
        "sys.modules['matplotlib'] = None\n"
        "import randsmap, randsmap.reports as reports\n"
        "reports.write_model_report(randsmap.load('model.npz'), np.load('fields.npy'), 'page.html')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = Page(tmp_path / "page.html")
    assert not page.all("img") and "pip install 'randsmap[plots]'" in page.text
    assert len(page.row("relative L2 error")) == 6


def test_without_jinja_nothing_is_done(model, bumps, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'randsmap\[studies\]'"):
        write_model_report(model, bumps, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_report_of_fields_at_parameters(bumps, tmp_path, capsys):
    """Its errors are those of the predicted fields, by a function and by the command line."""
    places = np.linspace(0, 1, len(bumps))[:, None]
    model = randsmap.ParametricModel(randsmap.ManifoldModel(randsmap.POD(3))).fit(places[::2], bumps[::2])
    errors = randsmap.model.reconstruction_errors(model, bumps, parameters=places)["relative_l2"]
    model.save(tmp_path / "m.npz")
    np.save(tmp_path / "F.npy", bumps)
    np.save(tmp_path / "p.npy", places)
    command = ("report", tmp_path / "m.npz", tmp_path / "F.npy", "--out", tmp_path / "page.html", "--parameters")
    assert cli.main([str(each) for each in (*command, tmp_path / "p.npy")]) == 0
    page = Page(tmp_path / "page.html")
    assert f"{100 * errors.max():.3g}" in page.text and "--parameters" in page.text
    found = reports.evaluate(model.model_, bumps, model.latents(places))
    np.testing.assert_allclose(found.l2, errors, rtol=1e-9)
    with pytest.raises(ValueError, match="parameters must have a row for each of"):
        write_model_report(model, bumps, tmp_path / "page.html", parameters=places[:3])


@pytest.mark.slow
def test_examples_of_the_page_on_reports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parent.parent / "docs" / "reports.md").read_text(encoding="utf-8")
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, namespace)
    Page(tmp_path / "report.html").check()
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "pictures.png", "comparison.png"}
    for name in re.findall(r"`(plot_\w+)`", text):
        assert callable(getattr(plotting, name))


def test_what_is_kept_is_said(bumps, tmp_path, without_pictures):
    weights = np.linspace(1, 2, 30)
    fields = bumps / (bumps @ weights)[:, None]
    decoder = randsmap.RANDSMAPDecoder(cell_weights=weights, bounds=(0, 1), random_state=0)
    path = write_model_report(randsmap.ManifoldModel(randsmap.POD(2), decoder).fit(fields), fields, tmp_path / "r.html")
    text = Page(path).text
    assert "The model conserves the mass (sum of the cells by their weights): the largest" in text
    assert "decoded, which the model bounds: at least 0 and at most 1." in text


@pytest.fixture
def without_pictures(monkeypatch):
    monkeypatch.setattr("randsmap.reports.model_pictures", lambda *_: iter(()))


def test_groups_of_several_types_are_labels(model, bumps, tmp_path, without_pictures):
    groups = np.array([1, "second", 2.5] * 8, dtype=object)
    page = Page(write_model_report(model, bumps, tmp_path / "r.html", groups=groups))
    assert {row[0] for row in page.rows if row[1:2] == ["8"]} == {"1", "second", "2.5"}
    assert len(plotting.plot_errors(np.ones(24), groups=groups)) == 3
    assert check_groups(groups, 24).max() == 2


def test_text_that_is_no_unicode_is_written_as_its_bytes(model, bumps, tmp_path, without_pictures):
    path = write_model_report(model, bumps, tmp_path / "r.html", title="a\udc80b", groups=["c\udcff", "d"] * 12)
    text = path.read_bytes().decode()
    assert r"a\udc80b" in text and r"c\udcff" in text
    (line, *_) = plotting.plot_errors([1.0, 2.0], groups=["c\udcff", "d"])
    line.figure.canvas.draw()


def test_numbers_are_not_broken_behind_their_hyphen(model, bumps, tmp_path, without_pictures):
    path = write_model_report(model, bumps, tmp_path / "r.html", title="of 1e-16", command="<b>")
    text = path.read_text()
    rest, count = re.subn(r'<span class="number">[-+]?\d[\d.]*e-\d+</span>', "", text)
    assert count > 10
    assert len(re.findall(r"\de-\d", rest)) == 2  # in the title and the heading, where there may be no element
    assert "white-space: nowrap" in text


def test_a_blend_says_what_it_is(bumps, tmp_path, without_pictures):
    blend = randsmap.BlendedDecoder([randsmap.KernelDecoder(), randsmap.KNNDecoder(3), randsmap.KernelDecoder()])
    for decoder, parts in (
        (blend, "the median of the fields of its parts: 2 KernelDecoder and 1 KNNDecoder"),
        (randsmap.BlendedDecoder([randsmap.KNNDecoder(2)]), "the field of its part: 1 KNNDecoder"),
    ):
        model = randsmap.ManifoldModel(randsmap.POD(2), decoder).fit(bumps)
        page = Page(write_model_report(model, bumps, tmp_path / "r.html"))
        assert f"The BlendedDecoder gives {parts} (listed below)." in page.text


@pytest.mark.slow
@pytest.mark.parametrize("n, cells", [(1, 1), (24, 1), (1, 30), (2, 30)])
def test_the_smallest_models_and_sets(bumps, tmp_path, n, cells):
    fields = bumps[:, 10 : 10 + cells]
    for model in (
        randsmap.ManifoldModel(
            randsmap.POD(1, invariants=None), randsmap.KernelDecoder(length_scale=1.0, invariants=None)
        ).fit(fields),
        randsmap.ManifoldModel(randsmap.POD(1, invariants=None)).fit(fields[:2]),
    ):
        Page(write_model_report(model, fields[:n], tmp_path / "r.html")).check()


def test_labels_of_parameters_and_groups_are_compared_with_those_of_snapshots(bumps, tmp_path, without_pictures):
    pandas = pytest.importorskip("pandas")
    frame, places = pandas.DataFrame(bumps), pandas.DataFrame({"place": np.linspace(0, 1, len(bumps))})
    frame.index = places.index = [f"run {i}" for i in range(len(bumps))]
    regressor = randsmap.KernelDecoder(invariants=None)
    parametric = randsmap.ParametricModel(randsmap.ManifoldModel(randsmap.POD(2)), regressor).fit(places, frame)
    for model, given in ((parametric, {"parameters": places}), (parametric.model_, {"groups": places["place"] > 0.5})):
        write_model_report(model, frame, tmp_path / "r.html", **given)
        ((name, values),) = given.items()
        with pytest.raises(ValueError, match=f"{name} has other labels along 'index' than snapshots"):
            write_model_report(model, frame, tmp_path / "r.html", **{name: values[::-1]})


def test_fields_at_parameters_have_the_held_out_error_of_their_model(bumps, tmp_path, without_pictures):
    places = np.linspace(0, 1, len(bumps))[:, None]
    model = randsmap.tuning.choose_parametric([randsmap.ManifoldModel(randsmap.POD(2))], places, bumps).best_model_
    page = Page(write_model_report(model, bumps, tmp_path / "r.html", parameters=places))
    assert f"When the model was fitted: {model.held_out_.in_words}" in page.text
