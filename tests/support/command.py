"""Commands of zoolet as a user runs them, each in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from support.waiting import DEADLINE_S

ZOOLET: Final = (sys.executable, "-m", "zoolet")


def zoolet(*words: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command until it exits. Return the completed process; keyword arguments are environment variables."""
    return subprocess.run(
        [*ZOOLET, *map(str, words)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=os.environ | environment,
        check=False,
    )
