"""The part of the build that pyproject.toml cannot state: the remains of an earlier one do no harm."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

BUILD = Path("build")


class FreshBuild(build_py):
    """Copy the modules into empty folders: a wheel gets all that is in them, modules that were deleted since too."""

    def run(self) -> None:
        """Remove what earlier builds left, finished or not, then copy."""
        if not self.editable_mode:
            for left in (self.build_lib, *BUILD.glob("bdist.*")):
                shutil.rmtree(left, ignore_errors=True)
        super().run()


BUILD.mkdir(exist_ok=True)
setup(
    cmdclass={"build_py": FreshBuild},
    # in the root, pytest would take it for an installed distribution, and __main__.py for a module of it to rewrite
    options={"egg_info": {"egg_base": str(BUILD)}},
    script_name="setup.py",  # which build_py leaves out; a build front end runs this file under another name
)
