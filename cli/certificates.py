"""The certificates of a daemon with a TLS port: loading, reloading, and warnings before they expire."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Final

from ..server.config import ConfigError
from ..server.net import tls
from ..server.net.daemon import Daemon
from ..server.net.tls_settings import TlsSettings

_log = logging.getLogger("zoolet.server")
WARN_BEFORE_S: Final = 14 * 86_400
"""Seconds before the expiry at which warnings start. They are logged at each start and reload, and once a day."""


def load(settings: TlsSettings) -> tls.ServerContext:
    """Load the certificates.

    Raises:
        ConfigError: The certificates cannot be used.
    """
    try:
        return tls.context(settings)
    except tls.TlsError as error:
        raise ConfigError(str(error)) from None


def reload(settings: TlsSettings, daemon: Daemon) -> None:
    """Reload the certificates. If they cannot be used, log an error and keep the current certificates."""
    try:
        context = tls.context(settings)
    except tls.TlsError as error:
        _log.error("SIGHUP: cannot reload the certificates, keeping the current ones: %s", error)
    else:
        daemon.use_certificates(context)
        _warn_of_expiry(settings, daemon)
        _log.info("SIGHUP: certificates reloaded; new connections use them")


def watch(settings: TlsSettings, daemon: Daemon) -> None:
    """Check the expiry date of the certificate now and once a day, and log a warning if it is near."""
    _warn_of_expiry(settings, daemon)
    asyncio.get_running_loop().call_later(86_400, watch, settings, daemon)


def _warn_of_expiry(settings: TlsSettings, daemon: Daemon) -> None:
    """Log a warning if the certificate has expired or will expire soon, or if its expiry date is unknown."""
    ends = daemon.observed.certificate_ends
    when = datetime.fromtimestamp(ends, UTC).isoformat(" ", "minutes")
    left = ends - time.time()
    if not ends:
        _log.warning("cannot read the expiry date of the certificate in %s", settings.key_store)
    elif left <= 0:
        text = "the certificate in %s expired on %s, so no client can connect; replace it and send SIGHUP"
        _log.warning(text, settings.key_store, when)
    elif left < WARN_BEFORE_S:
        text = "the certificate in %s expires on %s; replace it and send SIGHUP"
        _log.warning(text, settings.key_store, when)
