"""All that clients share below a node, for people: locks, elections, semaphores and queues, with who holds them."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from zoolet.client.recipes._node_names import sorted_by_sequence
from zoolet.client.recipes.lock_table import LockEntry, LockTable, Wait
from zoolet.protocol import paths
from zoolet.protocol.errors import NoAuthError, NoNodeError
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.node_json import data_json

_KAZOO_LOCK: Final = "-__lock__"
"""Suffix of the lock node of a kazoo semaphore."""
_KAZOO_LEASE: Final = re.compile(r"[0-9a-f]{32}$")
_CURATOR_LEASE: Final = re.compile(r"lease-(-?\d{9,10})$")
_UUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_PROOF: Final = re.compile(rf"(.+)-{_UUID.pattern}$")
"""Pattern of a TryLock's proof node."""
_ENTRY: Final = re.compile(r"(entry-\d+-|queue-)(-?\d{9,10})$")
"""An entry of kazoo's and our queues, or of Curator's."""


class SharedLine(NamedTuple):
    """A lock, or another thing that clients share.

    Args:
        path: Its node.
        kind: ``lock``, ``read-write lock``, ``election``, ``semaphore``, ``queue`` or ``durable lock``.
        naming: Whose names its nodes have: ``kazoo``, ``curator``, or ``zoolet`` for recipes that only we have.
        holders: Who holds it: one, or several readers or leases, or the entries of a queue that are being consumed.
        waiters: Who waits for it, in order.
        size: How many entries a queue has; None for all else.
    """

    path: str
    kind: str
    naming: str
    holders: tuple[LockEntry, ...]
    waiters: tuple[LockEntry, ...]
    size: int | None = None


