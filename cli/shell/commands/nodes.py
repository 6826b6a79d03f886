"""Nodes: create, get, set, stat, ls, delete, getAllChildrenNumber, getEphemerals."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final

from ....client.wire.operations import NewNode
from ....client.wire.watches import WatchKind
from ....protocol import records as r
from ....protocol.acl import OPEN_ACL_UNSAFE
from ....protocol.enums import MAX_TTL, SEQUENTIAL_MODES, CreateMode, is_ttl_ms
from ....protocol.errors import ErrorCode, InvalidACLError, NoNodeError
from ....protocol.node_json import data_json
from ..acl_text import parse_acl
from ..command import command, find
from ..errors import ShellCommandError, ShellUsageError, error_code_text, error_text, validate_path
from ..flags import Flag, ParsedArguments
from ..texts import data_text, hexdump, stat_json, stat_lines
from ..walk import walk

if TYPE_CHECKING:
    from ..shell import Shell

STAT_FLAG: Final = Flag("s", "Print znode stats additionally")
WATCH_FLAG: Final = Flag("w", "Watch for changes on the znode")


def deprecation_remark(form: str, instead: str) -> str:
    """Return zkCli's remark that a form of a command is deprecated."""
    return f"'{form}' has been deprecated. Please use '{instead}' instead."


def value_json(path: str, data: bytes | None, stat: r.Stat | None = None) -> dict[str, Any]:
    """Return a node as JSON: its path, its data and, if given, its Stat."""
    value: dict[str, Any] = {"path": path, "data": None if data is None else data_json(data)}
    if stat is not None:
        value["stat"] = stat_json(stat)
    return value


def number(text: str, error: str) -> int:
    """Convert a word of the command line to a 64-bit number.

    Raises:
        ShellCommandError: *text* is not a 64-bit number; the message is *error*.
    """
    try:
        value = int(text)
    except ValueError:
        raise ShellCommandError(error) from None
    if not -(1 << 63) <= value < 1 << 63:
        raise ShellCommandError(error)
    return value


def version(arguments: ParsedArguments) -> int:
    """Return the value of ``-v``, or -1, which matches any version, if the flag is not given.

    Raises:
        ShellCommandError: The value is not a 32-bit number.
    """
    text = arguments.flags.get("v", "-1")
    reason = f"-v must be a version (a 32-bit number), not {text}"
    value = number(text, reason)
    if not -(1 << 31) <= value < 1 << 31:
        raise ShellCommandError(reason)
    return value


# --- create ---


@command(
    "create",
    "[-s] [-e] [-c] [-t ttl] path [data] [acl]",
    "create a node",
    Flag("e", "ephemeral: deleted at the end of this session"),
    Flag("s", "sequential: a number is appended to the name"),
    Flag("c", "container: deleted some time after its last child"),
    Flag("t", "TTL: deleted after this many milliseconds without change", "ttl"),
    least=1,
    paths=1,
)
async def create(shell: Shell, arguments: ParsedArguments) -> None:
    """Create a node, and print its path.

    Raises:
        ShellCommandError: The ACL list is invalid, or the flags contradict each other.
        ZooKeeperError: The server rejects the request.
    """
    node = _parse_new_node(arguments)
    path = _new_path(shell, arguments.words[0], node.mode)
    data = arguments.words[1].encode("utf-8", "surrogateescape") if len(arguments.words) > 1 else None
    acl = OPEN_ACL_UNSAFE if len(arguments.words) < 3 else parse_acl(arguments.words[2], shell.out)
    if not acl:
        raise ShellCommandError("Acl is not valid : null", advice=error_code_text(ErrorCode.INVALID_ACL, None))
    below = shell.client.add_chroot(path + "0")[:-1] if node.mode in SEQUENTIAL_MODES else shell.client.add_chroot(path)
    try:
        reply = await shell.request(*node.request(below, data, acl), path)
    except InvalidACLError as error:
        raise ShellCommandError(error_text(error), advice=error_code_text(ErrorCode.INVALID_ACL, path)) from None
    created = shell.client.strip_chroot(reply.path)
    shell.out.remark(f"Created {created}", {"created": created})


def _new_path(shell: Shell, word: str, mode: CreateMode) -> str:
    """Return the path of a new node, which may end with a slash if the node is sequential."""
    if mode not in SEQUENTIAL_MODES or not word.endswith("/"):
        return shell.path(word)
    return shell.path(word + "0")[:-1]


