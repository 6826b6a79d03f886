"""Transcripts of ZooKeeper's command line, Apache's zkCli and zoolet's: each typed line with its output."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.apache import JARS, NEEDED_JARS, ApacheZooKeeper, server_jars
from support.waiting import DEADLINE_S

EVENT: Final = "WatchedEvent "
MARKER: Final = re.compile(r"Node does not exist: /marker-(\d+)$")
PAUSE_S: Final = 0.2
"""Seconds to wait for events when a transcript is recorded, because zkCli prints them in a separate thread."""
QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"


def java_command(release: str, *arguments: str) -> list[str]:
    """Return the command that starts Apache's zkCli without JLine, which makes it read lines from stdin."""
    jars = (
        server_jars("3.9")
        if release == "3.9"
        else [jar for pattern in NEEDED_JARS for jar in sorted(JARS.glob(pattern))]
    )
    return [
        "java",
        "-XX:TieredStopAtLevel=1",
        QUIET,
        "-cp",
        ":".join(map(str, jars)),
        "org.apache.zookeeper.ZooKeeperMain",
        *arguments,
    ]


@dataclass(frozen=True)
class TranscriptStep:
    """One typed line and its output.

    Args:
        command: The line.
        output: Its output, including stderr.
        events: The printed watch events, in order.
    """

    command: str
    output: tuple[str, ...]
    events: tuple[str, ...]


def record(argv: Sequence[str], commands: Sequence[str], events: Sequence[int] | None = None) -> list[TranscriptStep]:
    """Type commands into a shell, one by one, and return the output of each.

    After each command, a missing node is listed; its error message marks the end of the output.

    Args:
        argv: The command line of the shell.
        commands: The commands.
        events: The number of events that each command causes. The marker is typed once they have been printed. None if
            they are not known, to wait for a moment.
    """
    wanted = [1, *events] if events is not None else None  # the first event is the connection
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TZ": "UTC"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    steps: list[TranscriptStep] = []
    try:
        reader = _Reader(process.stdout.fileno())
        for number, command in enumerate(("", *commands)):
            process.stdin.write(f"{command}\n".encode())
            process.stdin.flush()
            if wanted is None:
                time.sleep(PAUSE_S)
            else:
                reader.until_events(wanted[number])
            process.stdin.write(f"ls /marker-{number}\n".encode())
            process.stdin.flush()
            lines = reader.until_marker(number)
            if number:
                steps.append(parse_step(command, lines))
        process.stdin.close()
        process.wait(DEADLINE_S)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        if not process.stdin.closed:
            process.stdin.close()
    return steps


class _Reader:
    """A reader of the lines that a shell prints."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""

    def until_marker(self, number: int) -> list[str]:
        """Read up to marker *number*, and return the preceding lines."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            lines = self._lines()
            for place, line in enumerate(lines[:-1]):
                match = MARKER.search(line)
                if match is not None and int(match[1]) == number:
                    self._rest = "\n".join(lines[place + 1 :]).encode()
                    return lines[:place]
            self._read_more(f"marker {number}", deadline)

    def until_events(self, count: int) -> None:
        """Read until this many events have been printed."""
        deadline = time.monotonic() + DEADLINE_S
        while sum(line.startswith(EVENT) for line in self._lines()[:-1]) < count:
            self._read_more(f"{count} events", deadline)

    def _lines(self) -> list[str]:
        return self._rest.decode("utf-8", "replace").split("\n")

    def _read_more(self, wanted: str, deadline: float) -> None:
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
        more = os.read(self._descriptor, 1 << 16) if ready else b""
        assert more, f"expected {wanted}; the output is\n{self._rest.decode('utf-8', 'replace')}"
        self._rest += more


def parse_step(command: str, lines: list[str]) -> TranscriptStep:
    """Return a command with its output, split into answers and events."""
    output: list[str] = []
    events: list[str] = []
    pending = iter(lines)
    for line in pending:
        if line.startswith(EVENT):
            events.append(line)
            _drop_head_of_event(output)
        else:
            output.append(line)
    return TranscriptStep(command, tuple(output), tuple(events))


def _drop_head_of_event(output: list[str]) -> None:
    """Drop the lines above an event: empty, WATCHER::, empty. Java prints them one by one, between other lines."""
    places = [place for place, line in enumerate(output) if line == "WATCHER::"]
    if places:
        place = places[0]
        after = next((later for later in range(place + 1, len(output)) if output[later] == ""), None)
        before = next((earlier for earlier in range(place - 1, -1, -1) if output[earlier] == ""), None)
        for each in sorted({place, after, before} - {None}, key=int, reverse=True):  # type: ignore[arg-type]
            del output[each]  # type: ignore[arg-type]


def save(path: Path, steps: Sequence[TranscriptStep]) -> None:
    """Write a transcript: ``> command``, its output, and its events after ``! ``."""
    text = []
    for step in steps:
        text.append(f"> {step.command}")
        text += [f"  {line}" for line in step.output]
        text += [f"! {line}" for line in step.events]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


def load(path: Path) -> list[TranscriptStep]:
    """Read a transcript from a file written by :func:`save`."""
    steps: list[TranscriptStep] = []
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        if line.startswith("> "):
            steps.append(TranscriptStep(line[2:], (), ()))
        elif line.startswith("! "):
            steps[-1] = TranscriptStep(steps[-1].command, steps[-1].output, (*steps[-1].events, line[2:]))
        else:
            steps[-1] = TranscriptStep(steps[-1].command, (*steps[-1].output, line[2:]), steps[-1].events)
    return steps


def normalise_step(step: TranscriptStep, extra: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return the output of a step without times, zxids, sessions and the order of identities, which vary between runs.

    Args:
        step: The step.
        extra: Commands to omit from lists of commands.
    """
    lines = []
    for line in step.output:
        if line.startswith("\t") and line.split()[0] in extra:
            continue
        line = re.sub(r"^([cm]time = ).*[1-9].* \d{4}$", r"\1...", line)
        line = re.sub(r"^(([cmp]Zxid|ephemeralOwner) = 0x)[1-9a-f][0-9a-f]*", r"\1...", line)
        lines.append(line)
    if lines[:1] == ["Auth scheme: User"]:
        lines.sort()
    events = [re.sub(r" zxid: .*", "", event) for event in step.events]
    if all("WatchRemoved" in event for event in events):  # Java prints removed watches in the order of a hash table
        events.sort()
    return lines, events


def main() -> None:
    """Record transcripts of Apache's shells."""
    folder = Path(__file__).parents[1] / "cli" / "shell"
    commands = (folder / "commands.txt").read_text(encoding="utf-8").splitlines()
    for release, name in (("3.8", "zkcli-3.8.0.txt"), ("3.9", "zkcli-3.9.4.txt")):
        with ApacheZooKeeper(release) as apache:
            save(folder / name, record(java_command(release, "-server", apache.hosts), commands))


if __name__ == "__main__":
    main()
