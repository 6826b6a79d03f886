"""The shell with malicious names and values, slow patterns, deep trees, and unreadable nodes."""

from __future__ import annotations

import asyncio
import json

import pytest
from support.shells import TREE, ShellDriver, open_shell
from support.waiting import DEADLINE_S

from zoolet.cli.shell.completion import completions
from zoolet.cli.shell.matcher import Matcher
from zoolet.testing import Server


async def test_empty_path_argument_is_refused_after_cd_command(shell: ShellDriver, server: Server) -> None:
    await shell("cd /app")
    assert (await shell('deleteall ""')).err == "Path length must be > 0\n"
    assert (await shell("deleteall ../../..")).err == "../../.. leads above /\n"
    assert set(TREE) <= set(server.tree())


async def test_words_after_two_hyphens_are_data(shell: ShellDriver, server: Server) -> None:
    assert await shell("set /app -- --json") == ("", "", 0)
    assert server.tree()["/app"].data == b"--json"


async def test_unicode_spaces_do_not_split_arguments(shell: ShellDriver, server: Server) -> None:
    server.populate({"/app\xa0old": ""})
    assert (await shell("deleteall /app\xa0old")).code == 0
    assert "/app" in server.tree()


async def test_deceptive_node_names_are_not_completed(shell: ShellDriver, server: Server) -> None:
    server.populate({"/app/evil\u2028deleteall ..": "", "/app/\u202eevil": "", "/app/my node": ""})
    assert await completions(shell.shell, "get /app/") == ["/app/a", "/app/c", "/app/my node"]


async def test_grep_command_with_slow_pattern_can_be_cancelled(
    shell: ShellDriver, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.populate({"/big": "a" * 500_000})
    begun = asyncio.Event()
    search = Matcher.lines

    async def lines(matcher: Matcher, data: bytes) -> list[bytes]:
        begun.set()
        return await search(matcher, data)

    monkeypatch.setattr(Matcher, "lines", lines)
    searching = asyncio.ensure_future(shell("grep a.*a.*b /big"))
    await begun.wait()
    searching.cancel()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(searching, return_exceptions=True)
    assert (await shell("get /app")).out.endswith("root\n")


@pytest.mark.parametrize("pattern", ["a{99999999999999}", "(" * 5000, "[[a]"])
async def test_invalid_patterns_are_refused_in_one_line(shell: ShellDriver, pattern: str) -> None:
    printed = await shell(f"grep {pattern} /app")
    assert (printed.out, printed.code, printed.err.count("\n")) == ("", 1, 1)


async def test_tree_command_prints_tree_of_thousand_levels(shell: ShellDriver, server: Server) -> None:
    path = ""
    nodes = {}
    for _ in range(1200):
        path += "/d"
        nodes[path] = b""
    server.populate(nodes)
    for line, count in (("tree /d", 1202), ("ls -R /d", 1200), ("find /d", 1200), ("du -L 0 /d", 1)):
        assert (await shell(line)).out.count("\n") == count
    assert (await shell("deleteall /d")).code == 0


async def test_system_node_command_is_refused_below_chroot(server: Server) -> None:
    server.populate(TREE)
    async with open_shell(f"{server.hosts}/app") as shell:
        for line in ("setquota -n 5 /a", "listquota /a", "delquota /a", "config -w"):
            printed = await shell(line)
            assert (printed.code, "connect without the chroot /app" in printed.err) == (1, True)
        assert (await shell("config")).code == 0
    assert "/app/zookeeper" not in server.tree()


async def test_unexpected_error_does_not_close_shell(shell: ShellDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("zoolet.cli.shell.commands.nodes.stat_lines", fail)
    assert await shell("stat /app") == ("", "stat failed unexpectedly: RuntimeError: a defect\n", 1)
    assert (await shell("get /app")).code == 0


async def test_grep_colours_reach_terminal(server: Server) -> None:
    server.populate(TREE)
    async with open_shell(server.hosts, terminal=True, colour=True) as shell:
        assert (await shell("grep one /app")).out == "\x1b[1m/app/a\x1b[0m: one\n"


async def test_shell_reports_and_skips_unreadable_nodes(server: Server) -> None:
    server.populate({**TREE, "/app/secret": "one", "/app/secret/within": "one"})
    async with open_shell(server.hosts) as owner, open_shell(server.hosts) as shell:
        await owner("addauth digest u:p")
        await owner("setAcl /app/secret auth::cdrwa")
        for line, expected in (
            ("tree /app", "└── secret\n"),
            ("find /app -larger 0", "/app/a/b\n"),
            ("grep one /app", "/app/a: one\n"),
            ("du -L 0 /app", " /app\n"),
        ):
            printed = await shell(line)
            assert (printed.code, printed.err) == (1, "Insufficient permission : /app/secret\n"), line
            assert expected in printed.out, line


async def test_shell_ignores_comment_line(shell: ShellDriver) -> None:
    await shell("get /app")
    assert await shell("# get /missing") == ("", "", 0)


async def test_watch_command_reports_creation_of_missing_node(shell: ShellDriver, server: Server) -> None:
    following = asyncio.ensure_future(shell("watch -n 1 /later"))
    await server.until(lambda: server.watches())
    await server.until_idle()
    server.populate({"/later": "x"})
    printed = await following
    assert (printed.out, printed.err) == ("+ /later x\n", "/later does not exist yet\n")


async def test_connect_command_resets_current_path(shell: ShellDriver, server: Server) -> None:
    await shell("cd /app")
    await shell(f"connect {server.hosts}/app")
    assert (await shell("pwd")).out == "/\n"


async def test_64_bit_numbers_are_strings_in_json(server: Server) -> None:
    server.populate(TREE)
    async with open_shell(server.hosts, as_json=True) as shell:
        stat = json.loads((await shell("stat /app")).out)["stat"]
    assert int(stat["czxid"], 16) == server.tree()["/app"].czxid
    assert stat["ephemeralOwner"] == "0x0"


async def test_json_flag_applies_to_one_command(shell: ShellDriver) -> None:
    assert (await shell("get /app --json")).out == '{"path": "/app", "data": "root"}\n'
    assert (await shell("get /app")).out == "root\n"


async def test_thousands_of_siblings_are_listed_in_order(shell: ShellDriver, server: Server) -> None:
    nodes = {f"/wide/n{number:04}/below{number}": b"" for number in range(1100)}
    server.populate(nodes)
    lines = (await shell("ls -R /wide")).out.split()
    assert lines[1101:] == sorted(nodes)
    assert [line for line in (await shell("tree /wide")).out.splitlines() if "below1099" in line] == [
        "    └── below1099"
    ]


async def test_conditional_write_with_wrong_version_fails(shell: ShellDriver, server: Server) -> None:
    assert (await shell("set -v 9 -v 0 /app x")).err == "version No is not valid : /app\n"
    assert (await shell("delete /other 7")).code == 1
    assert "/other" in server.tree()


async def test_delquota_deletes_all_quota_nodes(shell: ShellDriver, server: Server) -> None:
    await shell("setquota -n 9 /app/a")
    await shell("delquota /app/a")
    assert not any(path.startswith("/zookeeper/quota/") for path in server.tree("/"))
