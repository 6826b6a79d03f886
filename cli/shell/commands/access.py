"""Access control: getAcl, setAcl, addauth, whoami."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.node_json import acl_text
from ..acl_text import parse_acl
from ..command import command
from ..errors import ShellCommandError, ShellUsageError
from ..flags import Flag, ParsedArguments
from ..texts import acl_lines, stat_json, stat_lines
from ..walk import walk
from .nodes import STAT_FLAG, version

if TYPE_CHECKING:
    from ..shell import Shell


@command("getAcl", "[-s] path", "print the ACL list of a node", STAT_FLAG, least=1, paths=1)
async def get_acl(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the ACL list of a node, and with ``-s`` the Stat of the node.

    Raises:
        NoNodeError: The node does not exist.
        ZooKeeperError: The server rejects the request.
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
    STAT_FLAG,
    Flag("v", "expected version of the list", "version"),
    Flag("R", "also replace the lists of all nodes below"),
    least=2,
    paths=1,
)
async def set_acl(shell: Shell, arguments: ParsedArguments) -> None:
    """Replace the ACL list of a node. With ``-R``, also replace the lists of all nodes below.

    Raises:
        ShellCommandError: The list is empty, or the version is invalid.
        InvalidACLError: The server rejects an entry of the list.
        ZooKeeperError: The server rejects the request.
    """
    path = shell.path(arguments.words[0])
    acl = parse_acl(arguments.words[1], shell.out)
    if not acl:
        raise ShellCommandError("Acl is not valid : null")
    expected = version(arguments)
    chosen = [path]
    if arguments.has("R"):
        chosen = [each async for batch in walk(shell.client, path) for each in batch]
    for each in chosen:
        stat = await shell.client.set_acl(each, acl, expected)
        value = {"path": each, "stat": stat_json(stat)}
        shell.out.show(value, stat_lines(stat) if arguments.has("s") else ())


@command("addauth", "scheme auth", "authenticate the session, such as addauth digest user:password", least=1)
async def add_auth(shell: Shell, arguments: ParsedArguments) -> None:
    """Authenticate the session with a scheme.

    Raises:
        ShellUsageError: The credentials are missing.
        AuthFailedError: The server rejects the credentials. This closes the session.
    """
    if len(arguments.words) < 2 and arguments.words[0] != "world":
        raise ShellUsageError
    await shell.client.add_auth(arguments.words[0], arguments.word(1).encode("utf-8", "surrogateescape"))
    shell.out.show({"authenticated": arguments.words[0]}, ())


@command("whoami", "", "print the identities of this session")
async def whoami(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the identities with which the session has authenticated.

    Raises:
        UnimplementedError: The server is older than 3.7.
    """
    identities = [(identity.scheme, identity.user) for identity in await shell.client.who_am_i()]
    value = [{"scheme": scheme, "user": user} for scheme, user in identities]
    shell.out.show(value, ["Auth scheme: User", *(f"{scheme}: {user}" for scheme, user in identities)])
