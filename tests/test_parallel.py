import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import randsmap
from randsmap import _parallel

pytestmark = pytest.mark.kernels


@pytest.fixture(autouse=True)
def default_threads():
    yield
    randsmap.set_num_threads(None)


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("n_tasks", [0, 1, 2, 37])
def test_every_task_runs_once(n_threads, n_tasks):
    randsmap.set_num_threads(n_threads)
    done = []
    _parallel.parallel_for(done.append, n_tasks)
    assert sorted(done) == list(range(n_tasks))


def test_several_threads_take_part_the_caller_among_them():
    randsmap.set_num_threads(3)
    meet = threading.Barrier(3, timeout=30)  # breaks unless three threads are inside at once
    names = set()

    def task(i):
        names.add(threading.get_ident())
        meet.wait()

    _parallel.parallel_for(task, 3)
    assert len(names) == 3 and threading.get_ident() in names


def test_nested_calls_stay_on_their_thread():
    randsmap.set_num_threads(2)
    inner = []

    def task(i):
        _parallel.parallel_for(lambda j: inner.append((i, threading.get_ident())), 4)

    _parallel.parallel_for(task, 6)
    assert len(inner) == 24
    for i in range(6):
        assert len({thread for k, thread in inner if k == i}) == 1


@pytest.mark.parametrize("n_threads", [1, 4])
def test_an_exception_comes_back_and_the_pool_survives(n_threads):
    randsmap.set_num_threads(n_threads)

    def task(i):
        if i == 3:
            raise ZeroDivisionError("task 3")

    with pytest.raises(ZeroDivisionError, match="task 3"):
        _parallel.parallel_for(task, 10)
    done = []
    _parallel.parallel_for(done.append, 10)
    assert len(done) == 10


def test_many_callers_at_once():
    randsmap.set_num_threads(2)
    totals = []

    def caller():
        done = []
        for _ in range(20):
            _parallel.parallel_for(done.append, 7)
        totals.append(len(done))

    threads = [threading.Thread(target=caller) for _ in range(8)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert totals == [140] * 8


def blas_counts():
    return [library.get_num_threads() for library in _parallel._blas]


def test_blas_limits_overlap_and_are_undone():
    with _parallel.blas_threads(1):
        pass
    before = blas_counts()
    release, entered = threading.Event(), threading.Event()

    def other():
        with _parallel.blas_threads(1):
            entered.set()
            release.wait(30)

    thread = threading.Thread(target=other)
    with _parallel.blas_threads(1):
        thread.start()
        entered.wait(30)
    assert set(blas_counts()) == {1}  # the other block is still open
    release.set()
    thread.join(30)
    assert blas_counts() == before


def test_thread_count_sources(monkeypatch):
    monkeypatch.delenv("RANDSMAP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert randsmap.get_num_threads() == 3
    monkeypatch.setenv("RANDSMAP_NUM_THREADS", "5")
    assert randsmap.get_num_threads() == 5
    randsmap.set_num_threads(np.int64(4))
    assert randsmap.get_num_threads() == 4
    randsmap.set_num_threads(None)
    monkeypatch.setenv("RANDSMAP_NUM_THREADS", "many")
    with pytest.raises(ValueError, match="RANDSMAP_NUM_THREADS must be a positive integer, got 'many'"):
        randsmap.get_num_threads()
    monkeypatch.delenv("RANDSMAP_NUM_THREADS")
    monkeypatch.setenv("OMP_NUM_THREADS", "nonsense")  # another library's variable: not our error
    assert 1 <= randsmap.get_num_threads() <= os.cpu_count()


@pytest.mark.parametrize(
    "bad, error", [(0, ValueError), (-2, ValueError), (1.5, TypeError), (True, TypeError), ("2", TypeError)]
)
def test_bad_thread_count(bad, error):
    with pytest.raises(error, match="n must be"):
        randsmap.set_num_threads(bad)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_pool_works_in_a_forked_child():
    code = (
        "import multiprocessing, randsmap\n"
        "from randsmap import _parallel\n"
        "randsmap.set_num_threads(3)\n"
        "_parallel.parallel_for(lambda i: None, 9)\n"
        "def child(queue):\n"
        "    done = []\n"
        "    _parallel.parallel_for(done.append, 5)\n"
        "    queue.put(sorted(done))\n"
        "context = multiprocessing.get_context('fork')\n"
        "queue = context.Queue()\n"
        "process = context.Process(target=child, args=(queue,))\n"
        "process.start()\n"
        "assert queue.get(timeout=30) == [0, 1, 2, 3, 4]\n"
        "process.join(30)\n"
    )
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_blas_is_limited_gets_its_threads_back():
    code = (
        "import os\n"
        "from randsmap import _parallel\n"
        "count = lambda: [library.get_num_threads() for library in _parallel._blas]\n"
        "with _parallel.blas_threads(1): pass\n"
        "for library in _parallel._blas: _parallel._set_blas_threads(library, 2)\n"
        "before = count()\n"
        "with _parallel.blas_threads(1):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        with _parallel.blas_threads(1): pass\n"
        "        os._exit(count() != before)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
        "assert count() == before\n"
    )
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def test_work_is_shared_when_tasks_release_the_gil():
    randsmap.set_num_threads(4)
    start = time.perf_counter()
    _parallel.parallel_for(lambda i: time.sleep(0.1), 8)
    assert time.perf_counter() - start < 0.6  # 0.2 with four threads, 0.8 with one


@pytest.mark.slow
def test_workers_of_joblib_share_the_cores(monkeypatch):
    # scikit-learn's n_jobs must not multiply with our threads: joblib tells its workers their share
    import joblib

    monkeypatch.delenv("RANDSMAP_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    counts = joblib.Parallel(n_jobs=2, backend="loky")(joblib.delayed(randsmap.get_num_threads)() for _ in range(2))
    assert max(counts) <= max(1, joblib.cpu_count() // 2)
