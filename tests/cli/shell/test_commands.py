"""Features that zkCli lacks: relative paths, tree, find, grep, du, cp, edit, watch, JSON, the shell's own commands."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.effort import effort
from support.shells import TREE, ShellDriver, open_shell
from support.waiting import PROMPT_S, until

from zoolet.cli.shell.command import sorted_commands
from zoolet.cli.shell.completion import completions
from zoolet.client import Client
from zoolet.testing import Server

# --- the shell itself ---


async def test_paths_are_relative_after_cd(shell: ShellDriver) -> None:
    assert (await shell("get a")).err == "Path must start with / character\n"
    assert (await shell("pwd")).out == "/\n"
    assert (await shell("cd /app")).code == 0
    assert (await shell("pwd")).out == "/app\n"
    assert (await shell("get a")).out == "one\n"
    assert (await shell("ls")).out == "[a, c]\n"
    assert (await shell("get ./a/../a")).out == "one\n"
    assert (await shell("ls ..")).out == "[app, other, zookeeper]\n"
    assert (await shell("get /app/a")).out == "one\n"
    assert (await shell("cd missing")).err == "Node does not exist: /app/missing\n"
    assert (await shell("pwd")).out == "/app\n"
    assert "/app" in shell.shell.prompt
    await shell("cd")
    assert (await shell("ls app")).out == "[a, c]\n"


async def test_connect_command_works_after_close_command(shell: ShellDriver, server: Server) -> None:
    await shell("close")
    assert await shell("get /app") == ("", "Not connected\n", 1)
    assert (await shell("printwatches")).out.endswith("printwatches is on\nNot connected\n")
    await shell(f"connect {server.hosts}/app")
    assert (await shell("get /a")).out.endswith("one\n")
    message = "server must be host:port or [IPv6]:port, with a port from 1 to 65535, not 'host:99999'\n"
    assert await shell("connect host:99999") == ("", message, 1)


async def test_exit_command_ends_shell(shell: ShellDriver) -> None:
    assert not shell.shell.ended
    await shell("exit")
    assert shell.shell.ended


async def test_redo_repeats_command_of_history(shell: ShellDriver) -> None:
    await shell("get /app")
    assert (await shell("history")).out == "0 - get /app\n1 - history\n"
    assert (await shell("redo 0")).out == "root\n"
    assert (await shell("history")).out.splitlines()[-2:] == ["2 - get /app", "3 - history"]
    assert (await shell("redo 99")).err == "Command index out of range\n"
    assert (await shell("redo x")).err == "Command index out of range\n"


async def test_version_and_help_commands_print_text(shell: ShellDriver) -> None:
    from zoolet import __version__

    assert (await shell("version")).out == f"ZooKeeper CLI version: zoolet {__version__}\n"
    text = (await shell("help")).out
    assert all(f"{row.name} " in text for row in sorted_commands())
    assert " -w   Watch for changes on the znode" in (await shell("help get")).out
    assert (await shell("help nothing")).code == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("set -v abc /app x", "-v must be a version (a 32-bit number), not abc\n"),
        ("set -v 99999999999 /app x", "-v must be a version (a 32-bit number), not 99999999999\n"),
        ("setAcl -v x /app world:anyone:r", "-v must be a version (a 32-bit number), not x\n"),
        ("set -b /app %%%", "data is not valid base64: Only base64 data is allowed\n"),
        ("deleteall -b 0 /app", "-b must be a number from 1 to 2147483647, not 0\n"),
        ("addWatch relative", "Path must start with / character\n"),
        ("addauth digest", "addauth scheme auth\n"),
        ("watch -n x /app", "-n must be a whole number from 1, not 'x'\n"),
        ("find / -owner x", "-owner must be a session id such as 0x1234, not x\n"),
        ("find / -larger x", "-larger must be a number of bytes, not x\n"),
        ("find / -changed x", "-changed must be a number of seconds, not x\n"),
        ("tree -L x", "-L must be a number of levels, not x\n"),
        ("grep [ /app", "[ is not a valid regular expression: unterminated character set at position 0\n"),
        ("cp /app /app/within", "cannot copy /app to /app/within: the tree would be copied into itself\n"),
        ("cp /app /missing/copy", "Node does not exist: /missing\n"),
        ("cp /missing /copy", "Node does not exist: /missing\n"),
        ("tree /missing", "Node does not exist: /missing\n"),
        ("du /missing", "Node does not exist: /missing\n"),
        ("find /missing", "Node does not exist: /missing\n"),
        ("watch /app/", "Path must not end with / character\n"),
        ("watch -n 0 /app", "-n must be a whole number from 1, not '0'\n"),
        ("du /app '*'", "du [-L depth] [path]\n"),
        ("cd /app /other", "cd [path]\n"),
        ("delquota /", "Path must not end with / character\n"),
        ("delquota /app/", "Path must not end with / character\n"),
        ("reconfig -add x -v fffffffffffffffffffff", "-v must be followed by a long (configuration version)\n"),
        ("watch -n 99999999999 /app", "-n must be a whole number from 1, not '99999999999'\n"),
        ("redo 99999999999999999999999", "Command index out of range\n"),
        ("setAcl /app digest:\udcff:x:r", "not UTF-8: '\\udcff:x'\n"),
    ],
)
async def test_invalid_command_line_is_reported_without_any_change(
    shell: ShellDriver, server: Server, line: str, message: str
) -> None:
    before = server.zxid()
    assert await shell(line) == ("", message, 1)
    assert server.zxid() == before


async def test_shell_accepts_command_forms_of_zookeeper_3_4(shell: ShellDriver) -> None:
    assert (await shell("set /app x 0")).code == 0
    assert (await shell("set /app x 0")).err == "version No is not valid : /app\n"
    assert (await shell("ls2 /app")).out.startswith("[a, c]\ncZxid = 0x")
    assert "has been deprecated" in (await shell("delete /other 0")).err
    assert (await shell("rmr /app")).code == 0
    assert (await shell("ls /")).out == "[zookeeper]\n"


# --- subtrees ---


async def test_tree_command_prints_nodes_with_levels_and_data(shell: ShellDriver) -> None:
    assert (await shell("tree /app")).out == "/app\n├── a\n│   └── b\n└── c\n\n4 nodes\n"
    assert (await shell("tree -L 1 /app")).out == "/app\n├── a\n└── c\n\n3 nodes\n"
    assert (await shell("tree -d /app")).out.splitlines()[:4] == [
        "/app  root",
        "├── a  one",
        "│   └── b  (9 bytes)",
        "└── c  (2 bytes)",
    ]


async def test_find_command_lists_nodes_that_match_its_tests(shell: ShellDriver, server: Server) -> None:
    await shell("create -e /app/mine x")
    owner = f"{shell.shell.client.session_id & 0xFFFFFFFFFFFFFFFF:#x}"
    assert (await shell("find /app")).out == "/app\n/app/a\n/app/c\n/app/mine\n/app/a/b\n"
    assert (await shell("find / -name [ab]")).out == "/app/a\n/app/a/b\n"
    assert (await shell("find /app -ephemeral")).out == "/app/mine\n"
    assert (await shell(f"find /app -owner {owner}")).out == "/app/mine\n"
    assert (await shell(f"find /app -owner {int(owner, 16)}")).out == "/app/mine\n"
    assert (await shell("find /app -larger 3")).out == "/app\n/app/a/b\n"
    assert (await shell("find / -empty -name o*")).out == "/other\n"
    assert (await shell("find /app -changed 1000 -name c")).out == "/app/c\n"
    assert (await shell("find /app -changed -1000")).out == ""


async def test_grep_command_prints_matching_lines_of_data(shell: ShellDriver) -> None:
    assert (await shell("grep o.e /app")).out == "/app/a: one\n"
    assert (await shell("grep -i LINES /app")).out == "/app/a/b: lines\n"
    assert (await shell("grep -l . /app")).out == "/app\n/app/a\n/app/c\n/app/a/b\n"
    assert await shell("grep -F o.e /app") == ("", "no data below /app matches o.e\n", 1)


async def test_du_command_prints_bytes_and_nodes_per_subtree(shell: ShellDriver) -> None:
    rows = [line.split() for line in (await shell("du /app")).out.splitlines()]
    assert rows == [
        ["18", "bytes", "4", "nodes", "/app"],
        ["12", "bytes", "2", "nodes", "/app/a"],
        ["2", "bytes", "1", "nodes", "/app/c"],
    ]
    assert (await shell("du -L 0 /app")).out.count("\n") == 1


async def test_cp_command_copies_subtree_and_reports_counts(shell: ShellDriver, server: Server) -> None:
    await shell("setAcl /app/c world:anyone:r")
    assert (await shell("cp -n /app /copy")).out == "would be 4 created, 0 changed, 0 unchanged\n"
    assert "/copy" not in server.tree()
    assert (await shell("cp /app /copy")).out == "4 created, 0 changed, 0 unchanged\n"
    assert server.tree()["/copy/a/b"].data == b"two\nlines"
    assert (await shell("getAcl /copy/c")).out == "'world,'anyone\n: r\n"
    await shell("set /app/a changed")
    assert (await shell("cp /app /copy")).out == "0 created, 1 changed, 3 unchanged\n"


async def test_cp_works_below_chroot(server: Server) -> None:
    server.populate(TREE)
    async with open_shell(f"{server.hosts}/app") as shell:
        assert (await shell("cp /a /copy")).out == "2 created, 0 changed, 0 unchanged\n"
    assert server.tree()["/app/copy/b"].data == b"two\nlines"


async def test_deleteall_of_many_nodes_uses_batches(shell: ShellDriver, server: Server) -> None:
    server.populate({f"/many/n{number:04}/below": b"" for number in range(1500)})
    assert (await shell("deleteall -b 700 /many")).code == 0
    assert "/many" not in server.tree()


CHILD_COUNT = effort(20_000, 100_000)


async def test_node_with_many_children_is_listed(shell: ShellDriver, server: Server) -> None:
    server.populate({f"/many/n{number:06}": b"" for number in range(CHILD_COUNT)})
    text = (await shell("ls /many")).out
    assert text.startswith("[n000000, n000001, ")
    assert text.endswith(f", n{CHILD_COUNT - 1:06}]\n")
    assert (await shell("ls -R /many")).out.count("\n") == CHILD_COUNT + 1


# --- edit, watch ---


def editor(tmp_path: Path, code: str) -> str:
    """Return the command line of an editor that runs *code* on a file."""
    script = tmp_path / "editor.py"
    script.write_text(f"import sys, pathlib\nfile = pathlib.Path(sys.argv[1])\n{code}\n", encoding="utf-8")
    return shlex.join([sys.executable, str(script)])


async def test_edit_command_writes_changed_text_and_reports_failure(
    shell: ShellDriver, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor(tmp_path, "file.write_bytes(file.read_bytes().upper())"))
    assert (await shell("edit /app/a")).out == "/app/a now has version 1\n"
    assert server.tree()["/app/a"].data == b"ONE"
    assert (await shell("edit /app/a")).out == "/app/a is unchanged\n"
    monkeypatch.setenv("EDITOR", editor(tmp_path, "sys.exit(3)"))
    assert "exited with code 3; /app/a is unchanged" in (await shell("edit /app/a")).err
    monkeypatch.setenv("EDITOR", "/missing/editor")
    assert "set EDITOR to an editor command" in (await shell("edit /app/a")).err


async def test_edit_ignores_line_end_added_by_editor(
    shell: ShellDriver, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", editor(tmp_path, "file.write_bytes(file.read_bytes() + b'\\n')"))
    assert (await shell("edit /app/a")).out == "/app/a is unchanged\n"
    monkeypatch.setenv("VISUAL", editor(tmp_path, "file.write_bytes(b'new\\n')"))
    await shell("edit /app/a")
    assert server.tree()["/app/a"].data == b"new"
    server.set("/app/a", "line\n")
    monkeypatch.setenv("VISUAL", editor(tmp_path, "file.write_bytes(b'other\\n')"))
    await shell("edit /app/a")
    assert server.tree()["/app/a"].data == b"other\n"
    server.set("/app/a", "")
    await shell("edit /app/a")
    assert server.tree()["/app/a"].data == b"other"


async def test_edit_keeps_text_after_failed_editor(
    shell: ShellDriver, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", editor(tmp_path, "file.write_text('mine'); sys.exit(1)"))
    error = (await shell("edit /app/a")).err
    assert "exited with code 1; /app/a is unchanged; your text is saved in " in error
    os.unlink(error.strip().partition("saved in ")[2])


def _recreate_node(server: Server) -> None:
    server.delete("/app/c")
    server.populate({"/app/c": "theirs"})  # with the version that the editor has read


@pytest.mark.parametrize("change", [lambda server: server.set("/app/c", "theirs"), _recreate_node])
async def test_edit_keeps_text_after_conflicting_change(
    shell: ShellDriver,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Server], object],
) -> None:
    flag, start_in_loop = tmp_path / "open", tmp_path / "go-on"
    code = f"""
