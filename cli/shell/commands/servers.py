"""Servers: sync, config, reconfig, version."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ....client.wire.watches import WatchKind
from ....protocol import records as r
from ....protocol.errors import ZooKeeperError
from ....protocol.node_json import data_json
from ....protocol.operations import OpCode
from ....protocol.paths import CONFIG
from ..command import command
from ..errors import ShellCommandError, ShellUsageError
from ..flags import Flag, ParsedArguments
from ..texts import data_text, stat_json, stat_lines
from .nodes import STAT_FLAG

if TYPE_CHECKING:
    from ..shell import Shell

SYNC_TIMEOUT_S: Final = 30.0


@command("sync", "path", "wait until this server has caught up with the leader", least=1, paths=1)
async def sync(shell: Shell, arguments: ParsedArguments) -> None:
    """Wait until this server has caught up with the leader, and print the result.

    Raises:
        ShellCommandError: The server did not answer in time.
    """
    path = shell.path(arguments.words[0])
    try:
        async with asyncio.timeout(SYNC_TIMEOUT_S):
            await shell.client.sync(path)
        code = 0
    except TimeoutError:
        raise ShellCommandError(f"Sync is timeout within {SYNC_TIMEOUT_S * 1000:.0f} ms") from None
    except ZooKeeperError as error:
        code = int(error.code)
    text = "Sync is OK" if code == 0 else f"Sync has failed. rc={code}"
    shell.out.show({"path": path, "ok": code == 0, "code": code}, [text])


@command(
    "config",
    "[-c] [-w] [-s]",
    "print the configuration of the ensemble",
    STAT_FLAG,
    Flag("w", "watch the configuration"),
    Flag("c", "print a connect string for clients"),
)
async def config(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the configuration of the ensemble. ``-c`` prints a connect string instead, ``-w`` sets a watch.

    Raises:
        ShellCommandError: ``-w`` is given, and the connection has a chroot.
        NoAuthError: The configuration may not be read.
    """
    if arguments.has("w"):
        shell.refuse_chroot("the watched configuration is")
        data, stat = await shell.watches.set(WatchKind.DATA, CONFIG)
    else:
        data, stat = await shell.client.get_config()
    text = data_text(data or b"")
    value: dict[str, Any] = {"config": data_json(data or b"")}
    if arguments.has("c"):
        text = _connect_string(text)
    if arguments.has("s"):
        value["stat"] = stat_json(stat)
    shell.out.show(value, [text, *(stat_lines(stat) if arguments.has("s") else ())])


def _connect_string(text: str) -> str:
    """Return the client addresses and the version of a configuration, in one line.

    Source: ConfigUtils.getClientConfigStr.
    """
    addresses, version = [], ""
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key.startswith("server.") and ";" in value:
            address = value.rpartition(";")[2]
            addresses.append(address if ":" in address else f"{value.split(':', 1)[0]}:{address}")
        elif key == "version":
            version = value
    return f"{','.join(addresses)} {version}"


@command(
    "reconfig",
    "[-s] [-v version] [[-file path] | [-members serverID=host:port1:port2;port3[,...]*]] | "
    "[-add serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]",
    "change the members of the ensemble",
    STAT_FLAG,
    Flag("v", "expected version of the configuration, in hexadecimal", "version"),
    Flag("file", "file with all members", "path"),
    Flag("members", "all members", "list"),
    Flag("add", "servers to add", "list"),
    Flag("remove", "ids of servers to remove", "list"),
)
async def reconfig(shell: Shell, arguments: ParsedArguments) -> None:
    """Change the members of the ensemble, and print the new configuration.

    Raises:
        ShellCommandError: Flags contradict each other, the version is not a number, or the file cannot be read.
        ShellUsageError: Neither members nor changes are given.
        ZooKeeperError: The server rejects the request.
    """
    joining, leaving, members = (_lower_case(arguments.flags.get(name)) for name in ("add", "remove", "members"))
    file = arguments.flags.get("file")
    if joining is leaving is members is file is None:
        raise ShellUsageError
    version = _parse_config_version(arguments.flags.get("v"))
    whole = file is not None or members is not None
    if whole and (joining is not None or leaving is not None):
        raise ShellCommandError(
            "Can't use -file or -members together with -add or -remove (mixing incremental and non-incremental modes "
            "is not allowed)"
        )
    if file is not None:
        if members is not None:
            raise ShellCommandError("Can't use -file and -members together (conflicting non-incremental modes)")
        members = _read_members(file)
    reply = await shell.request(OpCode.RECONFIG, r.ReconfigRequest(joining, leaving, members, version), None)
    lines = [f"Committed new configuration:\n{data_text(reply.data or b'')}"]
    value: dict[str, Any] = {"config": data_json(reply.data or b"")}
    if arguments.has("s"):
        value["stat"] = stat_json(reply.stat)
        lines += stat_lines(reply.stat)
    shell.out.show(value, lines)


def _lower_case(text: str | None) -> str | None:
    """Return a list of members in lower case, as the server compares them."""
    return None if text is None else text.lower()


def _parse_config_version(text: str | None) -> int:
    """Return the expected version of the configuration, or -1, which matches any version.

    Raises:
        ShellCommandError: *text* is not a 64-bit hexadecimal number.
    """
    try:
        version = -1 if text is None else int(text, 16)
    except ValueError:
        version = 1 << 63
    if not -(1 << 63) <= version < 1 << 63:
        raise ShellCommandError("-v must be followed by a long (configuration version)")
    return version


def _read_members(file: str) -> str:
    """Return the lines of a file that start with ``server.``, in lower case.

    Raises:
        ShellCommandError: The file cannot be read.
    """
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = f"{file} ({error.strerror})" if isinstance(error, OSError) else str(error)
        raise ShellCommandError(f"Error processing {file}{reason}") from None
    lines = [line.strip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line.startswith("server.")).lower()


@command("version", "", "print the version of the shell", offline=True)
async def version(shell: Shell, arguments: ParsedArguments) -> None:
    """Print the version of zoolet."""
    from .... import __version__

    shell.out.show({"version": __version__}, [f"ZooKeeper CLI version: zoolet {__version__}"])
