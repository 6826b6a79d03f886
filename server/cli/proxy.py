"""``zoolet proxy HOSTS``: a proxy in front of a ZooKeeper, for recordings and faults."""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from zoolet.event_loop import run_loop
from zoolet.server.cli.command import Signals, cannot_listen, control_server, serve_command
from zoolet.server.config import ConfigError

if TYPE_CHECKING:
    from zoolet.server.testing.proxy import Proxy


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "proxy",
        help="stand between clients and a ZooKeeper, and record or disturb what passes",
        description="Listen for clients and pass their requests on to a ZooKeeper, until it is interrupted or, with a "
        "command, until that ends. The command has the proxy's address in ZOOLET_HOSTS and ZOOKEEPER_HOSTS.",
    )
    parser.add_argument("hosts", metavar="HOSTS", help="the servers: host:port joined with commas")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="the port to listen on (default: a free one)")
    parser.add_argument("--record", metavar="FILE", help="save a recording of all requests at the end")
    parser.add_argument(
        "--admin", action="store_true", help="serve the control API; its address is in ZOOLET_ADMIN (extra: admin)"
    )
    parser.add_argument("--admin-port", type=int, help="the port of the control API; it implies --admin")
    parser.usage = "zoolet proxy HOSTS [options] [-- CMD ARG...]"
    parser.set_defaults(command=_proxy)


def _proxy(options: argparse.Namespace, definitions: list[str]) -> int:
    from zoolet.server.testing.proxy import Proxy
    from zoolet.server.testing.recording.recording import Recording

    if definitions:
        raise ConfigError(f"proxy has no settings: {' '.join(definitions)}")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        proxy = Proxy(options.hosts, options.host, options.port)
    except ValueError as error:
        raise ConfigError(f"proxy: {error}") from None
    if options.record:
        Recording().save(options.record)  # so that a file that cannot be written is no surprise at the end
    return run_loop(_run(proxy, options))


async def _run(proxy: Proxy, options: argparse.Namespace) -> int:
    signals = Signals() if options.words else None
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(proxy)
        except OSError as error:
            raise cannot_listen(options.host, options.port, error) from None
        environment = {"ZOOLET_HOSTS": proxy.hosts, "ZOOKEEPER_HOSTS": proxy.hosts}
        if options.admin or options.admin_port is not None:
            control = await stack.enter_async_context(control_server(proxy, options.host, options.admin_port or 0))
            environment["ZOOLET_ADMIN"] = control.url
        recording = proxy.recording() if options.record else None
        if recording is not None:
            stack.callback(recording.save, options.record)
            stack.enter_context(recording)
        return await serve_command(options.words, environment, signals)
