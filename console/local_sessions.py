"""The sessions of a server in this process, and its busiest clients."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from time import perf_counter
from typing import Final

from ..protocol.acl import name_without_hash
from ..protocol.deadlocks import client_name
from ..protocol.hexadecimal import hexadecimal
from ..protocol.operations import OPERATIONS
from ..protocol.recipe_names import may_be_recipe_name
from ..server.admin.facts import watched_path_text
from ..server.admin.history import TransactionHistory
from ..server.core.client_connection import ClientConnection, Session
from ..server.core.engine import Engine
from ..server.core.node import Node
from ..server.core.watches import CHILD, DATA, watch_kinds
from .source import MAX_CONTENDER_BYTES, MAX_LISTED, MAX_NAME, Answer, Pace, sorted_in_slices, truncated_text

BUSY_SECONDS: Final = 10.0
"""Minimum number of seconds over which requests are counted for the busiest clients."""
NAMING_SCHEMES: Final = ("x509", "sasl", "digest")
"""Schemes of identities that name a client, the most reliable first."""
MAX_NAMING_NODES: Final = 3
"""Maximum number of a session's ephemeral nodes that are searched for the name of the client."""


def client_address(session: Session) -> str:
    """Return the address of a session's client; empty while it is disconnected."""
    return session.client.address if session.client is not None else ""


