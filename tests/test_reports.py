"""Reports of made-up results are parsed and their pictures decoded; claims are judged on rows made for it."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

HERE = str(Path(__file__).parent)
import randsmap  # noqa: E402
from randsmap import reports  # noqa: E402
from randsmap.studies import _report as study_report  # noqa: E402
from randsmap.studies._claims import claims_markdown, judge, read_claims  # noqa: E402
from randsmap.studies._report import part_pictures, write_index, write_report  # noqa: E402
from randsmap.studies._result import save_result, table_text  # noqa: E402

from pages import Page  # noqa: E402
from study_example import example_result  # noqa: E402

CLAIMS = read_claims()
STUDIES = ("swiss-roll", "s-curve", "lwr", "mri", "hughes")


def study_pictures(result):
    return [picture for part in result.part_names for picture in part_pictures(result, part)]


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Pictures with fewer pixels, for speed."""
    monkeypatch.setattr(reports, "DPI", 45)


@pytest.mark.parametrize(
    "name",
    (
        pytest.param("swiss-roll", marks=pytest.mark.slow),
        pytest.param("lwr", marks=pytest.mark.slow),
        pytest.param("mri", marks=pytest.mark.slow),
        pytest.param("hughes", marks=pytest.mark.slow),
    ),
)
def test_report_is_one_file_with_every_picture_and_row(name, tmp_path, monkeypatch):
    result, drawn = example_result(name), []
    parts = study_report.part_pictures
    monkeypatch.setattr(study_report, "part_pictures", lambda *args: (drawn.append(p) or p for p in parts(*args)))
    path = write_report(result, tmp_path / "study")
    page = Page(path)
    page.check()
    assert len(page.source) < 3e6
    assert len(page.pictures) == len(drawn) >= 5
    for part in result.part_names:
        for split in ("train", "test"):
            for line in table_text(result.part_rows(part, split)):
                assert list(line) in page.rows
    for sentence in (*result.notes, *result.cuts, result.command):
        assert sentence in page.text
    edge = "DDM, N = " + result.part_names[0][1:] + ": slope = 11"
    assert edge in page.text


def test_report_escapes_whatever_comes_from_the_result(tmp_path, no_pictures):
    result = example_result("lwr")
    hostile = "<b>&\"'><script>alert(1)</script>"
    result.title = result.section = result.command = hostile
    result.notes, result.cuts, result.options["data"] = [hostile], [hostile], hostile
    for row in result.rows:
        if row["decoder"] == "POD":
            row["decoder"] = hostile
    label = result.arrays["N50/decoders"].astype(object)
    result.arrays["N50/decoders"] = np.array([hostile if x == "POD" else x for x in label])
    for key in [key for key in result.arrays if "/decoder/POD/" in key]:
        result.arrays[key.replace("POD", hostile)] = result.arrays.pop(key)
    page = Page(write_report(result, tmp_path))
    page.check()
    assert not page.all("b")
    assert any(hostile in cell for row in page.rows for cell in row)
    assert page.text.count(hostile) >= 6
    page = Page(write_index([result], tmp_path))
    page.check()
    assert not page.all("b")


def test_index_links_resolve_and_missing_reports_are_not_linked(tmp_path):
    results = [example_result(name) for name in STUDIES]
    results[0].command += " --data 'my file.npy'"
    folders = ["swiss-roll-my file", *(result.name for result in results[1:3])]
    for result, folder in zip(results, folders):
        save_result(result, tmp_path / folder)
        (tmp_path / folder / "report.html").write_text("there")
    save_result(example_result("swiss-roll"), tmp_path / "swiss-roll")  # of another command
    (tmp_path / "swiss-roll" / "report.html").write_text("another")
    page = Page(write_index(results, tmp_path))
    page.check()
    links = [unquote(link["href"]) for link in page.all("a")]
    assert links == [f"{folder}/report.html" for folder in folders]
    assert all((tmp_path / link).is_file() for link in links)
    assert all(result.title in page.text for result in results)
    assert all(any(v["quote"] in cell for row in page.rows for cell in row) for v in judge(results))


