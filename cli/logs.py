"""The logs of a daemon: level and format, lines about sessions, and the audit log.

===========================  ====================================================================================
``zoolet.server``            start and stop, recovery, snapshots, disk errors, requests refused by a limit
``zoolet.server.sessions``   sessions opened, resumed and closed (debug), expired and refused (info)
``zoolet.server.slow``       batches of requests above ``zoolet.slowRequestMs`` (warning)
``zoolet.http``              interrupted requests on the admin port (debug), defects (error)
``zoolet.audit``             with ``audit.enable``: a line for each write, start and stop, at any log level (info)
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
    """Log to stderr.

    Args:
        level: One of LEVELS or a Java log level. Any other word means info.
        form: ``text`` or ``json``.
    """
    handler = logging.StreamHandler(sys.stderr)
    text = _Lines("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_JsonLines() if form == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    known = {"trace": "debug", "warn": "warning", "fatal": "error"}  # Java log levels
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
            """Writes files that only their owner can read."""

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
        file.setFormatter(_Lines("%(asctime)s %(levelname)s audit: %(message)s"))
        _audit.addHandler(file)
        _audit.propagate = False
    daemon.engine.wrap_dispatch(lambda table: audited_table(table, _audit.info))
    audit_sessions(daemon.engine, _audit.info)


def audit_server(operation: str, result: str) -> None:
    """Write a line about the start or stop of the server to the audit log, if it is enabled."""
    if _audit.level:
        from ..server.admin.audit import server_line

        _audit.info("%s", server_line(operation, result))


def log_session(what: str, session_id: int, client: ClientConnection | None) -> None:
    """Log the event *what* of a session."""
    level = logging.INFO if what in ("expired", "refused") else logging.DEBUG
    if _sessions.isEnabledFor(level):
        where = f"connected from {client.address}" if client is not None else "not connected"
        _sessions.log(level, "session %s %s (%s)", hexadecimal(session_id), what, where)


class _Lines(logging.Formatter):
    """Log lines as text. A record of the audit log may contain several lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted record, or a formatted record for each line of the audit log."""
        if record.name != _audit.name and not (message := record.getMessage()).isprintable():
            record.msg, record.args = one_line(message), ()  # a name in it may contain control characters
        text = super().format(record)
        return text.replace("\n", "\n" + text[: text.index(record.message)]) if record.name == _audit.name else text


class _JsonLines(logging.Formatter):
    """Log lines as JSON objects. A record of the audit log may contain several lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line: time in ISO format, level, logger, message, and the traceback of an exception."""
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
