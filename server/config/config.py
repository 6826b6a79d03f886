"""The configuration of a server: the settings of each of its parts."""

from __future__ import annotations

from typing import NamedTuple

from ..core.fields import Fields
from ..core.settings import EngineSettings
from ..net.tls_settings import TlsSettings
from ..storage.settings import StorageSettings


class UnknownKey(NamedTuple):
    """A key of zoo.cfg that neither ZooKeeper nor zoolet defines.

    Args:
        name: The key as it was written.
        where: The place where it was written.
        nearest: The known key with the most similar name; None if all others are too different.
    """

    name: str
    where: str
    nearest: str | None


class AdminSettings(Fields):
    """The settings for operators: admin port, metrics port, slow requests, history and audit log.

    Args:
        enabled: Listen on the admin port, even if *port* is not set. Setting *port* alone also enables it.
        host: The address of the admin port; None for all addresses of the machine.
        port: The admin port; 0 picks a free port, None disables it.
        hosts: Host names that clients may use for the admin port and the metrics port, in addition to the names of this
            machine.
        prefix: The path of the commands.
        idle_timeout: Milliseconds that a connection may wait for its next request.
        token: The token that requests must send to change data; None to generate one.
        metrics: Also listen on the metrics port.
        metrics_host: The address of the metrics port; None for all addresses of the machine.
        metrics_port: The metrics port; 0 picks a free port.
        slow: Log each batch of requests that takes at least this many milliseconds; 0 disables it.
        history: Number of transactions that the console keeps; 0 disables the history.
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


class ServerConfig(Fields):
    """The configuration of a daemon. Times are in milliseconds, sizes in bytes.

    Args:
        host: The address to listen on; None for all addresses of the machine.
        port: The port; 0 picks a free port, None for TLS only.
        unix_socket: The path of a Unix socket to listen on; None to use no Unix socket.
        max_client_cnxns: Maximum number of connections from one address; 0 for no limit.
        max_cnxns: Maximum number of connections in total; 0 for no limit.
        backlog: Maximum number of connections that wait to be accepted.
        whitelist: The four-letter commands that are answered.
        isro: Also answer the command ``isro``.
        settings: The settings of the core.
        storage: The settings of the data directory.
        secure_host: The address to listen on for TLS; None for all addresses of the machine.
        secure_port: The port for connections over TLS; 0 picks a free port, None disables TLS.
        tls: The certificates, and the requirements for clients.
        admin: The settings for operators.
        ignored: Known keys without effect. All of them share one warning.
        unknown: Unknown keys. Each gets its own warning.
        file: The text of the zoo.cfg; None if the server was started without one.
    """

    host: str | None = "127.0.0.1"
    port: int | None = 2181
    unix_socket: str | None = None
    max_client_cnxns: int = 60
    max_cnxns: int = 0
    backlog: int = 128
    whitelist: tuple[str, ...] = ("srvr",)
    isro: bool = False
    settings: EngineSettings = EngineSettings()
    storage: StorageSettings = StorageSettings()
    secure_host: str | None = "127.0.0.1"
    secure_port: int | None = None
    tls: TlsSettings = TlsSettings()
    admin: AdminSettings = AdminSettings()
    ignored: tuple[str, ...] = ()
    unknown: tuple[UnknownKey, ...] = ()
    file: str | None = None
