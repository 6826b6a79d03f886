"""The part of the build that pyproject.toml cannot express.

A build writes to its output and to a temporary folder. Therefore several builds can use one clone, which may be
read-only. With SOURCE_DATE_EPOCH, the same files give the same bytes, whatever the umask.
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

TEMPORARY = Path(tempfile.mkdtemp(prefix="zoolet-build-"))
atexit.register(shutil.rmtree, TEMPORARY, ignore_errors=True)
# By default, the finder of an editable install comes after sys.path. There, a folder without modules would hide the
# clone: bytecode that pytest wrote for an earlier wheel, or an unrelated folder called zoolet.
FIRST = "__editable___zoolet_first"
FINDER = f"""
import sys
from importlib.machinery import PathFinder

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "zoolet" and getattr(PathFinder.find_spec(name), "origin", None) is None:
            for finder in sys.meta_path:
                module = getattr(finder, "__module__", None) or ""
                if module.startswith("__editable___zoolet_") and module != "{FIRST}":
                    return finder.find_spec(name, path, target)
        return None

sys.meta_path.insert(0, Finder)
"""


class FirstBuild(build_py):
    """The build step for modules. An editable install also gets a finder, which comes first."""

    def run(self) -> None:
        """Copy the modules, and for an editable install add the finder."""
        super().run()
        if self.editable_mode:
            folder = Path(self.get_finalized_command("install").install_purelib)
            (folder / f"{FIRST}.py").write_text(FINDER)
            (folder / f"{FIRST}.pth").write_text(f"import {FIRST}\n")


class PlainWheel(bdist_wheel):
    """Pack all files with the modes 0644 and 0755, whatever the umask."""

    def write_wheelfile(self, *arguments: str) -> None:
        """Write the last file, then set all modes."""
        super().write_wheelfile(*arguments)
        for path in Path(self.bdist_dir).rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)


class PlainSdist(sdist):
    """Pack the sources where they are, without a copy in the clone and without the metadata in the temporary folder."""

    def make_distribution(self) -> None:
        """Write the archive."""
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

        self.distribution.metadata.write_pkg_info(str(TEMPORARY))
        files = {file.as_posix(): file for file in map(Path, self.filelist.files) if TEMPORARY not in file.parents}
        with (
            gzip.GzipFile(path, "wb", mtime=int(epoch) if epoch else None) as packed,
            tarfile.open(fileobj=packed, mode="w", dereference=True) as archive,
        ):
            for inside, file in sorted({**files, "PKG-INFO": TEMPORARY / "PKG-INFO"}.items()):
                archive.add(file, f"{name}/{inside}", filter=plain)
        self.archive_files = [str(path)]


# A page on PyPI cannot follow a relative link, so only the text of the link stays. A picture becomes its description.
README = re.sub(r"!?\[([^]]+)\]\((?!https?:)[^)]+\)", r"\1", Path("README.md").read_text(encoding="utf-8"))
setup(
    long_description=README,
    long_description_content_type="text/markdown",
    cmdclass={"bdist_wheel": PlainWheel, "build_py": FirstBuild, "sdist": PlainSdist},
    options={"egg_info": {"egg_base": str(TEMPORARY)}, "build": {"build_base": str(TEMPORARY / "build")}},
    script_name="setup.py",  # build_py leaves this file out; a build front end runs it under a different name
)
