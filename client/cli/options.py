"""Options that several commands have."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zoolet.pem import pem_problem

if TYPE_CHECKING:  # a daemon imports this module for its parser
    import ssl


DEFAULT_HOSTS: Final = "127.0.0.1:2181"
"""The server that a command looks at if none is named; one that copies data has to be given its servers."""
SERVERS: Final = f"HOST:PORT,HOST:PORT of any ZooKeeper servers (default {DEFAULT_HOSTS})"


class OptionError(Exception):
    """Options that are of no use; the message says which, and why."""


def seconds(text: str) -> float:
    """Return a time that an option sets.

    Raises:
        ValueError: It is not a number above 0.
    """
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


def add_timeout(parser: argparse.ArgumentParser, default: float, help: str) -> None:
    """Add ``--timeout``."""
    parser.add_argument(
        "--timeout", type=seconds, default=default, metavar="SECONDS", help=f"{help} (default {default:g})"
    )


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the options of a connection: credentials and TLS."""
    parser.add_argument(
        "--auth",
        action="append",
        default=[],
        metavar="SCHEME:CREDENTIALS",
        help="authenticate first, as in digest:user:password, or @FILE with such lines; may be repeated",
    )
    add_tls(parser)


def add_tls(parser: argparse.ArgumentParser) -> None:
    """Add the options of TLS."""
    parser.add_argument("--tls-ca", metavar="FILE", help="connect over TLS; the certificates of the authority, in PEM")
    parser.add_argument("--tls-cert", metavar="FILE", help="the client's own certificate, in PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, if it is not in the same file")


def tls_of(options: argparse.Namespace) -> ssl.SSLContext | None:
    """Return what the options say of TLS; None for a plain connection.

    Raises:
        OptionError: A file cannot be used.
    """
    if options.tls_ca is None:
        if options.tls_cert is not None:
            raise OptionError("--tls-cert needs --tls-ca")
        return None
    import ssl

    try:
        context = ssl.create_default_context(cafile=options.tls_ca)
        if options.tls_cert is not None:
            context.load_cert_chain(options.tls_cert, options.tls_key)
    except (OSError, ssl.SSLError) as error:
        problem = None if options.tls_cert is None else pem_problem(options.tls_cert, options.tls_key, "--tls-key")
        if not problem and isinstance(error, ssl.SSLError):
            problem = f"{options.tls_ca} has no certificate of an authority in PEM"
        raise OptionError(f"TLS: {problem or f'{options.tls_ca}: {error.strerror or error}'}") from None
    return context


def auth_of(options: argparse.Namespace) -> tuple[tuple[str, bytes], ...]:
    """Return the credentials of ``--auth``, with the lines of files in place of ``@FILE``.

    Raises:
        OptionError: They are not credentials, or a file cannot be read.
    """
    texts: list[str] = []
    for text in options.auth:
        try:
            lines = Path(text[1:]).read_text(encoding="utf-8").splitlines() if text.startswith("@") else [text]
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"--auth {text}: {error}") from None
        texts += [line.strip() for line in lines if line.strip()]
    return tuple(_credentials(text) for text in texts)


def _credentials(text: str) -> tuple[str, bytes]:
    scheme, colon, credentials = text.partition(":")
    if not colon or not scheme or not credentials:
        raise OptionError("--auth has no scheme; it must be SCHEME:CREDENTIALS, such as digest:user:password")
    return scheme, credentials.encode()
