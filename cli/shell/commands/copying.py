"""Copying and editing: cp, edit."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ....protocol import paths
from ....protocol.errors import BadVersionError, ZooKeeperError
from ...progress import Progress
from ..command import command
from ..errors import ShellCommandError
from ..flags import Flag, ParsedArguments
from ..texts import stat_json

if TYPE_CHECKING:
    from ..shell import Shell


@command(
    "cp",
    "[-n] source target",
    "copy a subtree; nodes that are already identical at the target are skipped",
    Flag("n", "count the changes without making them"),
    least=2,
    paths=2,
    most=2,
    ours=True,
)
async def cp(shell: Shell, arguments: ParsedArguments) -> None:
    """Copy a subtree, and print the numbers of created, changed and identical nodes.

    Raises:
        ShellCommandError: The source or the target's parent does not exist, the target is inside the source, or some
            nodes could not be copied.
        ZooKeeperError: The server rejects the request.
    """
    from ...transfer.source import SourceTree
    from ...transfer.target import Target, copy, nested_target_error

    source_path, target_path = (shell.path(word) for word in arguments.words[:2])
    if paths.is_within(target_path, source_path):
        raise ShellCommandError(nested_target_error(source_path, target_path))
    client = shell.client
    if target_path != "/" and await client.exists(paths.parent(target_path)) is None:
        raise ShellCommandError(f"Node does not exist: {paths.parent(target_path)}")
    if await client.exists(source_path) is None:
        raise ShellCommandError(f"Node does not exist: {source_path}")
    source = SourceTree(client, source_path)
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
    line = f"{would}{outcome.created.count:,} created, {outcome.changed.count:,} changed, {outcome.same:,} unchanged"
    shell.out.show(value, [line + left_out])
    wrong = [f"{path}: {reason}" for path, reason in outcome.failed.items()]
    wrong += [f"Insufficient permission : {path}" for path in source.unreadable]
    if wrong:
        raise ShellCommandError("\n".join(wrong[:20]))


@command("edit", "path", "edit the data of a node in $VISUAL or $EDITOR", least=1, paths=1, most=1, ours=True)
async def edit(shell: Shell, arguments: ParsedArguments) -> None:
    """Open the data of a node in an editor, and write the changed data unless another client has changed the node.

    Raises:
        ShellCommandError: The editor failed, or the data could not be written. Changed text is saved in a file, which
            the message names.
        NoNodeError: The node does not exist.
    """
    path = shell.path(arguments.words[0])
    data, stat = await shell.client.get(path)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with shell.lend_terminal():
        changed = await asyncio.to_thread(_edit_data, editor, path, data or b"")
    if changed == (data or b""):
        shell.out.show({"path": path, "changed": False}, [f"{path} is unchanged"])
        return
    try:
        now = await shell.client.exists(path)
        if now is not None and now.czxid != stat.czxid:  # the version of a recreated node may be equal
            raise BadVersionError(path)
        new = await shell.client.set(path, changed, stat.version)
    except ZooKeeperError as error:
        changed_by_others = isinstance(error, BadVersionError)
        why = (
            f"{path} was changed by another client in the meantime" if changed_by_others else shell.error_message(error)
        )
        raise ShellCommandError(f"{why}; your text is saved in {_save_to_file(changed)}") from None
    shell.out.show({"path": path, "changed": True, "stat": stat_json(new)}, [f"{path} now has version {new.version}"])


def _edit_data(editor: str, path: str, data: bytes) -> bytes:
    """Write data to a temporary file, run the editor on it, and return the changed data.

    Raises:
        ShellCommandError: The editor cannot be run, or exited with an error.
    """
    with tempfile.TemporaryDirectory(prefix="zoolet-") as folder:
        file = Path(folder, (paths.name(path) or "root")[:80])
        file.write_bytes(data)
        try:
            code = subprocess.call([*shlex.split(editor), str(file)])
            changed = file.read_bytes()
        except (OSError, ValueError) as error:
            raise ShellCommandError(f"cannot run {editor}: {error}; set EDITOR to an editor command") from None
    if changed == data + b"\n" or (changed.endswith(b"\n") and not data.endswith(b"\n")):
        changed = changed[:-1]  # editors add a final newline, which most values do not have
    if code:
        kept = f"; your text is saved in {_save_to_file(changed)}" if changed != data else ""
        raise ShellCommandError(f"{editor} exited with code {code}; {path} is unchanged{kept}")
    return changed


def _save_to_file(data: bytes) -> str:
    """Save data in a new file, which the user must delete, and return the path of the file."""
    descriptor, name = tempfile.mkstemp(prefix="zoolet-edit-")
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return name
