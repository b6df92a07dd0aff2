"""What a benchmark measures: processor time in units of a bare matrix product of the same moment.

A machine that is slow for a minute is slow for both, so the figures of two commits, of two days and of two machines of
one kind can be compared; times cannot. One thread, for BLAS too.
"""

import time

import numpy as np
from threadpoolctl import threadpool_limits

import randsmap

SIDE = 512  # of the three matrices: 6 MB in all, a few milliseconds
TURN = 0.02  # seconds that either side of a turn takes at least
LEAST, MOST, BUDGET = 7, 101, 1.2  # turns, and seconds in all, of which there may be twice as many


def repeated(call, least):
    """Processor time of one call, over as many as `least` seconds take."""
    count, start = 0, time.process_time()
    while True:
        call()
        count += 1
        elapsed = time.process_time() - start
        if elapsed >= least:
            return elapsed / count


def in_gemms(call):
    """Processor time of `call` over that of the product of two 512 x 512 matrices.

    Each is the lowest decile of its turns: what disturbs makes both slower, never faster, and by different factors.
    """
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(2, SIDE, SIDE))
    C = np.empty_like(A)

    def product():
        np.dot(A, B, out=C)

    ours, bare = [], []
    try:
        randsmap.set_num_threads(1)
        with threadpool_limits(1):
            call(), product()
            start = time.process_time()
            while not enough(ours, time.process_time() - start):
                ours.append(repeated(call, TURN))
                bare.append(repeated(product, TURN))
    finally:
        randsmap.set_num_threads(None)
    return float(np.quantile(ours, 0.1) / np.quantile(bare, 0.1))


def enough(times, seconds):
    """Whether these turns do: twice as long where few of them are fast."""
    if not LEAST <= len(times) < MOST:
        return len(times) >= MOST
    return seconds >= BUDGET * (1 + (np.median(times) > 1.1 * np.quantile(times, 0.1)))


def tracked(cls):
    """Give the class, for each method `run_X`, a benchmark `track_X`: the method's time in matrix products.

    The versions are fixed, so that a history goes on when the code of a benchmark is put otherwise; a benchmark that
    measures something else from now on takes another name.
    """
    for name in [name for name in vars(cls) if name.startswith("run_")]:

        def track(self, *arguments, name=name):
            method = getattr(self, name)
            return in_gemms(lambda: method(*arguments))

        track.unit, track.version = "matrix products", "2"
        setattr(cls, name.replace("run_", "track_", 1), track)
    return cls
