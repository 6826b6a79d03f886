"""Recordings of the requests in a block, to inspect, compare, save and replay."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from operator import eq
from typing import Any, Final, Self, overload

from ...protocol.operations import OpCode
from ..frames.requests import (
    CONNECT,
    MAX_FRAME,
    Entry,
    OpView,
    RecordedEvent,
    RecordedRequest,
    recorded_view,
)
from .canned import CannedServer, replay
from .credentials import redact

FORMAT_NAME: Final = "zoolet recording"
FORMAT_VERSION: Final = 1
MIN_PART_BYTES: Final = 9
"""Minimum size of a part of a transaction in bytes."""
MAX_COMPARISONS: Final = 1_000_000
"""Maximum number of pairs of lines that a diff compares."""
_FIELD_TYPES: Final[dict[str, tuple[type, ...]]] = {
    **dict.fromkeys(("connection", "session", "opcode", "zxid", "part_errors"), (int,)),
    **dict.fromkeys(("body", "reply", "payload"), (bytes,)),
    "error": (int, type(None)),
    "faults_applied": (str,),
    "time": (int, float),
    "with_reply": (bool,),
}
"""The permitted types of the entries' fields in a file. For a list, the types of its elements."""


class Recording(Sequence[OpView]):
    """The requests made in a block, without pings, as a sequence of
    :class:`~zoolet.testing.frames.requests.OpView` that grows until the block ends.

    ``with server.recording() as ops:`` creates a recording, and :meth:`load` reads a file. It includes replies and
    watch events, so you can replay it: :meth:`replay` sends the requests to a server, :meth:`serve` answers a client.

    Attributes:
        entries: The encoded requests and events, in the order of recording.
        test: Name of the test that made the recording for the fixture ``zoolet``, or empty text.
    """

    def __init__(self, entries: Iterable[Entry] = (), test: str = "") -> None:
        self.entries: list[Entry] = list(entries)
        self.test = test
        self._views: list[OpView] = []
        self._handshakes: dict[int, Entry] = {}  # handshakes of sessions that may have to be recorded, by session id
        self._viewed_count = 0  # number of entries that _views covers
        self._begin: Callable[[Callable[[Entry], None]], None] | None = None
        self._end: Callable[[Callable[[Entry], None]], None] | None = None
        self._is_recorded: Callable[[int], bool] = lambda session_id: True

    # --- as a context manager ---

    @classmethod
    def of(
        cls,
        begin: Callable[[Callable[[Entry], None]], None],
        end: Callable[[Callable[[Entry], None]], None],
        is_recorded: Callable[[int], bool],
    ) -> Self:
        """Return a recording that records inside its block.

        Args:
            begin: Called at the start of the block with the function that receives each request and event.
            end: Called at the end of the block with the same function.
            is_recorded: Returns whether to record a session's requests.
        """
        recording = cls()
        recording._begin, recording._end, recording._is_recorded = begin, end, is_recorded
        return recording

    def __enter__(self) -> Self:
        if self._begin is None:
            raise RuntimeError("this recording has already been started; call server.recording() for a new one")
        begin, self._begin = self._begin, None
        begin(self._receive)
        return self

    def __exit__(self, *error: object) -> None:
        if self._end is not None:
            self._end(self._receive)
        self._begin = self._end = None

    def _receive(self, entry: Entry) -> None:
        if isinstance(entry, RecordedRequest) and entry.opcode == OpCode.PING:
            return
        if self._is_recorded(entry.session):
            if (connect := self._handshakes.pop(entry.session, None)) is not None:
                self.entries.append(connect)
            self.entries.append(entry)
        elif isinstance(entry, RecordedRequest) and entry.opcode == CONNECT:
            self._handshakes[entry.session] = entry  # the client learns its session id only from the reply

    # --- as a sequence ---

    def _all_views(self) -> list[OpView]:
        entries = self.entries[self._viewed_count :]
        self._viewed_count += len(entries)
        self._views += [recorded_view(entry) for entry in entries if isinstance(entry, RecordedRequest)]
        return self._views

    def __len__(self) -> int:
        return len(self._all_views())

    @overload
    def __getitem__(self, index: int) -> OpView: ...

    @overload
    def __getitem__(self, index: slice) -> list[OpView]: ...

    def __getitem__(self, index: int | slice) -> OpView | list[OpView]:
        return self._all_views()[index]

    def __repr__(self) -> str:
        return "\n".join([f"<Recording of {len(self)} requests>", *map(str, self)])

    def select(self, op: str | None = None, path: str | None = None) -> list[OpView]:
        """Return the requests with an operation and a path that matches a glob. By default, all match."""
        return [
            view
            for view in self
            if (op is None or view.op == op) and (path is None or fnmatchcase(view.path or "", path))
        ]

    # --- assertions ---

    def assert_ops(self, *expected: str) -> None:
        """Check which requests were made.

        Args:
            expected: A line for each request with operation and path, such as ``create /a``. Add the error of a failed
                request: ``create /a -> NODE_EXISTS``. Write a transaction as ``multi [create /a, delete /b]``. ``*``
                matches any characters, ``?`` a single one.

        Raises:
            AssertionError: The recorded requests differ. The message contains a diff.
        """
        __tracebackhide__ = True
        _assert_matching(list(expected), [_format_view(view) for view in self], "expected", "recorded")

    def assert_same(self, other: Recording) -> None:
        """Check that *other* contains the same requests with the same outcomes. Sessions may differ.

        Raises:
            AssertionError: The recordings differ. The message contains a diff.
        """
        __tracebackhide__ = True
        mine, theirs = ([_format_view(view) for view in recording] for recording in (self, other))
        _assert_matching(mine, theirs, "this", "the other", matches=eq)

    # --- saving and loading ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save to a msgpack file that only its owner may read, because it contains all data and credentials."""
        import msgpack

        lines = [[isinstance(entry, RecordedEvent), *entry] for entry in self.entries]
        maker = {"test": self.test} if self.test else {}
        data: Any = msgpack.packb({FORMAT_NAME: FORMAT_VERSION, **maker, "entries": lines})
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                os.fchmod(file.fileno(), 0o600)  # an existing file keeps its permissions
            file.write(data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file written by :meth:`save` or ``zoolet proxy --record``.

        Raises:
            ValueError: The file is not a zoolet recording.
            OSError: The file cannot be read.
        """
        import msgpack

        # Lists and maps are read by their headers, because values need up to 70 times the memory of their bytes.
        is_slow = msgpack.Unpacker.__module__ == "msgpack.fallback"  # the fallback also applies the limits to headers
        limits: Any = {} if is_slow else dict.fromkeys(("max_array_len", "max_map_len", "max_ext_len"), 0)
        with open(path, "rb") as stream:
            unpacker = msgpack.Unpacker(stream, max_buffer_size=2 * MAX_FRAME, **limits)
            try:
                size, *head = unpacker.read_map_header(), *(unpacker.unpack() for _ in range(3))
                test = ""
                if size == 3 and head[-1] == "test":
                    test, head[-1] = str(unpacker.unpack()), unpacker.unpack()
                if head != [FORMAT_NAME, FORMAT_VERSION, "entries"] or size != (3 if test else 2):
                    raise ValueError(f"expected the header of a recording, found {head!r}")
                entries = [_read_entry(unpacker) for _ in range(unpacker.read_array_header())]
                if unpacker.read_bytes(1):
                    raise ValueError("unexpected data after the end")
            except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
                raise ValueError(f"{os.fspath(path)} is not a zoolet recording, or is damaged: {error}") from error
        return cls(entries, test)

    def redacted(self) -> Recording:
        """Return a copy without the credentials of ``auth`` and SASL requests and the passwords of sessions.

        A server from :meth:`serve` accepts any credentials. Data and ACLs stay, including password hashes in ACLs.
        """
        return Recording(map(redact, self.entries), self.test)

    # --- replay ---

    def replay(self, hosts: str, timeout: float = 10.0) -> Recording:
        """Send the recorded requests to a server and return a new recording.

        Requests are sent in order over as many connections as were recorded, each after the previous reply. Sessions
        get new ids. The call blocks. In asyncio code, use ``asyncio.to_thread``.

        Args:
            hosts: The server, as ``host:port``.
            timeout: Timeout for each reply in seconds.

        Raises:
            OSError: The server does not answer, or sends an invalid reply.
            TimeoutError: A reply did not arrive in time.
        """
        return Recording(replay(self.entries, hosts, timeout))

    def serve(self, host: str = "127.0.0.1", port: int = 0, *, strict: bool = True) -> CannedServer:
        """Return a server that gives the recorded answers to a client that repeats the recorded requests:
        ``with recording.serve() as server: connect(server.hosts)``.

        Answers are identical to the recorded bytes, apart from xids and UUIDs. The server's first connection gets the
        answers of the first recorded connection, and so on. Pings are always answered.

        Args:
            host: The address to listen on.
            port: The port, or 0 for a free port.
            strict: Raise an AssertionError at the end of the block if a request was not recorded. The connection of
                such a request is always closed.
        """
        return CannedServer(self.entries, host, port, strict=strict)


def _align(expected: list[str], found: list[str], matches: Callable[[str, str], bool]) -> list[str]:
    """Return the found lines, with each matching line replaced by its pattern, for a diff of the real differences.

    Matches are a longest common subsequence, or for very many lines, the lines at the same position.
    """
    if len(expected) * len(found) > MAX_COMPARISONS:
        pairs = list(zip(found, expected, strict=False))
        return [pattern if matches(line, pattern) else line for line, pattern in pairs] + found[len(pairs) :]
    lengths = [[0] * (len(expected) + 1) for _ in range(len(found) + 1)]
    for row in range(len(found) - 1, -1, -1):
        for column in range(len(expected) - 1, -1, -1):
            both = lengths[row + 1][column + 1] + 1 if matches(found[row], expected[column]) else 0
            lengths[row][column] = max(both, lengths[row + 1][column], lengths[row][column + 1])
    shown, row, column = [], 0, 0
    while row < len(found):
        if column < len(expected) and lengths[row][column] == lengths[row][column + 1]:
            column += 1
        elif lengths[row][column] == lengths[row + 1][column]:
            shown.append(found[row])
            row += 1
        else:
            shown.append(expected[column])
            row, column = row + 1, column + 1
    return shown


def _read_entry(unpacker: Any) -> Entry:
    size, is_event = unpacker.read_array_header(), unpacker.unpack()
    kind: Any = RecordedEvent if is_event else RecordedRequest
    fields: dict[str, Any] = {}
    for name in kind._fields[: size - 1]:
        is_list = name == "part_errors"
        count = unpacker.read_array_header() if is_list else 1
        if is_list and count > len(fields["body"]) // MIN_PART_BYTES:
            raise ValueError(f"a transaction of {len(fields['body'])} bytes cannot have {count} errors")
        value = [unpacker.unpack() for _ in range(count)] if is_list else unpacker.unpack()
        if not all(isinstance(each, _FIELD_TYPES[name]) for each in (value if is_list else [value])):
            raise ValueError(f"unexpected value of {name}: {value!r:.80}")
        fields[name] = tuple(value) if is_list else value
    entry: Entry = kind(**fields)
    return entry


def _format_view(view: OpView) -> str:
    return view.title if view.error == 0 else f"{view.title} -> {view.outcome}"


def _matches(line: str, pattern: str) -> bool:
    return line == pattern or fnmatchcase(line, pattern.replace("[", "[[]"))  # brackets enclose transactions


def _assert_matching(
    expected: list[str], found: list[str], one: str, other: str, matches: Callable[[str, str], bool] = _matches
) -> None:
    __tracebackhide__ = True
    if len(expected) == len(found) and all(map(matches, found, expected)):
        return
    shown = _align(expected, found, matches)
    diff = difflib.unified_diff(expected, shown, one, other, n=3, lineterm="")
    title = f"the requests differ; expected {len(expected)}, recorded {len(found)}:"
    raise AssertionError("\n".join([title, *diff]))
