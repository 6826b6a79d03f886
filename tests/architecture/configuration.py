"""Write docs/configuration.md from the table of keys: ``make docs``."""

from __future__ import annotations

import re
from pathlib import Path

from zoolet.server.config import KEYS, NO_EFFECT, Config
from zoolet.server.core.settings import Settings
from zoolet.server.net.tls_settings import TlsSettings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


SAID_HERE = {
    "host": "The address or name to listen on; with a port in the file and no address: all of the machine's.",
    "schemes": "With `enforce.auth.enabled`: the schemes of which a client must have proved one.",
    "enforced": "Let a client do nothing until it has proved who it is.",
    "settings.require_auth": "The same as `enforce.auth.schemes=sasl`.",
    "settings.min_session_timeout": "The shortest session timeout; -1 is twice `tickTime`.",
    "settings.max_session_timeout": "The longest session timeout; -1 is twenty times `tickTime`.",
    "jaas": "A JAAS file; its section `Server` names the users of SASL DIGEST-MD5.",
    "jaas_section": "The section of the JAAS file; `Server` by default.",
    "tls.client_auth": "Whether clients have to show a certificate: `need` (with a trust store the default), `want` or `none`.",
    "tls.key": "A PEM file with the key, where it is not in the key store's file. (Not in ZooKeeper.)",
    "port": "The port; 0 for a free one. Without it only TLS is spoken, if `secureClientPort` is set.",
    "secure_port": "A port for connections over TLS; 0 for a free one.",
    "settings.max_frame": "The longest request; a longer one closes its connection.",
}


def meaning(target: str) -> str:
    """Return what a field's docstring says of it."""
    group, _, field = target.rpartition(".")
    cls, name = {"settings": Settings, "tls": TlsSettings, "": Config}[group], field
    found = re.search(rf"^ *{name}: (.*?)(?=\n *\w+: |\n\n|\n *$|\Z)", cls.__doc__ or "", re.DOTALL | re.MULTILINE)
    return SAID_HERE.get(target) or (re.sub(r"\s+", " ", found[1]).replace("``", "`") if found else "")


def page() -> str:
    """Return the text of the page."""
    lines = [
        "# Configuration",
        "",
        "*Made by `make docs` from the table in `server/config.py`; do not edit.*",
        "",
        "A key may stand in zoo.cfg as it is or behind `zookeeper.`, and as `-DKEY=VALUE` or `-Dzookeeper.KEY=VALUE` on the command",
        "line or in `SERVER_JVMFLAGS` and `JVMFLAGS`. Times are milliseconds, sizes bytes. Of a key that nobody knows the daemon warns, and",
        "names the nearest one; `Server(config=...)` raises. What means security is obeyed or refused, with exit code 2; see",
        "[security](security.md).",
        "",
        "| Key | Meaning |",
        "|---|---|",
    ]
    lines += [f"| `{name}` | {meaning(key.target)} |" for name, key in KEYS.items()]
    lines += ["", "Known, and without effect here: " + ", ".join(f"`{name}`" for name in sorted(NO_EFFECT)) + ".", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
