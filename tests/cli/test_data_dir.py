"""``zoolet serve --data-dir``: accepted and refused directories, the files in them, and the reports about them."""

from __future__ import annotations

import gzip
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from support.command import ZOOLET
from support.daemon import SERVE, DaemonProcess, running_daemon, startup_error
from support.embedded import ask
from support.kazoo_clients import connected_client
from support.waiting import DEADLINE_S

from zoolet.__main__ import main
from zoolet.client.blocking import Client

pytestmark = pytest.mark.slow
SNAPSHOT_HEADER = b"ZKSN" + b"\0\0\0\2" + b"\xff" * 8


def test_data_directory_is_opened_with_1_gb_address_space(tmp_path: Path) -> None:
    small = ["sh", "-c", 'ulimit -v 1048576; exec "$@"', "sh"]
    daemon = DaemonProcess("--data-dir", str(tmp_path))
    daemon.command = [*small, *daemon.command]

    with daemon, Client(daemon.hosts) as zk:
        zk.create("/a", b"1")
    with daemon, Client(daemon.hosts) as zk:
        data, _ = zk.get("/a")
    verify = [*small, *ZOOLET, "datadir", "verify", str(tmp_path)]
    verified = subprocess.run(verify, capture_output=True, timeout=DEADLINE_S, check=False)

    assert data == b"1"
    assert verified.returncode == 0


