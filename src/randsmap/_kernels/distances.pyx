"""Squared Euclidean distances and radial kernels in panels of PANEL_ROWS rows.

A panel is one task; panels do not depend on the number of threads. GEMM must be limited to one
thread by the caller while panels run in parallel.
"""

cdef const rk_distances_table *table = rk_distances_select()

for kernel in range(RK_RADIALS):  # SQUARED_DISTANCE, GAUSSIAN, ...
    globals()[rk_radial_name(kernel).decode()] = kernel
PANEL = PANEL_ROWS
DIRECT_DIM = RK_DIRECT_DIM
FEW = FEW_ROWS


def workspace_size(Py_ssize_t dim, bint few_rows):
    """Number of float64 that `panel` and `nystrom_panel` need as `work`."""
    if dim <= RK_DIRECT_DIM:
        return PANEL_ROWS * (TILE_STRIDE + dim) + dim * TILE_STRIDE
    if few_rows:
        return FEW_ROWS * (TILE_STRIDE + dim)
    return PANEL_ROWS * TILE_STRIDE + 2 * PANEL_ROWS * (dim + 1)


cdef double *fill_tile(
    const Pairs *pairs, Py_ssize_t i0, Py_ssize_t m, Py_ssize_t j0, Py_ssize_t n, bint first, bint diagonal,
    double *work, double *out, Py_ssize_t ldo,
) noexcept nogil:
    """Tile of the pairs (i0 + i, j0 + j), i < m <= PANEL_ROWS, j < n <= TILE_COLUMNS; returns it.
    Where the z rows must be centred first, n <= PANEL_ROWS.

    `work` holds what belongs to the rows i0.. from one call with `first` to the next.
    `diagonal`: the tile's rows and columns are the same points. `out` (stride ldo), unless NULL, gets
    the tile too; only for a Gaussian kernel by GEMM and off the diagonal.
    """
    cdef Py_ssize_t dim = pairs.dim, j
    cdef double *tile = work
    cdef double *rest
    cdef const double *x
    cdef const double *z
    cdef const double *nx
    cdef const double *nz
    cdef const double *x_exact
    cdef const double *z_exact
    cdef double largest = 0

    if pairs.differences:
        rest = work + (PANEL_ROWS if dim <= RK_DIRECT_DIM else FEW_ROWS) * TILE_STRIDE
        x = pairs.x.raw + i0 * dim
        if pairs.z.raw:
            z = pairs.z.raw + j0 * dim
        else:  # the other side is known centred only
            z = pairs.z.centred + j0 * dim
            if first:
                table.center(x, m, dim, pairs.x.centre, rest, NULL)
            x = rest
        if dim <= RK_DIRECT_DIM:
            table.direct(x, m, z, n, dim, rest + PANEL_ROWS * dim, tile, TILE_STRIDE)
        else:
            table.direct_rows(x, m, z, n, dim, tile, TILE_STRIDE)
        if pairs.kernel != RK_SQUARED_DISTANCE:
            table.radial(pairs.kernel, pairs.slopes, tile, TILE_STRIDE, m, n, pairs.scale)
        return tile

    rest = work + PANEL_ROWS * TILE_STRIDE
    if pairs.x.centred:
        x, nx = pairs.x.centred + i0 * dim, pairs.x.norms + i0
    else:
        if first:
            table.center(pairs.x.raw + i0 * dim, m, dim, pairs.x.centre, rest,
                         rest + PANEL_ROWS * dim)
        x, nx = rest, rest + PANEL_ROWS * dim
    rest += PANEL_ROWS * (dim + 1)
    if diagonal:
        z, nz = x, nx
    elif pairs.z.centred:
        z, nz = pairs.z.centred + j0 * dim, pairs.z.norms + j0
    else:
        table.center(pairs.z.raw + j0 * dim, n, dim, pairs.z.centre, rest,
                     rest + PANEL_ROWS * dim)
        z, nz = rest, rest + PANEL_ROWS * dim
    if pairs.z.raw:
        x_exact, z_exact = pairs.x.raw + i0 * dim, pairs.z.raw + j0 * dim
    else:
        x_exact, z_exact = x, z

    if diagonal:
        syrk(False, n, dim, 1.0, x, dim, 0.0, tile, TILE_STRIDE)
        table.reflect(tile, TILE_STRIDE, n)
    else:
        gemm(False, True, m, n, dim, 1.0, x, dim, z, dim, 0.0, tile, TILE_STRIDE)
    if pairs.kernel == RK_GAUSSIAN and not pairs.slopes:
        for j in range(n):
            largest = nz[j] if not nz[j] <= largest else largest
        table.gaussian(tile, TILE_STRIDE, x_exact, m, z_exact, n, dim, nx, nz, largest,
                       pairs.scale, out, ldo)
        if diagonal:
            set_diagonal(tile, n, 1.0)
        return tile
    table.distances(tile, TILE_STRIDE, x_exact, m, z_exact, n, dim, nx, nz)
    if diagonal:
        set_diagonal(tile, n, 0.0)
    if pairs.kernel != RK_SQUARED_DISTANCE:
        table.radial(pairs.kernel, pairs.slopes, tile, TILE_STRIDE, m, n, pairs.scale)
    return tile


cdef inline void set_diagonal(double *tile, Py_ssize_t n, double value) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(n):
        tile[j * TILE_STRIDE + j] = value


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