def test_the_summary_comes_first_and_has_each_decoder_at_its_best(tmp_path, no_pictures):
    result = example_result("lwr")
    for row in result.rows:
        if row["decoder"] == "RFNN-Sig" and row["features_per_sample"] == 0.25 and row["split"] == "test":
            row["rel_l2_median"] = 0.001
    page = Page(write_report(result, tmp_path))
    header, *rows = page.rows[:8]
    assert header[:5] == ["decoder", "P/N", "test L2", "paper", "ratio"]
    decoders = dict.fromkeys(row["decoder"] + (" +" if row["extra"] else "") for row in result.rows)
    assert sorted(row[0] for row in rows) == sorted(decoders)
    errors = [float(row[2].removesuffix(" %")) for row in rows]
    assert errors == sorted(errors) and rows[0][:3] == ["RFNN-Sig", "0.25", "0.100 %"]
    assert {len(row[2].partition(".")[2]) for row in rows} == {len("100 %")}  # digits stand below each other
    assert "Best test error: 0.100 % (RFNN-Sig, P = N/4). The paper reports" in page.text


def test_pictures_show_the_best_decoder_of_each_kind(monkeypatch):
    result = example_result("lwr")
    result.arrays["N50/decoder/DDM-r5/errors"][:] = 1e-3
    monkeypatch.setattr(reports, "_image", lambda figure, kind: figure)
    (picture,) = [p for p in study_pictures(result) if p["title"].startswith("One field")]
    titles = [ax.get_title() for ax in picture["images"][0].axes if ax.get_title()]
    assert titles[0] == "DDM-r5" and "DDM" not in titles
    kinds = [[label for label in titles if label.startswith(start)] for start in ("RANDSMAP", "RFNN", "k-NN", "POD")]
    assert len(titles) == 4 and len(kinds[0] + kinds[1]) == 1 and len(kinds[2]) == len(kinds[3]) == 1


