"""Access: getAcl, setAcl, addauth, whoami."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoolet.client.shell.acl_text import parse_acl
from zoolet.client.shell.command import command
from zoolet.client.shell.commands.nodes import STAT, version
from zoolet.client.shell.errors import CommandError, UsageError
from zoolet.client.shell.flags import Flag, Parsed
from zoolet.client.shell.texts import acl_lines, stat_json, stat_lines
from zoolet.client.shell.walk import walk
from zoolet.protocol.node_json import acl_text

if TYPE_CHECKING:
    from zoolet.client.shell.shell import Shell


@command("getAcl", "[-s] path", "print the ACL list of a node", STAT, least=1, paths=1)
async def get_acl(shell: Shell, arguments: Parsed) -> None:
    """Print the ACL list of a node, and with ``-s`` its Stat.

    Raises:
        NoNodeError: There is no such node.
        ZooKeeperError: The server refuses it.
    """
    path = shell.path(arguments.words[0])
    acl, stat = await shell.client.get_acl(path)
    value = {"path": path, "acl": [acl_text(entry) for entry in acl]}
    lines = acl_lines(acl)
    if arguments.has("s"):
        value["stat"] = stat_json(stat)  # type: ignore[assignment]
        lines += stat_lines(stat)
    shell.out.show(value, lines)


@command(
    "setAcl",
    "[-s] [-v version] [-R] path acl",
    "replace the ACL list of a node",
    STAT,
    Flag("v", "the version of the list that is expected", "version"),
    Flag("R", "of all nodes below it, too"),
    least=2,
    paths=1,
)
async def set_acl(shell: Shell, arguments: Parsed) -> None:
    """Replace the ACL list of a node, with ``-R`` those of all below it too.

    Raises:
        CommandError: The list is empty.
        InvalidACLError: An entry of it cannot be used.
        ZooKeeperError: The server refuses it.
    """
    path = shell.path(arguments.words[0])
    acl = parse_acl(arguments.words[1], shell.out)
    if not acl:
        raise CommandError("Acl is not valid : null")
    expected = version(arguments)
    chosen = [path]
    if arguments.has("R"):
        chosen = [each async for batch in walk(shell.client, path) for each in batch]
    for each in chosen:
        stat = await shell.client.set_acl(each, acl, expected)
        value = {"path": each, "stat": stat_json(stat)}
        shell.out.show(value, stat_lines(stat) if arguments.has("s") else ())


@command("addauth", "scheme auth", "authenticate, as in addauth digest user:password", least=1)
async def add_auth(shell: Shell, arguments: Parsed) -> None:
    """Authenticate the session with a scheme.

    Raises:
        UsageError: The identity is missing.
        AuthFailedError: The server does not accept it; the session is over then.
    """
    if len(arguments.words) < 2 and arguments.words[0] != "world":
        raise UsageError
    await shell.client.add_auth(arguments.words[0], arguments.word(1).encode("utf-8", "surrogateescape"))
    shell.out.show({"authenticated": arguments.words[0]}, ())


@command("whoami", "", "print the identities that the server knows this session by")
async def whoami(shell: Shell, arguments: Parsed) -> None:
    """Print what the session has authenticated as.

    Raises:
        UnimplementedError: The server is older than 3.7.
    """
    identities = [(identity.scheme, identity.user) for identity in await shell.client.who_am_i()]
    value = [{"scheme": scheme, "user": user} for scheme, user in identities]
    shell.out.show(value, ["Auth scheme: User", *(f"{scheme}: {user}" for scheme, user in identities)])
