"""The descriptions of the metrics, for the ``# HELP`` lines of ``/metrics``."""

from __future__ import annotations

from typing import Final

from .figures import ADVANCED, BASIC, NO_COUNTERS

_REFUSED: Final = "zoolet_refused_"
_HELP: Final = {
    # gauges
    "avg_latency": "Average time to answer a request, in milliseconds",
    "max_latency": "Maximum time to answer a request, in milliseconds",
    "min_latency": "Minimum time to answer a request, in milliseconds",
    "packets_received": "Requests that the server received",
    "packets_sent": "Replies and events that the server sent",
    "num_alive_connections": "Open connections of clients",
    "outstanding_requests": "Connections whose requests wait for their turn",
    "uptime": "Time since the server started, in milliseconds",
    "znode_count": "Nodes of the tree",
    "watch_count": "Active watches",
    "ephemerals_count": "Ephemeral nodes",
    "approximate_data_size": "Size of all paths and data, in bytes",
    "open_file_descriptor_count": "Open file descriptors of the process",
    "max_file_descriptor_count": "Maximum number of file descriptors of the process",
    "global_sessions": "Alive sessions",
    "local_sessions": "Alive local sessions: always 0, because a single server has only global sessions",
    "connection_drop_probability": "Probability that a new connection is dropped: always 0",
    "last_client_response_size": "Size of the last reply: always -1, because it is not measured",
    "max_client_response_size": "Maximum size of a reply: always -1, because it is not measured",
    "min_client_response_size": "Minimum size of a reply: always -1, because it is not measured",
    "outstanding_tls_handshake": "Unfinished TLS handshakes: always 0, because they are not counted",
    "auth_failed_count": "Failed authentications",
    "non_mtls_remote_conn_count": "Remote connections without a client certificate: always 0, as they are not counted",
    "non_mtls_local_conn_count": "Local connections without a client certificate: always 0, as they are not counted",
    "zoolet_writes_refused": "1 while clients cannot write, otherwise 0",
    "zoolet_certificate_end_time_seconds": "Expiry of the certificate, in seconds since the epoch; 0 without TLS",
    "zoolet_locks": "Locks that a client holds or waits for, by naming and kind: also elections, semaphores and queues",
    "zoolet_lock_waiters": "Clients that wait for a lock, by its naming and kind",
    "zoolet_lock_longest_wait_seconds": "Time that the first waiting client has waited, by the lock's naming and kind",
    "zoolet_deadlocks": "Circles of sessions that wait for each other's locks",
    "zoolet_disk_free_bytes": "Free space of the data directory's disk, in bytes; without a data directory no series",
    # counters
    "bytes_received_count": "Bytes that the server received",
    "response_bytes": "Bytes that the server sent",
    "connection_request_count": "Handshakes of clients",
    "connection_revalidate_count": "Handshakes that resumed a session",
    "connection_rejected": "Connections that were rejected because there were too many",
    "connection_drop_count": "Connections that were dropped by the throttle",
    "large_requests_rejected": "Requests that were rejected because they were too large",
    "throttled_ops": "Transactions and multi-reads that were rejected because they were too large",
    "stale_sessions_expired": "Sessions that expired",
    "sessionless_connections_expired": "Connections that were closed because they opened no session in time",
    "unsuccessful_handshake": "Failed TLS handshakes",
    "zoolet_observer_following": "1 while this observer follows a leader, otherwise 0",
    "zoolet_observer_lag_transactions": "Transactions that this observer lacked at the last ping of the leader",
    "zoolet_observer_lag_seconds": "Estimated delay of the last transaction from the leader, in seconds",
    "zoolet_observer_connections": "Leaders that were followed since the start, each reconnection included",
    "zoolet_observer_snapshots": "Snapshots that leaders sent since the start",
    "zoolet_observer_diffs": "Times since the start that a leader sent only the missing transactions",
    "zoolet_observer_transactions": "Transactions from leaders since the start",
    "zoolet_observer_digests_compared": "Transactions since the start whose digest was compared with the tree",
    "zoolet_observer_digest_mismatches": "Transactions since the start that left a tree other than the leader's",
    "zoolet_super_logins": "Logins of the super user",
    "zoolet_stalls": "Pauses of the process",
    "zoolet_stalled_ms": "Total duration of the pauses of the process, in milliseconds",
    "snapshot_error_count": "Snapshots that could not be written",
    # summaries
    "dbinittime": "Time to recover the data at startup, in milliseconds",
    "fsynctime": "Time of a sync of the log, in milliseconds",
    "zoolet_loop_lag_ms": "Delay of the event loop's clock, in milliseconds; high values mean high load",
    "node_changed_watch_count": "Connections that an event about changed data was sent to",
    "node_children_watch_count": "Connections that an event about changed children was sent to",
    "node_created_watch_count": "Connections that an event about a created node was sent to",
    "node_deleted_watch_count": "Connections that an event about a deleted node was sent to",
    "readlatency": "Time to answer a read, in milliseconds, sampled from one batch of requests in 64",
    "updatelatency": "Time to answer a write, in milliseconds, including its sync",
    "snapshottime": "Time to write a snapshot, in milliseconds",
    "startup_txns_loaded": "Transactions that were loaded at startup",
    "sync_processor_batch_size": "Writes per sync of the log",
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
_UNUSED: Final = "Exists for dashboards for ZooKeeper; this server does not measure it"
_NOT_MEASURED: Final = frozenset((*NO_COUNTERS, *BASIC, *ADVANCED)) - _HELP.keys()


def help_of(name: str) -> str:
    """Return the description of a metric, in one line.

    Raises:
        KeyError: The metric does not exist.
    """
    if name.startswith(_REFUSED):
        return f"Requests or connections that the limit {name.removeprefix(_REFUSED)} rejected"
    return _UNUSED if name in _NOT_MEASURED else _HELP[name]
