"""Snapshots: round trips, detection of every damage, and agreement with a real ZooKeeper."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoolet.protocol.acl import ACL, Id
from zoolet.server.storage import compression
from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage.directory import DataDir, read
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.live import take_snapshot
from zoolet.server.storage.snapshot import Snapshot, StoredNode
from zoolet.testing import Server, Znode

ROOT: Final = StoredNode("", b"", -1, 0, 0, 0, 0, 0, 1, 0, 0, 0)
SOME: Final = Snapshot(
    0x500000003,
    [
        ROOT,
        StoredNode("/a", b"data", 1, 1, 2, 3, 4, 5, 6, 7, 0, 9),
        StoredNode("/a/ü", None, -1, 1, 2, 3, 4, -5, 2**31 - 1, -1, -(1 << 63), 9),
    ],
    {0x10000193F280004: 30_000, -6: 4000},
    {1: (ACL(31, Id("digest", "a:b")), ACL(1, Id("world", "anyone")))},
)


def encoded(snapshot: Snapshot = SOME, **options: bool) -> bytes:
    """Return the bytes of a snapshot."""
    return b"".join(snapshots.encode(snapshot, **options))


longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)


@given(
    nodes=st.lists(
        st.tuples(st.none() | st.binary(), longs, longs, longs, longs, ints, ints, ints, longs, longs), max_size=10
    ),
    sessions=st.dictionaries(longs, ints),
    zxid=st.integers(0, 2**63 - 1),
)
def test_written_snapshot_is_read(nodes: list[Any], sessions: dict[int, int], zxid: int) -> None:
    stored = [StoredNode(f"/{number}", fields[0], -1, *fields[1:]) for number, fields in enumerate(nodes)]
    snapshot = Snapshot(zxid, [ROOT, *stored], sessions)

    again = snapshots.parse(encoded(snapshot), zxid)

    assert (again.nodes, again.sessions, again.acls) == (snapshot.nodes, sessions, {})
    assert again.digest == snapshot.computed_digest()


@pytest.mark.parametrize("options", [{}, {"last_zxid": False}, {"digest": False, "last_zxid": False}], ids=str)
def test_snapshot_may_lack_sections_of_later_releases(options: dict[str, bool]) -> None:
    again = snapshots.parse(encoded(**options), SOME.zxid)

    assert (again.nodes, again.sessions, again.acls) == (SOME.nodes, SOME.sessions, SOME.acls)


@pytest.mark.parametrize(
    "snapshot",
    [
        Snapshot(1, [ROOT], dict.fromkeys(range(1000), 4000)),
        Snapshot(1, [ROOT], {}, {number: () for number in range(1000)}),
        Snapshot(1, [ROOT], {}, {1: (ACL(1, Id("", "")),) * 1000}),
    ],
    ids=["sessions", "lists", "ACLs"],
)
def test_snapshot_with_thousand_sessions_or_acls_is_read(snapshot: Snapshot) -> None:
    again = snapshots.parse(encoded(snapshot, digest=False, last_zxid=False), 1)

    assert (again.sessions, again.acls) == (snapshot.sessions, snapshot.acls)


def test_snapshot_starts_with_specified_bytes() -> None:
    data = encoded(Snapshot(0, [ROOT]), digest=False, last_zxid=False)

    body = b"ZKSN" + b"\0\0\0\2" + b"\xff" * 8 + bytes(4) + bytes(4)
    body += bytes(4) + bytes(4) + b"\xff" * 8 + bytes(32) + b"\0\0\0\0\0\0\0\1\0\0\0\0" + bytes(16) + b"\0\0\0\1/"
    assert data == body + zlib.adler32(body).to_bytes(8, "big") + b"\0\0\0\1/"


def test_every_changed_byte_of_snapshot_is_detected() -> None:
    data = encoded()

    for place in range(len(data)):
        for bit in (1, 128):
            damaged = bytearray(data)
            damaged[place] ^= bit
            with pytest.raises(StorageError):
                snapshots.parse(bytes(damaged), SOME.zxid, "file")


def test_truncated_snapshot_is_detected_except_at_section_end() -> None:
    data = encoded()
    complete = {len(encoded(digest=False, last_zxid=False)), len(encoded(last_zxid=False)), len(data)}

    for end in range(len(data)):
        if end not in complete:
            with pytest.raises(StorageError):
                snapshots.parse(data[:end], SOME.zxid, "file")


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([ROOT, ROOT], "duplicate node /"),
        ([SOME.nodes[1]], "node /a does not follow its parent"),
        ([ROOT, SOME.nodes[2]], "node /a/ü does not follow its parent"),
        ([ROOT, SOME.nodes[1]._replace(acl=7)], "node /a refers to ACL list 7, which is missing"),
        ([], "the root node is missing"),
    ],
)
def test_snapshot_with_impossible_tree_is_refused(nodes: list[StoredNode], reason: str) -> None:
    with pytest.raises(StorageError, match=f"^file: {re.escape(reason)}"):
        snapshots.parse(encoded(Snapshot(1, nodes, {}, SOME.acls)), 1, "file")


@pytest.mark.parametrize("data", [b"", b"ZK", b"ZKLG" + bytes(12), b"\x1f\x8b", b"ZKSN" + b"\x7f" * 100])
def test_file_that_is_not_a_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(StorageError, match=r"^file: "):
        snapshots.parse(data, 1, "file")


# --- files ---


def write(folder: Path, snapshot: Snapshot) -> Path:
    """Write a snapshot into a data directory."""
    (folder / "version-2").mkdir(exist_ok=True)
    path = folder / "version-2" / f"snapshot.{snapshot.zxid:x}"
    path.write_bytes(encoded(snapshot))
    return path


def test_newest_valid_snapshot_is_used(tmp_path: Path) -> None:
    write(tmp_path, Snapshot(5, SOME.nodes, SOME.sessions, SOME.acls))
    newest = write(tmp_path, Snapshot(0x10, SOME.nodes, SOME.sessions, SOME.acls))
    newest.write_bytes(newest.read_bytes()[:-100])
    (tmp_path / "version-2" / "snapshot.notes").write_text("other")

    directory = DataDir.find(tmp_path)
    found = directory.snapshot()

    assert found is not None
    assert found.zxid == 5
    assert str(newest) in directory.problems[0]


def test_directory_without_valid_snapshot_raises(tmp_path: Path) -> None:
    write(tmp_path, Snapshot(5, [])).write_bytes(b"ZKSN")
    with pytest.raises(StorageError, match="no snapshot can be used"):
        DataDir.find(tmp_path).snapshot()
    with pytest.raises(StorageError, match="does not exist"):
        DataDir.find(tmp_path / "nowhere")


def test_compressed_snapshot_is_read(tmp_path: Path) -> None:
    packed = tmp_path / "snapshot.5.gz"
    packed.write_bytes(gzip.compress(encoded()))
    assert read(packed) == encoded()

    packed.write_bytes(gzip.compress(encoded())[:-9])
    with pytest.raises(StorageError, match="the gzip stream is damaged"):
        read(packed)


def snappy(*blocks: bytes) -> bytes:
    """Return a file in snappy-java's format."""
    return b"\x82SNAPPY\0" + bytes((0, 0, 0, 1) * 2) + b"".join(len(block).to_bytes(4) + block for block in blocks)


