"""Hook of PyInstaller: files that are read beside the modules, such as tables of studies, templates and headers."""

from PyInstaller.utils.hooks import collect_data_files

datas = collect_data_files("randsmap")
