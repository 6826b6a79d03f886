"""All metrics of a running server, under ZooKeeper's names. ``mntr``, ``/commands/monitor`` and ``/metrics`` show them.

A single server has no quorum, no request processors and no queues between threads. The metrics of these parts stay at
0. They exist because dashboards and alerts expect them. The names of zoolet's own metrics start with ``zoolet_``.

Source: ServerMetrics, ZooKeeperServer.registerMetrics.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Final, NamedTuple

from ..core.metrics import Summary
from . import descriptors
from .observed import MonitoredServer


class MetricValues(NamedTuple):
    """All metrics at one point in time.

    Args:
        gauges: Numbers that go up and down.
        counters: Numbers that only grow.
        basic: Summaries that are exported to Prometheus with only their median.
        advanced: Summaries with more quantiles.
        gauge_sets: Gauges by name and by the first part of a path.
        counter_sets: Counters by name and by the first part of a path.
        samples: Summaries by name, label and value.
    """

    gauges: dict[str, float]
    counters: dict[str, int]
    basic: dict[str, Summary]
    advanced: dict[str, Summary]
    gauge_sets: dict[str, dict[str, int]]
    counter_sets: dict[str, dict[str, int]]
    samples: dict[tuple[str, str], dict[str, Summary]]


class Metric(NamedTuple):
    """A metric with one value.

    Args:
        help: The description of the metric, in one line.
        read: A function that returns the current value of the metric.
    """

    help: str
    read: Callable[[MonitoredServer], float]


GAUGES: Final[dict[str, Metric]] = {
    "avg_latency": Metric(
        "Average time to answer a request, in milliseconds", lambda o: o.engine.metrics.latency_average()
    ),
    "max_latency": Metric(
        "Maximum time to answer a request, in milliseconds", lambda o: int(o.engine.metrics.latency_max)
    ),
    "min_latency": Metric(
        "Minimum time to answer a request, in milliseconds", lambda o: int(o.engine.metrics.latency_min)
    ),
    "packets_received": Metric("Requests that the server received", lambda o: o.engine.metrics.packets_received),
    "packets_sent": Metric("Replies and events that the server sent", lambda o: o.engine.metrics.packets_sent),
    "num_alive_connections": Metric("Open connections of clients", lambda o: len(o.engine.connections)),
    "outstanding_requests": Metric("Connections whose requests wait for their turn", lambda o: o.count_waiting()),
    "uptime": Metric("Time since the server started, in milliseconds", lambda o: o.uptime_ms()),
    "znode_count": Metric("Nodes of the tree", lambda o: o.node_count()),
    "watch_count": Metric("Active watches", lambda o: o.engine.watches.active),
    "ephemerals_count": Metric("Ephemeral nodes", lambda o: o.engine.tree.ephemeral_count),
    "approximate_data_size": Metric("Size of all paths and data, in bytes", lambda o: o.engine.tree.reported_bytes),
    "open_file_descriptor_count": Metric("Open file descriptors of the process", lambda o: descriptors.in_use()),
    "max_file_descriptor_count": Metric(
        "Maximum number of file descriptors of the process", lambda o: descriptors.limit()
    ),
    "global_sessions": Metric("Live sessions", lambda o: len(o.engine.sessions.alive)),
    "local_sessions": Metric(
        "Live local sessions: always 0, because a single server has only global sessions", lambda o: 0
    ),
    "connection_drop_probability": Metric("Probability that a new connection is dropped: always 0", lambda o: 0.0),
    # The sizes of replies are not measured, because that would slow down every reply.
    "last_client_response_size": Metric("Size of the last reply: always -1, because it is not measured", lambda o: -1),
    "max_client_response_size": Metric("Maximum size of a reply: always -1, because it is not measured", lambda o: -1),
    "min_client_response_size": Metric("Minimum size of a reply: always -1, because it is not measured", lambda o: -1),
    "outstanding_tls_handshake": Metric(
        "Unfinished TLS handshakes: always 0, because they are not counted", lambda o: 0
    ),
    "auth_failed_count": Metric("Failed authentications", lambda o: o.engine.metrics.auth_failed),
    "non_mtls_remote_conn_count": Metric(
        "Remote connections without a client certificate: always 0, as they are not counted", lambda o: 0
    ),
    "non_mtls_local_conn_count": Metric(
        "Local connections without a client certificate: always 0, as they are not counted", lambda o: 0
    ),
    "zoolet_writes_refused": Metric("1 while clients cannot write, otherwise 0", lambda o: int(bool(o.refusal()))),
    "zoolet_certificate_end_time_seconds": Metric(
        "Expiry of the certificate, in seconds since the epoch; 0 without TLS", lambda o: o.certificate_ends
    ),
}
"""The gauges of every server."""
COUNTERS: Final[dict[str, Metric]] = {
    "bytes_received_count": Metric("Bytes that the server received", lambda o: o.engine.metrics.bytes_received),
    "response_bytes": Metric("Bytes that the server sent", lambda o: o.engine.metrics.bytes_sent),
    "connection_request_count": Metric("Handshakes of clients", lambda o: o.engine.metrics.connects),
    "connection_revalidate_count": Metric("Handshakes that resumed a session", lambda o: o.engine.metrics.resumed),
    "connection_rejected": Metric(
        "Connections that were rejected because there were too many", lambda o: o.engine.metrics.refused["connections"]
    ),
    "connection_drop_count": Metric(
        "Connections that were dropped by the throttle", lambda o: o.engine.metrics.throttled
    ),
    "large_requests_rejected": Metric(
        "Requests that were rejected because they were too large", lambda o: o.engine.metrics.refused["frames"]
    ),
    "throttled_ops": Metric(
        "Transactions and multi-reads that were rejected because they were too large",
        lambda o: o.engine.metrics.refused["multi_operations"] + o.engine.metrics.refused["multi_read"],
    ),
    "stale_sessions_expired": Metric("Sessions that expired", lambda o: o.engine.metrics.sessions_expired),
    "sessionless_connections_expired": Metric(
        "Connections that were closed because they opened no session in time",
        lambda o: o.engine.metrics.sessionless_expired,
    ),
    "unsuccessful_handshake": Metric("Failed TLS handshakes", lambda o: o.engine.metrics.handshakes_failed),
    "zoolet_super_logins": Metric("Logins of the super user", lambda o: o.engine.metrics.super_logins),
    "zoolet_stalls": Metric("Pauses of the process", lambda o: o.engine.metrics.stalls),
    "zoolet_stalled_ms": Metric(
        "Total duration of the pauses of the process, in milliseconds", lambda o: o.engine.metrics.stalled_ms
    ),
    "snapshot_error_count": Metric("Snapshots that could not be written", lambda o: o.engine.metrics.snapshot_errors),
}
"""The counters of a single server."""
UNUSED_COUNTERS: Final = (
    "add_dead_watcher_stall_time", "cnxn_closed_without_zk_server_running", "commit_count", "dead_watchers_cleared",
    "dead_watchers_queued", "diff_count", "digest_mismatches_count", "ensemble_auth_fail", "ensemble_auth_skip",
    "ensemble_auth_success", "insecure_admin_count", "learner_commit_received_count",
    "learner_proposal_received_count", "looking_count", "outstanding_changes_queued", "outstanding_changes_removed",
    "prep_processor_request_queued", "proposal_count", "quit_leading_due_to_disloyal_voter", "request_commit_queued",
    "request_throttle_wait_count", "requests_not_forwarded_to_commit_processor", "response_packet_cache_hits",
    "response_packet_cache_misses", "response_packet_get_children_cache_hits",
    "response_packet_get_children_cache_misses", "restore_error_count", "restore_rate_limited_count",
    "revalidate_count", "skip_learner_request_to_next_processor_count", "snap_count", "snapshot_rate_limited_count",
    "stale_replies", "stale_requests", "stale_requests_dropped", "sync_processor_request_queued",
    "tls_handshake_exceeded", "unrecoverable_error_count", "watch_bytes",
)  # fmt: skip
"""The counters of ensembles, and of queues, caches and threads that this server does not have. They are always 0."""
BASIC_SUMMARIES: Final = (
    "commit_commit_proc_req_queued", "commit_process_time", "concurrent_request_processing_in_commit_processor",
    "connection_token_deficit", "dbinittime", "election_time", "follower_sync_time", "fsynctime",
    "inflight_diff_count", "inflight_snap_count", "leader_unavailable_time", "learner_request_processor_queue_size",
    "netty_queued_buffer_capacity", "node_changed_watch_count", "node_children_watch_count",
    "node_created_watch_count", "node_deleted_watch_count", "observer_sync_time", "pending_session_queue_size",
    "prep_process_time", "prep_processor_queue_size", "proposal_process_time", "read_commit_proc_issued",
    "read_commit_proc_req_queued", "reads_after_write_in_session_queue", "reads_issued_from_session_queue",
    "requests_in_session_queue", "restore_time", "session_queues_drained", "snapshottime", "socket_closing_time",
    "startup_snap_load_time", "startup_txns_load_time", "startup_txns_loaded", "sync_process_time",
    "sync_processor_batch_size", "sync_processor_queue_size", "time_waiting_empty_pool_in_commit_processor_read_ms",
    "unavailable_time", "write_batch_time_in_commit_processor", "write_commit_proc_issued",
    "write_commit_proc_req_queued",
)  # fmt: skip
"""The summaries without quantiles. Summaries that the server does not fill are empty."""
ADVANCED_SUMMARIES: Final = (
    "close_session_prep_time", "commit_propagation_latency", "dead_watchers_cleaner_latency", "jvm_pause_time_ms",
    "local_write_committed_time_ms", "om_commit_process_time_ms", "om_proposal_process_time_ms",
    "prep_processor_queue_time_ms", "propagation_latency", "proposal_ack_creation_latency", "proposal_latency",
    "quorum_ack_latency", "read_commitproc_time_ms", "read_final_proc_time_ms", "readlatency",
    "request_throttle_queue_time_ms", "server_write_committed_time_ms", "sync_processor_queue_and_flush_time_ms",
    "sync_processor_queue_flush_time_ms", "sync_processor_queue_time_ms", "updatelatency",
    "write_commitproc_time_ms", "write_final_proc_time_ms",
)  # fmt: skip
"""The summaries with quantiles."""
OWN_SUMMARIES: Final = {"zoolet_loop_lag_ms": "loop_lag"}
"""zoolet's own summaries, by their public names."""
METRICS_SINCE_3_9: Final = frozenset(
    {
        "restore_error_count",
        "restore_rate_limited_count",
        "restore_time",
        "snapshot_error_count",
        "snapshot_rate_limited_count",
    }
)
"""The metrics that do not exist in 3.8."""
QUOTAS: Final = ("count_limit", "bytes_limit", "count_usage", "bytes_usage")
"""The amounts of quotas in the names of metrics. Each metric sums an amount by the first part of a path."""
MAX_QUOTAS: Final = 250
"""Maximum number of quotas that are read, because the cache holds the parsed texts of this many quotas.

If a server has more quotas, the metrics are too low.
"""
MAX_NAME: Final = 256
"""Maximum length of a namespace in characters. Quotas of longer namespaces are skipped."""
_EMPTY_SUMMARY: Final = Summary()


