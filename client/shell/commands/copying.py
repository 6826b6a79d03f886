"""Copying and editing: cp, edit."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from zoolet.client.shell.command import command
from zoolet.client.shell.errors import CommandError
from zoolet.client.shell.flags import Flag, Parsed
from zoolet.client.shell.texts import stat_json
from zoolet.progress import Progress
from zoolet.protocol import paths
from zoolet.protocol.errors import BadVersionError, ZooKeeperError

if TYPE_CHECKING:
    from zoolet.client.shell.shell import Shell


@command(
    "cp",
    "[-n] source target",
    "copy a node and all below it; what is the same at the target is not written again",
    Flag("n", "write nothing, and say what would be written"),
    least=2,
    paths=2,
    most=2,
    ours=True,
)
async def cp(shell: Shell, arguments: Parsed) -> None:
    """Copy a node and all below it.

    Raises:
        CommandError: There is no such node, nothing to put it into, the target is below it, or some nodes were not
            copied.
        ZooKeeperError: The server refuses it.
    """
    from zoolet.client.transfer.source import Source
    from zoolet.client.transfer.target import Target, copy

    source_path, target_path = (shell.path(word) for word in arguments.words[:2])
    if f"{target_path}/".startswith(f"{source_path.rstrip('/')}/"):
        raise CommandError(f"{target_path} is within {source_path}: it would be copied into itself")
    client = shell.client
    if target_path != "/" and await client.exists(paths.parent(target_path)) is None:
        raise CommandError(f"Node does not exist: {paths.parent(target_path)}")
    if await client.exists(source_path) is None:
        raise CommandError(f"Node does not exist: {source_path}")
    source = Source(client, source_path)
    await source.count()
    target = Target(client, target_path, dry_run=arguments.has("n"))
    with Progress("copying") as progress:
        await copy(source, target, progress.show)
    outcome = target.outcome
    value = {
        "dry_run": arguments.has("n"),
        "created": outcome.created.count,
        "changed": outcome.changed.count,
        "same": outcome.same,
        "ephemerals": source.ephemerals,
        "failed": outcome.failed,
        "unreadable": source.unreadable,
    }
    would = "would be " if arguments.has("n") else ""
    left_out = f"; {source.ephemerals:,} ephemeral left out" if source.ephemerals else ""
    line = f"{would}{outcome.created.count:,} created, {outcome.changed.count:,} changed, {outcome.same:,} the same"
    shell.out.show(value, [line + left_out])
    wrong = [f"{path}: {reason}" for path, reason in outcome.failed.items()]
    wrong += [f"Insufficient permission : {path}" for path in source.unreadable]
    if wrong:
        raise CommandError("\n".join(wrong[:20]))


@command("edit", "path", "change the data of a node in $VISUAL or $EDITOR", least=1, paths=1, most=1, ours=True)
async def edit(shell: Shell, arguments: Parsed) -> None:
    """Open the data of a node in an editor and write what was changed, unless somebody else has changed it.

    Raises:
        CommandError: It could not be written; the text is kept in a file, which is named.
        NoNodeError: There is no such node.
    """
    path = shell.path(arguments.words[0])
    data, stat = await shell.client.get(path)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with shell.lent_terminal():
        changed = await asyncio.to_thread(_edited, editor, path, data or b"")
    if changed == (data or b""):
        shell.out.show({"path": path, "changed": False}, [f"{path} is as it was"])
        return
    try:
        new = await shell.client.set(path, changed, stat.version)
    except ZooKeeperError as error:
        changed_by_others = isinstance(error, BadVersionError)
        why = f"{path} was changed by somebody else meanwhile" if changed_by_others else shell.explained(error)
        raise CommandError(f"{why}; your text is in {_keep(changed)}") from None
    shell.out.show({"path": path, "changed": True, "stat": stat_json(new)}, [f"{path} has version {new.version}"])


def _edited(editor: str, path: str, data: bytes) -> bytes:
    """Return data as it is after an editor has had it."""
    with tempfile.TemporaryDirectory(prefix="zoolet-") as folder:
        file = Path(folder, (paths.name(path) or "root")[:80])
        file.write_bytes(data)
        try:
            code = subprocess.call([*shlex.split(editor), str(file)])
            changed = file.read_bytes()
        except (OSError, ValueError) as error:
            raise CommandError(f"{editor}: {error}; set EDITOR to the command of an editor") from None
    if changed == data + b"\n" or (changed.endswith(b"\n") and not data.endswith(b"\n") and data):
        changed = changed[:-1]  # editors end the last line, and most values do not end with a newline
    if code:
        kept = f"; your text is in {_keep(changed)}" if changed != data else ""
        raise CommandError(f"{editor} ended with code {code}; {path} is as it was{kept}")
    return changed


def _keep(data: bytes) -> str:
    """Write data to a file that stays, and return its name."""
    descriptor, name = tempfile.mkstemp(prefix="zoolet-edit-")
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return name
