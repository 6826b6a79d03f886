"""Watches: addWatch, removewatches, printwatches, and watch, which follows a subtree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zoolet.client.shell.command import command
from zoolet.client.shell.errors import CommandError, UsageError
from zoolet.client.shell.flags import Flag, Parsed
from zoolet.client.shell.nodes_text import shown_data
from zoolet.client.wire.states import Event
from zoolet.client.wire.watches import Kind
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import NoAuthError, NoNodeError
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.node_json import data_json

if TYPE_CHECKING:
    from zoolet.client.shell.shell import Shell

MODES: Final = {"PERSISTENT": Kind.PERSISTENT, "PERSISTENT_RECURSIVE": Kind.RECURSIVE}
SIGNS: Final = {
    EventType.NODE_CREATED: "+",
    EventType.NODE_DELETED: "-",
    EventType.NODE_DATA_CHANGED: "=",
    EventType.NODE_CHILDREN_CHANGED: "~",
}


@command(
    "addWatch",
    "[-m mode] path # optional mode is one of [PERSISTENT, PERSISTENT_RECURSIVE] - default is PERSISTENT_RECURSIVE",
    "watch a node, or all below it, from now on",
    Flag("m", "the mode", "mode"),
    least=1,
    paths=1,
)
async def add_watch(shell: Shell, arguments: Parsed) -> None:
    """Leave a persistent watch, recursive unless another mode is named.

    Raises:
        UsageError: There is no such mode.
        UnimplementedError: The server is older than 3.6.
    """
    kind = MODES.get(arguments.flags.get("m", "PERSISTENT_RECURSIVE").upper())
    if kind is None:
        raise UsageError
    path = shell.path(arguments.words[0])
    await shell.watches.set(kind, path)
    shell.out.show({"watching": path, "recursive": kind is Kind.RECURSIVE}, ())


@command(
    "removewatches",
    "path [-c|-d|-a] [-l]",
    "remove watches that this session has set on a node",
    Flag("c", "those on its children"),
    Flag("d", "those on its data"),
    Flag("p", "persistent ones"),
    Flag("r", "persistent and recursive ones"),
    Flag("a", "all, as without a flag"),
    Flag("l", "without a connection to a server, too"),
    least=1,
    paths=1,
)
async def remove_watches(shell: Shell, arguments: Parsed) -> None:
    """Remove the watches of this session on a node.

    Raises:
        NoWatcherError: There are none.
        ZooKeeperError: The server refuses it.
    """
    kinds: tuple[Kind, ...] = tuple(Kind)
    for name, chosen in (
        ("c", (Kind.CHILD,)),
        ("d", (Kind.DATA, Kind.EXIST)),
        ("p", (Kind.PERSISTENT,)),
        ("r", (Kind.RECURSIVE,)),
    ):
        if arguments.has(name):
            kinds = chosen
            break
    path = shell.path(arguments.words[0])
    await shell.watches.remove(path, kinds)
    shell.out.show({"removed": path}, ())


@command("printwatches", "on|off", "whether events are printed", offline=True)
async def print_watches(shell: Shell, arguments: Parsed) -> None:
    """Print the watches of this session."""
    if arguments.words:
        shell.shows_watches = arguments.words[0] == "on"
    text = "on" if shell.shows_watches else "off"
    shell.out.show({"printwatches": text}, () if arguments.words else (f"printwatches is {text}",))
    shell.report_if_closed()


@command(
    "watch",
    "[-n count] path",
    "follow the changes of a node and of all below it, until Ctrl-C",
    Flag("n", "end after so many events", "count"),
    least=1,
    most=1,
    ours=True,
    paths=1,
)
async def watch(shell: Shell, arguments: Parsed) -> None:
    """Print the changes below a node as they happen, until it is stopped.

    Raises:
        CommandError: The number of events cannot be read.
        ZooKeeperError: The server refuses it.
    """
    path = shell.path(arguments.words[0])
    text = arguments.flags.get("n", "0")
    if not text.isdecimal() or len(text) > 9 or (arguments.has("n") and int(text) == 0):
        raise CommandError(f"-n is {text}; it must be a number of events")
    if await shell.client.exists(path) is None:
        shell.out.remark(f"{path} does not exist yet", {"path": path, "exists": False})
    left = int(text)
    async with shell.client.watch(path, recursive=True) as events:
        async for event in events:
            await _follow(shell, event)
            left -= 1
            if left == 0:
                return


async def _follow(shell: Shell, event: Event) -> None:
    """Print an event, and what the node holds now."""
    value = {
        "event": event.type.name.lower(),
        "path": event.path,
        "zxid": None if event.zxid is None else hexadecimal(event.zxid),
    }
    text = f"{SIGNS.get(event.type, ' ')} {event.path}"
    if event.type in (EventType.NODE_CREATED, EventType.NODE_DATA_CHANGED):
        try:
            data, _ = await shell.client.get(event.path)
            value["data"] = None if data is None else data_json(data)  # type: ignore[assignment]
            text += f" {shown_data(data)}"
        except (NoNodeError, NoAuthError):
            pass  # it has gone again, or may not be read
    shell.out.show(value, [text])
