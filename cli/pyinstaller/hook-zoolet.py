"""The parts of zoolet that PyInstaller does not find: the modules, most imported by name, and the console's pages."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules  # pyright: ignore[reportMissingModuleSource, reportMissingImports]

datas = collect_data_files("zoolet", includes=["console/static/**"])
unused = ("zoolet.cli.pyinstaller", "zoolet.testing.pytest")
hiddenimports = collect_submodules("zoolet", filter=lambda name: not name.startswith(unused))
