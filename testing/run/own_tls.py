"""TLS with a new certificate for each server."""

from __future__ import annotations

import shutil
import ssl
import tempfile
import weakref
from pathlib import Path

from ...server.net import tls
from ...server.net.tls_settings import TlsSettings


def make_tls(owner: object) -> tuple[ssl.SSLContext, str]:
    """Return a TLS context with a new certificate, and the file of the authority that clients must trust.

    The file is deleted when *owner* is garbage-collected.

    Raises:
        ValueError: ``cryptography`` is not installed.
    """
    try:
        from .certificates import Authority
    except ModuleNotFoundError as error:
        raise ValueError(f"tls=True requires {error.name}; install zoolet with the extra 'tls'") from None
    folder = tempfile.mkdtemp(prefix="zoolet-tls-")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    authority = Authority(Path(folder))
    return tls.context(TlsSettings(str(authority.issue("server")))), str(authority.path)
