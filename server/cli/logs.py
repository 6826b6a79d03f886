"""The logs of a daemon: their level and form, the lines about sessions, and the audit log.

===========================  ====================================================================================
``zoolet.server``            start and stop, recovery, snapshots, trouble with the disk, refusals by a limit
``zoolet.server.sessions``   sessions opened, resumed and closed (debug), expired and refused (info)
``zoolet.server.slow``       batches of requests above ``zoolet.slowRequestMs`` (warning)
``zoolet.http``              requests on the admin port that end early (debug), defects (error)
``zoolet.audit``             a line for each write, whatever the level is, with ``audit.enable`` (info)
===========================  ====================================================================================
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from zoolet.server.config import ConfigError
from zoolet.server.config.config import AdminSettings
from zoolet.server.core.client_connection import ClientConnection

if TYPE_CHECKING:
    from zoolet.server.net.daemon import Daemon

LEVELS: Final = ("debug", "info", "warning", "error")
AUDIT_BYTES: Final = 10_000_000
"""Bytes of the audit file, after which another one is begun."""
AUDIT_FILES: Final = 10
"""Files of the audit log that are kept, beside the present one."""
_sessions = logging.getLogger("zoolet.server.sessions")
_audit = logging.getLogger("zoolet.audit")


def configure(level: str, form: str) -> None:
    """Log to stderr.

    Args:
        level: One of LEVELS, or a level of Java's; info for any other word.
        form: ``text`` or ``json``.
    """
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_JsonLines() if form == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    known = {"trace": "debug", "warn": "warning", "fatal": "error"}  # the levels of Java's loggers
    name = known.get(level, level)
    logging.getLogger("zoolet").setLevel(name.upper() if name in LEVELS else "INFO")


def attach(daemon: Daemon, settings: AdminSettings) -> None:
    """Log what becomes of the sessions of a daemon, slow requests, and with an audit log each write.

    Raises:
        ConfigError: The file of the audit log cannot be written.
    """
    daemon.engine.on_session = log_session
    if settings.slow:
        daemon.connections.slow = settings.slow / 1000
    if not settings.audit:
        return
    _audit.setLevel(logging.INFO)  # whatever the level of the other lines
    from zoolet.server.admin.audit import audited

    if settings.audit_file is not None:
        from logging.handlers import RotatingFileHandler

        class PrivateFileHandler(RotatingFileHandler):
            """Writes files that only their owner reads."""

            def _open(self) -> Any:
                def private(path: str, flags: int) -> int:
                    return os.open(path, flags, 0o600)

                return open(self.baseFilename, self.mode, encoding="utf-8", opener=private)

        try:
            file = PrivateFileHandler(settings.audit_file, maxBytes=AUDIT_BYTES, backupCount=AUDIT_FILES)
        except OSError as error:
            raise ConfigError(f"zoolet.auditFile: {settings.audit_file}: {error.strerror}.") from None
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s audit: %(message)s"))
        _audit.addHandler(file)
        _audit.propagate = False
    daemon.engine.wrap_dispatch(lambda table: audited(table, _audit.info))


def log_session(what: str, session_id: int, client: ClientConnection | None) -> None:
    """Log what became of a session."""
    level = logging.INFO if what in ("expired", "refused") else logging.DEBUG
    if _sessions.isEnabledFor(level):
        where = f"{client.host}:{client.port}" if client is not None else "no connection"
        _sessions.log(level, "session 0x%x %s: %s", session_id, what, where)


class _JsonLines(logging.Formatter):
    """Log lines as JSON objects."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line: time in ISO form, level, logger, message, and the traceback if there is one."""
        import json  # takes 3 ms to import, which most daemons save
        from datetime import UTC, datetime

        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)
