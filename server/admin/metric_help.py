"""The descriptions of the metrics, for the ``# HELP`` lines of ``/metrics``."""

from __future__ import annotations

from typing import Final

from ..core.metrics import SUMMARIES
from .figures import ADVANCED_SUMMARIES, BASIC_SUMMARIES, COUNTERS, GAUGES, OWN_SUMMARIES, UNUSED_COUNTERS

SLOW_METRICS: Final = {
    "zoolet_locks": "Locks, elections, semaphores and queues that clients hold or wait for, by naming and kind",
    "zoolet_lock_waiters": "Clients that wait for a lock, by its naming and kind",
    "zoolet_lock_longest_wait_seconds": "Longest current wait for a lock in seconds, by its naming and kind",
    "zoolet_deadlocks": "Circles of sessions that wait for each other's locks",
    "zoolet_disk_free_bytes": "Free space on the disk of the data directory, in bytes; absent without a data directory",
}
"""The descriptions of metrics that are read in time slices or from the disk, because reading them takes long."""
DECLARED_ELSEWHERE: Final = {
    # observers
    "zoolet_observer_following": "1 while this observer follows a leader, otherwise 0",
    "zoolet_observer_lag_transactions": "Transactions that this observer lacked at the last ping of the leader",
    "zoolet_observer_lag_seconds": "Estimated delay of the last transaction from the leader, in seconds",
    "zoolet_observer_connections": "Leaders that were followed since the start, each reconnection included",
    "zoolet_observer_snapshots": "Snapshots that leaders sent since the start",
    "zoolet_observer_diffs": "Times since the start that a leader sent only the missing transactions",
    "zoolet_observer_transactions": "Transactions from leaders since the start",
    "zoolet_observer_digests_compared": "Transactions since the start whose digest was compared with the tree",
    "zoolet_observer_digest_mismatches": "Transactions since the start with a digest other than the leader's",
    # samples
    "zoolet_request_time_ms_by_operation": "Server time of a request by operation, in ms, from samples",
    "zoolet_request_time_ms_by_path": "Server time of a request by the start of its path, in ms, from samples",
    # quotas
    "quota_exceeded_error_per_namespace": "Writes that a quota rejected, by the first part of the path",
    "quota_count_limit_per_namespace": "Maximum number of nodes of the quotas, by the first part of the path",
    "quota_bytes_limit_per_namespace": "Maximum size of the quotas in bytes, by the first part of the path",
    "quota_count_usage_per_namespace": "Number of nodes below the quotas, by the first part of the path",
    "quota_bytes_usage_per_namespace": "Size below the quotas in bytes, by the first part of the path",
    # the process
    "process_cpu_seconds_total": "CPU time of the process, in seconds",
    "process_start_time_seconds": "Start of the process, in seconds since the epoch",
    "process_open_fds": "Open file descriptors of the process",
    "process_max_fds": "Maximum number of file descriptors of the process",
    "process_virtual_memory_bytes": "Virtual memory of the process, in bytes",
    "process_resident_memory_bytes": "Resident memory of the process, in bytes",
    "jvm_memory_bytes_used": "Resident memory of the process, in bytes, under ZooKeeper's name",
}
"""The descriptions of metrics that other modules declare."""
_UNUSED_HELP: Final = "Exists for dashboards for ZooKeeper; this server does not measure it"
_HELP: Final = {
    **dict.fromkeys((*UNUSED_COUNTERS, *BASIC_SUMMARIES, *ADVANCED_SUMMARIES), _UNUSED_HELP),
    **{name: metric.help for name, metric in (GAUGES | COUNTERS).items()},
    **SUMMARIES,
    **{shown: SUMMARIES[name] for shown, name in OWN_SUMMARIES.items()},
    **SLOW_METRICS,
    **DECLARED_ELSEWHERE,
}
_REFUSED_PREFIX: Final = "zoolet_refused_"


def help_of(name: str) -> str:
    """Return the description of a metric, in one line.

    Raises:
        KeyError: The metric does not exist.
    """
    if name.startswith(_REFUSED_PREFIX):
        return f"Requests or connections that the limit {name.removeprefix(_REFUSED_PREFIX)} rejected"
    return _HELP[name]
