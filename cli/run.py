"""``zoolet run -- CMD``: a command with a temporary server."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from ..protocol.addresses import host_and_port
from ..protocol.messages import file_error_reason
from ..server.admin.descriptors import raise_limit
from ..server.app import assemble, new_engine
from ..server.config import ConfigError, ServerConfig, Setting, build, parse_definitions
from ..server.core.settings import EngineSettings
from ..server.net.clock import RealClock
from .addresses import format_address
from .event_loop import run_loop
from .options import add_control, add_definitions, add_listener, cannot_listen_error
from .usage import add_example, path, whole_number
from .users_command import Signals, run_endpoint, serve_command

if TYPE_CHECKING:
    from ..testing.cluster.cluster import Cluster
    from ..testing.server import Server

DEFAULT_SETTINGS: Final = {"maxClientCnxns": "0", "4lw.commands.whitelist": "*"}
"""Default settings of the server, which ``-D`` options override."""
_OPTIONS_WITH_VALUE: Final = ("--load", "--clock", "--seed", "--host", "--port", "--admin-port", "--cluster")


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "run",
        help="run a command with a temporary server",
        description="Start a server on a free port, run a command, and stop the server. The command finds the address "
        "in ZOOKEEPER_HOSTS and ZOOLET_HOSTS. Signals are forwarded to the command, and its exit code becomes the exit "
        "code of zoolet run. On Linux, the command gets SIGTERM if zoolet run is killed. Without a command, the server "
        "runs until you stop it.",
    )
    add_definitions(parser)
    add_example(parser, "zoolet run --cluster 3 -- pytest tests")
    add_listener(parser)
    add_control(parser)
    parser.add_argument(
        "--cluster",
        type=_member_count,
        metavar="N",
        help="run a cluster of N members, on ports from --port upwards or on free ports",
    )
    parser.add_argument(
        "--load", type=path, metavar="FILE", help="JSON file with nodes to create before the command runs"
    )
    parser.add_argument(
        "--clock",
        choices=("real", "manual"),
        default="real",
        help="clock of the server (default real; manual requires --admin)",
    )
    parser.add_argument("--seed", type=whole_number(), help="seed of all random numbers (requires --admin)")
    parser.usage = "zoolet run [options] [-Dname=value ...] [-- CMD ARG...]"
    parser.set_defaults(command=_run)


def _member_count(text: str) -> int:
    from ..testing.cluster.cluster import MAX_MEMBERS

    return whole_number(1, MAX_MEMBERS)(text)


def command_index(words: Sequence[str]) -> int:
    """Return the index of the user's command among the arguments of ``zoolet``. Only options may precede it."""
    place = 1
    while place < len(words) and words[place] != "--" and words[place].startswith("-"):
        place += 2 if words[place] in _OPTIONS_WITH_VALUE else 1
    return min(place, len(words))


def _run(options: argparse.Namespace, definitions: list[str]) -> int:
    options.admin = options.admin or options.admin_port is not None
    if options.cluster is not None and options.port > (highest := 65536 - options.cluster):
        text = f"--port must be a whole number from 0 to {highest} with --cluster {options.cluster}"
        raise ConfigError(f"{text}, not {str(options.port)!r}")
    for name, is_given in (("--clock manual", options.clock != "real"), ("--seed", options.seed is not None)):
        if is_given and not options.admin:
            raise ConfigError(f"{name} requires --admin")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    settings = {name: Setting(value, "zoolet run") for name, value in DEFAULT_SETTINGS.items()}
    given = parse_definitions(definitions, "command line")
    config = build(settings, given, strict=True)
    if config.secure_port is not None:
        raise ConfigError("secureClientPort is not supported by this command; use 'zoolet serve'")
    nodes = _read_tree(options.load) if options.load is not None else {}
    raise_limit()
    if options.admin or options.cluster is not None:
        return run_loop(_run_with_test_server(_make_test_server(options, {**settings, **given}), nodes, options))
    return run_loop(_run_with_server(config, nodes, options))


def _read_tree(file: str) -> dict[str, Any]:
    from ..protocol.node_json import reject_duplicate_keys
    from ..testing.control.values import UsageError, parse_tree

    try:
        with open(file, encoding="utf-8-sig") as stream:
            text = stream.read()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {file_error_reason(error)}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read {file}: not valid UTF-8 text") from None
    try:
        return parse_tree(json.loads(text, object_pairs_hook=reject_duplicate_keys))
    except UsageError as error:
        raise ConfigError(f"{file} is invalid: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not valid JSON: {error if text.strip() else 'the file is empty'}") from None


def _make_test_server(options: argparse.Namespace, settings: dict[str, Setting]) -> Server | Cluster:
    from ..testing.server import Server

    # Derive the session limits from tickTime, as the daemon does. A test server has different defaults.
    values = {"tickTime": str(EngineSettings.tick_time), "minSessionTimeout": "-1", "maxSessionTimeout": "-1"}
    values |= {name: setting.value for name, setting in settings.items()}
    if options.cluster is not None:
        from ..testing.cluster.cluster import Cluster

        ports = [options.port + number for number in range(options.cluster)] if options.port else ()
        return Cluster(
            options.cluster, host=options.host, ports=ports, clock=options.clock, seed=options.seed, config=values
        )
    return Server(options.host, options.port, clock=options.clock, seed=options.seed, config=values)


async def _run_with_server(config: ServerConfig, nodes: dict[str, Any], options: argparse.Namespace) -> int:
    """Serve while the command runs, or without a command until a signal. Return the exit code.

    Raises:
        ConfigError: A node of ``--load`` is invalid.
        CommandError: The address cannot be listened on.
    """
    clock = RealClock()
    daemon = assemble(config, new_engine(config, clock, SystemRandom()), clock=clock)
    if nodes:
        from ..testing.state.populate import populate

        try:
            populate(daemon.engine, nodes)
        except ValueError as error:
            raise ConfigError(f"--load: {error}") from None
    signals = Signals() if options.words else None
    try:
        hosts = host_and_port(options.host, await daemon.start(options.host, options.port))
    except (OSError, UnicodeError) as error:
        raise cannot_listen_error(format_address(options.host, options.port), error) from None
    try:
        return await serve_command(options.words, hosts, "", signals)
    finally:
        await daemon.stop(gracefully=False)


async def _run_with_test_server(server: Server | Cluster, nodes: dict[str, Any], options: argparse.Namespace) -> int:
    """Serve with a test server or a cluster while the command runs, or without a command until a signal.

    With ``--admin``, the command can use the control API.

    Returns:
        The exit code.

    Raises:
        ConfigError: A node of ``--load`` is invalid.
    """
    signals = Signals() if options.words else None
    async with run_endpoint(server, options) as control:
        try:
            server.populate(nodes)
        except ValueError as error:
            raise ConfigError(f"--load: {error}") from None
        return await serve_command(options.words, server.hosts, control, signals)
