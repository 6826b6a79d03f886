"""Facts about a server, as plain dictionaries with the same names and order as in ZooKeeper's HTTP commands.

The four-letter commands format the same facts as text, so both interfaces agree.

Source: org.apache.zookeeper.server.admin.Commands.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from ...protocol.hexadecimal import to_signed_64
from ...protocol.operations import OPERATIONS
from ..core.client_connection import ClientConnection
from ..core.engine import Engine
from ..core.watches import DATA, NULL_PATH
from .observed import PYTHON_VERSION, MonitoredServer

Facts = dict[str, Any]
_NO_SIZES: Final = {"last_buffer_size": -1, "min_buffer_size": -1, "max_buffer_size": -1}
"""The sizes of replies, as ZooKeeper shows them before the first reply. Measuring would slow down every reply."""


# --- connections and sessions ---


def brief_facts(client: ClientConnection) -> Facts:
    """Return the facts that ``stat`` shows about a connection."""
    return {
        "remote_socket_address": client.address,
        "interest_ops": 1,
        "outstanding_requests": 0,
        "packets_received": client.received,
        "packets_sent": client.sent,
    }


def last_operation(client: ClientConnection) -> str:
    """Return the short name of the last operation of a connection."""
    row = OPERATIONS.get(client.last_op)
    return "SESS" if client.last_op == -1 else (row.short if row is not None else "") or "NA"


def full_facts(client: ClientConnection) -> Facts:
    """Return the facts that ``cons`` shows about a connection. Its latencies are 0, because they are not measured."""
    session = client.session
    if session is None:
        return brief_facts(client)
    return {
        **brief_facts(client),
        "session_id": to_signed_64(session.id),
        "last_operation": last_operation(client),
        "established": client.since,
        "session_timeout": session.timeout_ms,
        "last_cxid": client.last_xid,
        "last_zxid": client.last_zxid,
        "last_response_time": 0,
        "last_latency": 0,
        "min_latency": 0,
        "avg_latency": 0,
        "max_latency": 0,
    }


def sessions_by_deadline(engine: Engine) -> dict[int, list[int]]:
    """Return the ids of all sessions by their deadline, in monotonic milliseconds, earliest first."""
    sessions: dict[int, list[int]] = {}
    for session in engine.sessions.alive.values():
        sessions.setdefault(session.deadline, []).append(session.id)
    return dict(sorted(sessions.items()))


def dump(observed: MonitoredServer) -> Facts:
    """Return all sessions by deadline, and their ephemeral nodes."""
    engine = observed.engine
    expiring = {str(at): [to_signed_64(each) for each in ids] for at, ids in sessions_by_deadline(engine).items()}
    owned = {str(to_signed_64(owner)): list(paths) for owner, paths in engine.tree.ephemerals.items()}
    return {"expiry_time_to_session_ids": expiring, "session_id_to_ephemeral_paths": owned}


# --- watches ---


def watched_path_text(path: str) -> str:
    """Return a watched path for display, or ``null``, because the path of a watch may be null."""
    return "null" if path == NULL_PATH else path


def watched_paths_by_session(engine: Engine) -> list[tuple[int, list[str]]]:
    """Return the ids of all sessions with data watches, each with the paths that it watches."""
    return [
        (client.session.id, [watched_path_text(path) for path in client.modes[DATA]])
        for client in engine.connections
        if client.session is not None and client.watched_data
    ]


def watching_sessions_by_path(engine: Engine) -> list[tuple[str, list[int]]]:
    """Return all paths with data watches, each with the ids of the sessions that watch it."""
    by_path = engine.watches.by_path(DATA)
    return [(watched_path_text(path), [client.session_id for client in clients]) for path, clients in by_path.items()]


def watch_summary(observed: MonitoredServer) -> Facts:
    """Return the numbers of data watches, watched paths and connections.

    The number of connections includes those whose watches have already fired.
    """
    paths, watches = observed.engine.watches.totals(DATA)
    return {
        "num_connections": sum(client.watched_data for client in observed.engine.connections),
        "num_paths": paths,
        "num_total_watches": watches,
    }


# --- the server ---


def configuration(observed: MonitoredServer) -> Facts:
    """Return the configuration, with the names of zoo.cfg and in ZooKeeper's order."""
    settings = observed.engine.settings
    facts: Facts = {
        "clientPort": -1,
        "secureClientPort": -1,
        "dataDir": "",
        "dataDirSize": 0,
        "dataLogDir": "",
        "dataLogSize": 0,
        "tickTime": settings.tick_time,
        "maxClientCnxns": 0,
        "minSessionTimeout": settings.min_session_timeout,
        "maxSessionTimeout": settings.max_session_timeout,
        "clientPortListenBacklog": -1,
        "serverId": 0,
    }
    configured = observed.configuration()
    return {name: configured.get(name, value) for name, value in facts.items()}


def environment(observed: MonitoredServer) -> Facts:
    """Return the server's environment, under Java's names."""
    system = os.uname()
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page >> 20
    free = os.sysconf("SC_AVPHYS_PAGES") * page >> 20
    facts = {
        "zookeeper.version": observed.version(),
        "host.name": system.nodename,
        "java.version": PYTHON_VERSION,
        "java.vendor": sys.implementation.name,
        "java.home": sys.prefix,
        "java.class.path": "",
        "java.library.path": "",
        "java.io.tmpdir": os.environ.get("TMPDIR", "/tmp"),
        "java.compiler": "",
        "os.name": system.sysname,
        "os.arch": system.machine,
        "os.version": system.release,
        "user.name": os.environ.get("USER", ""),
        "user.home": os.path.expanduser("~"),
        "user.dir": os.getcwd(),
        "os.memory.free": f"{free}MB",
        "os.memory.max": f"{total}MB",
        "os.memory.total": f"{total}MB",
    }
    return {name: value or "<NA>" for name, value in facts.items()}


def statistics(observed: MonitoredServer) -> Facts:
    """Return the statistics of the server, without the sizes of its files."""
    engine = observed.engine
    metrics = engine.metrics
    return {
        "packets_sent": metrics.packets_sent,
        "packets_received": metrics.packets_received,
        "fsync_threshold_exceed_count": 0,
        "client_response_stats": dict(_NO_SIZES),
        "uptime": observed.uptime_ms(),
        "provider_null": False,
        "last_processed_zxid": engine.zxid,
        "outstanding_requests": observed.count_waiting(),
        "server_state": observed.mode(),
        "avg_latency": metrics.latency_average(),
        "max_latency": int(metrics.latency_max),
        "min_latency": int(metrics.latency_min),
        "num_alive_client_connections": len(engine.connections),
        "auth_failed_count": metrics.auth_failed,
        "non_mtlsremote_conn_count": 0,
        "non_mtlslocal_conn_count": 0,
    }


def server_stats(observed: MonitoredServer) -> Facts:
    """Return the statistics of the server, and the sizes of its directories."""
    configured = configuration(observed)
    sizes = {"data_dir_size": configured["dataDirSize"], "log_dir_size": configured["dataLogSize"]}
    return {
        "version": observed.version(),
        "read_only": bool(observed.refusal()),
        "server_stats": statistics(observed) | sizes,
        "client_response": dict(_NO_SIZES),
        "node_count": observed.node_count(),
    }
