"""Transactions that are found again in the logs: of a node, of a session, before a zxid, the last one first."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stored import StoredServer, client_of

from zoolet.protocol.operations import OpCode
from zoolet.server.admin.history import entry_of_log
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.past import Past, past


def kinds(found: list[Past]) -> list[str]:
    return [entry_of_log(*each).kind for each in found]


async def test_a_node_is_followed_through_all_logs(tmp_path: Path) -> None:
    async with StoredServer(tmp_path, snap_count=3, purge=0) as server:
        client = await client_of(server)
        session = client.session_id
        await client.create("/a", b"1")
        for number in range(10):
            await client.create(f"/other-{number}", b"")
        await server.store.snapshot_written()
        await client.set("/a", b"22")
        async with client.transaction() as transaction:
            transaction.create("/b", b"")
            transaction.delete("/a")
        await client.create("/e", b"", ephemeral=True)
        await client.aclose()
    directory = DataDir.find(tmp_path)
    of_a = past(directory, "/a", None, 0, 100)

    assert len(directory.logs) > 1
    assert kinds(of_a) == ["multi", "set", "create"]
    assert [change.op for change in entry_of_log(*of_a[0]).changes] == ["create", "delete"]
    assert entry_of_log(*of_a[1]).changes[0].size == 2
    assert kinds(past(directory, "/a", None, of_a[0][1], 1)) == ["set"]
    assert kinds(past(directory, "/e", None, 0, 100)) == ["ended", "create"]
    assert past(directory, "/nothing", None, 0, 100) == []
    life = past(directory, None, session, 0, 1000)
    assert (kinds(life)[0], kinds(life)[-1]) == ("ended", "opened")
    assert len(past(directory, None, None, 0, 5)) == 5


async def test_what_comes_before_damage_is_found(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        client = await client_of(server)
        await client.create("/a", b"")
        await client.create("/b", b"x" * 100)
        await client.create("/c", b"")
        await client.aclose()
    directory = DataDir.find(tmp_path)
    (log,) = directory.logs.values()
    data = bytearray(log.read_bytes())
    data[data.index(b"x" * 100)] ^= 1
    log.write_bytes(data)

    assert kinds(past(directory, "/a", None, 0, 10)) == ["create"]
    assert past(directory, "/c", None, 0, 10) == []


@pytest.mark.parametrize("count", [5, 2000])
def test_a_close_with_many_nodes_is_shown_in_part(count: int) -> None:
    from zoolet.protocol.txns import CloseSessionTxn

    record = CloseSessionTxn([f"/{number}" for number in range(count)])
    entry = entry_of_log(5, 7, 1000, OpCode.CLOSE_SESSION, [(OpCode.CLOSE_SESSION, record)])

    assert len(entry.changes) + entry.left_out == count
    assert len(entry.changes) <= 1000
