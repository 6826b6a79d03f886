"""Watches: addWatch, removewatches, printwatches, watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....client.wire.states import Event
from ....client.wire.watches import WatchKind
from ....protocol.enums import EventType
from ....protocol.errors import NoAuthError, NoNodeError
from ....protocol.hexadecimal import hexadecimal
from ....protocol.node_json import data_json
from ..command import command
from ..errors import ShellCommandError, ShellUsageError
from ..flags import Flag, ParsedArguments
from ..nodes_text import format_data

if TYPE_CHECKING:
    from ..shell import Shell

WATCH_MODES: Final = {"PERSISTENT": WatchKind.PERSISTENT, "PERSISTENT_RECURSIVE": WatchKind.RECURSIVE}
EVENT_SIGNS: Final = {
    EventType.NODE_CREATED: "+",
    EventType.NODE_DELETED: "-",
    EventType.NODE_DATA_CHANGED: "=",
    EventType.NODE_CHILDREN_CHANGED: "~",
}


@command(
    "addWatch",
    "[-m mode] path # optional mode is one of [PERSISTENT, PERSISTENT_RECURSIVE] - default is PERSISTENT_RECURSIVE",
    "set a persistent watch on a node or a subtree",
    Flag("m", "mode of the watch", "mode"),
    least=1,
    paths=1,
)
async def add_watch(shell: Shell, arguments: ParsedArguments) -> None:
    """Set a persistent watch on a node. By default, the watch is recursive.

    Raises:
        ShellUsageError: The mode is unknown.
        UnimplementedError: The server is older than 3.6.
    """
    kind = WATCH_MODES.get(arguments.flags.get("m", "PERSISTENT_RECURSIVE").upper())
    if kind is None:
        raise ShellUsageError
    path = shell.path(arguments.words[0])
    await shell.watches.set(kind, path)
    shell.out.show({"watching": path, "recursive": kind is WatchKind.RECURSIVE}, ())


@command(
    "removewatches",
    "path [-c|-d|-a] [-l]",
    "remove the watches of this session on a node",
    Flag("c", "remove watches on its children"),
    Flag("d", "remove watches on its data"),
    Flag("p", "remove persistent watches"),
    Flag("r", "remove persistent recursive watches"),
    Flag("a", "remove all watches (default)"),
    Flag("l", "also remove them without a connection to a server"),
    least=1,
    paths=1,
)
async def remove_watches(shell: Shell, arguments: ParsedArguments) -> None:
    """Remove the watches of this session on a node.

    Raises:
        ShellCommandError: The node has no such watches.
        ZooKeeperError: The server rejects the request.
    """
    kinds: tuple[WatchKind, ...] = tuple(WatchKind)
    for name, chosen in (
        ("c", (WatchKind.CHILD,)),
        ("d", (WatchKind.DATA, WatchKind.EXIST)),
        ("p", (WatchKind.PERSISTENT,)),
        ("r", (WatchKind.RECURSIVE,)),
    ):
        if arguments.has(name):
            kinds = chosen
            break
    path = shell.path(arguments.words[0])
    await shell.watches.remove(path, kinds)
    shell.out.show({"removed": path}, ())


@command("printwatches", "on|off", "turn the printing of events on or off", offline=True)
async def print_watches(shell: Shell, arguments: ParsedArguments) -> None:
    """Turn the printing of events on or off. If no word is given, print whether events are printed."""
    if arguments.words:
        shell.shows_watches = arguments.words[0] == "on"
    text = "on" if shell.shows_watches else "off"
    shell.out.show({"printwatches": text}, () if arguments.words else (f"printwatches is {text}",))
    shell.report_if_closed()


@command(
    "watch",
    "[-n count] path",
    "print the changes of a subtree, until Ctrl-C",
    Flag("n", "stop after this many events", "count"),
    least=1,
    most=1,
    ours=True,
    paths=1,
)
async def watch(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the changes of a subtree as they happen, until Ctrl-C or after ``-n`` events.

    Raises:
        ShellCommandError: The number of events is invalid.
        ZooKeeperError: The server rejects the request.
    """
    path = shell.path(arguments.words[0])
    text = arguments.flags.get("n", "0")
    if not text.isdecimal() or len(text) > 9 or (arguments.has("n") and int(text) == 0):
        raise ShellCommandError(f"-n must be a whole number from 1, not {text!r}")
    if await shell.client.exists(path) is None:
        shell.out.remark(f"{path} does not exist yet", {"path": path, "exists": False})
    left = int(text)
    async with shell.client.watch(path, recursive=True) as events:
        async for event in events:
            await _print_event(shell, event)
            left -= 1
            if left == 0:
                return


async def _print_event(shell: Shell, event: Event) -> None:
    """Print an event, and the current data of the node."""
    value = {
        "event": event.type.name.lower(),
        "path": event.path,
        "zxid": None if event.zxid is None else hexadecimal(event.zxid),
    }
    text = f"{EVENT_SIGNS.get(event.type, ' ')} {event.path}"
    if event.type in (EventType.NODE_CREATED, EventType.NODE_DATA_CHANGED):
        try:
            data, _ = await shell.client.get(event.path)
            value["data"] = None if data is None else data_json(data)  # type: ignore[assignment]
            text += f" {format_data(data)}"
        except (NoNodeError, NoAuthError):
            pass  # the node may have been deleted, or is not readable
    shell.out.show(value, [text])