class Overview(LockTable):
    """The shared lines below a node: ``lines, circles = await Overview(zk, "/").look()``.

    Znodes: none of its own. It reads those of our recipes, kazoo's and Curator's.

    Limits: the whole tree below PATH is listed, and each line is read at one moment, not all at the same. A lock that
    serves an election (all but Curator's LeaderLatch) is shown as a lock. What may not be read is left out.
    """

    async def look(self) -> tuple[list[SharedLine], list[list[Wait]]]:
        """Return what is shared, by path, and which clients wait for each other in a circle."""
        listing = await self._listing()
        lines, hidden = await self._semaphores(listing)
        locks = await self._lines(listing)
        for line in locks:
            if line.path not in hidden:
                holders = tuple(entry for entry in line.entries if entry.holds)
                waiters = tuple(entry for entry in line.entries if not entry.holds)
                lines.append(SharedLine(line.path, line.kind, line.naming, holders, waiters))
        lines += await self._queues(listing)
        lines += await self._try_locks(listing)
        lines += await self._durable_locks(listing)
        return sorted(lines, key=lambda line: (line.path, line.kind)), await self._circles(locks)

    async def _semaphores(self, listing: dict[str, list[str]]) -> tuple[list[SharedLine], set[str]]:
        """Return the semaphores, and the locks that belong to them."""
        lines: list[SharedLine] = []
        hidden: set[str] = set()
        for path, names in listing.items():
            lock = path + _KAZOO_LOCK
            if lock in listing:
                leases = [name for name in names if _KAZOO_LEASE.match(name)]
                lines += await self._semaphore(path, "kazoo", path, leases, lock, listing, hidden)
            if path.endswith("/leases"):
                numbered = [(name, int(match[1])) for name in names if (match := _CURATOR_LEASE.search(name))]
                above = paths.parent(path)
                leases = sorted_by_sequence(numbered)
                lines += await self._semaphore(
                    above, "curator", path, leases, paths.join(above, "locks"), listing, hidden
                )
        return lines, hidden

    async def _semaphore(
        self,
        path: str,
        naming: str,
        parent: str,
        leases: list[str],
        lock: str,
        listing: dict[str, list[str]],
        hidden: set[str],
    ) -> list[SharedLine]:
        """Return a semaphore as a list of one, or of none if nobody uses it.

        The first of those that wait in line for its lock may have a node of a lease already: Curator's waits with one.
        """
        line = await self._line(lock, naming, listing.get(lock, []))
        if not leases and line is None:
            return []
        hidden.add(lock)
        held = await self._read_entries([paths.join(parent, name) for name in leases])
        waiting = [entry._replace(holds=False) for entry in line.entries] if line is not None else []
        if naming == "curator" and waiting and held and held[-1].session_id == waiting[0].session_id:
            del held[-1]
        return [SharedLine(path, "semaphore", naming, tuple(held), tuple(waiting))]

    async def _queues(self, listing: dict[str, list[str]]) -> list[SharedLine]:
        lines = []
        for path, names in listing.items():
            matches = [match for name in names if (match := _ENTRY.match(name))]
            if not matches or path.endswith("/taken"):
                continue
            naming = "curator" if matches[0][1] == "queue-" else "kazoo"
            taken = [paths.join(paths.parent(path), "taken")] if path.endswith("/entries") else []
            owners = [paths.join(each, name) for each in taken for name in listing.get(each, []) if _ENTRY.match(name)]
            shown = paths.parent(path) if path.endswith("/entries") else path
            lines.append(
                SharedLine(shown, "queue", naming, tuple(await self._read_entries(sorted(owners))), (), len(matches))
            )
        return lines

    async def _try_locks(self, listing: dict[str, list[str]]) -> list[SharedLine]:
        """Return our TryLocks and NodeElections: a node, and beside it its proof."""
        lines = []
        for path, names in listing.items():
            proofs = [match[1] for name in names if (match := _PROOF.match(name))]
            nodes = sorted(set(proofs) & set(names))
            if path.endswith("/taken"):  # of a queue
                continue
            held = await self._read_entries([paths.join(path, name) for name in nodes])
            lines += [SharedLine(entry.path, "lock", "zoolet", (entry,), ()) for entry in held]
        return lines

    async def _durable_locks(self, listing: dict[str, list[str]]) -> list[SharedLine]:
        """Return our DurableLocks: a persistent node that names its owner, and below it the proof."""
        lines = []
        for path, names in listing.items():
            if len(names) != 1 or not _UUID.fullmatch(names[0]):
                continue
            try:
                data, stat = await self._client.get(path)
                value = json.loads(data)
            except (NoNodeError, NoAuthError, ValueError, RecursionError):
                continue
            if isinstance(value, dict) and value.get("id") == names[0] and "owner" in value and "ttl" in value:
                owner = str(value["owner"]).encode("utf-8", "replace")
                entry = LockEntry(path, False, 0, owner, stat.ctime / 1000, True)
                lines.append(SharedLine(path, "durable lock", "zoolet", (entry,), ()))
        return lines

    async def _read_entries(self, nodes: list[str]) -> list[LockEntry]:
        """Return who owns ephemeral nodes, in the order of their paths."""
        return [
            LockEntry(path, False, stat.ephemeralOwner, data, stat.ctime / 1000, True, stat.czxid)
            for path, data, stat in await self._read_nodes(nodes)
            if stat.ephemeralOwner
        ]


def described(lines: list[SharedLine], circles: list[list[Wait]]) -> dict[str, Any]:
    """Return what :meth:`Overview.look` has found, for JSON."""
    return {
        "shared": [
            {
                "path": line.path,
                "kind": line.kind,
                "naming": line.naming,
                "holders": [_entry(entry) for entry in line.holders],
                "waiters": [_entry(entry) for entry in line.waiters],
                "size": line.size,
            }
            for line in lines
        ],
        "deadlocks": [
            [{"lock": wait.lock, "waiter": _entry(wait.entry), "holder": _entry(wait.behind)} for wait in circle]
            for circle in circles
        ],
    }


def _entry(entry: LockEntry) -> dict[str, Any]:
    return {
        "node": entry.path,
        "session": hexadecimal(entry.session_id) if entry.session_id else None,
        "data": data_json(entry.data),
        "reader": entry.shared,
        "since": entry.since,
        "token": str(entry.token) if entry.token else None,  # text: JavaScript has no such numbers
    }
