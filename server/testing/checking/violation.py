"""An answer that no ZooKeeper gives, and its story."""

from __future__ import annotations

from dataclasses import dataclass

from zoolet.protocol import records as r
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.operations import OPERATIONS
from zoolet.server.testing.frames.requests import CONNECT, Entry, RecordedEvent, RecordedRequest, view_of

HEADER = 16
"""Bytes of the header of a reply."""
MAX_DATA = 40
"""The most bytes of a node's data that a story shows."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An answer that no ZooKeeper gives.

    Args:
        rule: What it violates, in one sentence.
        entries: The requests and events that show it, in the order in which they were answered; none can be left out.
        because: How they contradict each other; its numbers are those of :attr:`story`.
    """

    rule: str
    entries: tuple[Entry, ...]
    because: str = ""

    @property
    def story(self) -> str:
        """The rule, a numbered line for each of the entries, and why they cannot be."""
        lines = [f"  {number}. {_line(entry)}" for number, entry in enumerate(self.entries, 1)]
        return "\n".join([self.rule, "", *lines, *(["", self.because] if self.because else [])])

    def __str__(self) -> str:
        return self.story


def zxid_of(entry: RecordedRequest) -> int:
    """Return the zxid of an answer; 0 for none."""
    if len(entry.reply) < HEADER or entry.opcode == CONNECT:
        return 0
    return r.ReplyHeader.decode(entry.reply).zxid


def _line(entry: Entry) -> str:
    who = f"session {hexadecimal(entry.session)} on connection {entry.connection}"
    if isinstance(entry, RecordedEvent):
        event = r.WatcherEvent.decode(entry.payload, HEADER)
        return f"{who} is sent the event {event.type} of {event.path}"
    view = view_of(entry)
    data = f" to {_shown(view.data)}" if view.data is not None else ""
    version = f" if its version is {view.version}" if view.version is not None and view.version >= 0 else ""
    zxid = f", zxid {hexadecimal(zxid_of(entry))}" if zxid_of(entry) else ""
    return f"{who}: {view.title}{data}{version} -> {view.outcome}{_answer(entry)}{zxid}"


def _answer(entry: RecordedRequest) -> str:
    """Return what a reply shows of a node."""
    row = OPERATIONS.get(entry.opcode)
    if row is None or row.response is None or entry.error or len(entry.reply) <= HEADER:
        return ""
    try:
        response = row.response.decode(entry.reply, HEADER)
    except MarshallingError:
        return ""
    parts = []
    if isinstance(data := getattr(response, "data", None), bytes):
        parts.append(_shown(data))
    if isinstance(response, r.CreateResponse | r.Create2Response):
        parts.append(response.path)
    if isinstance(children := getattr(response, "children", None), list):
        parts.append(f"children {', '.join(sorted(children)[:8])}{', ...' if len(children) > 8 else ''}")
    if isinstance(stat := getattr(response, "stat", None), r.Stat):
        parts.append(f"version {stat.version} of zxid {hexadecimal(stat.mzxid)}")
    return f": {', '.join(parts)}" if parts else ""


def _shown(data: bytes) -> str:
    return repr(data) if len(data) <= MAX_DATA else f"{data[:MAX_DATA]!r}... ({len(data):,} bytes)"
