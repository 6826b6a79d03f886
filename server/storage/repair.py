"""The repair of a data directory with damaged logs. It sets aside the damaged transaction and all later transactions.

Nothing is deleted. Only damage after the newest usable snapshot matters, because earlier transactions are not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from ...protocol.hexadecimal import hexadecimal
from ..core.journal import node_changes
from ..core.state import MAX_ZXID
from .directory import DataDir, Remainder
from .disk import Disk
from .errors import StorageError
from .layout import LOCK, PRIVATE, SUBFOLDER, find_folder, unused_path
from .lock import DirectoryLock, is_locked
from .txnlog import Log

MAX_LISTED_NODES: Final = 5
"""Maximum number of nodes whose paths a report lists."""


class _RepairPlan(NamedTuple):
    """The changes of a repair.

    Args:
        aside: The logs that are set aside, with their new names, the last one first.
        cuts: The bytes that are removed from the ends of logs.
        last: The last zxid after the repair.
    """

    aside: dict[Path, Path]
    cuts: list[Remainder]
    last: int

    def lines(self, stopped_at: int) -> list[str]:
        """Return a line for each change.

        Args:
            stopped_at: The last zxid of the previous server, if it stopped cleanly; 0 if it is unknown.
        """
        lines = [f"{log}: renamed to {aside.name}" for log, aside in self.aside.items()]
        rests = [(cut.log, cut.at, cut.unused_file().name) for cut in self.cuts]
        lines += [f"{log}: truncated at byte {at}; the rest is in {name}" for log, at, name in rests]
        if self.last < stopped_at:
            lines.append(f"{SUBFOLDER}/{LOCK}: abandoned the transactions up to {hexadecimal(stopped_at)}")
        return lines


def repair(
    path: Path,
    log_path: Path | None = None,
    disk: Disk | None = None,
    *,
    report: Callable[[str], object] = lambda line: None,
    dry_run: bool = False,
    trusts_empty: bool = False,
) -> list[str]:
    """Set aside all transactions from the first damage on, so that a server can start with the earlier ones.

    Args:
        path: The data directory.
        log_path: The directory of the logs, if different from *path*.
        disk: The file operations; None for the real disk.
        report: A function that receives lines about the discarded transactions, before anything is changed.
        dry_run: Whether to return the planned actions without changing anything.
        trusts_empty: Whether to accept logs without a snapshot.

    Returns:
        A line for each action, or with *dry_run* for each planned action; empty if no log needs a repair.

    Raises:
        StorageError: The directory cannot be repaired, or a server is using it.
        OSError: A file cannot be read or written.
    """
    disk = disk or Disk()
    folder, is_changed = find_folder(path), False
    if dry_run and is_locked(folder):
        raise StorageError(str(path), "a server is using this directory")
    lock = None if dry_run else DirectoryLock(folder)
    try:
        directory = DataDir.find(path, log_path)
        directory.trusts_empty = trusts_empty
        plan = _plan(directory, report)
        lines = plan.lines(directory.stopped_at)
        if lock is None:
            return lines
        is_changed = bool(lines)
        for log, aside in plan.aside.items():
            disk.rename(log, aside)
            disk.sync_folder(log.parent)
        for cut in plan.cuts:
            cut.truncate_log(disk)
        if lines:  # the next server starts a new epoch, which never reuses a zxid of an abandoned transaction
            lock.note_session(lock.session_id)
    finally:
        if lock is not None:
            lock.release() if is_changed else lock.undo()
    return lines


def _plan(directory: DataDir, report: Callable[[str], object]) -> _RepairPlan:
    """Return the changes that a repair requires, and report the transactions that it discards. Change nothing.

    Truncating a log may make a later snapshot unusable. In that case, the search is repeated with an earlier snapshot.

    Raises:
        StorageError: The directory cannot be repaired.
    """
    logs, cuts = dict(directory.logs), dict(directory.cuts)
    while True:
        attempt = replace(directory, logs=logs, cuts=cuts, problems=[], notes=[], rejected=[])
        snapshot = attempt.snapshot()
        known = last = 0 if snapshot is None else snapshot.zxid
        try:
            for entry in attempt.entries(known):
                last = entry.header.zxid
        except StorageError as error:
            damaged = Path(error.where)
            if damaged not in logs.values():
                raise
        else:
            break
        start = next(start for start, log in logs.items() if log == damaged)
        end = _position_after(Log.open(damaged, known, cuts.pop(damaged, None)), last)
        logs = {first: log for first, log in logs.items() if first < start or (first == start and end)}
        cuts = {log: size for log, size in cuts.items() if log in logs.values()} | ({damaged: end} if end else {})
    aside = [log for log in reversed(directory.logs.values()) if log not in logs.values()]
    for note in attempt.notes:
        report(note)
    if aside or cuts:
        report(_describe_loss([*cuts, *reversed(aside)], last))
    elif last < directory.stopped_at:
        span = f"{hexadecimal(last + 1)} to {hexadecimal(directory.stopped_at)}"
        report(f"gives up the transactions {span}, which are not in the files")
    remainders = [Remainder(log, size, Log.open(log).tail_size(size)) for log, size in cuts.items()]
    return _RepairPlan(
        {log: unused_path(log.with_name(f"{PRIVATE}unusable-{log.name}")) for log in aside}, remainders, last
    )


def _position_after(log: Log, last: int) -> int:
    """Return the position after the last transaction up to a zxid that precedes any damage, or 0 if there is none."""
    end = 0
    with suppress(StorageError):
        for entry in log:
            if entry.header.zxid > last:
                break
            end = log.end
    return end


def _describe_loss(logs: list[Path], last: int) -> str:
    """Return a description of the transactions after a zxid, which the repair discards."""
    count, highest = 0, last
    nodes: dict[str, None] = {}
    for log in logs:
        for zxid, paths in _readable_transactions(log):
            if zxid > highest:
                count, highest = count + 1, zxid
                nodes.update(dict.fromkeys(paths))
    text = f"discards the transactions after {hexadecimal(last)}"
    if not count:
        return f"{text}; none of them can be read"
    names = ", ".join(list(nodes)[:MAX_LISTED_NODES])
    more = f" and {len(nodes) - MAX_LISTED_NODES:,} more" if len(nodes) > MAX_LISTED_NODES else ""
    changed = f"{len(nodes):,} node{'s' * (len(nodes) != 1)}"
    read = f"{count:,} can be read, up to {hexadecimal(highest)}"
    return f"{text}: {read}; they change {changed}: {names or 'none'}{more}"


def _readable_transactions(log: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the zxid and the changed nodes of each transaction that can be read in a damaged log."""
    with suppress(StorageError):
        for entry in Log.open(log, MAX_ZXID):
            yield entry.header.zxid, [path for _, path, _ in node_changes(entry.records)]
