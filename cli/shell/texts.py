"""Pure functions that convert nodes, lists and events to text.

Source: StatPrinter; GetAclCommand; WatchedEvent.toString; io.netty.buffer.ByteBufUtil.prettyHexDump.
"""

from __future__ import annotations

import time
from typing import Any, Final

from ...protocol import records as r
from ...protocol.acl import AclList
from ...protocol.enums import PERM_LETTERS, EventType
from ...protocol.hexadecimal import hexadecimal

_HEXADECIMAL_FIELDS: Final = frozenset({"czxid", "mzxid", "pzxid", "ephemeralOwner"})
_HARMLESS_CHARACTERS: Final = frozenset("\n\t\xa0\u3000")
"""Characters that stay unescaped although Python does not consider them printable."""
_EVENTS: Final = {
    EventType.NONE: "None",
    EventType.NODE_CREATED: "NodeCreated",
    EventType.NODE_DELETED: "NodeDeleted",
    EventType.NODE_DATA_CHANGED: "NodeDataChanged",
    EventType.NODE_CHILDREN_CHANGED: "NodeChildrenChanged",
    EventType.DATA_WATCH_REMOVED: "DataWatchRemoved",
    EventType.CHILD_WATCH_REMOVED: "ChildWatchRemoved",
    EventType.PERSISTENT_WATCH_REMOVED: "PersistentWatchRemoved",
}


def java_date(milliseconds: int) -> str:
    """Return a time in the format of Java's Date, in the local time zone."""
    try:
        return time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(milliseconds / 1000))
    except (OverflowError, OSError, ValueError):  # a server may send any number
        return f"{milliseconds} ms"


def stat_lines(stat: r.Stat) -> list[str]:
    """Return a Stat as text in the format of zkCli: eleven lines."""
    return [
        f"cZxid = {hexadecimal(stat.czxid)}",
        f"ctime = {java_date(stat.ctime)}",
        f"mZxid = {hexadecimal(stat.mzxid)}",
        f"mtime = {java_date(stat.mtime)}",
        f"pZxid = {hexadecimal(stat.pzxid)}",
        f"cversion = {stat.cversion}",
        f"dataVersion = {stat.version}",
        f"aclVersion = {stat.aversion}",
        f"ephemeralOwner = {hexadecimal(stat.ephemeralOwner)}",
        f"dataLength = {stat.dataLength}",
        f"numChildren = {stat.numChildren}",
    ]


def stat_json(stat: r.Stat) -> dict[str, Any]:
    """Return a Stat as JSON, with the field names of the protocol.

    Zxids and session ids are strings, because many programs read 64-bit numbers inexactly.
    """
    return {
        name: hexadecimal(getattr(stat, name)) if name in _HEXADECIMAL_FIELDS else getattr(stat, name)
        for name in stat.fields()
    }


def acl_lines(acl: AclList) -> list[str]:
    """Return an ACL list as two lines for each entry."""
    lines = []
    for entry in acl:
        lines.append(f"'{entry.id.scheme},'{entry.id.id}")
        lines.append(f": {permissions(entry.perms)}")
    return lines


def permissions(perms: int) -> str:
    """Return a bit mask of permissions as letters, such as ``cdrwa``."""
    return "".join(letter for letter, permission in PERM_LETTERS.items() if perms & permission)


def event_text(kind: EventType, path: str | None, state: str, zxid: int | None) -> str:
    """Return an event as one line, in the format of the Java client."""
    return f"WatchedEvent state:{state} type:{_EVENTS[kind]} path:{path or 'null'} zxid: {-1 if zxid is None else zxid}"


def hexdump(data: bytes) -> list[str]:
    """Return bytes as the lines of a table of hexadecimal numbers and characters."""
    if not data:
        return [""]
    lines = [
        "         +-------------------------------------------------+",
        "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |",
        "+--------+-------------------------------------------------+----------------+",
    ]
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        numbers = " ".join(f"{byte:02x}" for byte in row)
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"|{start:08x}| {numbers:<48}|{shown:<16}|")
    lines.append("+--------+-------------------------------------------------+----------------+")
    return lines


def data_text(data: bytes | None) -> str:
    """Return data as text. Bytes that are not UTF-8 become surrogates, which preserve the original bytes."""
    return "null" if data is None else data.decode("utf-8", "surrogateescape")


def printable(text: str) -> str:
    """Escape unprintable characters of a text, such as control sequences and changes of direction."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in _HARMLESS_CHARACTERS else _escape(character)
        for character in text
    )


def _escape(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # the surrogate of a byte that is not UTF-8
        return f"\\x{number - 0xDC00:02x}"
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
