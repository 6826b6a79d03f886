"""Quotas: setquota, listquota, delquota.

Source: SetQuotaCommand; ListQuotaCommand; DelQuotaCommand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....protocol import paths
from ....protocol.errors import NodeExistsError, NoNodeError
from ....protocol.paths import QUOTA
from ....protocol.quotas import LIMITS, STATS, Amount
from ..command import command
from ..errors import ShellCommandError, validate_path
from ..flags import Flag, ParsedArguments
from ..walk import walk

if TYPE_CHECKING:
    from ..shell import Shell

_QUOTA_NODES: Final = (LIMITS.strip("/"), STATS.strip("/"))
_LIMIT_FLAGS: Final = (
    Flag("n", "num soft quota", "value"),
    Flag("b", "bytes soft quota", "value"),
    Flag("N", "num hard quota", "value"),
    Flag("B", "bytes hard quota", "value"),
)
_UNSET_LIMITS: Final = {"count": -1, "bytes": -1, "byteHardLimit": -1, "countHardLimit": -1}
_LIMIT_KEYS: Final = {"n": "count", "b": "bytes", "N": "countHardLimit", "B": "byteHardLimit"}
"""Keys in the data of a quota node, by flag."""


def _encode_numbers(numbers: dict[str, int]) -> bytes:
    """Encode limits as the data of a quota node."""
    return Amount.from_numbers(numbers).encode()


async def _read_amount(shell: Shell, path: str) -> Amount | None:
    """Return the numbers in a limits or stats node, or None if the node does not exist.

    Raises:
        ShellCommandError: The data of the node is not a quota.
    """
    try:
        data, _ = await shell.client.get(path)
    except NoNodeError:
        return None
    try:
        return Amount.parse(data or b"")
    except ValueError as error:
        raise ShellCommandError(f"{path} does not contain a quota: {error}") from None


@command(
    "setquota",
    "-n|-b|-N|-B val path",
    "limit the nodes or bytes of a subtree",
    one_of=_LIMIT_FLAGS,
    one_required=True,
    least=1,
    paths=1,
)
async def set_quota(shell: Shell, arguments: ParsedArguments) -> None:
    """Limit the nodes or bytes of a subtree, and warn if the limit is already exceeded.

    Raises:
        ShellCommandError: The node does not exist, or a node above or below it has a quota.
        ZooKeeperError: The server rejects the request.
    """
    shell.refuse_chroot("quotas are")
    path = shell.path_or_word(arguments.words[0])
    if path.startswith(QUOTA):
        shell.out.error(f"cannot set a quota under the path: {QUOTA}")
        return
    chosen = _parse_limit(shell, arguments)
    if chosen is None:
        return
    validate_path(path)
    if await shell.client.exists(path) is None:
        raise ShellCommandError(f"{path} does not exist.")
    await _refuse_nested(shell, path)
    above = ""
    for name in (QUOTA + path).strip("/").split("/"):
        above = f"{above}/{name}"
        await _create_if_missing(shell, above, None)
    if not await _create_if_missing(shell, above + LIMITS, _encode_numbers({**_UNSET_LIMITS, **chosen})):
        limits = await _read_amount(shell, above + LIMITS)
        await shell.client.set(
            above + LIMITS, _encode_numbers({**_UNSET_LIMITS, **(limits or Amount()).numbers(), **chosen})
        )
    await _create_if_missing(shell, above + STATS, Amount(0, 0).encode())
    limits, used = await _read_amount(shell, above + LIMITS), await _read_amount(shell, above + STATS)
    if limits is not None and used is not None:
        _warn_if_exceeded(shell, limits.numbers(), used)
    shell.out.show({"path": path, "limits": (limits or Amount()).numbers()}, ())


def _parse_limit(shell: Shell, arguments: ParsedArguments) -> dict[str, int] | None:
    """Return the limit on the command line. If it is invalid, print the reason and return None."""
    ((flag, text),) = arguments.flags.items()
    counts = flag in "nN"
    try:
        value = int(text)
        if not -(1 << (31 if counts else 63)) <= value < 1 << (31 if counts else 63):
            raise ValueError(text)
    except ValueError:
        shell.out.error("NumberFormatException happens when parsing the option value")
        return None
    if counts and value <= 0:
        shell.out.error("the num quota must be greater than zero")
        return None
    if value < 0:
        shell.out.error("the bytes quota must be greater than or equal to zero")
        return None
    return {_LIMIT_KEYS[flag]: value}


async def _refuse_nested(shell: Shell, path: str) -> None:
    """Check that no node above or below has a quota, because the server would enforce only the nearest quota.

    Raises:
        ShellCommandError: A node above or below has a quota.
    """
    client = shell.client
    validate_path(QUOTA + path)
    try:
        async for batch in walk(client, QUOTA + path, set()):
            for node in batch:
                if node.endswith(LIMITS) and node != QUOTA + path + LIMITS:
                    owner = node[len(QUOTA) : -len(LIMITS)]
                    raise ShellCommandError(f"{path} has a child {owner} which has a quota")
    except NoNodeError:
        pass
    above = paths.parent(path)
    while above != "/":
        if await client.exists(QUOTA + above + LIMITS) is not None:
            raise ShellCommandError(f"{path} has a parent {above} which has a quota")
        above = paths.parent(above)


async def _create_if_missing(shell: Shell, path: str, data: bytes | None) -> bool:
    """Create a node if it is missing. Return whether the node was created."""
    try:
        await shell.create(path, data)
    except NodeExistsError:
        return False
    return True


def _warn_if_exceeded(shell: Shell, limits: dict[str, int], used: Amount) -> None:
    """Print a warning for each limit that the subtree already exceeds."""
    for what, existing, keys in (
        ("count", used.nodes, ("count", "countHardLimit")),
        ("bytes", used.size, ("bytes", "byteHardLimit")),
    ):
        if any(-1 < limits.get(key, -1) < existing for key in keys):
            text = f"[Warning]: the {what} quota you create is less than the existing {what}:{existing}"
            shell.out.remark(text)


@command("listquota", "path", "print the quota of a node, and its use", least=1, paths=1)
async def list_quota(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the limits of a subtree, and the numbers of nodes and bytes in use.

    Raises:
        ShellCommandError: The path is invalid, or the connection has a chroot.
        ZooKeeperError: The server rejects the request.
    """
    shell.refuse_chroot("quotas are")
    path = shell.path_or_word(arguments.words[0])
    node = f"{QUOTA}{path}{LIMITS}"
    shell.out.remark(f"absolute path is {node}")
    limits = await _read_amount(shell, validate_path(node))
    if limits is None:
        shell.out.error(f"quota for {path} does not exist.")
        return
    used = await _read_amount(shell, f"{QUOTA}{path}{STATS}")
    value: dict[str, Any] = {"path": path, "limits": limits.numbers(), "used": used.numbers() if used else None}
    lines = [f"Output quota for {path} {limits.encode().decode()}"]
    if used is not None:
        lines.append(f"Output stat for {path} {used._replace(others=()).encode().decode()}")
    shell.out.show(value, lines)


