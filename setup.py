"""The part of the build that pyproject.toml cannot express.

A build writes only to its output and to a temporary folder, so several builds can share a clone, which may be
read-only. If SOURCE_DATE_EPOCH is set, builds of the same files are identical, whatever the umask.
"""

import atexit
import gzip
import os
import re
import shutil
import tarfile
import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

TEMPORARY_FOLDER = Path(tempfile.mkdtemp(prefix="zoolet-build-"))
atexit.register(shutil.rmtree, TEMPORARY_FOLDER, ignore_errors=True)
# The finder of an editable install runs after sys.path is searched. Without FIRST_FINDER, a folder called zoolet on
# sys.path that contains no modules would be imported instead of the clone: for example a folder that contains only the
# bytecode that pytest wrote for an earlier wheel.
FIRST_FINDER = "__editable___zoolet_first"
FINDER_SOURCE = f"""
import sys
from importlib.machinery import PathFinder

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "zoolet" and getattr(PathFinder.find_spec(name), "origin", None) is None:
            for finder in sys.meta_path:
                module = getattr(finder, "__module__", None) or ""
                if module.startswith("__editable___zoolet_") and module != "{FIRST_FINDER}":
                    return finder.find_spec(name, path, target)
        return None

sys.meta_path.insert(0, Finder)
"""


class FirstBuild(build_py):
    """The build step for modules. An editable install also gets a finder that precedes sys.path."""

    def run(self) -> None:
        """Copy the modules. For an editable install, also write the finder."""
        super().run()
        if self.editable_mode:
            folder = Path(self.get_finalized_command("install").install_purelib)
            (folder / f"{FIRST_FINDER}.py").write_text(FINDER_SOURCE)
            (folder / f"{FIRST_FINDER}.pth").write_text(f"import {FIRST_FINDER}\n")


class PlainWheel(bdist_wheel):
    """A wheel that contains files with the modes 0644 and 0755 only, whatever the umask."""

    def write_wheelfile(self, *arguments: str) -> None:
        """Write the last file of the wheel, and set the modes of all files."""
        super().write_wheelfile(*arguments)
        for path in Path(self.bdist_dir).rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)


class PlainSdist(sdist):
    """An sdist that is packed directly from the sources, without a copy of them in the clone."""

    def make_distribution(self) -> None:
        """Write the archive, with reproducible owners, modes and times, and without the temporary folder."""
        name = self.distribution.get_fullname()
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        path = Path(self.dist_dir, f"{name}.tar.gz")
        path.parent.mkdir(parents=True, exist_ok=True)

        def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.mode & 0o100 else 0o644
            member.mtime = int(epoch or member.mtime)
            return member

        self.distribution.metadata.write_pkg_info(str(TEMPORARY_FOLDER))
        files = {
            file.as_posix(): file for file in map(Path, self.filelist.files) if TEMPORARY_FOLDER not in file.parents
        }
        with (
            gzip.GzipFile(path, "wb", mtime=int(epoch) if epoch else None) as packed,
            tarfile.open(fileobj=packed, mode="w", dereference=True) as archive,
        ):
            for inside, file in sorted({**files, "PKG-INFO": TEMPORARY_FOLDER / "PKG-INFO"}.items()):
                archive.add(file, f"{name}/{inside}", filter=plain)
        self.archive_files = [str(path)]


# Relative links do not work on PyPI, so only the text of a link stays. A picture becomes its description.
README = re.sub(r"!?\[([^]]+)\]\((?!https?:)[^)]+\)", r"\1", Path("README.md").read_text(encoding="utf-8"))
setup(
    long_description=README,
    long_description_content_type="text/markdown",
    cmdclass={"bdist_wheel": PlainWheel, "build_py": FirstBuild, "sdist": PlainSdist},
    options={"egg_info": {"egg_base": str(TEMPORARY_FOLDER)}, "build": {"build_base": str(TEMPORARY_FOLDER / "build")}},
    script_name="setup.py",  # build_py leaves this file out; a build front end runs it under a different name
)
