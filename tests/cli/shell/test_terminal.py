"""The shell at a pseudo-terminal, with prompt_toolkit and with readline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.effort import effort
from support.pseudo_terminal import TerminalProgram, run_at_terminal

from zoolet.testing import Server

pytestmark = pytest.mark.slow
PROMPT = r"\[zk: [^\]]*\(CONNECTED\)[^\]]*\] ?"
UP, CTRL_C, CTRL_D, TAB, ENTER = "\x1b[A", "\x03", "\x04", "\t", "\r"


@pytest.fixture(params=["prompt_toolkit", "readline"])
def toolkit(request: pytest.FixtureRequest) -> bool:
    """Whether lines are read with prompt_toolkit."""
    if request.param == "prompt_toolkit":
        pytest.importorskip("prompt_toolkit")
    else:
        pytest.importorskip("readline")
    return bool(request.param == "prompt_toolkit")


@pytest.fixture
def server() -> Iterator[Server]:
    """A server in its own thread, because the test waits for a process."""
    with Server() as server:
        yield server


@pytest.fixture
def terminal(server: Server, tmp_path: Path, toolkit: bool) -> Iterator[TerminalProgram]:
    """A shell at a terminal, connected."""
    with run_at_terminal(["shell", "-server", server.hosts], tmp_path, toolkit=toolkit) as terminal:
        connected(terminal)
        yield terminal


def connected(terminal: TerminalProgram) -> None:
    """Wait until a shell is connected and waits for a line."""
    terminal.expect("WatchedEvent state:SyncConnected type:None path:null")
    terminal.type("ls /none" + ENTER)
    terminal.expect("Node does not exist: /none")
    terminal.expect(PROMPT)


def test_line_is_executed_and_quit_exits(terminal: TerminalProgram, server: Server) -> None:
    terminal.type("create /a one" + ENTER)
    terminal.expect("Created /a\n")
    terminal.type("get /a" + ENTER)
    terminal.expect(r"\none\n")
    terminal.expect(PROMPT)
    terminal.type("quit" + ENTER)
    assert terminal.wait() == 0
    assert server.tree()["/a"].data == b"one"


def test_mistyped_command_at_prompt_gets_suggestion(terminal: TerminalProgram) -> None:
    terminal.type("gte /a" + ENTER)
    terminal.expect(r"\nCommand not found: gte; did you mean get\?\n")
    terminal.expect(PROMPT)


def test_mistyped_command_line_gets_suggestion(server: Server, tmp_path: Path) -> None:
    with run_at_terminal(["shell", server.hosts, "gte", "/a"], tmp_path, toolkit=False) as terminal:
        terminal.expect(r"^Command not found: gte; did you mean get\?\n$")
        assert terminal.wait() == 127


def test_shell_exits_at_end_of_input_with_last_exit_code(terminal: TerminalProgram) -> None:
    terminal.type("get /missing" + ENTER)
    terminal.expect("Node does not exist: /missing")
    terminal.expect(PROMPT)
    terminal.type(CTRL_D)
    assert terminal.wait() == 1


def test_commands_and_paths_are_completed(terminal: TerminalProgram, server: Server) -> None:
    server.populate({"/services/web": "found"})
    terminal.type("getE" + TAB)
    terminal.expect("phemerals")
    terminal.type(CTRL_C)
    terminal.expect(PROMPT)
    terminal.type("get /serv" + TAB)
    terminal.expect("ices")
    terminal.type("/w" + TAB)
    terminal.expect("eb")
    terminal.type(ENTER)
    terminal.expect(r"\nfound\n")


def test_shell_history_survives_restart_without_passwords(server: Server, tmp_path: Path, toolkit: bool) -> None:
    with run_at_terminal(["shell", "-server", server.hosts], tmp_path, toolkit=toolkit) as terminal:
        connected(terminal)
        terminal.type("create /remembered" + ENTER)
        terminal.expect("Created /remembered\n")
        terminal.expect(PROMPT)
        terminal.type("addauth digest user:secret" + ENTER + "ls /" + ENTER)
        terminal.expect(r"\[remembered, zookeeper\]")
        terminal.type_until_end(CTRL_D)
    with run_at_terminal(["shell", "-server", server.hosts], tmp_path, toolkit=toolkit) as terminal:
        terminal.expect("SyncConnected type:None")
        terminal.expect(PROMPT)
        # Repeat Up until the oldest line, because the history is loaded in the background.
        terminal.type_until(UP, "ls /none")
        terminal.type(ENTER)
        terminal.expect("Node does not exist: /none")
    (file,) = tmp_path.rglob("shell_history")
    assert "create /remembered" in file.read_text(encoding="utf-8")
    assert "secret" not in file.read_text(encoding="utf-8")
    assert file.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_discards_line_and_stops_command(terminal: TerminalProgram, server: Server) -> None:
    terminal.type("create /never" + CTRL_C)
    terminal.expect(PROMPT)
    terminal.type("watch /" + ENTER)
    server.wait_for(lambda: server.watches())
    server.populate({"/seen": "x"})
    terminal.expect(r"\+ /seen x")
    terminal.type(CTRL_C)
    terminal.expect("interrupted")
    terminal.expect(PROMPT)
    terminal.type("ls /" + ENTER)
    terminal.expect(r"\[seen, zookeeper\]")


def test_event_printed_at_prompt_keeps_line_being_typed(terminal: TerminalProgram, server: Server) -> None:
    server.populate({"/a": "one"})
    terminal.type("get -w /a" + ENTER)
    terminal.expect(r"\none\n")
    terminal.expect(PROMPT)
    terminal.type("create /bro")
    terminal.expect("create /bro")
    server.populate({"/a": "two"})
    terminal.expect("WATCHER::")
    terminal.expect("WatchedEvent state:SyncConnected type:NodeDataChanged path:/a")
    terminal.expect(PROMPT + "create /bro")
    terminal.type("ken" + ENTER)
    terminal.expect("Created /broken\n")


def test_lost_connection_is_restored(terminal: TerminalProgram, server: Server) -> None:
    server.populate({"/a": "one"})
    server.refuse_connections()
    server.drop("all")
    terminal.expect("state:Disconnected type:None path:null")
    server.accept_connections()
    terminal.expect("state:SyncConnected type:None path:null")
    terminal.type("get /a" + ENTER)
    terminal.expect(r"\none\n")


def test_shell_works_after_terminal_was_made_smaller(terminal: TerminalProgram) -> None:
    terminal.type("create /a")
    terminal.expect("create /a")
    terminal.resize(10, 60)
    terminal.type("bc" + ENTER)
    terminal.expect("Created /abc\n")


@pytest.mark.parametrize(("bracketed", "count"), [(True, effort(500, 2_000)), (False, effort(500, 10_000))])
def test_pasted_lines_are_all_executed(terminal: TerminalProgram, server: Server, bracketed: bool, count: int) -> None:
    lines = "".join(f"create /p{number:05}\r" for number in range(count))
    terminal.type(f"\x1b[200~{lines}\x1b[201~\r" if bracketed else lines)
    terminal.expect(f"Created /p{count - 1:05}\n")
    terminal.expect(PROMPT)
    assert len(server.tree()) >= count
    terminal.type("get /p00000" + ENTER)
    terminal.expect("null")


def test_data_of_node_cannot_control_terminal(terminal: TerminalProgram, server: Server) -> None:
    server.populate({"/evil": b"\x1b]0;owned\x07\x1b[2J\xff\x9b31m\xe2\x80\xaetxt"})
    terminal.type("get /evil" + ENTER)
    terminal.expect(r"\\x1b\]0;owned\\x07\\x1b\[2J\\xff\\x9b31m\\u202etxt")
    assert b"owned\x07" not in terminal.raw


def test_invalid_connect_string_stops_shell(tmp_path: Path, toolkit: bool) -> None:
    with run_at_terminal(["shell", "-server", "host:99999"], tmp_path, toolkit=toolkit) as terminal:
        terminal.expect("with a port from 1 to 65535, not 'host:99999'")
        assert terminal.wait() == 2


def test_shell_history_contains_pasted_lines(terminal: TerminalProgram, tmp_path: Path) -> None:
    terminal.type("ls /\rpwd\rget /missing\r")
    terminal.expect("Node does not exist: /missing")
    terminal.expect(PROMPT)
    terminal.type(CTRL_D)
    terminal.wait()
    (file,) = tmp_path.rglob("shell_history")
    assert file.read_text(encoding="utf-8").splitlines()[-3:] == ["ls /", "pwd", "get /missing"]


def test_tab_and_enter_typed_together_complete_and_run_command(terminal: TerminalProgram, server: Server) -> None:
    server.populate({"/target": "found"})
    terminal.type("get /ta" + TAB + ENTER)
    terminal.expect(r"\nfound\n")


def test_ctrl_c_stops_command_and_discards_rest_of_pasted_lines(terminal: TerminalProgram, server: Server) -> None:
    terminal.type("watch /\rcreate /never\r")
    server.wait_for(lambda: server.watches())
    terminal.type(CTRL_C)
    terminal.expect("interrupted")
    terminal.type("create /after\r")
    terminal.expect("Created /after")
    assert "/never" not in server.tree()


@pytest.mark.slow
def test_characters_outside_locale_are_accepted_in_typed_line(
    tmp_path: Path, server: Server, toolkit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    for name in ("/\u00e9", "/\u202eb"):  # the second terminal loads the line of the first one from the history
        with run_at_terminal(["shell", "-server", server.hosts], tmp_path, toolkit=toolkit) as terminal:
            terminal.expect(PROMPT)
            terminal.type(f"create '{name}'" + ENTER)
            terminal.expect("Created /")
            terminal.expect(PROMPT)
            terminal.type(CTRL_D)
            assert terminal.wait() == 0
    assert {"/\u00e9", "/\u202eb"} <= {*server.tree()}


def test_node_names_cannot_control_terminal(terminal: TerminalProgram, server: Server) -> None:
    server.populate({"/a\u202eb": "x"})
    terminal.type("cd '/a\u202eb'" + ENTER)
    terminal.expect(r"\\u202eb")
    terminal.type("get /a" + TAB + ENTER)
    terminal.expect("Node does not exist: /a")
    terminal.type("quit" + ENTER)
    terminal.wait()
    assert terminal.raw.count("\u202e".encode()) <= 2  # the echo of the typed name
