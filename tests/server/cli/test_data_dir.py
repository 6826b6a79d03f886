"""``zoolet serve --data-dir``: what is refused, in one line, with nothing changed."""

from __future__ import annotations

import gzip
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from support.daemon import SERVE, DaemonProcess, running

pytestmark = pytest.mark.slow
HEADER = b"ZKSN" + b"\0\0\0\2" + b"\xff" * 8


def refused(*options: str) -> str:
    """Start a daemon that does not start; return the one line in which it says why."""
    done = subprocess.run([*SERVE, *options], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    return done.stderr


def files_in(folder: Path) -> dict[Path, bytes | None]:
    """Return all that is in a folder."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def other_version(folder: Path) -> None:
    """A directory of another version."""
    (folder / "version-3").mkdir()


def foreign(folder: Path) -> None:
    """A directory with something else."""
    (folder / "letter.txt").write_text("dear")


def only_a_log(folder: Path) -> None:
    """A log without a snapshot."""
    (folder / "version-2").mkdir()
    (folder / "version-2" / "log.1").write_bytes(b"ZKLG" + b"\0\0\0\2" + bytes(8))


def no_snapshot(folder: Path) -> None:
    """A snapshot that is something else."""
    (folder / "version-2").mkdir()
    (folder / "version-2" / "snapshot.0").write_bytes(b"dear")


def newer_snapshot(folder: Path) -> None:
    """A snapshot of another version."""
    (folder / "version-2").mkdir()
    (folder / "version-2" / "snapshot.0").write_bytes(HEADER.replace(b"\2", b"\3") + bytes(100))


def truncated_gzip(folder: Path) -> None:
    """A compressed snapshot that ends early."""
    (folder / "version-2").mkdir()
    (folder / "version-2" / "snapshot.0.gz").write_bytes(gzip.compress(HEADER + bytes(100))[:-12])


def snappy(folder: Path) -> None:
    """A snapshot that is compressed with snappy."""
    (folder / "version-2").mkdir()
    (folder / "version-2" / "snapshot.0.snappy").write_bytes(b"\x82SNAPPY\0")


def stop(client: KazooClient) -> None:
    """End a client, with its sockets."""
    client.stop()
    client.close()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (other_version, "it has data of another version: version-3"),
        (only_a_log, "there is a log but no snapshot"),
        (no_snapshot, "no snapshot can be used"),
        (newer_snapshot, "this is a snapshot of version 3; known is 2"),
        (truncated_gzip, "the gzip stream is damaged"),
        (snappy, "compressed with snappy are not supported"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_no_data_directory_is_refused_and_unchanged(
    tmp_path: Path, make: Callable[[Path], None], reason: str
) -> None:
    make(tmp_path)
    before = files_in(tmp_path)

    line = refused("--port", "0", "--data-dir", str(tmp_path))

    assert str(tmp_path) in line
    assert reason in line
    assert files_in(tmp_path) == before


def test_a_file_and_a_place_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file: this is not a directory" in refused("--port", "0", "--data-dir", str(tmp_path / "file"))
    assert "/proc/zoolet" in refused("--port", "0", "--data-dir", "/proc/zoolet")


def test_two_servers_on_one_directory(tmp_path: Path) -> None:
    with DaemonProcess("--data-dir", str(tmp_path)) as first:
        line = refused("--port", "0", "--data-dir", str(tmp_path))
        assert line == f"zoolet: {tmp_path}: another server uses this directory, process {first.process.pid}\n"
    with DaemonProcess("--data-dir", str(tmp_path)):
        pass


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    with DaemonProcess("--data-dir", str(tmp_path / "new")):
        pass
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert (tmp_path / "new" / "version-2").stat().st_mode & 0o777 == 0o700


def test_logs_may_be_in_another_directory(tmp_path: Path) -> None:
    data, logs = tmp_path / "data", tmp_path / "logs"
    options = ("--data-dir", str(data), f"-DdataLogDir={logs}")
    with DaemonProcess(*options) as server:
        client = KazooClient(server.hosts)
        client.start()
        client.create("/a", b"1")
        stop(client)
    names = [path.name.partition(".")[0] for path in (logs / "version-2").iterdir()]
    assert sorted(names) == ["log", "zoolet"]
    with DaemonProcess(*options) as server:
        client = KazooClient(server.hosts)
        client.start()
        assert client.get("/a")[0] == b"1"
        stop(client)
    with DaemonProcess("--data-dir", str(data)) as server:  # the directory says where its logs are
        client = KazooClient(server.hosts)
        client.start()
        assert client.get("/a")[0] == b"1"
        stop(client)
    (tmp_path / "other").mkdir()
    line = refused("--port", "0", "--data-dir", str(data), f"-DdataLogDir={tmp_path / 'other'}")
    assert f"its logs are in {logs}, as zoolet.logs says" in line
    assert "logs belong into dataLogDir" in refused("--port", "0", "--data-dir", str(logs), f"-DdataLogDir={data}")


def test_conf_names_the_directory(tmp_path: Path) -> None:
    with DaemonProcess("--data-dir", str(tmp_path), "-D4lw.commands.whitelist=*") as server:
        with socket.create_connection((server.host, server.port)) as link:
            link.sendall(b"conf")
            answer = b"".join(iter(lambda: link.recv(4096), b"")).decode()
    assert f"dataDir={tmp_path}/version-2\n" in answer
    assert f"dataLogDir={tmp_path}/version-2\n" in answer
    assert "dataDirSize=0\n" not in answer


def test_without_a_directory_nothing_touches_the_disk(tmp_path: Path) -> None:
    command = [*SERVE, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
    assert list(tmp_path.iterdir()) == []


def test_the_log_says_what_was_recovered(tmp_path: Path) -> None:
    with running("--port", "0", "--data-dir", str(tmp_path)) as daemon:
        assert daemon.log_until("nodes and 0 sessions at zxid 0x")
        assert daemon.port()


def test_passwords_with_a_key_stay_the_same(tmp_path: Path) -> None:
    options = ("--data-dir", str(tmp_path), "-Dzoolet.keyedPasswords=true")
    with DaemonProcess(*options) as server:
        client = KazooClient(server.hosts)
        client.start()
        session, password = client.client_id
    with DaemonProcess(*options) as server:
        client.set_hosts(server.hosts)
        other = KazooClient(server.hosts, client_id=(session, password))
        other.start()
        assert other.client_id == (session, password)
        stop(other)
    stop(client)
    assert (tmp_path / "zoolet.key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "zoolet.key").write_bytes(b"short")
    assert "has 32 bytes; this has 5" in refused("--port", "0", *options)