class LocalSessions:
    """The sessions of an engine, as the console shows them.

    Args:
        engine: The engine.
        history: The last transactions, which counts writes; None if they are not kept.
    """

    def __init__(self, engine: Engine, history: TransactionHistory | None) -> None:
        self._engine = engine
        self._history = history
        self._counted: tuple[float, dict[ClientConnection, int]] = (perf_counter(), {})
        self._busiest: list[Answer] = []

    def orders(self) -> list[str]:
        """Return the names of the sort orders of sessions, the default first."""
        return ["oldest", "silent", "ephemerals", "watches", "requests", *(["writes"] if self._history else [])]

    def _key(self, order: str) -> Callable[[Session], tuple[float, int]]:
        """Return the sort key function of an order. Keys contain the session id, so all keys are different."""
        ephemerals, writes = self._engine.tree.ephemerals, self._writes()
        numbers: dict[str, Callable[[Session, ClientConnection], float]] = {
            "oldest": lambda session, client: client.since or math.inf,
            "silent": lambda session, client: session.heard,
            "ephemerals": lambda session, client: -len(ephemerals.get(session.id, ())),
            "watches": lambda session, client: -_count_watches(client),
            "requests": lambda session, client: -client.received,
            "writes": lambda session, client: -writes.get(session.id, 0),
        }
        number, nobody = numbers[order], ClientConnection()
        return lambda session: (number(session, session.client or nobody), session.id)

    def _writes(self) -> dict[int, int]:
        return self._history.writes.total(self._engine.now) if self._history is not None else {}

    async def listed(
        self, text: str, order: str, offset: int, limit: int, pace: Pace, may_read: Callable[[Node], bool]
    ) -> Answer:
        """Return the number of sessions whose id, address or name contains a text, and some of them in an order.

        Args:
            text: The text; empty for all sessions.
            order: One of :meth:`orders`.
            offset: Number of sessions to skip.
            limit: Maximum number of sessions.
            pace: The time slices.
            may_read: Function that returns whether the data of a node may be read.
        """
        found, keys, key = [], {}, self._key(order)
        for number, each in enumerate(list(self._engine.sessions.alive.values())):
            if (
                not text
                or text in hexadecimal(each.id)
                or text in client_address(each)
                or text in self._name(each, may_read)
            ):
                found.append(each)
                keys[each.id] = key(each)  # computed now, because the numbers may change during a pause
            if text or not number % 128:
                await pace.rest()
        found = await sorted_in_slices(found, pace, lambda each: keys[each.id])
        rows = ({**self._row(each), "name": self._name(each, may_read)} for each in found[offset : offset + limit])
        return {"total": len(found), "rows": rows}

    def _row(self, session: Session) -> Answer:
        engine, client = self._engine, session.client
        return {
            "id": hexadecimal(session.id),
            "address": client_address(session),
            "since": client.since if client is not None else None,
            "timeout": session.timeout_ms / 1000,
            "heard": (engine.monotonic_ms - session.heard) / 1000,
            "expires": max(0, session.deadline - engine.monotonic_ms) / 1000,
            "ephemerals": len(engine.tree.ephemerals.get(session.id, ())),
            "watches": _count_watches(client) if client is not None else 0,
            "requests": client.received if client is not None else 0,
            "writes": self._writes().get(session.id, 0) if self._history is not None else None,
            "last": _last_operation(client) if client is not None else "",
        }

    def _name(self, session: Session, may_read: Callable[[Node], bool]) -> str:
        """Return the name of a session's client, from an identity or from the data of a lock, or an empty text."""
        identities = session.client.ids if session.client is not None else {}
        for scheme in NAMING_SCHEMES:
            for identity in identities:
                if identity.scheme == scheme:
                    return truncated_text(name_without_hash(identity))
        for path in islice(self._engine.tree.ephemerals.get(session.id, ()), MAX_NAMING_NODES):
            name = path[path.rfind("/") + 1 :]
            is_named = len(name) <= MAX_NAME and may_be_recipe_name(name)
            node = self._engine.tree.get(path) if is_named else None
            if node is not None and may_read(node) and 0 < len(node.data or b"") <= MAX_CONTENDER_BYTES:
                return client_name(node.data or b"")
        return ""

    def details(self, session_id: int) -> Answer:
        """Return all details of a session."""
        engine = self._engine
        session = engine.sessions.alive.get(session_id)
        if session is None:
            return {"id": hexadecimal(session_id), "alive": False}
        client = session.client
        watched: dict[tuple[str, str], None] = {}  # an ordered set, because a persistent watch is in both stores
        if client is not None:
            for store in (DATA, CHILD):
                for path, modes in islice(client.modes[store].items(), MAX_LISTED):
                    watched |= dict.fromkeys((path, kind) for kind in watch_kinds(store, modes))
        identities = list(client.ids) if client is not None else []
        return {
            **self._row(session),
            "alive": True,
            "identities": iter(
                [truncated_text(f"{each.scheme}:{name_without_hash(each)}") for each in identities[:MAX_LISTED]]
            ),
            "owned": iter(
                [truncated_text(path) for path in islice(engine.tree.ephemerals.get(session_id, ()), MAX_LISTED)]
            ),
            "watched": iter(
                [{"path": truncated_text(watched_path_text(path)), "kind": kind} for path, kind in watched]
            ),
        }

    def busiest(self) -> list[Answer]:
        """Return the ten clients with the most requests per second. The answer is reused for up to ten seconds."""
        counted_at, before = self._counted
        seconds = perf_counter() - counted_at
        if seconds < BUSY_SECONDS and self._busiest and before:
            return self._busiest
        received = {client: client.received for client in self._engine.connections}
        now = self._engine.now
        rates = {
            client: (count - before.get(client, 0)) / max(min(seconds, (now - client.since) / 1000), 1.0)
            for client, count in received.items()
        }
        most = sorted(rates, key=lambda client: -rates[client])[:10]
        if seconds >= BUSY_SECONDS or not before:
            self._counted = (perf_counter(), received)
        self._busiest = [
            {
                "address": client.address,
                "session": hexadecimal(client.session_id) if client.session_id else None,
                "requests": client.received,
                "rate": round(rates[client], 1),
                "writes": self._writes().get(client.session_id, 0) if self._history is not None else None,
                "last": _last_operation(client),
            }
            for client in most
        ]
        return self._busiest


def _last_operation(client: ClientConnection) -> str:
    row = OPERATIONS.get(client.last_op)
    return row.name if row is not None else ""


def _count_watches(client: ClientConnection) -> int:
    return sum(map(len, client.modes))
