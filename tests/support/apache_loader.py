"""Apache's own code for reading a data directory at server start, for many directories in one process."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from support.apache import require_apache, server_jars

PROGRAM: Final = Path(__file__).parent / "java" / "LoadDirectories.java"


class ApacheLoader:
    """A Java process that loads copies of data directories with Apache ZooKeeper's code, as a context manager.

    Args:
        release: "3.8" or "3.9".
    """

    def __init__(self, release: str) -> None:
        require_apache(release)
        self._release = release

    def __enter__(self) -> Self:
        jars = ":".join(map(str, server_jars(self._release)))
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", jars, str(PROGRAM)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._line("ready") is not None, "the loader did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def _line(self, *begins: str) -> str | None:
        assert self._process.stdout is not None
        return next((line.strip() for line in self._process.stdout if line.startswith(begins)), None)

    def load(self, folder: Path, work: Path) -> int:
        """Load a copy of a data directory. Return the number of its nodes, where Apache counts the root twice.

        Raises:
            AssertionError: Apache's server would not start with these files.
        """
        copy = work / f"copy-{self._release}"
        shutil.copytree(folder / "version-2", copy / "version-2")
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{copy}\n")
            self._process.stdin.flush()
            line = self._line("loaded", "failed")
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        assert line is not None
        assert line.startswith("loaded"), f"{self._release}: {line}"
        return int(line.split()[2]) - 1
