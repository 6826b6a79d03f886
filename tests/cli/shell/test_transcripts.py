"""The shell prints the same as ZooKeeper's own shell: 359 commands, recorded with releases 3.8.0 and 3.9.4.

``commands.txt`` contains the commands, ``zkcli-*.txt`` the output of Apache's shells with Apache's servers of the same
release. ``python tests/support/zkcli.py`` records them again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.apache import ALL_RELEASES, RELEASES, ApacheZooKeeper, require_apache
from support.shells import open_shell
from support.waiting import DEADLINE_S
from support.zkcli import TranscriptStep, java_command, load, normalise_step, record

from zoolet.cli.shell.command import all_commands, sorted_commands
from zoolet.testing import Server

FOLDER: Final = Path(__file__).parent
TRANSCRIPT_FILES: Final = {"3.8": "zkcli-3.8.0.txt", "3.9": "zkcli-3.9.4.txt"}
NEW_IN_3_9: Final = frozenset(
    """
    get|set|set /app|set /q -s|bogus|bogus with words|removewatches /q -p|removewatches /q -r|set -b /q aGVsbG8=|get /q
    |deleteall /q
    """.replace("\n    ", "")
    .strip()
    .split("|")
)
"""Differences in the output of release 3.9, which has new flags and lists them. The shell is like 3.9."""


def differences(expected: list[TranscriptStep], printed: list[TranscriptStep], release: str) -> list[str]:
    """Return the differences between two transcripts."""
    ours = [row.name for row in all_commands().values() if row.ours or row.alias]
    texts = []
    for want, have in zip(expected, printed, strict=True):
        if release == "3.8" and want.command in NEW_IN_3_9:
            continue
        if normalise_step(want) != normalise_step(have, ours):
            texts.append(f"{want.command}\n  expected {normalise_step(want)}\n  printed  {normalise_step(have, ours)}")
    return texts


def recorded(release: str) -> list[TranscriptStep]:
    """Return the transcript of Apache's shell."""
    steps = load(FOLDER / TRANSCRIPT_FILES[release])
    assert [step.command for step in steps] == (FOLDER / "commands.txt").read_text(encoding="utf-8").splitlines()
    return steps


def test_zkcli_transcripts_cover_all_commands() -> None:
    assert len(recorded("3.8")) >= 350
    verbs = {step.command.split()[0] for step in recorded("3.9")}
    without = {"connect", "close", "quit", "version"}  # tested in test_session_commands_print_same_as_zkcli
    assert {row.name for row in sorted_commands() if not row.ours} - verbs <= without


@pytest.mark.slow
@pytest.mark.parametrize("release", ALL_RELEASES)
async def test_shell_prints_same_as_zkcli(release: str) -> None:
    expected = recorded(release)
    async with Server(compat=release) as server, open_shell(server.hosts, one_stream=True) as shell:
        printed = await shell.type([step.command for step in expected])
    assert differences(expected, printed, release) == []


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
async def test_shell_prints_same_on_apache(release: str) -> None:
    require_apache(release)
    expected = recorded(release)
    with ApacheZooKeeper(release) as apache:
        async with open_shell(apache.hosts, one_stream=True) as shell:
            printed = await shell.type([step.command for step in expected])
    assert differences(expected, printed, release) == []


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_zkcli_prints_same_on_zoolet(release: str) -> None:
    require_apache(release)
    expected = recorded(release)
    with Server(compat=release) as server:
        command = java_command(release, "-server", server.hosts)
        events = [len(step.events) for step in expected]
        printed = record(command, [step.command for step in expected], events)
    # zkCli prints events in a separate thread, so their empty lines can be anywhere in the output of the command.
    texts = [
        f"{want.command}: {normalise_step(have)[0]}"
        for want, have in zip(expected, printed, strict=True)
        if list(filter(None, normalise_step(want)[0])) != list(filter(None, normalise_step(have)[0]))
    ]
    assert texts == []
    # A slow thread of zkCli prints the event of "set /w silent" if watches are printed again by then.
    commands = [step.command for step in expected]
    may_be_late = range(commands.index("set /w silent"), commands.index("set /w loud"))
    events = [[] if at in may_be_late else normalise_step(step)[1] for at, step in enumerate(printed)]
    assert events == [normalise_step(step)[1] for step in expected]


def run_session_commands(argv: list[str], hosts: str) -> tuple[int, list[str]]:
    """Type commands that a marker cannot follow. Return the exit code, and the lines except events."""
    script = f"version\nls /\nclose\nls /\nconnect {hosts}\nls /\nget /missing\nquit\nls /never\n"
    done = subprocess.run(
        argv, input=script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S, check=False
    )
    kept = ("[", "Not connected", "Node does not exist", "ZooKeeper CLI version")
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith(kept)]


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_session_commands_print_same_as_zkcli(release: str) -> None:
    require_apache(release)
    expected = ["[zookeeper]", "Not connected", "[zookeeper]", "Node does not exist: /missing"]
    with Server(compat=release) as server, ApacheZooKeeper(release) as apache:
        java = run_session_commands(java_command(release, "-server", server.hosts), server.hosts)
        ours = run_session_commands([sys.executable, "-m", "zoolet", "shell", "-server", apache.hosts], apache.hosts)
    assert (java[0], java[1][1:]) == (ours[0], ours[1][1:]) == (1, expected)
    assert java[1][0].startswith("ZooKeeper CLI version: 3.")
    assert ours[1][0].startswith("ZooKeeper CLI version: zoolet ")
