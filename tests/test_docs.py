"""What the README and the pages of the site say, runs and leads somewhere (docstrings: test_docstrings.py)."""

import re
import runpy
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest

import randsmap

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
REPORTS = "docs/reports.md"  # test_model_report.py runs it, and looks at what it writes
MADE = ("api/", "gallery/")  # by the build of the site


def code(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if code(page) and page != REPORTS])
def test_examples_run(page, tmp_path, monkeypatch):
    """In order, in a folder with snapshots; `latents` and `fields` are the reader's."""
    monkeypatch.chdir(tmp_path)
    centre = np.random.default_rng(0).uniform(0.3, 0.7, (80, 1))
    fields = np.exp(-(((np.linspace(0, 1, 50) - centre) / 0.1) ** 2))
    fields /= fields.sum(axis=1, keepdims=True)
    if page == "README.md":  # which says that fields may have any shape
        fields = fields.reshape(-1, 5, 10)
        np.save("groups.npy", np.arange(80) // 8)
    np.save("snapshots.npy", fields)
    namespace = {"latents": centre, "fields": fields}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if page != "README.md":
            warnings.simplefilter("ignore", randsmap.ExtrapolationWarning)
        for block in code(page):
            exec(block, namespace)
    if page == "README.md":
        for decoded in (namespace["fields"], namespace["field"]):
            assert abs(decoded.sum(axis=(1, 2)) - 1).max() < 1e-14
    if page == "docs/shapes.md":
        assert namespace["model"].reconstruct(namespace["fields"]).shape == (80, 20, 30)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target and not target.startswith(MADE):
            assert ((ROOT / page).parent / target).exists(), target


@pytest.mark.parametrize(
    "seconds, message", [([1.0] * 7, "must have 8 examples, it has 7"), ([1.0] * 7 + [20.0], "20 s")]
)
def test_a_gallery_that_is_short_or_slow_is_refused(seconds, message, capsys):
    check = runpy.run_path(str(ROOT / "tools" / "docs.py"))["check_gallery"]
    check({f"plot_{i}.py": 19.9 for i in range(8)})
    with pytest.raises(SystemExit, match=message):
        check({f"plot_{i}.py": took for i, took in enumerate(seconds)})


def test_the_loop_in_c_runs(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (program,) = re.findall(r"```c\n(.*?)```", (ROOT / "docs" / "embedding.md").read_text(), re.DOTALL)
    (tmp_path / "loop.c").write_text(program)
    latents = np.linspace(0, 1, 20)[:, None]
    decoder = randsmap.KernelDecoder().fit(latents, np.hstack([2 - latents, 1 + latents]))
    decoder.freeze().save(tmp_path / "decoder.rsm")
    include, library = f"-I{randsmap.get_include()}", randsmap.decoders.library_path()
    rpath = f"-Wl,-rpath,{Path(library).parent}"
    subprocess.run([compiler, include, "loop.c", library, rpath, "-lm", "-o", "loop"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "loop"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    steps = np.loadtxt(done.stdout.splitlines())
    expected = [decoder.predict([[0.01 * (step + 1)]])[0, 0] for step in range(10)]
    np.testing.assert_allclose(steps[:, 1], expected, rtol=1e-5)
    assert done.returncode == 0
