"""The logs of a daemon: level and format, lines about sessions, and the audit log.

===========================  ====================================================================================
``zoolet.server``            start and stop, recovery, snapshots, disk errors, requests refused by a limit
``zoolet.server.sessions``   sessions opened, resumed and closed (debug), expired and refused (info)
``zoolet.server.slow``       batches of requests above ``zoolet.slowRequestMs`` (warning)
``zoolet.http``              interrupted requests on the admin port (debug), defects (error)
``zoolet.audit``             with ``audit.enable``: each write, start and stop (info), regardless of the log level
===========================  ====================================================================================
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from ..protocol.hexadecimal import hexadecimal
from ..protocol.messages import file_error_reason, one_line
from ..server.config import ConfigError
from ..server.config.config import AdminSettings
from ..server.core.client_connection import ClientConnection

if TYPE_CHECKING:
    from ..server.net.daemon import Daemon

LEVELS: Final = ("debug", "info", "warning", "error")
AUDIT_BYTES: Final = 10_000_000
"""Size in bytes at which the audit file is rotated."""
AUDIT_FILES: Final = 10
"""Number of rotated audit files that are kept, in addition to the current file."""
_sessions = logging.getLogger("zoolet.server.sessions")
_audit = logging.getLogger("zoolet.audit")


def configure(level: str, form: str) -> None:
    """Log to stderr with a level and a format.

    Args:
        level: One of LEVELS, or a Java log level. All other words mean ``info``.
        form: ``text`` or ``json``.
    """
    handler = logging.StreamHandler(sys.stderr)
    text = _TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    known = {"trace": "debug", "warn": "warning", "fatal": "error"}  # Java log levels that Python lacks
    name = known.get(level, level)
    logging.getLogger("zoolet").setLevel(name.upper() if name in LEVELS else "INFO")


def attach(daemon: Daemon, settings: AdminSettings) -> None:
    """Log the sessions and slow requests of a daemon, and each write if the audit log is enabled.

    Raises:
        ConfigError: The audit file cannot be written.
    """
    daemon.engine.on_session = log_session
    if settings.slow:
        daemon.connections.slow = settings.slow / 1000
    if not settings.audit:
        return
    _audit.setLevel(logging.INFO)  # the audit log does not depend on the level of the other loggers
    from ..server.admin.audit import audit_sessions, audited_table

    if settings.audit_file is not None:
        from logging.handlers import RotatingFileHandler

        class PrivateFileHandler(RotatingFileHandler):
            """A rotating file handler whose files only their owner can read."""

            def _open(self) -> Any:
                def private(path: str, flags: int) -> int:
                    return os.open(path, flags, 0o600)

                return open(self.baseFilename, self.mode, encoding="utf-8", opener=private)

        try:
            file = PrivateFileHandler(settings.audit_file, maxBytes=AUDIT_BYTES, backupCount=AUDIT_FILES)
        except OSError as error:
            raise ConfigError(
                f"zoolet.auditFile: cannot write {settings.audit_file}: {file_error_reason(error)}"
            ) from None
        file.setFormatter(_TextFormatter("%(asctime)s %(levelname)s audit: %(message)s"))
        _audit.addHandler(file)
        _audit.propagate = False
    daemon.engine.wrap_dispatch(lambda table: audited_table(table, _audit.info))
    audit_sessions(daemon.engine, _audit.info)


def audit_server(operation: str, result: str) -> None:
    """Write a line about the start or stop of the server to the audit log, if the audit log is enabled."""
    if _audit.level:
        from ..server.admin.audit import server_line

        _audit.info("%s", server_line(operation, result))


def log_session(event: str, session_id: int, client: ClientConnection | None) -> None:
    """Log an event of a session, such as "expired", and the address of the client, if connected."""
    level = logging.INFO if event in ("expired", "refused") else logging.DEBUG
    if _sessions.isEnabledFor(level):
        where = f"connected from {client.address}" if client is not None else "not connected"
        _sessions.log(level, "session %s %s (%s)", hexadecimal(session_id), event, where)


class _TextFormatter(logging.Formatter):
    """A formatter of log records as text. A record of the audit log may consist of several lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text. Each line of an audit record gets the prefix. Other messages become one line."""
        if record.name != _audit.name and not (message := record.getMessage()).isprintable():
            record.msg, record.args = one_line(message), ()  # names in the message may contain control characters
        text = super().format(record)
        return text.replace("\n", "\n" + text[: text.index(record.message)]) if record.name == _audit.name else text


class _JsonFormatter(logging.Formatter):
    """A formatter of log records as JSON objects. A record of the audit log may consist of several lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a JSON object with time (ISO 8601), level, logger, message, and the traceback of an exception, if any.

        For a record of the audit log, return one object per line.
        """
        import json  # the import takes 3 ms, and most daemons do not need JSON
        from datetime import UTC, datetime

        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.name == _audit.name:
            return "\n".join([json.dumps(line | {"message": each}) for each in line["message"].split("\n")])
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)
