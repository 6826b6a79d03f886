"""The settings for the files of a server. ``server/config/`` builds them from a zoo.cfg and the command line."""

from __future__ import annotations

from ..core.fields import Fields


class StorageSettings(Fields):
    """The settings of the data directory of a server.

    Args:
        data_dir: The directory of the snapshots; None for a server that keeps everything in memory.
        log_dir: The directory of the logs; None for the same directory as the snapshots.
        fsync: The point from which a write is safe from a power failure: ``always`` before its reply, ``interval``
            within a second, ``never`` when the operating system writes it. With all three, a write survives a crash of
            the process.
        snap_count: Transactions between two snapshots.
        log_size: Kilobytes of transactions between two snapshots; 0 for four times the last snapshot, at least 256 MB.
        preallocated: Kilobytes that are reserved for a log in one step.
        retained: Number of snapshots to keep.
        purge: Whether old snapshots, and the logs that only they need, are deleted; 0 keeps all files.
        keyed_passwords: Whether session passwords are computed with a key that is stored in the directory, not with
            ZooKeeper's formula.
        trust_empty: Whether to accept logs without a snapshot, and apply them to an empty tree.
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
    trust_empty: bool = False