def _parse_new_node(arguments: ParsedArguments) -> NewNode:
    ephemeral, sequential, container = arguments.has("e"), arguments.has("s"), arguments.has("c")
    if container and (ephemeral or sequential):
        raise ShellCommandError("-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential.")
    if not arguments.has("t"):
        return NewNode.of(ephemeral, sequential, container, None)
    ttl = number(arguments.flags["t"], "-t argument must be a long value")
    if ephemeral or container:
        raise ShellCommandError(f"TTLs cannot be used with {'Ephemeral' if ephemeral else 'Container'} znodes")
    if not is_ttl_ms(ttl):
        raise ShellCommandError(f"ttl must be positive and cannot be larger than: {MAX_TTL}")
    return NewNode(CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL if sequential else CreateMode.PERSISTENT_WITH_TTL, ttl)


# --- get, set, stat ---


async def read(shell: Shell, path: str, watch: bool) -> tuple[bytes | None, r.Stat]:
    """Return the data and the Stat of a node, and set a watch if *watch* is true."""
    if watch:
        data, stat = await shell.watches.set(WatchKind.DATA, path)
    else:
        data, stat = await shell.client.get(path)
    return data, stat


@command(
    "get",
    "[-s] [-w] [-b] [-x] path",
    "print the data of a node",
    Flag("b", "Output data in base64 format"),
    STAT_FLAG,
    WATCH_FLAG,
    Flag("x", "Output data in hexdump format"),
    least=1,
    lists_flags=True,
    paths=1,
)
async def get(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the data of a node, and with ``-s`` its Stat. ``-w`` sets a watch.

    Raises:
        NoNodeError: The node does not exist.
        ZooKeeperError: The server rejects the request.
    """
    if len(arguments.words) > 1:
        shell.out.remark(deprecation_remark("get path [watch]", "get [-s] [-w] path"))
    path = shell.path(arguments.words[0])
    data, stat = await read(shell, path, arguments.has("w") or len(arguments.words) > 1)
    if data is None:
        lines = ["null"]
    elif arguments.has("b"):
        lines = [base64.b64encode(data).decode()]
    elif arguments.has("x"):
        lines = hexdump(data)
    else:
        lines = [data_text(data)]
    if arguments.has("s"):
        lines += stat_lines(stat)
    shell.out.show(value_json(path, data, stat if arguments.has("s") else None), lines)


@command(
    "set",
    "path data [-s] [-v version] [-b]",
    "replace the data of a node",
    Flag("b", "Supply data in base64 format"),
    STAT_FLAG,
    Flag("v", "Set with an expected version", "version"),
    least=2,
    lists_flags=True,
    paths=1,
)
async def set_data(shell: Shell, arguments: ParsedArguments) -> None:
    """Replace the data of a node.

    Raises:
        ShellCommandError: The data is not valid base64 although ``-b`` is given, or the version is invalid.
        BadVersionError: The version of the node differs from ``-v``.
        ZooKeeperError: The server rejects the request.
    """
    path = shell.path(arguments.words[0])
    data = arguments.words[1].encode("utf-8", "surrogateescape")
    if arguments.has("b"):
        try:
            data = base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise ShellCommandError(f"data is not valid base64: {error}") from None
    if not arguments.has("v") and len(arguments.words) == 3 and arguments.words[2].lstrip("-").isdigit():
        arguments.flags["v"] = arguments.words[2]  # the notation of release 3.4
    stat = await shell.client.set(path, data, version(arguments))
    shell.out.show({"path": path, "stat": stat_json(stat)}, stat_lines(stat) if arguments.has("s") else ())


@command("stat", "[-w] path", "print the Stat of a node", WATCH_FLAG, least=1, paths=1)
async def stat(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the Stat of a node. ``-w`` sets a watch.

    Raises:
        NoNodeError: The node does not exist.
    """
    if len(arguments.words) > 1:
        shell.out.remark(deprecation_remark("stat path [watch]", "stat [-w] path"))
    path = shell.path(arguments.words[0])
    if arguments.has("w") or len(arguments.words) > 1:
        result = await shell.watches.set(WatchKind.EXIST, path)
    else:
        result = await shell.client.exists(path)
    if result is None:
        raise NoNodeError(path)
    shell.out.show({"path": path, "stat": stat_json(result)}, stat_lines(result))


# --- ls, ls2 ---


@command(
    "ls",
    "[-s] [-w] [-R] path",
    "list the children of a node",
    Flag("?", "help"),
    Flag("R", "recurse"),
    Flag("s", "stat"),
    Flag("w", "watch"),
    paths=1,
)
async def ls(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the names of a node's children, or with ``-R`` the paths of the subtree.

    Raises:
        ShellCommandError: ``-?`` is given; the message is the usage.
        ShellUsageError: The path is missing.
        NoNodeError: The node does not exist.
    """
    if arguments.has("?"):
        row = find("ls")
        assert row is not None
        raise ShellCommandError(row.usage_text(), advice="\n".join(["usage: ls [options] path", *row.flag_lines()]))
    if not arguments.words and not shell.directory:
        raise ShellUsageError
    if len(arguments.words) > 1:
        shell.out.remark(deprecation_remark("ls path [watch]", "ls [-w] path"))
    path = shell.path(arguments.word(0, "."))
    if arguments.has("R"):
        await _list_subtree(shell, path, arguments.has("w"))
    else:
        await _list_children(shell, path, arguments.has("w") or len(arguments.words) > 1, arguments.has("s"))


async def _list_children(shell: Shell, path: str, watch: bool, with_stat: bool) -> None:
    """Print a node's children, and the node's Stat if *with_stat* is true. Set a child watch if *watch* is true.

    Raises:
        NoNodeError: The node does not exist.
        NoAuthError: The children of the node may not be listed.
    """
    if watch:
        names = await shell.watches.set(WatchKind.CHILD, path)
        result = await shell.client.exists(path) if with_stat else None
    else:
        names, result = await shell.client.children_and_stat(path)
    names = sorted(names)
    value: dict[str, Any] = {"path": path, "children": names}
    lines = [f"[{', '.join(names)}]"]
    if with_stat and result is not None:
        value["stat"] = stat_json(result)
        lines += stat_lines(result)
    shell.out.show(value, lines)


async def _list_subtree(shell: Shell, path: str, watch: bool) -> None:
    """Print the paths of a subtree, and set a child watch on each node if *watch* is true.

    Raises:
        NoNodeError: The node does not exist.
        NoAuthError: The children of a node may not be listed.
    """
    async for batch in walk(shell.client, path):
        for each in batch:
            if watch:
                await shell.watches.set(WatchKind.CHILD, each)
            shell.out.line({"path": each}, each)
        shell.out.flush()


@command("ls2", "path [watch]", "list the children of a node, and print its Stat", least=1, paths=1, most=2, ours=True)
async def ls2(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the names of a node's children and its Stat, as in old releases.

    Raises:
        NoNodeError: The node does not exist.
    """
    shell.out.remark(deprecation_remark("ls2", "ls [-s] path"))
    await _list_children(shell, shell.path(arguments.words[0]), len(arguments.words) > 1, True)


# --- delete, and counts ---


@command("delete", "[-v version] path", "delete a node", Flag("v", "version", "version"), least=1, paths=1)
async def delete(shell: Shell, arguments: ParsedArguments) -> None:
    """Delete a node that has no children.

    Raises:
        ShellCommandError: The version is invalid.
        NotEmptyError: The node has children.
        BadVersionError: The version of the node differs from ``-v``.
        ZooKeeperError: The server rejects the request.
    """
    if len(arguments.words) > 1 and not arguments.has("v"):
        shell.out.remark(deprecation_remark("delete path [version]", "delete [-v version] path"))
        arguments.flags["v"] = arguments.words[1]
    path = shell.path(arguments.words[0])
    await shell.client.delete(path, version(arguments))
    shell.out.show({"deleted": path}, ())


@command("getAllChildrenNumber", "path", "count the nodes below a node, at any depth", least=1, paths=1)
async def count(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the number of nodes below a node, at any depth.

    Raises:
        UnimplementedError: The server is older than 3.6.
    """
    path = shell.path(arguments.words[0])
    total = await shell.client.count_below(path)
    shell.out.show({"path": path, "count": total}, [str(total)])


@command("getEphemerals", "path", "list the ephemeral nodes of this session", paths=1)
async def ephemerals(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the ephemeral nodes of this session whose paths start with a prefix, by default ``/``.

    Raises:
        UnimplementedError: The server is older than 3.6.
    """
    prefix = shell.path_or_word(arguments.word(0, "/"))
    if prefix != "/":
        validate_path(prefix)
    result = sorted(await shell.client.ephemerals(prefix))
    shell.out.show({"ephemerals": result}, [f"[{', '.join(result)}]"])
