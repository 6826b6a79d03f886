"""Zoolet and a real ZooKeeper in lockstep: both get the same bytes, and all their visible output is compared.

Both start empty and get the same requests, so zxids and session ids are the same numbers on both sides. Passwords are
also the same with release 3.8; with release 3.9 each side creates its own. Only random parts of the real server's
output are normalised: the times in Stats, the order of children's names, ephemerals and identities, and the order of
events when a session is closed.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Any, Final

from support.apache import ApacheZooKeeper
from support.engine import make_engine
from support.peer import Peer
from support.waiting import DEADLINE_S
from support.wire import Wire

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import digest_id
from zoolet.protocol.codec import Record
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.server.core.compat import BY_NAME
from zoolet.server.core.settings import EngineSettings

SUPER = "super:secret"
MIN_TIMEOUT, MAX_TIMEOUT = 600_000, 1_200_000
"""Session timeouts in milliseconds, long enough that no session expires during a test."""
OPEN_AT_6 = (OpCode.RECONFIG, OpCode.CREATE_TTL, OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER)
PING = r.RequestHeader(-2, OpCode.PING).encode()
PASSWORD_SLICE: Final = slice(20, 36)
"""The position of the password in the payload of a ConnectResponse."""


@dataclass(frozen=True)
class Connect:
    """Reopen connection *who*; resume the session of *of*, with its password or a wrong one, or open a new session."""

    who: int
    of: int | None = None
    right: bool = True
    timeout: int = 700_000
    ahead: int = 0
    short: bool = False


@dataclass(frozen=True)
class Request:
    """Send a request on connection *who*."""

    who: int
    op: int
    body: bytes
    xid: int = 1


@dataclass(frozen=True)
class RawFrame:
    """Send the payload of a frame unchanged on connection *who*."""

    who: int
    payload: bytes


@dataclass(frozen=True)
class Drop:
    """Cut connection *who* without closing its session."""

    who: int


Step = Connect | Request | RawFrame | Drop


def is_event(payload: bytes) -> bool:
    """Return whether a payload is an event. Requests in scripts never have the xid -1 of events."""
    return payload[:4] == b"\xff\xff\xff\xff"


def closes(op: int, payload: bytes) -> bool:
    """Return whether the server closes the connection after this reply, because only then it can be read to its end."""
    (err,) = struct.unpack_from(">i", payload, 12)
    return op == OpCode.CLOSE_SESSION or (op == OpCode.AUTH and err != 0) or (err == -6 and op not in OPEN_AT_6)


def blank_password(payload: bytes | None) -> bytes | None:
    """Blank the password in a successful ConnectResponse, after checking that it has 16 bytes."""
    if payload is None or not ConnectResponse.decode(payload).timeout_ms:
        return payload
    assert payload[16:20] == b"\0\0\0\x10", payload
    return payload[: PASSWORD_SLICE.start] + bytes(16) + payload[PASSWORD_SLICE.stop :]


def blank_times(stat: r.Stat) -> None:
    stat.ctime = stat.mtime = 0


def normalise(op: int, payload: bytes) -> object:
    """Normalise the random parts of a reply."""
    header = (payload[:4], payload[4:12], payload[12:16])
    body = payload[16:]
    if op in (OpCode.MULTI, OpCode.MULTI_READ) and body:
        try:
            results = wire.decode_results(body)
        except MarshallingError:
            return header, body
        for _, record in results:
            _even_record(record)
        return header, tuple(map(repr, results))
    operation = OPERATIONS.get(op)  # type: ignore[call-overload]
    if not body or operation is None or operation.response is None:
        return header, body
    try:
        record = operation.response.decode(body)
    except MarshallingError:
        return header, body
    if record.encode() != body:
        return header, body
    _even_record(record)
    return header, repr(record)


def _even_record(record: Record) -> None:
    if isinstance(stat := getattr(record, "stat", None), r.Stat):
        blank_times(stat)
    for name in ("children", "ephemerals"):
        if (names := getattr(record, name, None)) is not None:
            names.sort()
    if isinstance(record, r.WhoAmIResponse):
        record.clientInfo.sort(key=repr)


class Pair:
    """Both servers, and up to *size* connections to each.

    Args:
        apache: The real server, with no other clients. Zoolet imitates its release.
        size: Number of connections.
        options: Further :class:`~zoolet.server.core.settings.EngineSettings` of zoolet.
    """

    def __init__(self, apache: ApacheZooKeeper, size: int = 3, **options: Any) -> None:
        self.apache = apache
        self.steps = 0
        settings = EngineSettings(
            **{
                "compat": BY_NAME[apache.release],
                "expire_clients_ahead": False,
                "super_digest": digest_id(SUPER.encode()),
                "min_session_timeout": MIN_TIMEOUT,
                "max_session_timeout": MAX_TIMEOUT,
                **options,
            }
        )
        self.engine = make_engine(settings)
        self.links: list[Wire | None] = [None] * size
        self.peers: list[Peer | None] = [None] * size
        self.welcomes: list[tuple[ConnectResponse, ConnectResponse] | None] = [None] * size

    def close(self) -> None:
        """Cut all connections to the real server."""
        for link in self.links:
            if link is not None:
                link.close()

    # --- steps ---

    def do(self, step: Step) -> tuple[object, object]:
        """Run one step on both sides. Return the output of the real server and of zoolet."""
        self.steps += 1
        if isinstance(step, Connect):
            return self._connect(step)
        if isinstance(step, Drop):
            return self._drop(step.who)
        if self.links[step.who] is None:
            real, ours = self._connect(Connect(step.who))
            if real != ours:
                return real, ours
        link, peer = self.links[step.who], self.peers[step.who]
        assert link is not None
        assert peer is not None
        if isinstance(step, Request):
            payload, op = r.RequestHeader(step.xid, step.op).encode() + step.body, step.op
        else:
            payload, op = step.payload, -99
        link.write(payload)
        unordered = op == OpCode.CLOSE_SESSION
        real = [self._real(step.who, link, op, unordered)]
        ours = [self._ours(step.who, peer, op, peer.feed(frame(payload)), unordered)]
        return self._with_others(step.who, real, ours, unordered)

    def _with_others(self, who: int, real: list[object], ours: list[object], unordered: bool) -> tuple[object, object]:
        """Add the output on the other connections, where the reply to a ping marks the end of the output."""
        for other, (link, peer) in enumerate(zip(self.links, self.peers, strict=True)):
            if other != who and link is not None and peer is not None:
                link.write(PING)
                real.append(self._real(other, link, OpCode.PING, unordered))
                ours.append(self._ours(other, peer, OpCode.PING, peer.pop_output() + peer.feed(frame(PING)), unordered))
        return real, ours

    def _real(self, who: int, link: Wire, op: int, unordered: bool) -> object:
        """Read up to the reply, or to the end if the connection is closed with it."""
        seen: list[object] = []
        events: list[bytes] = []
        while (payload := link.next_payload()) is not None:
            if is_event(payload):
                (events if unordered else seen).append(payload)
                continue
            seen.append(normalise(op, payload))
            if not closes(op, payload):
                return sorted(events) + seen
        self._gone(who)
        return [*sorted(events), *seen, "closed"]

    def _ours(self, who: int, peer: Peer, op: int, data: bytes, unordered: bool) -> object:
        seen: list[object] = []
        events: list[bytes] = []
        for payload in peer._frames.feed(data):
            if is_event(payload):
                (events if unordered else seen).append(payload)
            else:
                seen.append(normalise(op, payload))
        if peer.closed:
            self.peers[who] = None
            return [*sorted(events), *seen, "closed"]
        return sorted(events) + seen

    def _gone(self, who: int) -> None:
        link = self.links[who]
        assert link is not None
        link.close()
        self.links[who] = None

    def _drop(self, who: int) -> tuple[object, object]:
        link, peer = self.links[who], self.peers[who]
        if link is None or peer is None:
            return None, None
        link.link.shutdown(socket.SHUT_WR)
        while link.next_payload() is not None:  # the real server removes the watches before it closes its side
            pass
        self._gone(who)
        self.engine.disconnect(peer.client)
        self.peers[who] = None
        return self._with_others(who, [], [], False)

    def _connect(self, step: Connect) -> tuple[object, object]:
        self._drop(step.who)
        before = self.welcomes[step.of] if step.of is not None else None
        session = before[0].session_id if before else 0
        asked = [
            ConnectRequest(
                self.engine.zxid + step.ahead,
                step.timeout,
                session,
                before[side].password if before and step.right else b"\1" * 16,
                None if step.short else False,
            ).encode()
            for side in (0, 1)
        ]
        link = Wire(self.apache.port, 0, wait=DEADLINE_S)
        link.write(asked[0])
        answer = link.next_payload()
        welcome = ConnectResponse.decode(answer) if answer else None
        if welcome and not session:
            self.engine.sessions._next_id = welcome.session_id
        peer = Peer(self.engine)
        own = next(iter(peer._frames.feed(peer.feed(frame(asked[1])))), None)
        self.links[step.who] = link
        self.peers[step.who] = None if peer.closed else peer
        if welcome is None or not welcome.timeout_ms:
            link.close()
            self.links[step.who] = None
        elif own is not None:
            self.welcomes[step.who] = welcome, ConnectResponse.decode(own)
        if self.apache.release != "3.8":
            answer, own = blank_password(answer), blank_password(own)
        return self._with_others(step.who, [answer], [own], False)
