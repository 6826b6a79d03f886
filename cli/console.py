"""``zoolet console HOSTS``: the console for any ZooKeeper server, in a separate process.

With ``--observe``, the console follows an ensemble as an observer, and also shows the history.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ..server.config import ConfigError, build, parse_definitions
from .addresses import format_address
from .event_loop import run_loop
from .options import (
    DEFAULT_HOSTS,
    SERVERS_HELP,
    STOP_EXIT_CODES,
    TIMEOUT_HELP,
    add_connection,
    add_definitions,
    add_listener,
    add_sid,
    add_timeout,
    cannot_listen_error,
    connected_client,
    make_client,
    parse_servers,
    require_h11,
)
from .usage import add_example

if TYPE_CHECKING:
    from ..client import Client
    from ..console.remote_source import RemoteSource
    from ..console.source import ConsoleSource
    from ..server.net.http import HttpServer
    from ..server.observer import ObservedEnsemble


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "console",
        help="serve a web page with the tree, sessions and locks",
        description="Serve a web page with the tree, sessions and locks of any ZooKeeper server. The page shows only "
        "what the protocol and the four-letter commands expose. Changes require the token that the command "
        "prints. With --observe, the page also shows the history of changes since it started, but is read-only.",
    )
    add_example(parser, "zoolet console localhost:2181 --port 8080")
    add_example(parser, "zoolet console --observe zk1:2888,zk2:2888,zk3:2888")
    parser.add_argument("hosts", metavar="HOSTS", nargs="?", help=SERVERS_HELP)
    parser.add_argument(
        "--observe",
        metavar="ADDRESSES",
        help="quorum addresses of all members, such as zk1:2888,zk2:2888; use it instead of HOSTS to follow an "
        "ensemble as an observer and to show its history",
    )
    add_sid(parser)
    add_listener(parser)
    add_connection(parser)
    add_timeout(parser, 10.0, TIMEOUT_HELP)
    add_definitions(parser, "zoolet.adminHosts=NAME", "name of a reverse proxy in front of the page")
    parser.set_defaults(command=_run_console)


def _run_console(options: argparse.Namespace, definitions: list[str]) -> int:
    options.names = build(parse_definitions(definitions, "command line")).admin.hosts
    require_h11("the console")
    if options.observe is not None:
        if options.hosts is not None:
            raise ConfigError(f"--observe replaces HOSTS: remove {options.hosts!r}")
        if options.auth or options.tls_ca or options.tls_cert or options.tls_key:
            raise ConfigError("--observe connects to quorum ports, without --auth and --tls-...: remove those options")
        from .observing import parse_ensemble

        return run_loop(
            _run_until_sigterm(_observe(parse_ensemble(options.observe, options.sid, read_only=True), options))
        )
    if options.sid is not None:
        raise ConfigError("--sid requires --observe")
    from ..console.remote_source import RemoteSource

    options.hosts = DEFAULT_HOSTS if options.hosts is None else options.hosts
    hosts, tls = parse_servers(options.hosts, options)
    client = make_client(options.hosts, tls, options, read_only=True)
    source = RemoteSource(client, hosts.addresses, tls, min(options.timeout, 5.0))
    return run_loop(_run_until_sigterm(_serve(client, source, options)))


async def _run_until_sigterm(work: Coroutine[Any, Any, int]) -> int:
    """Run a coroutine and return its exit code. SIGTERM cancels the coroutine, and the exit code is then 0."""
    task, terminated = asyncio.ensure_future(work), []

    def terminate() -> None:
        terminated.append(True)
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await task
    except asyncio.CancelledError:
        if not terminated:  # Ctrl-C cancelled the task
            raise
        return STOP_EXIT_CODES[signal.SIGTERM]


async def _serve(client: Client, source: RemoteSource, options: argparse.Namespace) -> int:
    from ..console.remote_source import keep_sampling

    async with connected_client(client, "console", options.hosts):
        await source.sample()
        # With credentials, the console may read data that other users of this machine must not see.
        server = await _listen(source, options, is_open=not options.auth and options.tls_cert is None)
        try:
            await keep_sampling(source)
            return 0
        finally:
            await server.close()


async def _observe(ensemble: ObservedEnsemble, options: argparse.Namespace) -> int:
    """Serve the console of a replica of an ensemble. The replica accepts no clients.

    Raises:
        ConfigError: The ensemble cannot be observed.
    """
    from ..console.attach import EngineConsole
    from ..server.config import ServerConfig
    from ..server.net.clock import RealClock
    from ..server.observer import assemble_observer
    from .observing import follow

    config = ServerConfig()
    daemon, link = assemble_observer(ensemble, config, clock=RealClock())
    console = EngineConsole(daemon, history=config.admin.history, name=f"observer of {options.observe}")
    try:
        server = await _listen(console.source, options, is_open=True)
        try:
            raise ConfigError(await follow(link, asyncio.Event()))
        finally:
            await server.close()
    finally:
        console.stop()
        await daemon.stop()


async def _listen(source: ConsoleSource, options: argparse.Namespace, *, is_open: bool) -> HttpServer:
    """Start the HTTP server of the console, and print its address and token.

    Args:
        source: Source of the data that the console shows.
        options: The options of the command.
        is_open: Whether read-only requests from this machine need no token.

    Raises:
        CommandError: The address cannot be listened on.
    """
    from ..console.pages import ConsolePages
    from ..server.admin.http import LOCAL_NAMES, Router, Token, is_loopback, no_page
    from ..server.net.http import HttpServer

    is_local = is_loopback(options.host)
    token = secrets.token_urlsafe(24)
    pages = ConsolePages(source, Token(token, is_local and is_open))
    names = LOCAL_NAMES | {name.lower() for name in options.names}
    server = HttpServer(Router(pages.routes(), no_page("the console is at /"), names, is_local=is_local).find_route)
    try:
        port = await server.start(options.host, options.port)
    except (OSError, UnicodeError) as error:
        raise cannot_listen_error(format_address(options.host, options.port), error) from None
    print(f"zoolet console on http://{format_address(options.host, port)}/\nzoolet console token {token}", flush=True)
    return server
