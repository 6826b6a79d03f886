"""What a configuration comes to: the values that the parts of a server are made with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from zoolet.server.core.settings import Settings
from zoolet.server.net.tls_settings import TlsSettings


class UnknownKey(NamedTuple):
    """A key that nobody knows.

    Args:
        name: The key as it was written.
        where: The place where it was written.
        nearest: The known key that may have been meant.
    """

    name: str
    where: str
    nearest: str | None


@dataclass(slots=True)
class Config:
    """The configuration of a daemon. Times are milliseconds, sizes bytes.

    Args:
        host: The address to listen on; None for all of the machine's.
        port: The port; 0 for a free one, None to speak TLS only.
        max_client_cnxns: Connections that one address may have; 0 for no limit.
        max_cnxns: Connections in all; 0 for no limit.
        backlog: Connections that may wait to be accepted.
        whitelist: The four-letter commands that are answered.
        isro: Answer the command ``isro`` too; a single server is never read-only by itself.
        settings: The settings of the core.
        secure_host: The address to listen on for TLS; None for all of the machine's.
        secure_port: The port for connections over TLS; None for none, 0 for a free one.
        tls: The certificates, and the demands on clients.
        ignored: Known keys that were set and have no effect, for one warning.
        unknown: Keys that were set and that nobody knows, for a warning each.
    """

    host: str | None = "127.0.0.1"
    port: int | None = 2181
    max_client_cnxns: int = 60
    max_cnxns: int = 0
    backlog: int = 128
    whitelist: tuple[str, ...] = ("srvr",)
    isro: bool = False
    settings: Settings = field(default_factory=Settings)
    secure_host: str | None = "127.0.0.1"
    secure_port: int | None = None
    tls: TlsSettings = field(default_factory=TlsSettings)
    ignored: tuple[str, ...] = ()
    unknown: tuple[UnknownKey, ...] = ()
