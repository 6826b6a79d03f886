"""``server.checked()`` around a test, and ``zoolet check`` for recordings in files."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from checking.histories import history
from support.effort import effort
from support.script_client import ScriptClient

from zoolet.protocol import records as r
from zoolet.protocol.operations import OpCode
from zoolet.server.cli import main
from zoolet.server.testing.frames.requests import RecordedEvent
from zoolet.testing import Recording, Server, check, withhold_event


def late_event(server: Server) -> None:
    """Have a client read what it watches before it is notified."""
    one, other = ScriptClient(), ScriptClient()
    one.connect(server.port)
    other.connect(server.port)
    one.exists("/a", watch=True)
    with server.fault(withhold_event(), path="/a"):
        other.create("/a", b"1")
        one.get("/a")
    one.drop()
    other.drop()


def test_a_block_in_order_passes() -> None:
    with Server() as server, server.checked() as recording:
        client = ScriptClient()
        client.connect(server.port)
        client.create("/a")
        client.close()
    assert len(recording) == 3


def test_a_block_with_a_violation_fails_with_the_story() -> None:
    with Server() as server, pytest.raises(AssertionError) as caught:
        with server.checked():
            late_event(server)
    lines = str(caught.value).splitlines()
    assert lines[0] == "A client is given data before the event of /a that announces them."
    assert [line[:4] for line in lines[2:5]] == ["  1.", "  2.", "  3."]
    assert "exists /a -> NO_NODE" in lines[2]
    assert "create /a to b'1' -> ok" in lines[3]
    assert "getData /a -> ok: b'1', version 0" in lines[4]


def test_a_block_that_raises_keeps_its_exception_with_the_story_as_a_note() -> None:
    def fail(server: Server) -> None:
        with server.checked():
            late_event(server)
            raise ZeroDivisionError

    with Server() as server, pytest.raises(ZeroDivisionError) as caught:
        fail(server)
    assert "before the event of /a" in caught.value.__notes__[0]


# --- files ---


def recorded(path: Path, *, is_late: bool) -> Path:
    """Return a file with a recording."""
    with Server() as server, server.recording() as recording:
        if is_late:
            late_event(server)
        else:
            client = ScriptClient()
            client.connect(server.port)
            client.create("/a")
            client.close()
    recording.save(path)
    return path


def test_a_file_in_order_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(recorded(tmp_path / "a", is_late=False))]) == 0
    assert capsys.readouterr().out == "3 requests of 1 session: in order\n"


def test_a_violation_exits_with_1_and_the_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(recorded(tmp_path / "a", is_late=False)), str(recorded(tmp_path / "b", is_late=True))]
    assert main(["check", *files[1:]]) == 1
    assert capsys.readouterr().out.startswith("A client is given data before the event of /a")


def test_a_recording_of_nothing_is_not_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        with server.recording() as recording:
            pass
    recording.save(tmp_path / "a")

    assert main(["check", str(tmp_path / "a")]) == 2
    assert "a has no request: a recorder writes when it is stopped" in capsys.readouterr().err


def test_what_is_no_recording_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    assert main(["check", str(tmp_path / "a")]) == 2
    assert main(["check", str(tmp_path / "none")]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "a is not a recording of zoolet" in first
    assert "none: No such file" in second


def test_entries_that_do_not_decode_are_no_history() -> None:
    with Server() as server, server.recording() as recording:
        client = ScriptClient()
        client.connect(server.port)
        client.call(OpCode.EXISTS, r.ExistsRequest("/", False))
        client.close()
    handshake = recording.entries[0]._replace(body=b"?")  # type: ignore[union-attr, call-arg]
    with pytest.raises(ValueError, match="does not decode"):
        check([handshake, *recording.entries[1:]])
    garbled = [entry._replace(reply=b"?" * 40) for entry in recording.entries[1:]]  # type: ignore[union-attr, call-arg]
    check(garbled)
    assert check(Recording([])) is None


@pytest.mark.parametrize("seed", range(effort(40, 2000)))
def test_a_garbled_history_is_checked_or_refused(seed: int) -> None:
    rng = Random(seed)
    entries = history(1, 300)
    for _ in range(30):
        place = rng.randrange(len(entries))
        entry = entries[place]
        name = rng.choice(["payload"] if isinstance(entry, RecordedEvent) else ["reply", "body"])
        data = bytearray(getattr(entry, name))
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            del data[len(data) - rng.choice([0, 0, 0, rng.randrange(len(data))]) :]
        entries[place] = entry._replace(**{name: bytes(data)})
    try:
        found = check(entries)
    except ValueError:
        return
    assert found is None or found.story
