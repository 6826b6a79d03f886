"""A consistency violation and its description."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol import records as r
from ...protocol.errors import MarshallingError
from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OPERATIONS
from ..frames.requests import CONNECT, Entry, RecordedEvent, RecordedRequest, recorded_view

HEADER_BYTES = 16
"""Size of a reply's header in bytes."""
MAX_DATA_BYTES = 40
"""Maximum number of bytes of a node's data that a story shows."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A consistency violation: answers that contradict ZooKeeper's guarantees.

    Args:
        rule: The violation in one sentence.
        entries: The requests and events that show the violation, in the order of their answers. All are necessary.
        because: Explanation of the contradiction. It refers to the entries by their numbers in :attr:`story`.
    """

    rule: str
    entries: tuple[Entry, ...]
    because: str = ""

    @property
    def story(self) -> str:
        """The rule, a numbered line for each entry, and the contradiction between them."""
        lines = [f"  {number}. {_format_entry(entry)}" for number, entry in enumerate(self.entries, 1)]
        return "\n".join([self.rule, "", *lines, *(["", self.because] if self.because else [])])

    def __str__(self) -> str:
        return self.story


def reply_zxid(entry: RecordedRequest) -> int:
    """Return the zxid in the reply to a request, or 0 if the reply has no header."""
    if len(entry.reply) < HEADER_BYTES or entry.opcode == CONNECT:
        return 0
    return r.ReplyHeader.decode(entry.reply).zxid


def _format_entry(entry: Entry) -> str:
    who = f"session {hexadecimal(entry.session)} on connection {entry.connection}"
    if isinstance(entry, RecordedEvent):
        event = r.WatcherEvent.decode(entry.payload, HEADER_BYTES)
        return f"{who} receives event {event.type} for {event.path}"
    view = recorded_view(entry)
    data = f" to {_shorten(view.data)}" if view.data is not None else ""
    version = f" if the version is {view.version}" if view.version is not None and view.version >= 0 else ""
    zxid = f", zxid {hexadecimal(reply_zxid(entry))}" if reply_zxid(entry) else ""
    return f"{who}: {view.title}{data}{version} -> {view.outcome}{_format_reply(entry)}{zxid}"


def _format_reply(entry: RecordedRequest) -> str:
    """Return the data, path, children and version in a reply, as text."""
    row = OPERATIONS.get(entry.opcode)
    if row is None or row.response is None or entry.error or len(entry.reply) <= HEADER_BYTES:
        return ""
    try:
        response = row.response.decode(entry.reply, HEADER_BYTES)
    except MarshallingError:
        return ""
    parts = []
    if isinstance(data := getattr(response, "data", None), bytes):
        parts.append(_shorten(data))
    if isinstance(response, r.CreateResponse | r.Create2Response):
        parts.append(response.path)
    if isinstance(children := getattr(response, "children", None), list):
        parts.append(f"children {', '.join(sorted(children)[:8])}{', ...' if len(children) > 8 else ''}")
    if isinstance(stat := getattr(response, "stat", None), r.Stat):
        parts.append(f"version {stat.version} at zxid {hexadecimal(stat.mzxid)}")
    return f": {', '.join(parts)}" if parts else ""


def _shorten(data: bytes) -> str:
    return repr(data) if len(data) <= MAX_DATA_BYTES else f"{data[:MAX_DATA_BYTES]!r}... ({len(data):,} bytes)"
