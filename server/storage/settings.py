"""The settings of the files of a server. ``server/config/`` reads them from files and the command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StorageSettings:
    """Where a server keeps its data, and how.

    Args:
        data_dir: The directory of the snapshots; None for a server that keeps everything in memory.
        log_dir: The directory of the logs; None for that of the snapshots.
        fsync: When a write is certain to outlive a loss of power: ``always``, before its reply; ``interval``, within a
            second; ``never``, when the operating system writes it. All of them outlive the death of the process.
        snap_count: Transactions after which a snapshot is written.
        log_size: Kilobytes of transactions after which a snapshot is written; 0 for four times the last snapshot, and
            256 MB at least.
        preallocated: Kilobytes that are reserved for a log at a time.
        retained: Snapshots that are kept.
        purge: Whether older ones, and the logs that only they need, are deleted: 0 for never.
        keyed_passwords: Whether session passwords are computed with a key that is kept in the directory, instead of
            with ZooKeeper's formula.
    """

    data_dir: str | None = None
    log_dir: str | None = None
    fsync: str = "always"
    snap_count: int = 100_000
    log_size: int = 0
    preallocated: int = 65_536
    retained: int = 3
    purge: int = 1
    keyed_passwords: bool = False
