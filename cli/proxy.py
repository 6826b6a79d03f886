"""``zoolet proxy HOSTS``: a proxy in front of a ZooKeeper server, for recordings and faults."""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from ..server.admin.descriptors import raise_limit
from ..server.config import ConfigError
from .event_loop import run_loop
from .options import add_control, add_listener, cannot_write_error
from .usage import add_example, path
from .users_command import Signals, run_endpoint, serve_command

if TYPE_CHECKING:
    from ..testing.proxy import Proxy


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "proxy",
        help="record or disturb the traffic to a ZooKeeper server",
        description="Listen for clients and forward their requests to a ZooKeeper server, until Ctrl-C or until the "
        "command exits. The command finds the address of the proxy in ZOOKEEPER_HOSTS and ZOOLET_HOSTS. Use --record "
        "to save the requests. To inject faults, pass --admin, and run zoolet fault.",
    )
    add_example(parser, "zoolet proxy localhost:2181 --record requests.rec -- pytest")
    parser.add_argument("hosts", metavar="HOSTS", help="servers, as HOST:PORT,HOST:PORT")
    add_listener(parser)
    parser.add_argument("--record", type=path, metavar="FILE", help="save a recording of all requests at exit")
    add_control(parser)
    parser.usage = "zoolet proxy HOSTS [options] [-- CMD ARG...]"
    parser.set_defaults(command=_run_proxy)


def _run_proxy(options: argparse.Namespace, definitions: list[str]) -> int:
    from ..testing.proxy import Proxy
    from ..testing.recording.recording import Recording

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        proxy = Proxy(options.hosts, options.host, options.port)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if options.record:
        try:
            Recording().save(options.record)  # an unwritable file fails now, not at exit
        except OSError as error:
            raise cannot_write_error(options.record, error) from None
    raise_limit()
    return run_loop(_run(proxy, options))


async def _run(proxy: Proxy, options: argparse.Namespace) -> int:
    signals = Signals() if options.words else None
    async with AsyncExitStack() as stack:
        control = await stack.enter_async_context(run_endpoint(proxy, options))
        recording = proxy.recording() if options.record else None
        if recording is not None:
            stack.callback(recording.save, options.record)
            stack.enter_context(recording)
        return await serve_command(options.words, proxy.hosts, control, signals)
