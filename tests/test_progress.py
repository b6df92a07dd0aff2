"""Progress: one switch, bars on terminals, a line in logs."""

import subprocess
import sys
import threading

import pytest

import randsmap
from randsmap._io.progress import ProgressBar, if_asked, steps


class Terminal:
    """A standard error stream that says it is one."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text
        return len(text)

    def flush(self):
        pass

    def isatty(self):
        return True


def test_nothing_is_shown_unless_it_is_asked_for(capsys):
    assert list(steps(10, 4, "reading")) == [(0, 4), (4, 8), (8, 10)]
    randsmap.datasets.make_swiss_roll(10, random_state=0)
    with randsmap.show_progress(), randsmap.show_progress(False):
        list(steps(10, 4, "reading"))
    assert capsys.readouterr() == ("", "")


def test_a_log_gets_one_line_at_the_end_of_each_outermost_bar(capsys):
    with randsmap.show_progress():
        for _ in steps(10, 4, "reading"):
            assert capsys.readouterr().err == ""
            list(steps(3, 1, "inner"))
        assert list(steps(3, 4, "one block")) == [(0, 3)]
        randsmap.datasets.make_swiss_roll(10, random_state=0)
        passes = ProgressBar(None, "Krylov", unit="passes")
        passes.update()
        passes.update(2)
        passes.close()
        passes.close()
    text = capsys.readouterr().err
    assert "\r" not in text
    lines = [line.rpartition(" [")[0] for line in text.splitlines()]
    assert lines == ["reading: 100% 10/10", "Swiss roll: 100% 10/10", "Krylov: 3 passes"]


def test_a_terminal_gets_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with randsmap.show_progress():
        list(steps(10, 4, "reading"))
    assert "\rreading: " in terminal.text


def test_a_functions_parameter_opens_it_and_does_not_close_it(capsys):
    randsmap.datasets.make_swiss_roll(10, random_state=0, progress=True)
    assert capsys.readouterr().err.startswith("Swiss roll: 100% 10/10")
    with randsmap.show_progress():
        randsmap.datasets.make_swiss_roll(10, random_state=0, progress=False)
        with if_asked(False), ProgressBar(1, "still"):
            pass
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["Swiss roll", "still"]
    with ProgressBar(1, "silent"):
        pass
    assert capsys.readouterr().err == ""


def test_a_failure_says_how_far_it_came(capsys):
    with randsmap.show_progress(), pytest.raises(ValueError):
        for start, _ in steps(10, 4, "reading"):
            if start == 8:
                raise ValueError
    assert capsys.readouterr().err.startswith("reading: 80% 8/10")


def test_any_thread_may_update(capsys):
    with randsmap.show_progress(), ProgressBar(4000, "work") as bar:
        threads = [threading.Thread(target=lambda: [bar.update() for _ in range(1000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert capsys.readouterr().err.startswith("work: 100% 4000/4000")


@pytest.mark.slow
def test_importing_in_a_notebook_without_widgets_warns_of_nothing():
    code = (
        "import sys, types\n"
        "shell = types.ModuleType('IPython'); shell.get_ipython = lambda: None\n"
        "sys.modules['IPython'] = sys.modules['ipykernel'] = shell; sys.modules['ipywidgets'] = None\n"
        "import randsmap.decoders, randsmap.tuning, randsmap.studies, randsmap.datasets, randsmap.cli\n"
        "with randsmap.show_progress(): randsmap.datasets.make_swiss_roll(9, random_state=0)\n"
        "assert 'tqdm.auto' not in sys.modules and 'tqdm.autonotebook' not in sys.modules"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
