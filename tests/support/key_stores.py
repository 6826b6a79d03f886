"""Java key stores, made by Java's own tool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.tls_clients import FILES
from support.waiting import DEADLINE_S

from zoolet.server.net.tls import _is_jks

needs_keytool = pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool is missing (default-jre-headless)")


class KeyStores:
    """Key stores made by Java's own tool.

    Args:
        folder: The folder of the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pair("server.jks", "JKS")
        self.pair("server.p12", "PKCS12")
        shutil.copy(folder / "server.p12", folder / "renamed.jks")
        shutil.copy(folder / "server.jks", folder / "two.jks")
        shutil.copy(folder / "server.p12", folder / "two.p12")
        self.pair("two.jks", "JKS", alias="second")
        self.pair("two.p12", "PKCS12", alias="second")
        self.pair("locked.jks", "JKS", "-keypass", "another-password")
        (folder / "cut.jks").write_bytes((folder / "server.jks").read_bytes()[:-40])
        self.tool("-exportcert", "-alias", "server", "-keystore", "server.p12", "-rfc", "-file", "server.pem")
        for name, kind in (("trust.jks", "JKS"), ("trust.p12", "PKCS12")):
            options = ("-keystore", name, "-storetype", kind)
            self.tool("-importcert", "-noprompt", "-alias", "ca", "-file", str(FILES / "ca.pem"), *options)

    def pair(self, name: str, kind: str, *more: str, alias: str = "server") -> None:
        """Create a key store that contains a key with a certificate for 127.0.0.1."""
        what = ("-genkeypair", "-alias", alias, "-keyalg", "EC", "-dname", f"CN={alias}", "-ext", "san=ip:127.0.0.1")
        self.tool(*what, "-keystore", name, "-storetype", kind, *more)

    def tool(self, *options: str) -> None:
        """Run keytool."""
        command = ["keytool", *options, "-storepass", "changeit"]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, timeout=DEADLINE_S)

    def __getitem__(self, name: str) -> str:
        if _is_jks(str(self.folder / name)):
            pytest.importorskip("jks", reason="pyjks is missing: make .venv/.jks, which needs a C compiler")
        return str(self.folder / name)
