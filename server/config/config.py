"""The result of a configuration: the arguments of the parts of a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from zoolet.server.core.settings import Settings
from zoolet.server.net.tls_settings import TlsSettings
from zoolet.server.storage.settings import StorageSettings


class UnknownKey(NamedTuple):
    """An unknown key.

    Args:
        name: The key as it was written.
        where: The place where it was written.
        nearest: The known key with the most similar name; None if none is similar.
    """

    name: str
    where: str
    nearest: str | None


@dataclass(slots=True)
class AdminSettings:
    """The ports for operators.

    Args:
        enabled: Listen on the admin port; it is enough to set the port.
        host: The address of the admin port; None for all addresses of the machine.
        port: The admin port; 0 for a free one, None for none.
        hosts: Names by which clients may call the admin port and that for metrics, beside those of this machine.
        prefix: The path of the commands.
        idle_timeout: Milliseconds for which a connection may wait for the next request.
        token: What a request shows that changes something; None to make one.
        metrics: Listen on the port for metrics, too.
        metrics_host: The address of the port for metrics; None for all addresses of the machine.
        metrics_port: The port for metrics; 0 for a free one.
        slow: Milliseconds from which on a batch of requests is logged; 0 for never.
        history: The last transactions that the console shows; 0 for none.
        audit: Write the audit log.
        audit_file: The file of the audit log; None for the log of the process.
    """

    enabled: bool = False
    host: str | None = "127.0.0.1"
    port: int | None = None
    hosts: tuple[str, ...] = ()
    prefix: str = "/commands"
    idle_timeout: int = 30_000
    token: str | None = None
    metrics: bool = False
    metrics_host: str | None = None
    metrics_port: int = 7000
    slow: int = 0
    history: int = 10_000
    audit: bool = False
    audit_file: str | None = None


@dataclass(slots=True)
class Config:
    """The configuration of a daemon. Times are milliseconds, sizes bytes.

    Args:
        host: The address to listen on; None for all addresses of the machine.
        port: The port; 0 for a free one, None for TLS only.
        unix_socket: The path of a unix socket to listen on; None for none.
        max_client_cnxns: The most connections from one address; 0 for no limit.
        max_cnxns: The most connections in total; 0 for no limit.
        backlog: Connections that may wait to be accepted.
        whitelist: The four-letter commands that are answered.
        isro: Answer the command ``isro``, too.
        settings: The settings of the core.
        storage: Where the data is kept, and how.
        secure_host: The address to listen on for TLS; None for all addresses of the machine.
        secure_port: The port for connections over TLS; None for none, 0 for a free one.
        tls: The certificates, and the requirements for clients.
        admin: The ports for operators.
        ignored: Known keys that were set and have no effect, for one warning.
        unknown: Unknown keys that were set, for one warning each.
        file: The text of the zoo.cfg; None without one.
    """

    host: str | None = "127.0.0.1"
    port: int | None = 2181
    unix_socket: str | None = None
    max_client_cnxns: int = 60
    max_cnxns: int = 0
    backlog: int = 128
    whitelist: tuple[str, ...] = ("srvr",)
    isro: bool = False
    settings: Settings = field(default_factory=Settings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    secure_host: str | None = "127.0.0.1"
    secure_port: int | None = None
    tls: TlsSettings = field(default_factory=TlsSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)
    ignored: tuple[str, ...] = ()
    unknown: tuple[UnknownKey, ...] = ()
    file: str | None = None