def figures(observed: MonitoredServer) -> MetricValues:
    """Return the current values of all metrics."""
    metrics = observed.engine.metrics
    absent = frozenset() if observed.engine.settings.compat.counts_restores else METRICS_SINCE_3_9
    gauges = {name: metric.read(observed) for name, metric in GAUGES.items()}
    gauges |= observed.observing.metrics() if observed.observing is not None else {}
    counters = {name: int(metric.read(observed)) for name, metric in COUNTERS.items() if name not in absent}
    counters |= {f"zoolet_refused_{limit}": count for limit, count in metrics.refused.items()}
    counters |= dict.fromkeys((name for name in UNUSED_COUNTERS if name not in absent), 0)
    basic = {name: metrics.summaries.get(name, _EMPTY_SUMMARY) for name in BASIC_SUMMARIES if name not in absent}
    advanced = {name: metrics.summaries.get(name, _EMPTY_SUMMARY) for name in ADVANCED_SUMMARIES}
    advanced |= {shown: metrics.summaries[name] for shown, name in OWN_SUMMARIES.items()}
    sets = {"quota_exceeded_error_per_namespace": dict(metrics.quota_exceeded)}
    samples = {("zoolet_request_time_ms", label): dict(values) for label, values in observed.samples.items()}
    return MetricValues(gauges, counters, basic, advanced, _quota_totals(observed), sets, samples)


