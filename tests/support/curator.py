"""Curator's locks, held by a Java program."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from support.apache import JARS, NEEDED_JARS

PROGRAM: Final = Path(__file__).parent / "java" / "CuratorLocks.java"
CURATOR: Final = ("curator-*.jar", "guava*.jar", "failureaccess*.jar")


def require_curator() -> None:
    """Skip the test if Curator is not installed, or fail it if Apache's server is required."""
    missing = [] if shutil.which("javac") else ["javac"]
    if not (JARS / "curator-recipes.jar").exists():
        missing.append("curator-recipes.jar")
    if not missing:
        return
    reason = f"{' and '.join(missing)} missing (apt-get install libcurator-recipes-java default-jdk-headless)"
    if os.environ.get("ZOOLET_REQUIRE_APACHE") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def curator_locks(hosts: str, *, cycle: bool = False) -> Iterator[list[str]]:
    """Hold Curator's locks on a server; yield two session ids: the holder's and the waiter's."""
    with curator_program(PROGRAM, hosts, *(["cycle"] if cycle else [])) as (ready, _):
        yield ready


@contextmanager
def curator_program(program: Path, *args: str) -> Iterator[tuple[list[str], subprocess.Popen[str]]]:
    """Run a Java program that uses Curator until the block ends; yield the words after ``ready``, and the process."""
    jars = ":".join(str(jar) for pattern in (*NEEDED_JARS, *CURATOR) for jar in sorted(JARS.glob(pattern)))
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", jars, str(program), *args]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = next((line for line in process.stdout if line.startswith("ready")), "")
            assert line, "Curator's program has ended"
            yield line.split()[1:], process
        finally:
            process.kill()
