"""A hook of mkdocs that makes the package available to mkdocstrings. It is registered in mkdocs.yml.

The package ``zoolet`` is the repository's root, but mkdocstrings looks for a folder of that name. mkdocstrings
does not follow links to folders, so it gets a copy, which is removed at the end of the build.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority

ROOT: Final = Path(__file__).parents[2]
SUBPACKAGES: Final = ("protocol", "server", "client", "console", "testing", "cli")

_folder = tempfile.TemporaryDirectory(prefix="zoolet-docs-")


@event_priority(100)  # before mkdocstrings reads its settings
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Copy the package, and add the folder with the copy to the settings."""
    package = Path(_folder.name) / "zoolet"
    shutil.rmtree(package, ignore_errors=True)  # the copy of the previous build, under `mkdocs serve`
    package.mkdir()
    for module in ROOT.glob("*.py"):
        shutil.copy(module, package)
    for part in SUBPACKAGES:
        shutil.copytree(ROOT / part, package / part, ignore=shutil.ignore_patterns("__pycache__"))
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [_folder.name]
    return config


def on_shutdown() -> None:
    """Remove the copy."""
    _folder.cleanup()