def _quota_totals(observed: MonitoredServer) -> dict[str, dict[str, int]]:
    """Return the limits and the usage of all quotas, summed by the first part of the path.

    If a quota has a hard and a soft limit, the hard limit is used.

    Source: QuotaMetricsUtils.
    """
    sets: dict[str, dict[str, int]] = {f"quota_{name}_per_namespace": {} for name in QUOTAS}
    for above, limits, used in observed.engine.quota.amounts(MAX_QUOTAS):
        namespace = above.split("/", 2)[1]
        if len(namespace) > MAX_NAME:
            continue
        count_limit = limits.node_hard_limit if limits.node_hard_limit > -1 else limits.nodes
        size_limit = limits.byte_hard_limit if limits.byte_hard_limit > -1 else limits.size
        amounts = (count_limit, size_limit, used.nodes, used.size)
        for totals, amount in zip(sets.values(), amounts, strict=True):
            totals[namespace] = totals.get(namespace, 0) + amount
    return sets


def monitor(observed: MonitoredServer) -> dict[str, str | float]:
    """Return the metrics under the names and in the order that ``mntr`` and ``/commands/monitor`` use.

    Source: MonitorCommand, DefaultMetricsProvider.
    """
    now = figures(observed)
    shown: dict[str, str | float] = {"version": observed.version(), "server_state": observed.mode()}
    shown |= observed.quorum()
    shown |= now.gauges
    shown |= _flatten_sets(now.gauge_sets)
    shown |= now.counters
    shown |= _flatten_sets(now.counter_sets)
    for name, summary in (now.basic | now.advanced).items():
        shown[f"avg_{name}"] = summary.average()
        extremes = {"min": summary.least, "max": summary.most, "cnt": summary.count, "sum": summary.total}
        shown |= {f"{part}_{name}": int(value) for part, value in extremes.items()}
        if name in now.advanced:
            parts = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
            quantiles = {part: summary.quantile(q) for part, q in parts.items()}
            shown |= {f"{part}_{name}": 0 if isnan(value) else int(value) for part, value in quantiles.items()}
    return shown


def _flatten_sets(sets: dict[str, dict[str, int]]) -> dict[str, int]:
    return {f"{key}_{name}": number for name, numbers in sets.items() for key, number in numbers.items()}