import time
pathlib.Path({str(flag)!r}).touch()
while not pathlib.Path({str(start_in_loop)!r}).exists():
    time.sleep(0.01)
file.write_text("mine")"""
    monkeypatch.setenv("VISUAL", editor(tmp_path, code))
    editing = asyncio.ensure_future(shell("edit /app/c"))
    await until(lambda: os.path.exists(flag))
    try:
        change(server)
    finally:
        start_in_loop.touch()
    error = (await editing).err
    assert "was changed by another client in the meantime; your text is saved in " in error
    kept = Path(error.strip().partition("saved in ")[2])
    assert await asyncio.to_thread(kept.read_text, encoding="utf-8") == "mine"
    os.unlink(kept)
    assert server.tree()["/app/c"].data == b"theirs"


async def test_watch_command_prints_changes_of_subtree(shell: ShellDriver, server: Server) -> None:
    async with Client(server.hosts) as zk:
        following = asyncio.ensure_future(shell("watch -n 3 /app"))
        await server.until(lambda: server.watches())
        await server.until_idle()
        await zk.create("/app/new", b"1")
        await zk.set("/app/new", b"2")
        await zk.delete("/app/new")
        lines = (await following).out.splitlines()
    assert [line.split()[:2] for line in lines] == [["+", "/app/new"], ["=", "/app/new"], ["-", "/app/new"]]


# --- JSON ---


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("get -s /app", {"path", "data", "stat"}),
        ("set /app x", {"path", "stat"}),
        ("stat /app", {"path", "stat"}),
        ("ls -s /app", {"path", "children", "stat"}),
        ("create /new", {"created"}),
        ("delete /other", {"deleted"}),
        ("deleteall /app", {"path", "deleted", "failed", "reason"}),
        ("getAcl -s /app", {"path", "acl", "stat"}),
        ("setAcl /app world:anyone:r", {"path", "stat"}),
        ("getAllChildrenNumber /app", {"path", "count"}),
        ("getEphemerals", {"ephemerals"}),
        ("sync /app", {"path", "ok", "code"}),
        ("config -s", {"config", "stat"}),
        ("setquota -n 50 /app", {"path", "limits"}),
        ("addWatch /app", {"watching", "recursive"}),
        ("addauth digest u:p", {"authenticated"}),
        ("version", {"version"}),
        ("pwd", {"path"}),
        ("printwatches", {"printwatches"}),
        ("cp /app /copy", {"dry_run", "created", "changed", "same", "ephemerals", "failed", "unreadable"}),
        ("find /app/a -name a", {"path", "stat"}),
        ("grep one /app", {"path", "line"}),
        ("du -L 0 /app", {"path", "bytes", "nodes"}),
        ("tree -L 0 /app", {"path"}),
        ("help get", {"name", "usage", "summary"}),
    ],
)
async def test_json_output_of_each_command_has_documented_keys(server: Server, line: str, keys: set[str]) -> None:
    server.populate(TREE)
    async with open_shell(server.hosts, as_json=True) as shell:
        printed = await shell(line)
    assert printed.err == ""
    (value,) = (json.loads(text) for text in printed.out.splitlines())
    assert value.keys() == keys


# --- completion ---


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("getA", ["getAcl", "getAllChildrenNumber"]),
        ("get /ap", ["/app"]),
        ("get /app/", ["/app/a", "/app/c"]),
        ("get -s /app/a/", ["/app/a/b"]),
        ("get /missing/", []),
        ("get ", ["/"]),
        ("get -", ["-b", "-s", "-w", "-x"]),
        ("printwatches o", ["on", "off"]),
        ("help wat", ["watch"]),
        ("bogus /ap", []),
    ],
)
async def test_completion_offers_commands_paths_and_flags(shell: ShellDriver, line: str, expected: list[str]) -> None:
    assert await completions(shell.shell, line) == expected


async def test_relative_paths_are_completed(shell: ShellDriver) -> None:
    await shell("cd /app")
    assert await completions(shell.shell, "get ") == ["a", "c"]
    assert await completions(shell.shell, "get a/") == ["a/b"]


async def test_completion_does_not_wait_for_unreachable_server(shell: ShellDriver, server: Server) -> None:
    server.refuse_connections()
    server.drop("all")
    async with asyncio.timeout(PROMPT_S):
        assert await completions(shell.shell, "get /ap") == []
