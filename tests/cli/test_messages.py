"""A failure that several commands share has one text."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from support.apache import free_port

from zoolet.__main__ import main
from zoolet.cli.program import COMMAND_MODULES


@pytest.mark.parametrize(
    ("words", "before"),
    [
        (("status", "SERVER"), ""),
        (("top", "SERVER", "-n", "1"), ""),
        (("dump", "SERVER", "FILE", "--timeout", "0.2"), "zoolet dump: "),
        (("push", "SERVER", "SERVER/x", "--timeout", "0.2"), "zoolet push: "),
        (("locks", "SERVER"), "zoolet locks: "),
        (("console", "SERVER"), "zoolet console: "),
        (("shell", "SERVER", "get", "/a"), "KeeperErrorCode = ConnectionLoss: "),
        (("fault", "--admin", "http://SERVER"), "zoolet fault: "),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_refused_connection_has_same_message_in_all_commands(
    words: tuple[str, ...], before: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("h11")
    server = f"127.0.0.1:{free_port()}"
    command = [word.replace("SERVER", server).replace("FILE", str(tmp_path / "file")) for word in words]

    assert main(command) == 1
    out, err = capsys.readouterr()

    assert (out + err).splitlines()[-1] == f"{before}cannot connect to {server}: connection refused"


@pytest.mark.parametrize(
    ("words", "feature"),
    [
        (("console", "127.0.0.1:1"), "the console"),
        (("run", "--admin", "true"), "--admin"),
        (("serve", "--admin-port", "0"), "admin.serverPort"),
    ],
)
def test_missing_h11_has_same_message_in_all_commands(
    words: tuple[str, ...], feature: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "h11", None)
    for name in ("zoolet.testing.control.http", "zoolet.server.net.http"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)

    assert main(list(words)) == 2
    assert (
        capsys.readouterr().err == f"zoolet {words[0]}: {feature} requires h11; install zoolet with the extra 'admin'\n"
    )


PATH = "must be a path, not ''"
HOST_ERROR = "must be an address or a name without a port, not "


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serve", ""], f"ZOO_CFG {PATH}"),
        (["check", ""], f"FILE {PATH}"),
        (["run", "--load", "", "true"], f"--load {PATH}"),
        (["proxy", "a:1", "--record", ""], f"--record {PATH}"),
        (["dump", "a:1", ""], f"FILE {PATH}"),
        (["load", "a:1", ""], f"FILE {PATH}"),
        (["backup", "", "x"], f"DIR {PATH}"),
        (["backup", "x", ""], f"TARGET {PATH}"),
        (["datadir", "show", ""], f"DIR {PATH}"),
        (["status", "--tls-ca", ""], f"--tls-ca {PATH}"),
        (["serve", "--host", ""], f"--host {HOST_ERROR}''"),
        (["serve", "--host", "127.0.0.1:2181"], f"--host {HOST_ERROR}'127.0.0.1:2181'"),
        (["serve", "--host", "[::1"], f"--host {HOST_ERROR}'[::1'"),
        (["run", "--host", "", "true"], f"--host {HOST_ERROR}''"),
        (["run", "--host", "127.0.0.1,::1", "true"], "--host must be a single address or name, not '127.0.0.1,::1'"),
        (["\x1b[31m"], "unknown command '\\x1b[31m'"),
        (["console", "--host", ""], f"--host {HOST_ERROR}''"),
        (["--bogus"], "unrecognized arguments: --bogus"),
        (["dump"], "missing HOSTS[/PATH] and FILE"),
        (["status", "--time\x1b[31m"], "unrecognized arguments: --time\\x1b[31m"),
        (
            ["dump", "a:1", "x", "--max-request", "9"],
            "--max-request must be a whole number from 100 to 2147483647, not",
        ),
    ],
)
def test_usage_error_names_invalid_argument(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(words)

    command = "" if words[0].startswith(("-", "\x1b")) else f" {words[0]}"
    assert exit.value.code == 2
    assert capsys.readouterr().err.startswith(f"zoolet{command}: {message}")


READ_KEYS: Final = {"datadir": "snapshot.trust.empty", "console": "zoolet.adminHosts"}
REQUIRED_WORDS: Final = {
    "backup": "d t",
    "check": "f",
    "completion": "bash",
    "datadir": "show d",
    "dump": "a:1 f",
    "fault": "",
    "load": "a:1 f",
    "push": "a:1 b:1",
    "proxy": "a:1",
}
"""The words that a command requires."""


@pytest.mark.parametrize("command", sorted(set(COMMAND_MODULES) - {"serve", "run", "container", "shell"}))
def test_property_that_command_ignores_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, *REQUIRED_WORDS.get(command, "").split(), "-DtickTime=5"]) == 2
    only = f"-D{READ_KEYS[command]} is the only property that this command reads" if command in READ_KEYS else ""
    problem = only or "-D is not supported by this command"
    assert capsys.readouterr().err == f"zoolet {command}: {problem}: -DtickTime\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["container", "-Da=1", "status"], "-D is only for the daemon, not for 'status'"),
        (["status", "127.0.0.1:1/app"], "HOSTS must not contain a path; remove '/app'"),
        (["top", "127.0.0.1:1/app"], "HOSTS must not contain a path; remove '/app'"),
        (["container", "status", "x"], "'status' accepts no arguments; found 'x'"),
        (["locks", "--auth", "secret"], "--auth must be SCHEME:CREDENTIALS, such as digest:user:password"),
        (["locks", "--auth", "@FILE"], "--auth @FILE, line 2 must be SCHEME:CREDENTIALS, such as digest:user:password"),
        (["locks", "--auth", "@BINARY"], "cannot read --auth @BINARY: not valid UTF-8 text"),
        (["run", "--load", "BINARY", "true"], "cannot read BINARY: not valid UTF-8 text"),
        (["run", "--load", "EMPTY", "true"], "EMPTY is not valid JSON: the file is empty"),
        (
            ["load", "127.0.0.1:1", "BINARY"],
            "BINARY is not a file of zoolet dump",
        ),
        (["datadir", "show", "MISSING"], "MISSING does not exist"),
        (["backup", "MISSING", "x"], "MISSING does not exist"),
        (["serve", "--data-dir", "FILE"], "FILE is not a directory"),
        (["serve", "CONFIG"], "FILE is not a directory"),
        (["serve", "FOLDER"], "FOLDER is a directory, not a zoo.cfg; did you mean --data-dir FOLDER?"),
        (["serve", "21994"], "cannot read 21994: no such file or directory; did you mean --port 21994?"),
        (["serve", "--sid", "4"], "--sid requires --observe"),
        (["load", "127.0.0.1:1", "EMPTY.json"], "EMPTY.json is empty"),
        (["load", "127.0.0.1:1", "BINARY.json"], "BINARY.json is not valid UTF-8 text"),
        (["fault", "--admin", "http://user:secret@a:1", "hold"], "--admin must not contain a user or a password\n"),
        (["fault", "--admin", "http://a..b:1", "hold"], "--admin must be a URL such as http://127.0.0.1:8080/TOKEN"),
        (
            ["fault", "--admin", "http://127.0.0.1:x", "hold"],
            "--admin must be a URL such as http://127.0.0.1:8080/TOKEN, not",
        ),
    ],
)
def test_command_with_unusable_value_exits_with_2(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {name: str(tmp_path / name) for name in ("FILE", "BINARY", "EMPTY", "MISSING", "CONFIG", "FOLDER")}
    Path(paths["FILE"]).write_text("digest:a:b\nsecret\n")
    Path(paths["BINARY"]).write_bytes(b"\xff\x00\x81\xc1")
    Path(paths["EMPTY"]).touch()
    Path(paths["EMPTY"] + ".json").touch()
    Path(paths["BINARY"] + ".json").write_bytes(b"\xff")
    Path(paths["FOLDER"]).mkdir()
    Path(paths["CONFIG"]).write_text(f"clientPort=0\ndataDir={paths['FILE']}\n")

    def filled(text: str) -> str:
        for name, path in paths.items():
            text = text.replace(name, path)
        return text

    assert main([*map(filled, words)]) == 2
    assert capsys.readouterr().err.startswith(f"zoolet {words[0]}: {filled(message)}")


def test_long_value_is_truncated_in_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "9" * 10_000]) == 2
    assert len(capsys.readouterr().err) < 700
