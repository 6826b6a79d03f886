"""The start of ``zoolet serve``: it imports only the modules that it needs before it answers.

Importing is nearly all that a start does. Each module that is not needed delays every daemon and every test that starts
one, and a dataclass takes up to 1.5 ms, because it compiles code.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest
from support.waiting import DEADLINE_S

PACKAGES: Final = ("zoolet.protocol", "zoolet.server.config", "zoolet.server.core", "zoolet.server.net")
NEEDED_MODULES: Final = frozenset(
    """
    zoolet zoolet.server zoolet.server.app zoolet.server.admin zoolet.server.admin.descriptors
    zoolet.server.admin.four_letter_commands zoolet.server.admin.observed zoolet.server.storage
    zoolet.server.storage.errors zoolet.server.storage.output zoolet.server.storage.settings
    zoolet.cli zoolet.cli.addresses zoolet.cli.event_loop zoolet.cli.logs zoolet.cli.options zoolet.cli.program
    zoolet.cli.progress zoolet.cli.serve zoolet.cli.stdout zoolet.cli.systemd zoolet.cli.usage
    """.split()
)
"""The modules that a daemon with only a port for clients imports, in addition to PACKAGES."""
DEFERRED_MODULES: Final = frozenset(
    """
    zoolet.protocol.node_json zoolet.protocol.node_spec zoolet.protocol.recipe_names zoolet.protocol.sasl
    zoolet.server.core.sasl zoolet.server.net.certificate zoolet.server.net.http zoolet.server.net.pem
    zoolet.server.net.tls
    dataclasses datetime decimal difflib encodings.idna ipaddress json pathlib shlex shutil tempfile urllib.parse
    """.split()
)
"""Modules that such a daemon does not import, although they are in PACKAGES or used elsewhere."""

pytestmark = pytest.mark.slow  # each test starts a Python process


def imported(*options: str) -> set[str]:
    """Return the modules that a daemon imports until it is ready, without those that Python imports on its own."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "zoolet", "serve", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if "JVMFLAGS" not in name},
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("zoolet ready on ")
        process.terminate()
        _, errors = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    names = [line.rpartition("|")[2].strip() for line in errors.splitlines() if line.startswith("import time:")]
    return set(names[names.index("zoolet") :])


def unneeded_modules(modules: set[str]) -> set[str]:
    """Return the modules that a daemon should not have imported."""
    of_zoolet = {name for name in modules if name.partition(".")[0] == "zoolet"} - NEEDED_MODULES
    return modules & DEFERRED_MODULES | {
        name for name in of_zoolet if not f"{name}.".startswith(tuple(f"{p}." for p in PACKAGES))
    }


def test_daemon_imports_only_what_it_needs() -> None:
    modules = imported()

    assert unneeded_modules(modules) == set()
    assert modules >= {"asyncio", "zoolet.server.core.engine", "zoolet.cli.program"}


def test_daemon_imports_http_only_with_http_port() -> None:
    modules = imported("--admin-port", "0")

    assert unneeded_modules(modules) >= {
        "json",
        "zoolet.cli.admin_ports",
        "zoolet.server.net.http",
        "zoolet.console.attach",
    }


def test_entry_point_imports_few_modules() -> None:
    code = "import sys, zoolet.__main__; print(*(name for name in sys.modules if name.startswith('zoolet')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True)

    assert {*done.stdout.split()} == {"zoolet", "zoolet.__main__", "zoolet.cli", "zoolet.cli.stdout"}