cdef inline Pairs of_centred(const double[:, ::1] X, const double[:, ::1] Z_centred, const double[::1] Z_norms,
                             const double[::1] centre, int kernel, double scale) noexcept:
    """Pairs of rows X and of points known centred only."""
    cdef Pairs pairs
    pairs.dim, pairs.kernel, pairs.slopes, pairs.scale = X.shape[1], kernel, False, scale
    pairs.differences = pairs.dim <= RK_DIRECT_DIM or X.shape[0] <= FEW_ROWS
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
    """Rows of panel `index` of the kernel at scale D, or with `slopes` of twice its derivative by D.

    Z None: X against itself; the panel then fills its rows from its diagonal on and the mirrored
    columns. Centred rows may be None: they are then made block by block.
    """
    cdef Pairs pairs
    cdef bint symmetric = Z is None, first = True
    cdef Py_ssize_t i0 = index * PANEL_ROWS, j0, n, m, n_rows = X.shape[0]
    cdef Py_ssize_t n_columns = out.shape[1], ldo = out.shape[1], widest
    cdef double *tile
    cdef double *fused
    pairs.dim, pairs.kernel, pairs.slopes, pairs.scale = X.shape[1], kernel, slopes, scale
    pairs.differences = pairs.dim <= RK_DIRECT_DIM or (not symmetric and n_rows <= FEW_ROWS)
    set_rows(&pairs.x, X, X_centred, X_norms, centre)
    if symmetric:
        pairs.z = pairs.x
    else:
        set_rows(&pairs.z, Z, Z_centred, Z_norms, centre)
    m = min(<Py_ssize_t> PANEL_ROWS, n_rows - i0)
    # rows centred block by block may be long: narrow tiles keep the scratch small
    widest = TILE_COLUMNS if pairs.z.centred or pairs.differences else PANEL_ROWS
    with nogil:
        j0 = i0 if symmetric else 0
        while j0 < n_columns:
            n = m if symmetric and first else min(widest, n_columns - j0)
            fused = NULL
            if kernel == RK_GAUSSIAN and not slopes and not pairs.differences and not (symmetric and first):
                fused = &out[i0, j0]
            tile = fill_tile(&pairs, i0, m, j0, n, first, symmetric and first, &work[0], fused, ldo)
            if fused == NULL:
                table.store(tile, TILE_STRIDE, m, n, &out[i0, j0], ldo)
            if symmetric and not first:
                table.store_t(tile, TILE_STRIDE, m, n, &out[j0, i0], ldo)
            first = False
            j0 += n


def nystrom_panel(Py_ssize_t index, const double[:, ::1] X, const double[:, ::1] Z_centred,
                  const double[::1] Z_norms, const double[::1] centre, double scale,
                  const double[:, ::1] weights, double[::1] work, double[:, ::1] sums):
    """sums[i, p] = sum_j exp(-scale |x_i - z_j|^2) weights[p, j], rows of panel `index`.

    The kernel itself is never stored beyond a tile.
    """
    cdef Pairs pairs = of_centred(X, Z_centred, Z_norms, centre, RK_GAUSSIAN, scale)
    cdef bint first = True
    cdef Py_ssize_t i0 = index * PANEL_ROWS, j0 = 0, n, p, n_columns = Z_centred.shape[0]
    cdef Py_ssize_t q = weights.shape[0], m = min(<Py_ssize_t> PANEL_ROWS, X.shape[0] - i0)
    cdef double *tile
    with nogil:
        for p in range(m * q):
            (&sums[i0, 0])[p] = 0
        while j0 < n_columns:
            n = min(<Py_ssize_t> TILE_COLUMNS, n_columns - j0)
            tile = fill_tile(&pairs, i0, m, j0, n, first, False, &work[0], NULL, 0)
            table.weighted_sums(tile, TILE_STRIDE, m, n, &weights[0, j0], n_columns, q,
                                &sums[i0, 0])
            first = False
            j0 += n


def reach_panel(Py_ssize_t index, const double[:, ::1] X, const double[:, ::1] Z_centred,
                const double[::1] Z_norms, const double[::1] centre, const double[::1] x_reach,
                const double[::1] z_reach, double[::1] work, Py_ssize_t[::1] rows,
                Py_ssize_t[::1] columns, double[::1] values):
    """Pairs of panel `index` whose squared distance is <= x_reach[i] or <= z_reach[j].

    Returns their number; the first ones fill rows, columns and values (squared distances). Rows are
    ascending within blocks of columns only.
    """
    cdef Pairs pairs = of_centred(X, Z_centred, Z_norms, centre, RK_SQUARED_DISTANCE, 1)
    cdef bint first = True
    cdef Py_ssize_t i0 = index * PANEL_ROWS, j0 = 0, n, found = 0, n_columns = Z_centred.shape[0]
    cdef Py_ssize_t m = min(<Py_ssize_t> PANEL_ROWS, X.shape[0] - i0)
    cdef double *tile
    with nogil:
        while j0 < n_columns:
            n = min(<Py_ssize_t> TILE_COLUMNS, n_columns - j0)
            tile = fill_tile(&pairs, i0, m, j0, n, first, False, &work[0], NULL, 0)
            found = table.within(tile, TILE_STRIDE, m, n, i0, j0, &x_reach[i0], &z_reach[j0], found,
                                 rows.shape[0], &rows[0], &columns[0], &values[0])
            first = False
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
