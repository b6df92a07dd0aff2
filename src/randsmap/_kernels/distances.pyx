"""Squared Euclidean distances and radial kernels in tiles of at most PANEL_ROWS rows.

A task is a block of rows X or, of X against itself, a block of columns from the diagonal down and its mirror image. Tasks
do not depend on the number of threads.
"""

cdef const rk_distances_table *table = rk_distances_select()

for kernel in range(RK_RADIALS):  # SQUARED_DISTANCE, GAUSSIAN, ...
    globals()[rk_radial_name(kernel).decode()] = kernel
PANEL = PANEL_ROWS
DIRECT_DIM = RK_DIRECT_DIM
FEW = FEW_ROWS


cdef inline Py_ssize_t task_rows(Py_ssize_t n, Py_ssize_t dim, bint symmetric) noexcept nogil:
    """Rows of a task: as many as the scratch holds, and sixteen tasks if they are not short."""
    if symmetric or dim <= RK_DIRECT_DIM or n <= PANEL_ROWS:
        return PANEL_ROWS
    cdef Py_ssize_t rows = min(<Py_ssize_t> LONGEST_TASK, SCRATCH // dim, n // 16)
    return max(PANEL_ROWS, (rows + PANEL_ROWS - 1) // PANEL_ROWS * PANEL_ROWS)


def tasks(Py_ssize_t n, Py_ssize_t dim, bint symmetric):
    """Number of tasks of n rows X, and of float64 that each needs as `work`."""
    cdef Py_ssize_t rows = task_rows(n, dim, symmetric), count = (n + rows - 1) // rows
    if dim <= RK_DIRECT_DIM:
        return count, PANEL_ROWS * (TILE_COLUMNS + PADDING + dim) + dim * (TILE_COLUMNS + PADDING)
    if n <= FEW_ROWS and not symmetric:
        return count, FEW_ROWS * (TILE_COLUMNS + PADDING + dim)
    return count, 2 * PANEL_ROWS * (PANEL_ROWS + PADDING) + (PANEL_ROWS + rows) * (dim + 1)


cdef const double *pack_columns(const Pairs *pairs, Py_ssize_t j0, Py_ssize_t n, double *work) noexcept nogil:
    """Make ready what the tiles of the columns j0 + j, j < n <= PANEL_ROWS, share, in `work`: the rows z packed or, if the
    pairs are turned, rows x for all columns. Returns the squared norms of z. Differences need nothing: NULL."""
    cdef Py_ssize_t dim = pairs.dim
    cdef const Rows *z = &pairs.z
    cdef const Rows *x = &pairs.x
    cdef double *packed = work + PANEL_ROWS * pairs.stride
    cdef double *norms = packed + PANEL_ROWS * dim
    cdef double *rows = norms + PANEL_ROWS  # centred, and their norms
    if pairs.differences:
        return NULL
    if not pairs.turned:
        if z.centred:
            table.pack(z.centred + j0 * dim, n, dim, NULL, packed, NULL)
            return z.norms + j0
        table.pack(z.raw + j0 * dim, n, dim, z.centre, packed, norms)
        return norms
    if not z.centred:
        if j0 == 0:
            table.pack(x.raw, pairs.n, dim, x.centre, packed, norms)
        table.center(z.raw + j0 * dim, n, dim, z.centre, rows, rows + PANEL_ROWS * dim)
        return rows + PANEL_ROWS * dim
    if j0 == 0:
        if not x.centred:
            table.center(x.raw, pairs.n, dim, x.centre, rows, rows + PANEL_ROWS * dim)
        table.pack(x.centred if x.centred else <const double *> rows, pairs.n, dim, NULL, packed, NULL)
    return z.norms + j0


cdef double *fill_tile(
    const Pairs *pairs, Py_ssize_t i0, Py_ssize_t m, Py_ssize_t j0, Py_ssize_t n, const double *nz, bint first,
    double *work, double *out, Py_ssize_t ldo,
) noexcept nogil:
    """Tile of the pairs (i0 + i, j0 + j), i < m <= PANEL_ROWS, j < n <= pairs.width; returns it.

    `nz`: what `pack_columns` returned for these columns and this `work`, which holds what belongs to the rows of a
    task, too, from the tiles with `first` on. `out` (stride ldo), unless NULL, gets the tile too; only for a Gaussian kernel
    by products and off the diagonal.
    """
    cdef Py_ssize_t dim = pairs.dim, stride = pairs.stride, j
    cdef double *tile = work
    cdef double *packed
    cdef double *rest
    cdef const double *x
    cdef const double *z
    cdef const double *nx
    cdef double largest = 0
    cdef bint gaussian = pairs.kernel == RK_GAUSSIAN and not pairs.slopes

    if pairs.differences:
        rest = work + (PANEL_ROWS if dim <= RK_DIRECT_DIM else FEW_ROWS) * stride
        x = pairs.x.raw + i0 * dim
        if pairs.z.raw:
            z = pairs.z.raw + j0 * dim
        else:  # only the centred other side is known
            z = pairs.z.centred + j0 * dim
            if first:
                table.center(x, m, dim, pairs.x.centre, rest, NULL)
            x = rest
        if dim <= RK_DIRECT_DIM:
            table.direct(x, m, z, n, dim, rest + PANEL_ROWS * dim, tile, stride)
        else:
            table.direct_rows(x, m, z, n, dim, tile, stride)
    else:
        packed = work + PANEL_ROWS * stride
        rest = packed + PANEL_ROWS * (dim + 1)
        if pairs.x.centred:
            x, nx = pairs.x.centred + i0 * dim, pairs.x.norms + i0
        elif pairs.turned:
            x, nx = rest, rest + PANEL_ROWS * dim if pairs.z.centred else packed + PANEL_ROWS * dim
        else:
            j = 0 if pairs.symmetric else i0 % pairs.rows
            x, nx = rest + j * dim, rest + pairs.rows * dim + j
            if first:
                table.center(pairs.x.raw + i0 * dim, m, dim, pairs.x.centre, <double *> x, <double *> nx)
        if pairs.turned:
            z, rest = pairs.z.centred + j0 * dim if pairs.z.centred else <const double *> rest, rest + PANEL_ROWS * (dim + 1)
            table.products(z, n, packed, m, dim, rest, stride)
            table.store_t(rest, stride, n, m, tile, stride)
        else:
            table.products(x, m, packed, n, dim, tile, stride)
        if pairs.z.raw:  # rows for the distances that are recomputed
            x, z = pairs.x.raw + i0 * dim, pairs.z.raw + j0 * dim
        else:
            z = pairs.z.centred + j0 * dim
        if gaussian:
            for j in range(n):
                largest = nz[j] if not nz[j] <= largest else largest
            table.gaussian(tile, stride, x, m, z, n, dim, nx, nz, largest, pairs.scale, out, ldo)
        else:
            table.distances(tile, stride, x, m, z, n, dim, nx, nz)
        if pairs.symmetric and i0 < j0 + n:
            for j in range(m):
                tile[j * stride + i0 - j0 + j] = 1 if gaussian else 0
        if gaussian:
            return tile
    if pairs.kernel != RK_SQUARED_DISTANCE:
        table.radial(pairs.kernel, pairs.slopes, tile, stride, m, n, pairs.scale)
    return tile


cdef inline void set_rows(Rows *rows, const double[:, ::1] raw, const double[:, ::1] centred,
                          const double[::1] norms, const double[::1] centre) noexcept:
    # a conditional expression with NULL would lose `const`
    rows.raw = rows.centred = rows.norms = rows.centre = NULL
    if raw is not None:
        rows.raw = &raw[0, 0]
    if centred is not None:
        rows.centred = &centred[0, 0]
    if norms is not None:
        rows.norms = &norms[0]
    if centre is not None:
        rows.centre = &centre[0]


cdef inline Pairs pairs_of(const double[:, ::1] X, int kernel, bint slopes, double scale, bint symmetric) noexcept:
    """All attributes of the pairs except their points."""
    cdef Pairs pairs
    pairs.n, pairs.dim = X.shape[0], X.shape[1]
    pairs.kernel, pairs.slopes, pairs.scale, pairs.symmetric = kernel, slopes, scale, symmetric
    pairs.differences = pairs.dim <= RK_DIRECT_DIM or (not symmetric and pairs.n <= FEW_ROWS)
    pairs.turned = not (symmetric or pairs.differences) and pairs.n <= PANEL_ROWS
    pairs.rows = task_rows(pairs.n, pairs.dim, symmetric)
    pairs.width = TILE_COLUMNS if pairs.differences and not symmetric else PANEL_ROWS
    pairs.stride = pairs.width + PADDING
    return pairs


cdef inline Pairs of_centred(const double[:, ::1] X, const double[:, ::1] Z_centred, const double[::1] Z_norms,
                             const double[::1] centre, int kernel, double scale) noexcept:
    """Pairs of rows X and of points known centred only."""
    cdef Pairs pairs = pairs_of(X, kernel, False, scale, False)
    set_rows(&pairs.x, X, None, None, centre)
    set_rows(&pairs.z, None, Z_centred, Z_norms, centre)
    return pairs


def center(const double[:, ::1] X, const double[::1] c, double[:, ::1] out, double[::1] norms):
    """out = X - c and the squared norms of its rows."""
    if X.shape[0] and X.shape[1]:
        with nogil:
            table.center(&X[0, 0], X.shape[0], X.shape[1], &c[0], &out[0, 0], &norms[0])


def panel(Py_ssize_t index, const double[:, ::1] X, const double[:, ::1] X_centred,
          const double[::1] X_norms, const double[:, ::1] Z, const double[:, ::1] Z_centred,
          const double[::1] Z_norms, const double[::1] centre, int kernel, bint slopes,
          double scale, double[::1] work, double[:, ::1] out):
    """Task `index` of the kernel at scale D, or with `slopes` of twice its derivative by D.

    Z None: X against itself. Centred rows may be None: they are then made block by block.
    """
    cdef Pairs pairs = pairs_of(X, kernel, slopes, scale, Z is None)
    cdef Py_ssize_t i0 = index * pairs.rows, i, m, j0, n, last, width
    cdef Py_ssize_t n_columns = out.shape[1], ldo = out.shape[1]
    cdef const double *nz
    cdef double *tile
    cdef double *fused
    cdef bint fusing = kernel == RK_GAUSSIAN and not slopes and not pairs.differences, corner = False
    set_rows(&pairs.x, X, X_centred, X_norms, centre)
    if pairs.symmetric:
        pairs.z = pairs.x
    else:
        set_rows(&pairs.z, Z, Z_centred, Z_norms, centre)
    with nogil:
        j0 = i0 if pairs.symmetric else 0
        last = pairs.n if pairs.symmetric else min(i0 + pairs.rows, pairs.n)
        while j0 < n_columns:
            n = min(pairs.width, n_columns - j0)
            nz = pack_columns(&pairs, j0, n, &work[0])
            i = i0
            while i < last:
                corner = pairs.symmetric and i < j0 + n
                m = min(<Py_ssize_t> CORNER, j0 + n - i) if corner else min(<Py_ssize_t> PANEL_ROWS, last - i)
                width = i + m - j0 if corner else n
                fused = &out[i, j0] if fusing and not corner else NULL
                tile = fill_tile(&pairs, i, m, j0, width, nz, j0 == 0 or pairs.symmetric, &work[0], fused, ldo)
                if fused == NULL:
                    table.store(tile, pairs.stride, m, width, &out[i, j0], ldo)
                if pairs.symmetric:
                    table.store_t(tile, pairs.stride, m, width, &out[j0, i], ldo)
                i += m
            if pairs.symmetric:
                break
            j0 += n


def nystrom_panel(Py_ssize_t index, const double[:, ::1] X, const double[:, ::1] Z_centred,
                  const double[::1] Z_norms, const double[::1] centre, double scale,
                  const double[:, ::1] weights, double[::1] work, double[:, ::1] sums):
    """sums[i, p] = sum_j exp(-scale |x_i - z_j|^2) weights[p, j], rows of task `index`.

    The kernel itself is never stored beyond a tile.
    """
    cdef Pairs pairs = of_centred(X, Z_centred, Z_norms, centre, RK_GAUSSIAN, scale)
    cdef Py_ssize_t i0 = index * pairs.rows, last = min(i0 + pairs.rows, pairs.n), i, m
    cdef Py_ssize_t j0 = 0, n, p, n_columns = Z_centred.shape[0], q = weights.shape[0]
    cdef const double *nz
    cdef double *tile
    with nogil:
        for p in range((last - i0) * q):
            (&sums[i0, 0])[p] = 0
        while j0 < n_columns:
            n = min(pairs.width, n_columns - j0)
            nz = pack_columns(&pairs, j0, n, &work[0])
            i = i0
            while i < last:
                m = min(<Py_ssize_t> PANEL_ROWS, last - i)
                tile = fill_tile(&pairs, i, m, j0, n, nz, j0 == 0, &work[0], NULL, 0)
                table.weighted_sums(tile, pairs.stride, m, n, &weights[0, j0], n_columns, q, &sums[i, 0])
                i += m
            j0 += n


def reach_panel(Py_ssize_t index, const double[:, ::1] X, const double[:, ::1] Z_centred,
                const double[::1] Z_norms, const double[::1] centre, const double[::1] x_reach,
                const double[::1] z_reach, double[::1] work, Py_ssize_t[::1] rows,
                Py_ssize_t[::1] columns, double[::1] values):
    """Pairs of task `index` whose squared distance is <= x_reach[i] or <= z_reach[j].

    Returns their number; the first ones fill rows, columns and values (squared distances). Of each row, columns are
    ascending; rows within blocks only.
    """
    cdef Pairs pairs = of_centred(X, Z_centred, Z_norms, centre, RK_SQUARED_DISTANCE, 1)
    cdef Py_ssize_t i0 = index * pairs.rows, last = min(i0 + pairs.rows, pairs.n), i, m
    cdef Py_ssize_t j0 = 0, n, found = 0, n_columns = Z_centred.shape[0]
    cdef const double *nz
    cdef double *tile
    with nogil:
        while j0 < n_columns:
            n = min(pairs.width, n_columns - j0)
            nz = pack_columns(&pairs, j0, n, &work[0])
            i = i0
            while i < last:
                m = min(<Py_ssize_t> PANEL_ROWS, last - i)
                tile = fill_tile(&pairs, i, m, j0, n, nz, j0 == 0, &work[0], NULL, 0)
                found = table.within(tile, pairs.stride, m, n, i, j0, &x_reach[i], &z_reach[j0], found,
                                     rows.shape[0], &rows[0], &columns[0], &values[0])
                i += m
            j0 += n
    return found


def symmetric_product(const double[:, ::1] K, Py_ssize_t i0, Py_ssize_t i1,
                      const double[:, ::1] X, double[:, ::1] out):
    """out += the part of X K, X (p, n) with p even, that rows i0 <= i < i1 of the upper triangle of
    the symmetric K and their mirror image contribute."""
    if i1 > i0 and X.shape[0]:
        with nogil:
            table.symmetric_product(&K[0, 0], K.shape[0], i0, i1, &X[0, 0], X.shape[0], &out[0, 0])


def gaussian_rows(double[:, ::1] D, Py_ssize_t i0, Py_ssize_t i1, double scale):
    """Rows i0 <= i < i1 of D become exp(-scale D)."""
    if i1 > i0 and D.shape[1]:
        with nogil:
            table.radial(RK_GAUSSIAN, False, &D[i0, 0], D.shape[1], i1 - i0, D.shape[1], scale)


def multi_gaussian(double[::1] D, double low, double high, bint slope=False):
    """D becomes the mean of exp(-s^2 D / 2) over s in [low, high], low < high; or minus that of s^2 times this."""
    if D.shape[0]:
        with nogil:
            table.multi_gaussian(&D[0], D.shape[0], low, high, slope)
