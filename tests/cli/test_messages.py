"""A failure that several commands share has one text."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.apache import free_port

from zoolet.__main__ import main


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
def test_refused_connection_has_one_text(
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
def test_missing_h11_has_one_text(
    words: tuple[str, ...], feature: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "h11", None)
    for name in ("zoolet.testing.control.http", "zoolet.server.net.http"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)

    assert main(list(words)) == 2
    assert (
        capsys.readouterr().err == f"zoolet {words[0]}: {feature} requires h11; install zoolet with the extra 'admin'\n"
    )
