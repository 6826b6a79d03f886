"""``zoolet console HOSTS``: the console for any ZooKeeper server, in a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import sys
from typing import TYPE_CHECKING

from zoolet.client.cli.options import DEFAULT_HOSTS, SERVERS, OptionError, add_connection, add_timeout, auth_of, tls_of
from zoolet.event_loop import run_loop
from zoolet.server.cli.addresses import shown
from zoolet.server.cli.command import cannot_listen
from zoolet.server.config import ConfigError

if TYPE_CHECKING:
    from zoolet.client import Client
    from zoolet.server.console.remote_source import RemoteSource


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "console",
        help="a page that shows what is in a server, and who holds which lock",
        description="Serve the console for any ZooKeeper server: a page with its tree, sessions and locks, as far as "
        "its protocol and its four-letter commands tell. What changes something needs the token that is printed.",
    )
    parser.add_argument("hosts", metavar="HOSTS", nargs="?", default=DEFAULT_HOSTS, help=SERVERS)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="the port to listen on (default: a free one)")
    add_connection(parser)
    add_timeout(parser, 10.0, "for connecting, and of the session")
    parser.set_defaults(command=_console)


def _console(options: argparse.Namespace, definitions: list[str]) -> int:
    try:
        import h11  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigError("zoolet console needs h11, the extra 'admin': install it") from None
    from zoolet.client import Client
    from zoolet.client.wire.hosts import Hosts
    from zoolet.protocol.errors import ZooKeeperError
    from zoolet.server.console.remote_source import RemoteSource

    try:
        hosts, tls = Hosts.parse(options.hosts), tls_of(options)
        client = Client(options.hosts, options.timeout, auth=auth_of(options), tls=tls)
    except (ValueError, OptionError) as error:
        raise ConfigError(str(error)) from None
    if not options.host:
        raise ConfigError("console: --host must be an address or a name, not ''")
    logging.getLogger("zoolet").addHandler(logging.NullHandler())
    source = RemoteSource(client, hosts.addresses, tls, min(options.timeout, 5.0))
    try:
        return run_loop(_serve(client, source, options))
    except ZooKeeperError as error:
        print(f"zoolet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


async def _serve(client: Client, source: RemoteSource, options: argparse.Namespace) -> int:
    from zoolet.protocol.errors import ConnectionLossError
    from zoolet.server.admin.http import LOCAL, HttpError, Request, Response, check_browser
    from zoolet.server.admin.pages import MAX_CHANGE
    from zoolet.server.console.pages import ConsolePages
    from zoolet.server.console.remote_source import keep_sampling
    from zoolet.server.net.http import HttpServer, Limits

    is_local = options.host in LOCAL
    # What its credentials may read is not for everybody on this machine.
    is_open = is_local and not options.auth and options.tls_cert is None
    token = secrets.token_urlsafe(24)
    pages = ConsolePages(source, token, is_open=is_open)

    async def answer(request: Request) -> Response:
        check_browser(request, LOCAL, is_local=is_local)
        response = await pages.answer(request, request.path)
        if response is None:
            raise HttpError(404, "there is nothing but the console, at /")
        return response

    client.begin()
    server = HttpServer(answer, Limits(body=MAX_CHANGE))
    sampling = None
    try:
        if reason := await client.first_round():
            raise ConnectionLossError(None, reason)
        await source.sample()
        sampling = asyncio.create_task(keep_sampling(source))
        try:
            port = await server.start(options.host, options.port)
        except (OSError, UnicodeError) as error:
            raise cannot_listen(options.host, options.port, error) from None
        print(f"zoolet console on http://{shown(options.host, port)}/\nzoolet console token {token}", flush=True)
        await sampling
        return 0
    finally:
        if sampling is not None:
            sampling.cancel()
        await server.close()
        await client.aclose()
