"""Recordings: the requests that were made in a block, to look at, to compare, to save, and to replay."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, overload

from zoolet.protocol.operations import OpCode
from zoolet.server.testing.frames.requests import CONNECT, Entry, OpView, RecordedEvent, RecordedRequest, view_of

if TYPE_CHECKING:
    from zoolet.server.testing.recording.canned import CannedServer

FORMAT: Final = "zoolet recording"
VERSION: Final = 1
MAX_COMPARISONS: Final = 1_000_000
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    **dict.fromkeys(("connection", "session", "opcode", "zxid"), (int,)),
    **dict.fromkeys(("body", "reply", "payload"), (bytes,)),
    "error": (int, type(None)),
    "part_errors": (list, tuple),
    "faults_applied": (str,),
    "time": (int, float),
    "with_reply": (bool,),
}
"""The names of the fields of entries, for files."""


class Recording(Sequence[OpView]):
    """The requests that were made in a block, without pings: a sequence of
    :class:`~zoolet.server.testing.frames.requests.OpView`, which grows until the block ends.

    ``with server.recording() as ops:`` makes one; :meth:`load` reads one that was saved. It has the replies and the
    watch events, too, so that it can be replayed: :meth:`replay` sends the requests to a server, :meth:`serve` answers
    a client.

    Attributes:
        entries: The requests and events as bytes, in the order in which they passed.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: list[Entry] = list(entries)
        self._views: list[OpView] = []
        self._handshakes: dict[int, Entry] = {}  # of sessions that are not known to be wanted
        self._seen = 0  # entries that are in _views, or are none
        self._begin: Callable[[Callable[[Entry], None]], None] | None = None
        self._end: Callable[[Callable[[Entry], None]], None] | None = None
        self._wanted: Callable[[int], bool] = lambda session_id: True

    # --- as a block ---

    @classmethod
    def of(
        cls,
        begin: Callable[[Callable[[Entry], None]], None],
        end: Callable[[Callable[[Entry], None]], None],
        wanted: Callable[[int], bool],
    ) -> Self:
        """Return a recording that records inside its block.

        Args:
            begin: Called with the function that receives each request and event, at the beginning of the block.
            end: Called with the same at its end.
            wanted: Returns whether a session's requests are recorded.
        """
        recording = cls()
        recording._begin, recording._end, recording._wanted = begin, end, wanted
        return recording

    def __enter__(self) -> Self:
        if self._begin is None:
            raise RuntimeError("this recording has begun; server.recording() makes another one")
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
        if self._wanted(entry.session):
            if (connect := self._handshakes.pop(entry.session, None)) is not None:
                self.entries.append(connect)
            self.entries.append(entry)
        elif isinstance(entry, RecordedRequest) and entry.opcode == CONNECT:
            self._handshakes[entry.session] = entry  # its client learns the id of its session only now

    # --- as a sequence ---

    def _all(self) -> list[OpView]:
        entries = self.entries[self._seen :]
        self._seen += len(entries)
        self._views += [view_of(entry) for entry in entries if isinstance(entry, RecordedRequest)]
        return self._views

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> OpView: ...

    @overload
    def __getitem__(self, index: slice) -> list[OpView]: ...

    def __getitem__(self, index: int | slice) -> OpView | list[OpView]:
        return self._all()[index]

    def __repr__(self) -> str:
        return "\n".join([f"<Recording of {len(self)} requests>", *map(str, self)])

    def select(self, op: str | None = None, path: str | None = None) -> list[OpView]:
        """Return the requests of an operation, with paths that match a glob; None stands for all."""
        return [
            view
            for view in self
            if (op is None or view.op == op) and (path is None or fnmatchcase(view.path or "", path))
        ]

    # --- assertions ---

    def assert_ops(self, *expected: str) -> None:
        """Check which requests were made.

        Args:
            expected: A line for each request: operation and path, ``create /a``; of one that failed also the error,
                ``create /a -> NODE_EXISTS``; of a transaction ``multi [create /a, delete /b]``. ``*`` and ``?`` stand
                for any letters.

        Raises:
            AssertionError: Others were made; the message is a diff.
        """
        __tracebackhide__ = True
        _compare(list(expected), [_line(view) for view in self], "expected", "recorded")

    def assert_same(self, other: Recording) -> None:
        """Check that another recording has the same requests with the same outcomes, by any session.

        Raises:
            AssertionError: It has not; the message is a diff.
        """
        __tracebackhide__ = True
        mine, theirs = ([_line(view) for view in recording] for recording in (self, other))
        _compare(mine, theirs, "this", "the other", matches=eq)

    # --- files ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save to a file, in msgpack, for its owner only. It has everything that passed: data, and credentials of
        clients that authenticate.
        """
        import msgpack

        lines = [[isinstance(entry, RecordedEvent), *entry] for entry in self.entries]
        data: Any = msgpack.packb({FORMAT: VERSION, "entries": lines})
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                os.fchmod(file.fileno(), 0o600)  # it may have been there
            file.write(data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that :meth:`save` or ``zoolet proxy --record`` has written.

        Raises:
            ValueError: It is not such a file.
            OSError: It cannot be read.
        """
        import msgpack

        data = Path(path).read_bytes()
        try:
            content: Any = msgpack.unpackb(data)
            if content[FORMAT] != VERSION:
                raise ValueError(f"version {content[FORMAT]!r} is unknown")
            entries = [_entry(line) for line in content["entries"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, msgpack.UnpackException) as error:
            raise ValueError(f"{os.fspath(path)} is not a recording of zoolet ({type(error).__name__})") from None
        return cls(entries)

    # --- replay ---

    def replay(self, hosts: str, timeout: float = 10.0) -> Recording:
        """Send the recorded requests to a server, in their order and each after the reply to the one before, over as
        many connections as were recorded; return the recording of that.

        Sessions are opened again, with other ids. This blocks: in asyncio code call it by ``asyncio.to_thread``.

        Args:
            hosts: The server: ``host:port``.
            timeout: Seconds for each reply.

        Raises:
            OSError: The server does not answer.
            TimeoutError: A reply did not come in time.
        """
        from zoolet.server.testing.recording.canned import replay

        return Recording(replay(self.entries, hosts, timeout))

    def serve(self, host: str = "127.0.0.1", port: int = 0, *, strict: bool = True) -> CannedServer:
        """Return a server that gives the recorded answers, byte for byte, to a client that makes the recorded requests:
        ``with recording.serve() as server: connect(server.hosts)``.

        Its first connection gets the answers of the first one that was recorded, and so on. Pings are answered always.

        Args:
            host: The address to listen on.
            port: The port; 0 for a free one.
            strict: Raise an AssertionError at the end of the block if a request was made that was not recorded. Its
                connection is closed in any case.
        """
        from zoolet.server.testing.recording.canned import CannedServer

        return CannedServer(self.entries, host, port, strict=strict)


def _aligned(expected: list[str], found: list[str], matches: Callable[[str, str], bool]) -> list[str]:
    """Return the lines, each that stands where it is expected as it is expected, so that a diff has what differs.

    That is a longest common subsequence, or with very many lines those at the same place.
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


def _entry(line: list[Any]) -> Entry:
    is_event, *fields = line
    entry: Entry = RecordedEvent(*fields) if is_event else RecordedRequest(*fields)
    for name, value in entry._asdict().items():
        kinds = _KINDS[name]
        if not isinstance(value, kinds):
            raise ValueError(f"{name} is {value!r}")
    return entry if isinstance(entry, RecordedEvent) else entry._replace(part_errors=tuple(entry.part_errors))


def _line(view: OpView) -> str:
    return view.title if view.error == 0 else f"{view.title} -> {view.outcome}"


def _matches(line: str, pattern: str) -> bool:
    return line == pattern or fnmatchcase(line, pattern.replace("[", "[[]"))  # a bracket is a transaction's


def _compare(
    expected: list[str], found: list[str], one: str, other: str, matches: Callable[[str, str], bool] = _matches
) -> None:
    __tracebackhide__ = True
    if len(expected) == len(found) and all(map(matches, found, expected)):
        return
    shown = _aligned(expected, found, matches)
    diff = difflib.unified_diff(expected, shown, one, other, n=3, lineterm="")
    title = f"the requests differ; {len(expected)} were expected, and {len(found)} recorded:"
    raise AssertionError("\n".join([title, *diff]))