def file_contents(folder: Path) -> dict[Path, bytes | None]:
    """Return the content of each file below a folder, by path; None for folders."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def make_unsupported_version(folder: Path) -> None:
    """Create a data directory of an unsupported version."""
    (folder / "version-3").mkdir()


def unrelated_file(folder: Path) -> None:
    """Create an unrelated file."""
    (folder / "letter.txt").write_text("dear")


def log_without_snapshot(folder: Path) -> None:
    """Create a log without a snapshot."""
    (folder / "version-2").mkdir()
    (folder / "version-2" / "log.1").write_bytes(b"ZKLG" + b"\0\0\0\2" + bytes(8))


def invalid_snapshot(folder: Path) -> None:
    """Create a file that is named like a snapshot, but contains other text."""
    (folder / "version-2").mkdir()
    (folder / "version-2" / "snapshot.0").write_bytes(b"dear")


def newer_snapshot(folder: Path) -> None:
    """Create a snapshot of an unsupported version."""
    (folder / "version-2").mkdir()
    (folder / "version-2" / "snapshot.0").write_bytes(SNAPSHOT_HEADER.replace(b"\2", b"\3") + bytes(100))


def truncated_gzip(folder: Path) -> None:
    """Create a snapshot whose gzip stream is truncated."""
    (folder / "version-2").mkdir()
    (folder / "version-2" / "snapshot.1.gz").write_bytes(gzip.compress(SNAPSHOT_HEADER + bytes(100))[:-12])


def snappy(folder: Path) -> None:
    """Create a snapshot with a damaged snappy stream."""
    (folder / "version-2").mkdir()
    (folder / "version-2" / "snapshot.1.snappy").write_bytes(b"\x82SNAPPY\0")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_unsupported_version, "unsupported data version: expected version-2, found version-3"),
        (log_without_snapshot, "found a log but no snapshot"),
        (invalid_snapshot, "no snapshot can be used"),
        (newer_snapshot, "unsupported snapshot version: expected 2, found 3"),
        (truncated_gzip, "the gzip stream is damaged"),
        (snappy, "the snappy stream is damaged"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_invalid_data_directory_is_refused_and_unchanged(
    tmp_path: Path, make: Callable[[Path], None], reason: str
) -> None:
    make(tmp_path)
    before = file_contents(tmp_path)

    line = startup_error("--port", "0", "--data-dir", str(tmp_path), code=1)

    assert str(tmp_path) in line
    assert reason in line
    assert file_contents(tmp_path) == before


def test_data_directory_that_is_file_or_unwritable_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file is not a directory" in startup_error("--port", "0", "--data-dir", str(tmp_path / "file"), code=2)
    message = "/proc/zoolet: cannot create this directory: no such file or directory"
    assert message in startup_error("--port", "0", "--data-dir", "/proc/zoolet", code=2)


def test_second_server_on_same_data_directory_is_refused(tmp_path: Path) -> None:
    with DaemonProcess("--data-dir", str(tmp_path)) as first:
        line = startup_error("--port", "0", "--data-dir", str(tmp_path), code=1)
        assert line == f"zoolet serve: {tmp_path}: a server (process {first.process.pid}) is using this directory\n"
    with DaemonProcess("--data-dir", str(tmp_path)):
        pass


def test_files_are_readable_only_by_owner(tmp_path: Path) -> None:
    with DaemonProcess("--data-dir", str(tmp_path / "new")):
        pass
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert (tmp_path / "new" / "version-2").stat().st_mode & 0o777 == 0o700


def test_transaction_logs_may_be_in_separate_directory(tmp_path: Path) -> None:
    data, logs = tmp_path / "data", tmp_path / "logs"
    options = ("--data-dir", str(data), f"-DdataLogDir={logs}")
    with DaemonProcess(*options) as server, connected_client(server.hosts) as client:
        client.create("/a", b"1")
    names = [path.name.partition(".")[0] for path in (logs / "version-2").iterdir()]
    assert sorted(names) == ["log", "zoolet"]
    for where in (options, ("--data-dir", str(data))):  # the directory records the place of its logs
        with DaemonProcess(*where) as server, connected_client(server.hosts) as client:
            assert client.get("/a")[0] == b"1"
    (tmp_path / "other").mkdir()
    line = startup_error("--port", "0", "--data-dir", str(data), f"-DdataLogDir={tmp_path / 'other'}", code=1)
    assert f"zoolet.logs names {logs} as the log directory" in line
    assert "found a log in dataDir, although dataLogDir is" in startup_error(
        "--port", "0", "--data-dir", str(logs), f"-DdataLogDir={data}", code=1
    )


def test_conf_word_reports_data_and_log_directory(tmp_path: Path) -> None:
    with DaemonProcess("--data-dir", str(tmp_path), "-D4lw.commands.whitelist=*") as server:
        answer = ask(server.port, b"conf").decode()
    assert f"dataDir={tmp_path}/version-2\n" in answer
    assert f"dataLogDir={tmp_path}/version-2\n" in answer
    assert "dataDirSize=0\n" not in answer


def test_daemon_without_data_directory_writes_no_file(tmp_path: Path) -> None:
    command = [*SERVE, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        with Client(ready.split()[-1]) as zk:
            zk.create("/a", b"1")
        process.terminate()
    assert list(tmp_path.iterdir()) == []


def test_daemon_logs_number_of_recovered_nodes_and_sessions(tmp_path: Path) -> None:
    with running_daemon("--port", "0", "--data-dir", str(tmp_path)) as daemon:
        assert daemon.log_until("nodes and 0 sessions at zxid 0x")
        assert daemon.port()


def test_log_status_and_datadir_agree_on_node_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_daemon("--port", "0", "--data-dir", str(tmp_path)) as daemon:
        logged = re.search(r": loaded (\d+) nodes and", daemon.log_until("nodes and 0 sessions at zxid 0x"))
        main(["status", f"127.0.0.1:{daemon.port()}"])
    main(["datadir", "show", str(tmp_path)])
    main(["datadir", "verify", str(tmp_path)])

    assert logged is not None
    counts = re.findall(r"(?:, |nodes +|: )(\d+)(?: nodes|, of which)", capsys.readouterr().out)
    assert set(counts) == {logged[1]}
    assert len(counts) >= 3


def test_keyed_session_passwords_are_valid_after_restart(tmp_path: Path) -> None:
    options = ("--data-dir", str(tmp_path), "-Dzoolet.keyedPasswords=true")
    with DaemonProcess(*options) as server:
        client = KazooClient(server.hosts)
        client.start()
        session, password = client.client_id
    with DaemonProcess(*options) as server:
        client.set_hosts(server.hosts)
        with connected_client(server.hosts, client_id=(session, password)) as other:
            assert other.client_id == (session, password)
    client.stop()
    client.close()
    assert (tmp_path / "zoolet.key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "zoolet.key").write_bytes(b"short")
    assert "expected a session password key of 32 bytes, found 5" in startup_error("--port", "0", *options, code=1)
