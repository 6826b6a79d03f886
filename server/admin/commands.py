"""The table of HTTP commands (``/commands/NAME``), with ZooKeeper's names.

Source: org.apache.zookeeper.server.admin.Commands.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ...protocol.hexadecimal import to_signed_64
from ..core.client_connection import ClientConnection
from . import facts
from .facts import Facts
from .figures import monitor
from .observed import MonitoredServer

Parameters = Mapping[str, str]
Answer = Callable[[MonitoredServer, Parameters], Facts]
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


class Command(NamedTuple):
    """One command of the admin port, with its names and its answer.

    Args:
        name: The name in the URL, such as ``server_stats``.
        aliases: Other names, such as the four-letter word.
        answer: A function that returns the facts of the answer, with a key ``error`` for invalid parameters. None for
            commands that :class:`~zoolet.server.admin.state_pages.StatePages` answers.
        guarded: Whether the command needs the token, because it changes something or shows all data.
        summary: Short description of the command.
    """

    name: str
    aliases: tuple[str, ...]
    answer: Answer | None
    guarded: bool
    summary: str


def _dirs(observed: MonitoredServer, parameters: Parameters) -> Facts:
    configured = facts.configuration(observed)
    return {"datadir_size": configured["dataDirSize"], "logdir_size": configured["dataLogSize"]}


def _configuration(observed: MonitoredServer, parameters: Parameters) -> Facts:
    configured = facts.configuration(observed)
    return {
        "client_port": configured["clientPort"],
        "data_dir": configured["dataDir"],
        "data_log_dir": configured["dataLogDir"],
        "tick_time": configured["tickTime"],
        "max_client_cnxns": configured["maxClientCnxns"],
        "min_session_timeout": configured["minSessionTimeout"],
        "max_session_timeout": configured["maxSessionTimeout"],
        "server_id": configured["serverId"],
        "client_port_listen_backlog": configured["clientPortListenBacklog"],
    }


def _connections_by_port(observed: MonitoredServer, fact: Callable[[ClientConnection], Facts]) -> Facts:
    """Return the facts about all connections, in two lists: without and with TLS."""
    shown: Facts = {"connections": [], "secure_connections": []}
    for client in observed.engine.connections:
        shown["secure_connections" if client.is_secure else "connections"].append(fact(client))
    return shown


def _connections(observed: MonitoredServer, parameters: Parameters) -> Facts:
    return _connections_by_port(observed, facts.full_facts)


def _stats(observed: MonitoredServer, parameters: Parameters) -> Facts:
    return {**facts.server_stats(observed), **_connections_by_port(observed, facts.brief_facts)}


def reset_connections(observed: MonitoredServer) -> Facts:
    """Reset the counters of all connections to 0."""
    for client in observed.engine.connections:
        client.received = client.sent = 0
    return {}


def _reset_stats(observed: MonitoredServer, parameters: Parameters) -> Facts:
    observed.engine.metrics.reset()
    return {}


def _set_trace_mask(observed: MonitoredServer, parameters: Parameters) -> Facts:
    text = parameters.get("traceMask")
    if text is None:
        return {"error": "setTraceMask requires long traceMask argument"}
    mask = int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else 1 << 63
    if not -(1 << 63) <= mask < 1 << 63:
        return {"error": f"setTraceMask requires long traceMask argument, got {text}"}
    observed.engine.trace_mask = mask
    return {"tracemask": mask}


def _last_snapshot(observed: MonitoredServer, parameters: Parameters) -> Facts:
    last = observed.last_snapshot()
    if last is None:
        return {"zxid": "ffffffffffffffff", "timestamp": -1}
    return {"zxid": f"{last[0]:x}", "timestamp": last[1]}


def _watches(observed: MonitoredServer, parameters: Parameters) -> Facts:
    watched = {str(to_signed_64(session)): paths for session, paths in facts.watched_paths_by_session(observed.engine)}
    return {"session_id_to_watched_paths": watched}


def _watches_by_path(observed: MonitoredServer, parameters: Parameters) -> Facts:
    watching = {path: list(map(to_signed_64, ids)) for path, ids in facts.watching_sessions_by_path(observed.engine)}
    return {"path_to_session_ids": watching}


def _log_level(observed: MonitoredServer, parameters: Parameters) -> Facts:
    logger = logging.getLogger("zoolet")
    level = parameters.get("level")
    if level is None or level.upper() not in LEVELS:
        return {"error": f"level must be one of {', '.join(LEVELS)}; it is now {logging.getLevelName(logger.level)}"}
    logger.setLevel(level.upper())
    return {"level": level.upper()}


def _answer(function: Callable[[MonitoredServer], Facts]) -> Answer:
    return lambda observed, parameters: function(observed)


def _fixed_answer(**answer: object) -> Answer:
    return lambda observed, parameters: dict(answer)


# fmt: off
COMMANDS: Final = (
    Command("configuration", ("conf", "config"), _configuration, False, "the limits, the port and the directories"),
    Command("connection_stat_reset", ("crst",), _answer(reset_connections), True,
            "reset the counters of all connections"),
    Command("connections", ("cons",), _connections, False, "all connections"),
    Command("dirs", (), _dirs, False, "the sizes of the directories, in bytes"),
    Command("dump", (), _answer(facts.dump), False, "the sessions by their deadline, and their ephemeral nodes"),
    Command("environment", ("env", "envi"), _answer(facts.environment), False, "the machine and the process"),
    Command("get_trace_mask", ("gtmk",), lambda observed, parameters: {"tracemask": observed.engine.trace_mask}, False,
            "the trace mask, a number without an effect"),
    Command("hash", (), _fixed_answer(digests=[]), False, "the digests of the tree (always empty)"),
    Command("initial_configuration", ("icfg",),
            lambda observed, parameters: {"initial_configuration": observed.zoo_cfg_text}, False,
            "the text of the zoo.cfg"),
    Command("is_read_only", ("isro",), lambda observed, parameters: {"read_only": bool(observed.refusal())}, False,
            "whether clients cannot write"),
    Command("last_snapshot", ("lsnp",), _last_snapshot, False, "the last written snapshot"),
    Command("leader", ("lead",), _fixed_answer(error="server is not initialized"), False, "for ensembles only"),
    Command("log_level", (), _log_level, True, "set the minimum level of the log: level=DEBUG"),
    Command("monitor", ("mntr",), _answer(monitor), False, "all metrics"),
    Command("observer_connection_stat_reset", ("orst",), _fixed_answer(), True, "for ensembles only"),
    Command("observers", ("obsr",), _fixed_answer(synced_observers=0, observers=[]), False, "for ensembles only"),
    Command("restore", ("rest",), None, True, "replace the whole state by the snapshot in the body"),
    Command("ruok", (), _fixed_answer(), False, "whether the process answers"),
    Command("server_stats", ("srvr",), _answer(facts.server_stats), False, "the statistics of the server"),
    Command("set_trace_mask", ("stmk",), _set_trace_mask, True, "set the trace mask"),
    Command("snapshot", ("snap",), None, True, "the whole state as a file; streaming=false writes it on the server"),
    Command("stat_reset", ("srst",), _reset_stats, True, "reset the counters of the server"),
    Command("stats", ("stat",), _stats, False, "the statistics of the server, and all connections"),
    Command("system_properties", ("sysp",), _fixed_answer(), False, "the properties of a Java process (always empty)"),
    Command("voting_view", (), _fixed_answer(current_config={}), False, "for ensembles only"),
    Command("watch_summary", ("wchs",), _answer(facts.watch_summary), False, "the number of watches"),
    Command("watches", ("wchc",), _watches, False, "the watched paths by session"),
    Command("watches_by_path", ("wchp",), _watches_by_path, False, "the sessions that watch, by path"),
    Command("zabstate", (), _fixed_answer(voting=False, zabstate=""), False, "for ensembles only"),
)
# fmt: on
"""All commands, in order of their names."""
BY_NAME: Final = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


def execute(command: Command, observed: MonitoredServer, parameters: Parameters) -> Facts:
    """Return the answer of a command: its facts, its name, and its error (null after a success)."""
    assert command.answer is not None, command.name
    answer = command.answer(observed, parameters)
    return (
        {**answer, "command": command.name} if "error" in answer else {**answer, "command": command.name, "error": None}
    )
