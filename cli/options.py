"""Options, clients and errors that several commands share."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from ..protocol.enums import MAX_FRAME
from ..protocol.messages import file_error_reason
from .addresses import cannot_connect_message, listen_error_reason
from .usage import path, whole_number

if TYPE_CHECKING:  # a daemon imports this module for its parser
    import ssl

    from ..client.client import Client
    from ..client.wire.hosts import Hosts

DEFAULT_HOSTS: Final = "127.0.0.1:2181"
"""The server that a command queries by default. Commands that copy data have no default."""
SERVERS_HELP: Final = f"servers, as HOST:PORT,HOST:PORT (default {DEFAULT_HOSTS})"
PORT: Final = whole_number(0, 65535)
"""The argparse type of options that set a port."""
TIMEOUT_HELP: Final = "session timeout, and connection timeout"
"""Help of ``--timeout`` for commands with a session."""
INTERRUPTED_EXIT_CODE: Final = 130
"""Exit code after Ctrl-C."""
WRONG_PATH_ERRORS: Final = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
"""Errors that count as wrong usage if they concern a file on the command line."""
WRITABLE_SECONDS: Final = 2.0
"""Maximum number of seconds to search for a server that accepts writes while a read-only server is in use."""
STOP_EXIT_CODES: Final = {signal.SIGTERM: 0, signal.SIGINT: INTERRUPTED_EXIT_CODE}
"""Exit codes of a server, by the signal that stopped the server."""


class CommandError(Exception):
    """A command failed. The message describes the problem and its location."""


class OptionError(Exception):
    """An option cannot be used. The message contains the option and the reason."""


class CannotRunError(Exception):
    """The user's command cannot be run.

    Args:
        command: The command.
        error: The reason.

    Attributes:
        code: Exit code, as in a shell: 127 if the command does not exist, otherwise 126.
    """

    def __init__(self, command: str, error: OSError) -> None:
        super().__init__(f"cannot run {command}: {file_error_reason(error)}")
        self.code = 127 if isinstance(error, FileNotFoundError) else 126


def cannot_write_error(path: object, error: OSError) -> Exception:
    """Return the error for an output file that cannot be written: wrong usage if its path is wrong."""
    kind = OptionError if isinstance(error, WRONG_PATH_ERRORS) else CommandError
    return kind(f"cannot write {path}: {file_error_reason(error)}")


def cannot_listen_error(where: str, error: Exception) -> CommandError:
    """Return the error for a failed attempt to listen on *where*."""
    return CommandError(f"cannot listen on {where}: {listen_error_reason(error)}")


def require_h11(feature: str) -> None:
    """Check that h11, which *feature* requires, is installed.

    Raises:
        OptionError: h11 is missing.
    """
    try:
        import h11  # noqa: F401
    except ModuleNotFoundError:
        raise OptionError(f"{feature} requires h11; install zoolet with the extra 'admin'") from None


def add_definitions(
    parser: argparse.ArgumentParser,
    form: str = "name=value",
    help: str = "set a ZooKeeper property, such as -DtickTime=1000; repeatable",
) -> None:
    """Add ``-D`` to the help. :func:`zoolet.cli.program.main` removes these options before parsing."""
    parser.add_argument(f"-D{form}", action="store_true", dest="_", help=help)


def seconds(text: str) -> float:
    """Convert the text of an option to a number of seconds.

    Raises:
        ArgumentTypeError: *text* is not a number above 0 and below 1,000,000.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"must be more than 0 and less than 1,000,000 seconds, not {text!r}")
    return value


def add_timeout(parser: argparse.ArgumentParser, default: float, help: str) -> None:
    """Add ``--timeout``, in seconds."""
    parser.add_argument(
        "--timeout", type=seconds, default=default, metavar="SECONDS", help=f"{help} (default {default:g})"
    )


def listen_host(text: str) -> str:
    """Check the addresses or names to listen on in the text of an option, and return them.

    Raises:
        ArgumentTypeError: An address is empty or contains a port.
    """
    for host in map(str.strip, text.split(",")):
        name = host[1:-1] if host[:1] + host[-1:] == "[]" else host
        if not name or "[" in name or "]" in name or name.count(":") == 1:
            raise argparse.ArgumentTypeError(f"must be an address or a name without a port, not {text!r}")
    return text


def single_host(text: str) -> str:
    """Return the address or name to listen on in the text of an option, without brackets.

    Raises:
        ArgumentTypeError: *text* contains several addresses, an empty one or a port.
    """
    if "," in text:
        raise argparse.ArgumentTypeError(f"must be a single address or name, not {text!r}")
    return listen_host(text).strip().strip("[]")


