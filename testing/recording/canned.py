"""The replay of recordings: by a server that returns the recorded answers, or a client that repeats the requests.

Each connection of the server plays the entries of one recorded connection::

    request --is the next recorded request, or a later one--> its events, its reply, the events that follow
       |
       +----is a ping--> a new reply
       +----was not recorded--> the connection is closed

Names with a random UUID, such as the names of locks, differ in each run. So a request matches a recorded one if they
differ only in UUIDs. In all answers, the client's UUIDs replace the recorded UUIDs.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Sequence
from math import inf
from types import TracebackType
from typing import Final, NoReturn, Self

from ...protocol.codec import Int, combined_struct
from ...protocol.enums import Xid
from ...protocol.errors import ErrorCode, MarshallingError
from ...protocol.framing import Frames, frame
from ...protocol.handshake import ConnectRequest, ConnectResponse
from ...protocol.operations import OpCode
from ...protocol.records import ReplyHeader, RequestHeader
from ...server.core.client_connection import ClientConnection
from ...server.core.server_connection import ConnectionState
from ..frames.interceptor import Reply, is_event
from ..frames.requests import CONNECT, MAX_FRAME, Entry, InterceptedRequest, RecordedEvent, RecordedRequest
from ..run import arguments
from ..run.runner import Runner, make_daemon
from .credentials import redact_body

_pack_int = combined_struct(Int).pack
_UUID: Final = re.compile(rb"[0-9a-f]{8}-?[0-9a-f]{4}-?[14][0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}")


class CannedServer:
    """A server that returns recorded answers. Use it as ``with recording.serve() as server:`` or ``async with``.

    Attributes:
        unexpected: The requests that were not recorded, as text.
    """

    tls_ca: Final = None

    def __init__(self, entries: Sequence[Entry], host: str, port: int, *, strict: bool, answers: bool = False) -> None:
        self.unexpected: list[str] = []
        self._strict = strict
        self._answers = answers
        by_connection: dict[int, list[Entry]] = {}
        for entry in entries:
            by_connection.setdefault(entry.connection, []).append(entry)
        self._scripts = list(by_connection.values())
        self._runner = Runner(lambda: make_daemon(self._connect), host, port)
        self._accepted = 0
        self._uuids: dict[bytes, bytes] = {}

    def _connect(self, client: ClientConnection, resume: Callable[[], None]) -> CannedConnection:
        script = self._scripts[self._accepted] if self._accepted < len(self._scripts) else []
        self._accepted += 1
        return CannedConnection(client, script, self.unexpected.append, self._uuids, answers=self._answers)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a server that replays a recording has no {name!r}, only hosts, port and unexpected")

    def _start_over(self) -> None:
        self._accepted = 0
        self.unexpected.clear()
        self._uuids.clear()

    @property
    def hosts(self) -> str:
        """The connection string for clients: ``host:port``."""
        return self._runner.hosts

    @property
    def port(self) -> int:
        """The TCP port that clients connect to."""
        return self._runner.port

    def __enter__(self) -> Self:
        self._start_over()
        self._runner.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        self._runner.stop()
        self._check_unexpected(error)

    async def __aenter__(self) -> Self:
        self._start_over()
        await self._runner.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        await self._runner.close()
        self._check_unexpected(error)

    def _check_unexpected(self, error: BaseException | None) -> None:
        __tracebackhide__ = True
        if not self._strict or not self.unexpected:
            return
        lines = "".join(f"\n  {line}" for line in self.unexpected)
        message = f"these requests were not recorded:{lines}"
        if error is None:
            raise AssertionError(message)
        error.add_note(message)


class CannedConnection:
    """One connection of a :class:`CannedServer`.

    Args:
        client: The connection's public state.
        script: The recorded entries of one connection, in order.
        report: Called with a line of text for each request that is not in the script.
        uuids: The clients' UUIDs by recorded UUID, shared by all connections.
        answers: Whether unrecorded requests are answered with an error that clients do not retry, instead of closing
            the connection.
    """

    def __init__(
        self,
        client: ClientConnection,
        script: Sequence[Entry],
        report: Callable[[str], object],
        uuids: dict[bytes, bytes],
        *,
        answers: bool,
    ) -> None:
        self.client = client
        self._answers = answers
        self._script = list(script)
        self._report = report
        self._uuids = uuids
        self._position = 0
        self._zxid = 0
        self._frames = Frames(limit=MAX_FRAME)
        self._output: list[bytes] = []
        self._is_first = True

    @property
    def state(self) -> ConnectionState:
        """The state of the connection."""
        if self.closing:
            return ConnectionState.CLOSED
        return ConnectionState.CONNECTING if self._is_first else ConnectionState.OPEN

    @property
    def closing(self) -> bool:
        """Whether to close the socket once all output is written."""
        return self.client.closing

    @property
    def buffered(self) -> int:
        """Always 0, because each request is answered as soon as it is complete."""
        return 0

    def receive_data(self, data: bytes, until: float = inf, time: Callable[[], float] = float) -> bool:
        """Receive bytes, and answer the requests in them. Return False, because nothing remains for a later turn."""
        try:
            payloads = self._frames.feed(data)
        except MarshallingError:
            self.client.closing = True
            return False
        for payload in payloads:
            if not self.closing:
                self._answer(payload)
        return False

    def data_to_send(self) -> bytes:
        """Remove and return the bytes to write now."""
        output, self._output = self._output, []
        return b"".join(output)

    def connection_lost(self) -> None:
        """Remove the connection, because the peer is gone."""
        self.client.closing = True

    def _answer(self, payload: bytes) -> None:
        if self._is_first:
            self._is_first = False
            xid, opcode, body = 0, CONNECT, payload
        elif len(payload) >= 8:
            header = RequestHeader.decode(payload)
            xid, opcode, body = header.xid, header.opcode, payload[8:]
        else:
            self.client.closing = True
            return
        if opcode == OpCode.PING:
            self._output.append(frame(ReplyHeader(Xid.PING, self._zxid, 0).encode()))
            return
        if opcode == CONNECT and not any(entry.opcode == CONNECT for entry in self._requests()):
            self._answer_handshake(payload)
            return
        place = self._find_request(opcode, body)
        if place is None:
            if opcode != OpCode.CLOSE_SESSION:  # a closeSession is expected after a client made other requests
                self._report(InterceptedRequest(opcode, 0, body).view.title)
            if self._answers and opcode not in (CONNECT, OpCode.CLOSE_SESSION):
                self._output.append(frame(ReplyHeader(xid, self._zxid, ErrorCode.UNIMPLEMENTED).encode()))
            else:
                self.client.closing = True
            return
        request = self._script[place]
        assert isinstance(request, RecordedRequest)
        self._send_events(before=place)
        self._position = place + 1
        self._send_reply(request, xid)
        while self._position < len(self._script):
            event = self._script[self._position]
            if not isinstance(event, RecordedEvent) or event.with_reply:
                break
            self._send(event.payload)
            self._position += 1

    def _requests(self) -> list[RecordedRequest]:
        return [entry for entry in self._script if isinstance(entry, RecordedRequest)]

    def _answer_handshake(self, payload: bytes) -> None:
        """Answer a connect request that is not in the recording, because the recording started later."""
        try:
            request = ConnectRequest.decode(payload)
        except MarshallingError:
            self.client.closing = True
            return
        session_id = self._script[0].session if self._script else 1
        read_only = None if request.read_only is None else False
        answer = ConnectResponse(request.timeout_ms, session_id, bytes(16), read_only)
        self._output.append(frame(answer.encode()))

    def _find_request(self, opcode: int, body: bytes) -> int | None:
        """Return the position of the next matching request, or None. All connect requests match."""
        bodies = {body, redact_body(opcode, body)}  # the recording may be redacted
        for place in range(self._position, len(self._script)):
            entry = self._script[place]
            if not isinstance(entry, RecordedRequest) or entry.opcode != opcode:
                continue
            if opcode == CONNECT or any(self._matches_recorded(entry.body, each) for each in bodies):
                return place
        return None

    def _matches_recorded(self, recorded: bytes, body: bytes) -> bool:
        """Return whether a request differs from a recorded request only in UUIDs. If so, remember the new UUIDs."""
        if _UUID.sub(b"", recorded) != _UUID.sub(b"", body):
            return False
        pairs = list(zip(_UUID.findall(recorded), _UUID.findall(body), strict=True))
        if any(self._uuids.get(old, new) != new for old, new in pairs):
            return False
        self._uuids.update(pairs)
        return True

    def _send(self, payload: bytes) -> None:
        for old, new in self._uuids.items():
            payload = payload.replace(old, new)
        self._output.append(frame(payload))

    def _send_events(self, before: int) -> None:
        for entry in self._script[self._position : before]:
            if isinstance(entry, RecordedEvent):
                self._send(entry.payload)

    def _send_reply(self, request: RecordedRequest, xid: int) -> None:
        if not request.reply:  # a fault withheld the reply and closed the connection
            self.client.closing = True
            return
        reply = request.reply
        if request.opcode != CONNECT:
            reply = _pack_int(xid) + reply[4:]
            self._zxid = max(self._zxid, ReplyHeader.decode(reply).zxid)
        self._send(reply)
        if request.opcode == OpCode.CLOSE_SESSION:
            self.client.closing = True


# --- replay as a client ---


def replay(entries: Sequence[Entry], hosts: str, timeout: float) -> list[Entry]:
    """Send recorded requests to a server, and return the entries of the new recording. See :meth:`Recording.replay`."""
    address = arguments.read_servers(hosts)[0]
    peers: dict[int, _ReplayConnection] = {}
    known: dict[int, tuple[int, bytes]] = {}
    recorded: list[Entry] = []
    try:
        for entry in entries:
            if isinstance(entry, RecordedEvent) or "drop_request" in entry.faults_applied:
                continue
            peer = peers.get(entry.connection)
            if peer is None:
                peer = peers[entry.connection] = _ReplayConnection(entry.connection, address, timeout)
                if entry.opcode != CONNECT:  # the recording started after the handshake
                    peer.connect(entry)
            recorded += peer.send(entry, known)
    except MarshallingError as error:
        raise OSError(f"the server at {hosts} sent an invalid ZooKeeper reply: {error}") from None
    finally:
        for peer in peers.values():
            peer.close()
    return recorded


class _ReplayConnection:
    """A connection to a server that repeats the requests of one recorded connection."""

    def __init__(self, number: int, address: tuple[str, int], timeout: float) -> None:
        self._number = number
        self._socket = socket.create_connection(address, timeout)
        self._frames = Frames(limit=MAX_FRAME)
        self._session = self._xid = 0
        self._replies: list[bytes] = []
        self._is_open = True

    def close(self) -> None:
        self._socket.close()

    def connect(self, request: RecordedRequest) -> None:
        """Open a session for a connection whose handshake was not recorded."""
        body = ConnectRequest(timeout_ms=30_000).encode()
        list(self.send(request._replace(opcode=CONNECT, body=body), {}))

    def send(self, request: RecordedRequest, known: dict[int, tuple[int, bytes]]) -> Iterator[Entry]:
        """Send a request, and yield the events and the reply. Yield nothing once the server has closed the connection.

        Args:
            request: The recorded request.
            known: The id and password of each new session, by the id of the recorded session.
        """
        if not self._is_open:
            return
        if request.opcode == CONNECT:
            body = self._make_handshake(request, known)
            self._socket.sendall(frame(body))
        else:
            body = request.body
            special = {OpCode.AUTH: Xid.AUTH, OpCode.SET_WATCHES: Xid.SET_WATCHES, OpCode.SET_WATCHES2: Xid.SET_WATCHES}
            self._xid += 1
            xid = next((xid for opcode, xid in special.items() if opcode == request.opcode), self._xid)
            self._socket.sendall(frame(RequestHeader(xid, request.opcode).encode() + body))
        for payload in self._read_until_reply(request.opcode):
            if request.opcode != CONNECT and is_event(payload):
                yield RecordedEvent(self._number, self._session, request.time, payload, True)
                continue
            reply = Reply.parse(frame(payload), request.opcode)
            zxid = 0
            if request.opcode == CONNECT:
                answer = ConnectResponse.decode(payload)
                self._session = answer.session_id
                known[request.session] = answer.session_id, answer.password or bytes(16)
            else:
                zxid = ReplyHeader.decode(payload).zxid
            yield RecordedRequest(
                self._number,
                self._session,
                request.opcode,
                body,
                zxid,
                reply.error,
                reply.part_errors,
                "",
                request.time,
                payload,
            )
        if not self._is_open and request.opcode not in (CONNECT, OpCode.CLOSE_SESSION):
            yield RecordedRequest(self._number, self._session, request.opcode, body, 0, None, (), "", request.time)

    def _make_handshake(self, request: RecordedRequest, known: dict[int, tuple[int, bytes]]) -> bytes:
        """Return a connect request that opens a session, or that resumes the new session of a recorded session."""
        recorded = ConnectRequest.decode(request.body)
        session_id, password = known.get(recorded.session_id, (0, bytes(16)))
        return ConnectRequest(
            timeout_ms=recorded.timeout_ms, session_id=session_id, password=password, read_only=recorded.read_only
        ).encode()

    def _read_until_reply(self, opcode: int) -> Iterator[bytes]:
        while True:
            while self._replies:
                payload = self._replies.pop(0)
                yield payload
                if opcode == CONNECT or not is_event(payload):
                    return
            data = self._socket.recv(1 << 16)
            if not data:
                self._is_open = False
                return
            self._replies += self._frames.feed(data)
