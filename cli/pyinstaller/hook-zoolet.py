"""The modules of zoolet that are imported by name, and the pages of the console. PyInstaller runs this file."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules  # pyright: ignore[reportMissingModuleSource, reportMissingImports]

datas = collect_data_files("zoolet", includes=["console/static/**"])
hiddenimports = collect_submodules("zoolet", filter=lambda name: not name.startswith("zoolet.testing.pytest"))
