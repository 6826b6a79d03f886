"""``server.check_history()`` around a test, and ``zoolet check`` for recordings in files."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from random import Random

import pytest
from support.effort import effort
from support.histories import record_history
from support.script_client import ScriptClient

from zoolet.cli.program import main
from zoolet.protocol import records as r
from zoolet.protocol.operations import OpCode
from zoolet.testing import Recording, Server, check, withhold_event
from zoolet.testing.frames.requests import RecordedEvent


def late_event(server: Server) -> None:
    """Make a client read a watched node before it is notified."""
    one, other = ScriptClient(), ScriptClient()
    one.connect(server.port)
    other.connect(server.port)
    one.exists("/a", watch=True)
    with server.fault(withhold_event(), path="/a"):
        other.create("/a", b"1")
        one.get("/a")
    one.drop()
    other.drop()


def test_check_history_block_with_correct_history_passes() -> None:
    with Server() as server, server.check_history() as recording:
        client = ScriptClient()
        client.connect(server.port)
        client.create("/a")
        client.close()
    assert len(recording) == 3


def test_check_history_block_with_violation_fails_with_story() -> None:
    with Server() as server, pytest.raises(AssertionError) as caught:
        with server.check_history():
            late_event(server)
    lines = str(caught.value).splitlines()
    assert lines[0] == "A client gets data before the event for /a that announces it."
    assert [line[:4] for line in lines[2:5]] == ["  1.", "  2.", "  3."]
    assert "exists /a -> NO_NODE" in lines[2]
    assert "create /a to b'1' -> ok" in lines[3]
    assert "getData /a -> ok: b'1', version 0" in lines[4]


def test_exception_in_block_gets_story_as_note() -> None:
    def fail(server: Server) -> None:
        with server.check_history():
            late_event(server)
            raise ZeroDivisionError

    with Server() as server, pytest.raises(ZeroDivisionError) as caught:
        fail(server)
    assert "before the event for /a" in caught.value.__notes__[0]


# --- files ---


def write_recording(path: Path, *, is_late: bool) -> Path:
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


def test_check_of_consistent_recording_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(write_recording(tmp_path / "a", is_late=False))]) == 0
    assert capsys.readouterr().out == "no violation in 3 requests of 1 session\n"


def test_check_of_recording_with_violation_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(write_recording(tmp_path / "a", is_late=False)), str(write_recording(tmp_path / "b", is_late=True))]
    assert main(["check", *files[1:]]) == 1
    assert capsys.readouterr().out.startswith("A client gets data before the event for /a")


def test_check_refuses_empty_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        with server.recording() as recording:
            pass
    recording.save(tmp_path / "a")

    assert main(["check", str(tmp_path / "a")]) == 2
    assert "a contains no requests; stop the recorder" in capsys.readouterr().err


def test_check_reports_invalid_recording_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    assert main(["check", str(tmp_path / "a")]) == 2
    assert main(["check", str(tmp_path / "none")]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "a is not a zoolet recording" in first
    assert "cannot read " in second
    assert "none: no such file" in second


@pytest.mark.parametrize("history", ["file", Path("file"), None])
def test_check_refuses_a_file_name(history: object) -> None:
    with pytest.raises(TypeError, match=r"history must be a Recording.*use Recording.load\(\) to read a file"):
        check(history)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "content",
    [
        b"\xdd\x00\x04\x00\x00" + b"\x80" * (1 << 18),  # many empty maps as entries
        b"\x91\xdd\x00\x04\x00\x00" + b"\x90" * (1 << 18),  # an entry of empty lists
        b"\x91\x93\xc2\x01" + 1000 * b"\xdd\x00\x10\x00\x00",  # nested lists with large announced lengths
        b"\x91\x93\xc2\x01\xc6\xff\xff\xff\xff",  # a body with a large announced length
        b"\x90\x01",
        b"\xdf\xff\xff\xff\xff",
    ],
    ids=["maps", "lists", "nested", "body", "more", "map"],
)
def test_check_of_file_uses_little_memory(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", str(tmp_path)])  # imports the modules
    (tmp_path / "a").write_bytes(b"\x82\xb0zoolet recording\x01\xa7entries" + content)

    tracemalloc.start()
    code = main(["check", str(tmp_path / "a")])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert code == 2
    assert "a is not a zoolet recording" in capsys.readouterr().err.splitlines()[-1]
    assert peak < 4 << 20


def test_check_refuses_endless_device_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "/dev/zero"]) == 2
    assert capsys.readouterr().err.startswith("zoolet check: /dev/zero is not a zoolet recording, or is damaged: ")


def test_check_refuses_undecodable_entries() -> None:
    with Server() as server, server.recording() as recording:
        client = ScriptClient()
        client.connect(server.port)
        client.call(OpCode.EXISTS, r.ExistsRequest("/", False))
        client.close()
    handshake = recording.entries[0]._replace(body=b"?")  # type: ignore[union-attr, call-arg]
    with pytest.raises(ValueError, match="invalid handshake or event"):
        check([handshake, *recording.entries[1:]])
    garbled = [entry._replace(reply=b"?" * 40) for entry in recording.entries[1:]]  # type: ignore[union-attr, call-arg]
    check(garbled)
    assert check(Recording([])) is None


@pytest.mark.parametrize("seed", range(effort(40, 2000)))
def test_garbled_history_is_checked_or_refused(seed: int) -> None:
    rng = Random(seed)
    entries = record_history(1, 300)
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
