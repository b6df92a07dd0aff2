"""Hook of PyInstaller: modules that are imported by name or by compiled ones, and files that are read with them."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules

hiddenimports = [*collect_submodules("randsmap"), "scipy.linalg.cython_blas", "scipy.linalg.cython_lapack"]
datas = collect_data_files("randsmap")