@pytest.mark.slow
def test_report_without_matplotlib_has_the_tables_and_says_what_to_install(tmp_path):
    code = (
        "import sys\n"
        "sys.modules['matplotlib'] = None\n"
        f"sys.path.insert(0, {HERE!r})\n"
        "from study_example import example_result\n"
        "from randsmap.studies._report import write_report\n"
        f"write_report(example_result('lwr'), {str(tmp_path)!r})"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    page = Page(tmp_path / "report.html")
    assert not page.all("img")
    assert "pip install 'randsmap[plots]'" in page.text
    assert any(row[0] == "k-NN" for row in page.rows)


def test_report_without_jinja2_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'randsmap\[studies\]'"):
        write_index([], tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_interrupted_writing_leaves_the_old_report(tmp_path, monkeypatch):
    result = example_result("lwr")
    result.arrays = {}
    path = write_report(result, tmp_path)
    before = path.read_bytes()

    def broken(figure, kind):
        raise KeyboardInterrupt

    monkeypatch.setattr(reports, "_image", broken)
    with pytest.raises(KeyboardInterrupt):
        write_report(result, tmp_path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_reports_repeat_to_the_byte_and_name_no_machine(tmp_path):
    import socket

    first, second = (write_report(example_result("lwr"), tmp_path / name).read_bytes() for name in "ab")
    assert first == second
    assert str(tmp_path).encode() not in first
    host = socket.gethostname()
    assert len(host) < 6 or host.encode() not in first


@pytest.mark.slow
def test_pictures_need_no_pyplot_and_no_display():
    code = (
        "import sys, os\n"
        "os.environ.pop('DISPLAY', None)\n"
        f"sys.path.insert(0, {HERE!r})\n"
        "from study_example import example_result\n"
        "from randsmap import reports\n"
        "from randsmap.studies._report import part_pictures\n"
        "reports.DPI = 20\n"
        "assert list(part_pictures(example_result('hughes'), 'N50'))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_a_study_lacks_is_left_out():
    result = example_result("lwr", n_trains=(20,))
    result.arrays = {}
    assert len(study_pictures(result)) == 2  # from the rows alone
    result = example_result("lwr")
    result.arrays["N50/decoder/POD/points"][:] = np.nan  # no variance where densities are negative
    assert [p["title"] for p in study_pictures(result)]


# --- claims --------------------------------------------------------------------------------------


def rows_of(dataset="lwr", n_train=100, **errors):
    """Rows of all the decoders that the claims ask for; ``errors`` by label and quantity."""
    rows = []
    maps = ("RANDSMAP-RFF", "RANDSMAP-MS-RFF", "RANDSMAP-Sig")
    sized = (*maps, "RFNN-Sig", *(label + "-training" for label in maps))
    for label in (*sized, "DDM", "DDM-r5", "k-NN", "Kernel-Gauss", "POD"):
        for P in (1.0, 0.5, 0.25) if label in sized else (None,):
            for split in ("train", "test"):
                row = {
                    "dataset": dataset,
                    "split": split,
                    "decoder": label,
                    "n_train": n_train,
                    "features_per_sample": P,
                    "rel_l2_median": 0.1,
                    "rel_linf_median": 0.2,
                    "conservation_median": 1e-16,
                    "seconds_median": 1.0,
                }
                rows.append(row)
    for (label, quantity), value in errors.items():
        for row in rows:
            if row["decoder"] == label:
                row[f"{quantity}_median"] = value
    return rows


class Result:
    """What `judge` needs of a StudyResult."""

    def __init__(self, rows, data=None):
        self.rows, self.options = rows, {"data": data}
        self.part_names = [f"N{rows[0]['n_train']}"]

    def part_rows(self, part):
        return self.rows


def change(rows, label, quantity, value, split=None, P="any"):
    for row in rows:
        if row["decoder"] == label and split in (None, row["split"]) and P in ("any", row["features_per_sample"]):
            row[f"{quantity}_median"] = value
    return rows


def verdict_of(key, rows):
    (found,) = [v for v in judge([Result(rows)], missing=False) if v["key"] == key]
    return found["verdict"]


def without(rows, label):
    return [row for row in rows if row["decoder"] != label]


@pytest.mark.parametrize(
    "key, holds, fails, needed",
    [
        (
            "exact mass, any form",
            ("RANDSMAP-Sig", "conservation", 1e-15),
            ("RANDSMAP-Sig", "conservation", 1e-6),
            "RANDSMAP-Sig",
        ),
        (
            "exact mass, closed form",
            ("RANDSMAP-Sig-training", "conservation", 1e-15),
            ("RANDSMAP-Sig-training", "conservation", 1e-9),
            "RANDSMAP-RFF-training",
        ),
        ("RFNN loses mass", ("RFNN-Sig", "conservation", 1e-6), ("RFNN-Sig", "conservation", 1e-16), "RFNN-Sig"),
        ("no accuracy lost", ("RANDSMAP-Sig", "rel_l2", 0.1), ("RANDSMAP-Sig", "rel_l2", 0.11), "RFNN-Sig"),
        (
            "conservation costs training time",
            ("RANDSMAP-Sig", "seconds", 3.0),
            ("RANDSMAP-Sig", "seconds", 1.0),
            "RFNN-Sig",
        ),
        ("k-NN keeps mass", ("k-NN", "conservation", 1e-15), ("k-NN", "conservation", 1e-12), "k-NN"),
        ("POD keeps mass", ("POD", "conservation", 1e-15), ("POD", "conservation", 1e-12), "POD"),
        ("DDM loses mass", ("DDM", "conservation", 1e-9), ("DDM", "conservation", 1e-15), "DDM"),
        ("faster than k-NN", ("k-NN", "seconds", 200.0), ("k-NN", "seconds", 20.0), "k-NN"),
        ("faster than DDM", ("DDM", "seconds", 2.0), ("DDM", "seconds", 0.5), "DDM"),
        ("as accurate as k-NN", ("k-NN", "rel_l2", 0.099), ("k-NN", "rel_l2", 0.05), "k-NN"),
        ("as accurate as DDM", ("DDM", "rel_l2", 0.2), ("DDM", "rel_l2", 0.05), "DDM"),
        ("DDM poor with the starred rank", ("DDM-r5", "rel_l2", 0.6), ("DDM-r5", "rel_l2", 0.11), "DDM-r5"),
        ("DDM poor by its rule", ("DDM", "rel_l2", 0.6), ("DDM", "rel_l2", 0.11), "DDM"),
        ("beats k-NN in training", ("k-NN", "rel_l2", 0.11), ("k-NN", "rel_l2", 0.09), "k-NN"),
        ("better than k-NN in Linf", ("k-NN", "rel_linf", 0.3), ("k-NN", "rel_linf", 0.1), "k-NN"),
        (
            "many scales beat one",
            ("RANDSMAP-MS-RFF", "rel_l2", 0.05),
            ("RANDSMAP-MS-RFF", "rel_l2", 0.1),
            "RANDSMAP-MS-RFF",
        ),
    ],
)
def test_each_verdict_follows_from_the_rows(key, holds, fails, needed):
    assert verdict_of(key, change(rows_of(), *holds)) == "holds"
    assert verdict_of(key, change(rows_of(), *fails)) == "does not hold"
    assert verdict_of(key, without(rows_of(), needed)) == "cannot be compared"


def test_claims_are_whole_and_name_what_there_is():
    """Every row of the table has a relation, and names decoders and data sets of the studies."""
    studies = [getattr(randsmap.studies, f"{name.replace('-', '_')}_study")() for name in STUDIES]
    labels = {case.label for study in studies for case in study.cases} | {"DDM-r", "fewer features"}
    for claim in CLAIMS:
        assert claim.keys() - {"n_train"} == {"key", "quote", "where", "datasets", "criterion", "tests"}
        assert set(claim["datasets"]) <= {study.dataset for study in studies}
        assert "The same" not in claim["criterion"] and claim["criterion"].endswith(".")
        for test in claim["tests"]:
            known = {"case", "measure", "relation", "number", "against", "best", "paired", "splits", "at", "beyond"}
            assert test.keys() <= known
            assert {name.removesuffix("?") for name in (*test["case"], *test["against"])} <= labels


def test_a_range_is_one_number_where_its_ends_print_alike():
    rows = change(rows_of(), "RANDSMAP-Sig", "seconds", 3.0)
    (found,) = [v for v in judge([Result(rows)]) if v["key"] == "conservation costs training time"]
    assert found["measured"] == "traffic: RANDSMAP-Sig's time is 3 times RFNN-Sig's"
    change(rows, "RANDSMAP-Sig", "seconds", 4.0, P=1.0)
    (found,) = [v for v in judge([Result(rows)]) if v["key"] == "conservation costs training time"]
    assert found["measured"] == "traffic: RANDSMAP-Sig's time is 3 to 4 times RFNN-Sig's"


def test_a_limit_that_no_run_reaches_cannot_be_compared():
    for error in (0.1, 0.2):
        assert (
            verdict_of("the kernel limit", change(rows_of(), "Kernel-Gauss", "rel_l2", error)) == "cannot be compared"
        )


def test_a_sentence_is_judged_on_the_data_that_it_is_about():
    claims = {claim["key"]: claim for claim in CLAIMS}
    for key in claims:
        for prefix, dataset in (("traffic:", "lwr"), ("images:", "mri"), ("crowd:", "hughes")):
            if key.startswith(prefix):
                assert claims[key]["datasets"] == [dataset]
    assert all(c["datasets"] == ["lwr"] for c in CLAIMS if c["where"] == "Sec. 5.1")
    assert all(c["datasets"] == ["mri"] for c in CLAIMS if c["where"] == "Sec. 5.2")
    assert all(c["datasets"] == ["hughes"] for c in CLAIMS if c["where"] == "Sec. 5.3")
    # another data set does not count
    images = change(rows_of("mri"), "RANDSMAP-RFF-training", "conservation", 1e-3)
    traffic = rows_of()
    verdicts = {v["key"]: v["verdict"] for v in judge([Result(traffic), Result(images)])}
    assert verdicts["traffic: single precision"] == "holds"
    assert verdicts["images: mass to 1e-7"] == "does not hold"


@pytest.mark.parametrize("label, key", [("DDM", "DDM loses mass"), ("RFNN-Sig", "RFNN loses mass")])
def test_losing_mass_is_one_threshold_for_every_method(label, key):
    assert verdict_of(key, change(rows_of(), label, "conservation", 1.1e-14)) == "holds"
    assert verdict_of(key, change(rows_of(), label, "conservation", 0.9e-14)) == "does not hold"


@pytest.mark.parametrize("level", [0.01, 1.0])
def test_the_level_of_the_data_decides_nothing(level):
    """Errors of other data, all of them larger or smaller by one factor, leave every verdict as it is."""
    for dataset, keys in {
        "lwr": ("DDM poor with the starred rank", "DDM poor by its rule", "traffic: DDM fundamentally poor"),
        "hughes": ("crowd: more accurate than k-NN", "crowd: DDM cannot do better"),
    }.items():
        for better in (True, False):
            rows = rows_of(dataset)
            for label, error in (("DDM", 0.6), ("DDM-r5", 0.6), ("k-NN", 0.2 if better else 0.01)):
                change(rows, label, "rel_l2", level * error)
            for label in ("RANDSMAP-RFF", "RANDSMAP-MS-RFF", "RANDSMAP-Sig"):
                change(rows, label, "rel_l2", level * 0.1)
            verdicts = {key: verdict_of(key, rows) for key in keys}
            expected = dict.fromkeys(keys, "holds")
            if dataset == "hughes" and not better:
                expected["crowd: more accurate than k-NN"] = "does not hold"
            assert verdicts == expected


def test_accuracy_in_the_number_of_features_is_judged_step_by_step():
    rows = rows_of()
    for label in ("RANDSMAP-RFF", "RANDSMAP-MS-RFF", "RANDSMAP-Sig"):
        for P, error in ((1.0, 0.08), (0.5, 0.09), (0.25, 0.1)):
            change(rows, label, "rel_l2", error, P=P)
    assert verdict_of("accuracy grows with P", rows) == "holds"
    change(rows, "RANDSMAP-RFF", "rel_l2", 0.095, split="test", P=1.0)
    assert verdict_of("accuracy grows with P", rows) == "does not hold"
    quick = [row for row in rows if row["features_per_sample"] in (None, 0.25)]
    assert verdict_of("accuracy grows with P", quick) == "cannot be compared"


def test_a_data_set_that_was_not_run_leaves_a_claim_open_unless_another_contradicts_it():
    def verdict(rows, missing):
        (found,) = [v for v in judge([Result(rows)], missing=missing) if v["key"] == "exact mass, any form"]
        return found

    assert verdict(rows_of(), True)["verdict"] == "cannot be compared"
    assert "crowd: not run" in verdict(rows_of(), True)["measured"]
    assert verdict(rows_of(), False)["verdict"] == "holds"
    wrong = change(rows_of(), "RANDSMAP-RFF", "conservation", 1e-3)
    assert verdict(wrong, True)["verdict"] == "does not hold"
    assert "1.0e-03 of RANDSMAP-RFF" in verdict(wrong, True)["measured"]


def test_the_users_own_data_say_nothing_about_the_paper():
    assert judge([Result(rows_of(), data="mine.npy")]) == []


def test_claims_are_judged_on_the_papers_own_tables_too():
    verdicts = {v["key"]: v["paper"] for v in judge([example_result(name) for name in STUDIES])}
    assert len(verdicts) == len(CLAIMS) == len({claim["key"] for claim in CLAIMS})
    assert verdicts["k-NN keeps mass"] == "holds"
    assert verdicts["beats k-NN in training"] == "does not hold"  # 13.9 % against 13.4 %
    assert verdicts["Swiss roll: two per cent"] == "does not hold"  # 5.8 to 6.3 %
    assert verdicts["POD keeps mass"] == "cannot be compared"  # no such row


def test_markdown_has_a_row_a_claim_and_escapes_its_marks():
    results = [example_result(name) for name in STUDIES]
    lines = claims_markdown(results).splitlines()
    assert len(lines) == 2 + len(CLAIMS)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {7}
    assert "&lt;6%" in claims_markdown(results)
