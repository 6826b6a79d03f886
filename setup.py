"""The part of the build that pyproject.toml cannot express: files of earlier builds are not packaged."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

BUILD = Path("build")


class FreshBuild(build_py):
    """Copy the modules into empty folders; otherwise a wheel would contain modules that were deleted since."""

    def run(self) -> None:
        """Remove the files of earlier builds, including failed ones, then copy."""
        if not self.editable_mode:
            for left in (self.build_lib, *BUILD.glob("bdist.*")):
                shutil.rmtree(left, ignore_errors=True)
        super().run()


class CleanSdist(sdist):
    """Pack the sources without the metadata in the build folder."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Leave out generated files."""
        super().make_release_tree(base_dir, [file for file in files if Path(file).parts[0] != BUILD.name])


BUILD.mkdir(exist_ok=True)
setup(
    cmdclass={"build_py": FreshBuild, "sdist": CleanSdist},
    # With metadata in the root, pytest would treat the root as an installed distribution and rewrite __main__.py.
    options={"egg_info": {"egg_base": str(BUILD)}},
    script_name="setup.py",  # build_py leaves this file out; a build front end runs it under a different name
)