def add_listener(parser: argparse.ArgumentParser) -> None:
    """Add ``--host`` and ``--port``, the address to listen on."""
    parser.add_argument(
        "--host", type=single_host, default="127.0.0.1", help="address to listen on (default 127.0.0.1)"
    )
    parser.add_argument("--port", type=PORT, default=0, help="port to listen on (default: any free port)")


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """Add the argument DIR and the option ``--log-dir`` for a data directory."""
    parser.add_argument("directory", type=path, metavar="DIR", help="data directory, with or without version-2")
    parser.add_argument("--log-dir", type=path, metavar="DIR", help="transaction log directory, if different from DIR")


def add_sid(parser: argparse.ArgumentParser) -> None:
    """Add ``--sid``, the server id of an observer."""
    parser.add_argument(
        "--sid",
        type=whole_number(),
        metavar="N",
        help="server id of the observer, from 1 to 127 and different from the ids of all members (default 100)",
    )


def add_control(parser: argparse.ArgumentParser) -> None:
    """Add the options of the control API."""
    parser.add_argument(
        "--admin",
        action="store_true",
        help="serve the control API (requires the extra admin), and set ZOOLET_ADMIN to its URL",
    )
    parser.add_argument("--admin-port", type=PORT, metavar="PORT", help="port of the control API; implies --admin")


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add ``--auth`` and the TLS options of a connection."""
    parser.add_argument(
        "--auth",
        action="append",
        default=[],
        metavar="SCHEME:CREDENTIALS",
        help="credentials, such as digest:user:password, or @FILE with one per line; repeatable",
    )
    add_tls(parser)


def add_max_request(parser: argparse.ArgumentParser) -> None:
    """Add ``--max-request``."""
    parser.add_argument(
        "--max-request",
        type=whole_number(100, (1 << 31) - 1),
        metavar="BYTES",
        help="maximum size of a request in bytes, for servers with a higher jute.maxbuffer (default: "
        f"-Djute.maxbuffer in CLIENT_JVMFLAGS, or {MAX_FRAME})",
    )


def read_max_request(options: argparse.Namespace) -> int:
    """Return the maximum size of a request in bytes that the options or the environment set.

    Raises:
        OptionError: CLIENT_JVMFLAGS contains an invalid size.
    """
    *_, size = str(MAX_FRAME), *re.findall(r"-Djute\.maxbuffer=(\S*)", os.environ.get("CLIENT_JVMFLAGS", ""))
    try:
        return getattr(options, "max_request", None) or max(100, int(size, 0))
    except ValueError:
        raise OptionError(f"CLIENT_JVMFLAGS: jute.maxbuffer must be a number of bytes, not {size!r}") from None


def add_tls(parser: argparse.ArgumentParser) -> None:
    """Add the options of TLS."""
    parser.add_argument("--tls-ca", type=path, metavar="FILE", help="connect over TLS; trusted certificates in PEM")
    parser.add_argument("--tls-cert", type=path, metavar="FILE", help="client certificate in PEM (requires --tls-ca)")
    parser.add_argument(
        "--tls-key",
        type=path,
        metavar="FILE",
        help="private key in PEM, unless the file of --tls-cert contains it (requires --tls-cert)",
    )


def make_tls_context(options: argparse.Namespace) -> ssl.SSLContext | None:
    """Return the TLS context that the options describe, or None for a plain connection.

    Raises:
        OptionError: An option is set without the option that it requires, or a file cannot be used.
    """
    for given, required in (("cert", "ca"), ("key", "cert")):
        if getattr(options, f"tls_{given}") is not None and getattr(options, f"tls_{required}") is None:
            raise OptionError(f"--tls-{given} requires --tls-{required}")
    if options.tls_ca is None:
        return None
    import ssl

    from ..server.net.pem import pem_problem

    try:
        context = ssl.create_default_context(cafile=options.tls_ca)
    except ssl.SSLError:
        raise OptionError(f"cannot use --tls-ca {options.tls_ca}: no certificate in PEM format") from None
    except OSError as error:
        raise OptionError(f"cannot read --tls-ca {options.tls_ca}: {file_error_reason(error)}") from None
    if options.tls_cert is None:
        return context
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    except OSError as error:
        problem = pem_problem(options.tls_cert, options.tls_key, "--tls-key") or file_error_reason(error)
        raise OptionError(f"cannot use --tls-cert {options.tls_cert}: {problem}") from None
    return context


def parse_auth(options: argparse.Namespace) -> tuple[tuple[str, bytes], ...]:
    """Return the credentials of ``--auth``, with the lines of files in place of ``@FILE``.

    Raises:
        OptionError: A value has no scheme or no credentials, or a file cannot be read.
    """
    texts: list[tuple[str, str]] = []
    for text in options.auth:
        try:
            texts += _read_auth_lines(text[1:]) if text.startswith("@") else [("--auth", text.strip())]
        except UnicodeDecodeError:
            raise OptionError(f"cannot read --auth {text}: not valid UTF-8 text") from None
        except OSError as error:
            raise OptionError(f"cannot read --auth {text}: {file_error_reason(error)}") from None
    return tuple(_parse_credentials(where, text) for where, text in texts)


def _read_auth_lines(file: str) -> list[tuple[str, str]]:
    """Return each line of a file that is not blank, preceded by its place for error messages."""
    with open(file, encoding="utf-8-sig") as stream:
        lines = enumerate(stream.read().splitlines(), 1)
        return [(f"--auth @{file}, line {number}", line.strip()) for number, line in lines if line.strip()]


def _parse_credentials(where: str, text: str) -> tuple[str, bytes]:
    scheme, _, credentials = text.partition(":")
    if not scheme or not credentials:  # the text may be a password, so it must not be in the message
        raise OptionError(f"{where} must be SCHEME:CREDENTIALS, such as digest:user:password")
    return scheme, credentials.encode()


def parse_servers(
    where: str, options: argparse.Namespace, *, with_path: bool = True
) -> tuple[Hosts, ssl.SSLContext | None]:
    """Return the servers of a connect string, and the TLS context that the options describe.

    Raises:
        OptionError: The connect string or an option is invalid, or a file cannot be read.
    """
    from ..client.wire.hosts import Hosts

    try:
        hosts = Hosts.parse(where)
    except ValueError as error:
        raise OptionError(str(error)) from None
    if hosts.chroot and not with_path:
        raise OptionError(f"HOSTS must not contain a path; remove {hosts.chroot!r}")
    return hosts, make_tls_context(options)


def make_client(
    servers: str,
    tls: ssl.SSLContext | None,
    options: argparse.Namespace,
    operation_timeout: float | None = None,
    *,
    read_only: bool = False,
) -> Client:
    """Return a client with the timeout, credentials and maximum request size of the options.

    Args:
        servers: The servers, as HOST:PORT,HOST:PORT.
        tls: The TLS context; None for plain connections.
        options: The options of the command.
        operation_timeout: Time limit for an operation in seconds; None for the default of the client.
        read_only: Whether to accept a read-only server, because the command only reads.

    Raises:
        OptionError: An option is invalid, or a file cannot be read.
    """
    from ..client.client import Client

    auth, size = parse_auth(options), read_max_request(options)
    try:
        return Client(
            servers,
            options.timeout,
            operation_timeout=operation_timeout,
            auth=auth,
            tls=tls,
            max_request=size,
            read_only=read_only,
        )
    except ValueError as error:
        raise OptionError(str(error)) from None


async def is_read_only(client: Client, servers: str) -> bool:
    """Return whether a connected client must use a read-only server, whose data may be old.

    If there are several servers, first wait briefly for the client to find one that accepts writes.
    """
    from ..client.wire.states import State
    from ..protocol.errors import ZooKeeperError

    if client.state is State.READ_ONLY and "," in servers:
        with suppress(TimeoutError, ZooKeeperError):  # the next request raises the error of a closed client
            async with asyncio.timeout(WRITABLE_SECONDS):
                await client.wait_for(State.CONNECTED)
    return client.state is State.READ_ONLY


async def report_read_only(client: Client, command: str, servers: str) -> None:
    """Warn on stderr that the data may be old if a client must use a read-only server."""
    from ..client.wire.diagnosis import OLD_DATA_WARNING

    if await is_read_only(client, servers):
        print(f"zoolet {command}: {servers}: {OLD_DATA_WARNING}", file=sys.stderr)


@asynccontextmanager
async def connected_client(client: Client, command: str, servers: str) -> AsyncIterator[None]:
    """Connect a client for the block, and close it afterwards. Warn on stderr if the server is read-only.

    Raises:
        ConnectionLossError: All servers were tried once, and none was reached.
    """
    from ..protocol.errors import ConnectionLossError

    logging.getLogger("zoolet").addHandler(logging.NullHandler())  # the command itself reports failures
    await client.start(wait=False)
    try:
        if reason := await client.first_round():
            raise ConnectionLossError(None, cannot_connect_message(reason))
        await report_read_only(client, command, servers)
        yield
    finally:
        await client.aclose()
