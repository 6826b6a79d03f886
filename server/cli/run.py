"""``zoolet run -- CMD``: run a command with a server of its own."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from zoolet.event_loop import run_loop
from zoolet.server.app import assemble
from zoolet.server.cli.command import Signals, cannot_listen, control_server, serve_command
from zoolet.server.config import Config, ConfigError, Setting, build, parse_definitions
from zoolet.server.net.clock import RealClock

if TYPE_CHECKING:
    from zoolet.server.testing.server import Server

DEFAULTS: Final = {"maxClientCnxns": "0", "4lw.commands.whitelist": "*"}
"""The configuration, which -D options override."""
MAX_MEMBERS: Final = 15
_WITH_VALUE: Final = ("--load", "--clock", "--seed", "--host", "--port", "--admin-port", "--cluster")


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "run",
        help="run a command with a server of its own",
        description="Run a command with a server on a free port, which ZOOLET_HOSTS and ZOOKEEPER_HOSTS name. "
        "Signals are forwarded, and the exit code is the command's. Without a command it serves until it is stopped.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="the port to listen on (default: a free one)")
    parser.add_argument("--admin-port", type=int, help="the port of the control API; it implies --admin")
    parser.add_argument(
        "--admin", action="store_true", help="serve the control API; its address is in ZOOLET_ADMIN (extra: admin)"
    )
    parser.add_argument(
        "--cluster",
        type=int,
        metavar="N",
        help="serve N members of one ensemble, on N ports from --port on or free ones",
    )
    parser.add_argument("--load", metavar="FILE", help="create the nodes of a JSON file first")
    parser.add_argument("--clock", choices=("real", "manual"), default="real", help="with --admin: the server's clock")
    parser.add_argument("--seed", type=int, help="with --admin: the seed of all randomness")
    parser.usage = "zoolet run [options] [-Dname=value] [-- CMD ARG...]"
    parser.set_defaults(command=_run)


def start_of_command(words: Sequence[str]) -> int:
    """Return the index of the user's command among the arguments of ``zoolet``; only options may precede it."""
    place = 1
    while place < len(words) and words[place] != "--" and words[place].startswith("-"):
        place += 2 if words[place] in _WITH_VALUE else 1
    return min(place, len(words))


def _run(options: argparse.Namespace, definitions: list[str]) -> int:
    options.admin = options.admin or options.admin_port is not None
    if not options.host:
        raise ConfigError("run: --host must be an address or a name, not ''")
    if options.cluster is not None and not 1 <= options.cluster <= MAX_MEMBERS:
        raise ConfigError(f"run: --cluster is {options.cluster}; it must be a number from 1 to {MAX_MEMBERS}")
    if not options.admin and (options.clock != "real" or options.seed is not None):
        raise ConfigError("run: --clock and --seed need --admin")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    settings = {name: Setting(value, "zoolet run") for name, value in DEFAULTS.items()}
    given = parse_definitions(definitions, "command line")
    config = build(settings, given, strict=True)
    if config.secure_port is not None:
        raise ConfigError("zoolet run does not support secureClientPort; zoolet serve does.")
    nodes = _read_tree(options.load) if options.load is not None else {}
    if options.admin or options.cluster is not None:
        return run_loop(_run_with_test_server(_test_server(options, {**settings, **given}), nodes, options))
    return run_loop(_run_with_server(config, nodes, options))


def _read_tree(file: str) -> dict[str, Any]:
    from zoolet.server.testing.control.values import UsageError, tree_of

    try:
        with open(file, encoding="utf-8") as stream:
            return tree_of(json.load(stream))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except UsageError as error:
        raise ConfigError(f"{file}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not JSON: {error}") from None


def _test_server(options: argparse.Namespace, settings: dict[str, Setting]) -> Server:
    from zoolet.server.testing.server import Server

    # The same limits as without --admin; a test server's own are shorter.
    values = {"tickTime": "2000", "minSessionTimeout": "4000", "maxSessionTimeout": "40000"}
    values |= {name: setting.value for name, setting in settings.items()}
    if options.cluster is not None:
        from zoolet.server.testing.cluster.cluster import Cluster

        ports = [options.port + number for number in range(options.cluster)] if options.port else ()
        return Cluster(
            options.cluster, host=options.host, ports=ports, clock=options.clock, seed=options.seed, config=values
        )
    return Server(options.host, options.port, clock=options.clock, seed=options.seed, config=values)


async def _run_with_server(config: Config, nodes: dict[str, Any], options: argparse.Namespace) -> int:
    """Serve while a command runs, or until the server is stopped; return the exit code."""
    daemon = assemble(config, clock=RealClock(), rng=SystemRandom())
    if nodes:
        from zoolet.server.testing.state.populate import populate

        try:
            populate(daemon.engine, nodes)
        except ValueError as error:
            raise ConfigError(f"--load: {error}") from None
    signals = Signals() if options.words else None
    try:
        hosts = f"{options.host}:{await daemon.start(options.host, options.port)}"
    except (OSError, UnicodeError) as error:
        raise cannot_listen(options.host, options.port, error) from None
    try:
        return await serve_command(options.words, {"ZOOLET_HOSTS": hosts, "ZOOKEEPER_HOSTS": hosts}, signals)
    finally:
        await daemon.stop(gracefully=False)


async def _run_with_test_server(server: Server, nodes: dict[str, Any], options: argparse.Namespace) -> int:
    """Serve with a test server or a cluster while the command runs, with --admin under its control; return its exit
    code.
    """
    signals = Signals() if options.words else None
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(server)
        except OSError as error:
            raise cannot_listen(options.host, options.port, error) from None
        environment: dict[str, str] = dict.fromkeys(("ZOOLET_HOSTS", "ZOOKEEPER_HOSTS"), server.hosts)
        if options.admin:
            control = await stack.enter_async_context(control_server(server, options.host, options.admin_port or 0))
            environment["ZOOLET_ADMIN"] = control.url
        try:
            server.populate(nodes)
        except ValueError as error:
            raise ConfigError(f"--load: {error}") from None
        return await serve_command(options.words, environment, signals)
