"""The answers to the four-letter commands. ``four_letter_commands.py`` imports it at the first command.

Source: org.apache.zookeeper.server.command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...protocol.hexadecimal import hexadecimal
from ..core.client_connection import ClientConnection
from ..core.engine import Engine
from .commands import reset_connections
from .facts import (
    configuration,
    environment,
    last_operation,
    sessions_by_deadline,
    statistics,
    watch_summary,
    watched_paths_by_session,
    watching_sessions_by_path,
)
from .figures import monitor
from .java import double
from .observed import MonitoredServer


def ruok(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer that the server is running."""
    return "imok"


def isro(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer whether the server is read-only. Clients use this to find a server that accepts writes."""
    return "ro" if observed.refusal() else "rw"


def _statistics_lines(observed: MonitoredServer) -> str:
    engine, facts = observed.engine, statistics(observed)
    return (
        f"Latency min/avg/max: {facts['min_latency']}/{double(facts['avg_latency'])}/{facts['max_latency']}\n"
        f"Received: {facts['packets_received']}\nSent: {facts['packets_sent']}\n"
        f"Connections: {facts['num_alive_client_connections']}\nOutstanding: {facts['outstanding_requests']}\n"
        f"Zxid: {hexadecimal(engine.zxid)}\nMode: {facts['server_state']}\nNode count: {observed.node_count()}\n"
        + (f"Writes refused: {engine.refusal}\n" if engine.refusal else "")
    )


def srvr(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer with the server's statistics. As in ZooKeeper, the node count includes the root twice."""
    return f"Zookeeper version: {observed.version()}\n{_statistics_lines(observed)}"


def stat(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer with the server's statistics and its connections."""
    connections = observed.engine.connections
    clients = "".join(f"{brief(connected, asking=connected is client)}\n" for connected in connections)
    return f"Zookeeper version: {observed.version()}\nClients:\n{clients}\n{_statistics_lines(observed)}"


def brief(client: ClientConnection, *, asking: bool = False) -> str:
    """Return the line of one connection in the answer to ``stat``.

    Args:
        client: The connection.
        asking: Whether this connection has sent the command.
    """
    counts = f"queued=0,recved={client.received},sent={client.sent}"
    return f" {_java_address(client)}[{0 if asking else 1}]({counts})"


def _java_address(client: ClientConnection) -> str:
    """Return a client's address in Java's notation: an IPv6 address has eight groups without leading zeros."""
    host = client.host
    if ":" in host:
        from ipaddress import IPv6Address

        groups = IPv6Address(host.partition("%")[0]).exploded.split(":")
        host = "[" + ":".join(f"{int(group, 16):x}" for group in groups) + "]"
    return f"/{host}:{client.port}"


def mntr(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer with one metric per line, for monitoring systems."""
    return "".join(
        f"zk_{name}\t{double(value) if isinstance(value, float) else value}\n"
        for name, value in monitor(observed).items()
    )


def cons(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer with the details of each connection."""
    connections = observed.engine.connections
    return "".join(f"{_full_line(connected, asking=connected is client)}\n" for connected in connections) + "\n"


def _full_line(client: ClientConnection, *, asking: bool) -> str:
    line = brief(client, asking=asking)
    session = client.session
    if session is None:
        return line
    heard = int(session.heard)  # the monotonic time of the latest request, in milliseconds
    xid = f",lcxid={hexadecimal(client.last_xid)}" if client.last_xid >= 0 else ""
    return (
        f"{line[:-1]},sid={hexadecimal(session.id)},lop={last_operation(client)},est={client.since},"
        f"to={session.timeout_ms}{xid},lzxid={hexadecimal(client.last_zxid)},lresp={heard},"
        "llat=0,minlat=0,avglat=0,maxlat=0)"
    )


def conf(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer with the configuration, with ZooKeeper's keys and in its order."""
    return "".join(f"{name}={value}\n" for name, value in configuration(observed).items())


def gtmk(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer with the trace mask, which has no effect."""
    return str(observed.engine.trace_mask)


def set_trace_mask(engine: Engine, argument: bytes) -> bytes:
    """Set the trace mask to the eight bytes after ``stmk``, and answer with the mask. Answer nothing to fewer bytes."""
    if len(argument) < 8:
        return b""
    engine.trace_mask = int.from_bytes(argument[:8], "big", signed=True)
    return str(engine.trace_mask).encode()


def hash_(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer with an empty text, because the transaction log contains no digests."""
    return ""


def crst(observed: MonitoredServer, client: ClientConnection) -> str:
    """Reset the counters of all connections, and confirm the reset."""
    reset_connections(observed)
    return "Connection stats reset.\n"


def srst(observed: MonitoredServer, client: ClientConnection) -> str:
    """Reset the server's counters, and confirm the reset."""
    observed.engine.metrics.reset()
    return "Server stats reset.\n"


def dirs(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer with the sizes of the data directories, which are 0 for a server in memory."""
    facts = configuration(observed)
    return f"datadir_size: {facts['dataDirSize']}\nlogdir_size: {facts['dataLogSize']}\n"


def dump(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer with all sessions by deadline, and their ephemeral nodes."""
    engine = observed.engine
    alive = engine.sessions.alive
    sessions = {at: [f"\t{hexadecimal(each)}" for each in ids] for at, ids in sessions_by_deadline(engine).items()}
    connections: dict[int, list[str]] = {}
    for peer in engine.connections:
        deadline, session_id = (peer.session.deadline, peer.session.id) if peer.session else (peer.deadline, 0)
        line = f"\tip: {_java_address(peer)} sessionId: {hexadecimal(session_id)}"
        connections.setdefault(deadline, []).append(line)
    owners = engine.tree.ephemerals
    lines = [
        "SessionTracker dump:",
        f"Session Sets ({len(sessions)})/({len(alive)}):",
        *_deadline_lines(engine, sessions),
    ]
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(owners)}):"]
    for owner, paths in owners.items():
        lines += [f"{hexadecimal(owner)}:", *(f"\t{path}" for path in paths)]
    lines += ["Connections dump:", f"Connections Sets ({len(connections)})/({len(engine.connections)}):"]
    lines += _deadline_lines(engine, connections)
    return "\n".join(lines) + "\n"


def _deadline_lines(engine: Engine, by_deadline: dict[int, list[str]]) -> list[str]:
    from datetime import UTC, datetime

    lines = []
    for deadline in sorted(by_deadline):
        when = datetime.fromtimestamp((engine.now + deadline - engine.monotonic_ms) / 1000, UTC)
        lines += [
            f"{len(by_deadline[deadline])} expire at {when:%a %b %d %H:%M:%S} UTC {when.year}:",
            *by_deadline[deadline],
        ]
    return lines


def envi(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer with the server's environment, under Java's names."""
    return "Environment:\n" + "".join(f"{name}={value}\n" for name, value in environment(observed).items())


def wchs(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer with the numbers of data watches, watched paths, and connections that have or had a data watch."""
    facts = watch_summary(observed)
    counts = f"{facts['num_connections']} connections watching {facts['num_paths']} paths"
    return f"{counts}\nTotal watches:{facts['num_total_watches']}\n"


def wchp(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer with the sessions that watch each path."""
    lines = []
    for path, session_ids in watching_sessions_by_path(observed.engine):
        lines += [path, *(f"\t{hexadecimal(session_id)}" for session_id in session_ids)]
    return "".join(f"{line}\n" for line in lines) + "\n"


def wchc(observed: MonitoredServer, client: ClientConnection) -> str:
    """Answer with the paths that each session watches."""
    lines = []
    for session_id, paths in watched_paths_by_session(observed.engine):
        lines += [hexadecimal(session_id), *(f"\t{path}" for path in paths)]
    return "".join(f"{line}\n" for line in lines) + "\n"


ANSWERS: Final[dict[str, Callable[[MonitoredServer, ClientConnection], str]]] = {
    "conf": conf,
    "cons": cons,
    "crst": crst,
    "dirs": dirs,
    "dump": dump,
    "envi": envi,
    "ruok": ruok,
    "srst": srst,
    "wchc": wchc,
    "wchp": wchp,
    "wchs": wchs,
    "isro": isro,
    "srvr": srvr,
    "stat": stat,
    "mntr": mntr,
    "gtmk": gtmk,
    "hash": hash_,
}
"""The functions that answer the commands without an argument, by command."""


def answer(word: str, observed: MonitoredServer, client: ClientConnection, argument: bytes) -> bytes:
    """Return the answer to a command. Its argument is the data after the word."""
    if word == "stmk":
        return set_trace_mask(observed.engine, argument)
    return ANSWERS[word](observed, client).encode()