def literal(data: bytes) -> bytes:
    """Return a snappy block without copies."""
    size = len(data)
    return bytes((size & 0x7F | 0x80, size >> 7)) + b"\xf4" + (size - 1).to_bytes(2, "little") + data


def test_snapshot_compressed_with_snappy_is_read(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.5.snappy"
    whole = encoded()
    path.write_bytes(snappy(literal(whole[:200]), literal(whole[200:])))

    assert read(path) == whole
    assert snapshots.has_seal(path)


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (b"\x0c\x08abc\x15\x03", b"abcabcabcabc"),
        (b"\x06\x08abc\x0a\x03\x00", b"abcabc"),
        (b"\x06\x08abc\x0b\x02\x00\x00\x00", b"abcbcb"),
        (b"\x03\xf0\x02abc", b"abc"),
    ],
    ids=["one byte", "two bytes", "four bytes", "long literal"],
)
def test_snappy_elements_are_decoded(block: bytes, content: bytes) -> None:
    assert compression._decompress_block(block) == content


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"dear",
        snappy()[:-1],
        snappy(b"\x03\x08abc")[:-1],
        snappy(b"\x03\x08abc") + b"\0",
        snappy(b"\x02\x08abc"),
        snappy(b"\x04\x08abc"),
        snappy(b"\x06\x08abc\x0a\x04\x00"),
        snappy(b"\x06\x08abc\x0a\x00\x00"),
        snappy(b"\x06\x08abc\x0a"),
        snappy(b"\xff\xff\xff\xff\xff\xff\x01\x08abc"),
        snappy(b"\x80"),
        snappy(b"\x80\x80\x80\x80\x7f\x00"),
        snappy() + b"\x7f\xff\xff\xff",
    ],
)
def test_damaged_snappy_stream_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "snapshot.5.snappy"
    path.write_bytes(data)

    with pytest.raises(StorageError, match="the snappy stream is damaged"):
        list(compression.pieces(path))
    assert not snapshots.has_seal(path)


# --- in a server ---


def test_server_starts_with_snapshot(tmp_path: Path) -> None:
    rng = Random(1)
    with Server(seed=1) as server:
        server.populate({"/app": {f"n{number}": rng.randbytes(20) for number in range(100)}})
        server.populate({"/ttl": Znode(b"x", ttl=60), "/box": Znode(container=True), "/null": Znode(None)})
        server.populate({"/seq": Znode(children_created=7)})
        server.populate({"/secret": Znode(b"s", acl=SOME.acls[1])})
        server.set_quota("/app", count=1000)
        before = dict(server.tree())
        zxid = server.zxid()
        write(tmp_path, server._runner.call(lambda: take_snapshot(server._engine)))
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    with Server(initial_data=tmp_path) as again:
        assert dict(again.tree()) == before
        assert again.zxid() == zxid
        again.set("/app/n1", b"changed")
        assert again.zxid() == zxid + 1
        again.reset()
        assert {path: node.data for path, node in again.tree().items()} == {path: n.data for path, n in before.items()}
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_unusable_initial_data_raises_value_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="initial_data must be a directory with ZooKeeper's files, not '/nowhere'"):
        Server(initial_data="/nowhere")
    write(tmp_path, Snapshot(5, [])).write_bytes(b"x")
    with pytest.raises(ValueError, match="no snapshot can be used"):
        Server(initial_data=tmp_path).start()
