"""The configuration of a container, from its environment."""

from __future__ import annotations

from zoolet.cli.images import read_settings, with_files
from zoolet.server.config import ServerConfig, build


def configured(**environment: str) -> ServerConfig:
    """Build the configuration for an environment, as ``zoolet container`` does without a mounted zoo.cfg."""
    environment = with_files(environment)
    settings = read_settings(environment)
    config = build(*settings.sources)
    if settings.users is not None:
        config.settings.sasl_users = settings.users
    return config
