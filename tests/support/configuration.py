"""Configurations for tests: built from the text of a zoo.cfg, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from zoolet.server.config import ConfigError, ServerConfig, build, parse_properties

LOGIN_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule required"


def build_config(text: str) -> ServerConfig:
    """Build a configuration from the text of a zoo.cfg."""
    return build(parse_properties(text, "zoo.cfg"))


def config_error(text: str) -> str:
    """Return the error message for an invalid zoo.cfg."""
    with pytest.raises(ConfigError) as caught:
        build_config(text)
    return str(caught.value)


def write_jaas_file(folder: Path, section: str = "Server") -> Path:
    """Write a JAAS file with the user bob in one section."""
    path = folder / "jaas.conf"
    path.write_text(f'{section} {{ {LOGIN_MODULE} user_bob="y"; }};\n')
    return path