@command(
    "delquota",
    "[-n|-b|-N|-B] path",
    "remove the quota of a node, or one of its limits",
    one_of=tuple(flag._replace(value="") for flag in _LIMIT_FLAGS),
    least=1,
    paths=1,
)
async def delete_quota(shell: Shell, arguments: ParsedArguments) -> None:
    """Remove the limits of a subtree that the flags name, or all limits if no flag is given.

    Raises:
        ShellCommandError: The path is invalid, or the connection has a chroot.
        ZooKeeperError: The server rejects the request.
    """
    shell.refuse_chroot("quotas are")
    path = shell.path_or_word(arguments.words[0])
    node = f"{QUOTA}{path}"
    limits = await _read_amount(shell, validate_path(node) + LIMITS) if path.startswith("/") else None
    if limits is None:
        shell.out.show({"path": path, "limits": None}, [f"Quota does not exist for {path}"])
        return
    for flag in arguments.flags:
        numbers = {**_UNSET_LIMITS, **limits.numbers(), _LIMIT_KEYS[flag]: -1}
        await shell.client.set(node + LIMITS, _encode_numbers(numbers))
        shell.out.show({"path": path, "limits": numbers}, ())
    if not arguments.flags:
        await _delete_quota_nodes(shell, node)
        shell.out.show({"path": path, "limits": None}, ())


async def _delete_quota_nodes(shell: Shell, node: str) -> None:
    """Delete the nodes of a quota, and all ancestors below the root of the quotas that become empty."""
    for name in await shell.client.children(node):
        if name in _QUOTA_NODES:
            await shell.client.delete(f"{node}/{name}")
    while node != QUOTA and not await shell.client.children(node):
        await shell.client.delete(node)
        node = paths.parent(node)
