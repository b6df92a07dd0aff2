"""Vectorised cos, exp, log and logistic function of float64 arrays."""

cdef const rk_vecmath_table *table = rk_vecmath_select()


def cpu_level():
    """Name of the instruction level in use: 'baseline', 'avx2' or 'avx512'."""
    return rk_cpu_name().decode()


def cos(const double[::1] x, double[::1] out):
    """out[i] = cos(x[i])."""
    if x.shape[0]:
        with nogil:
            table.cos(&x[0], &out[0], x.shape[0])


def exp(const double[::1] x, double[::1] out):
    """out[i] = exp(x[i])."""
    if x.shape[0]:
        with nogil:
            table.exp(&x[0], &out[0], x.shape[0])


def log(const double[::1] x, double[::1] out):
    """out[i] = log(x[i]) of normal x > 0."""
    if x.shape[0]:
        with nogil:
            table.log(&x[0], &out[0], x.shape[0])


def logistic(const double[::1] x, double[::1] out):
    """out[i] = 1 / (1 + exp(-x[i]))."""
    if x.shape[0]:
        with nogil:
            table.logistic(&x[0], &out[0], x.shape[0])
