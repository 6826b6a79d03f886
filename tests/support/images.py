"""The configuration of a container that has only environment variables."""

from __future__ import annotations

from zoolet.cli.images import expand_file_variables, read_settings
from zoolet.server.config import ServerConfig, build


def build_container_config(**environment: str) -> ServerConfig:
    """Build the configuration for an environment, as ``zoolet container`` does without a mounted zoo.cfg."""
    environment = expand_file_variables(environment)
    settings = read_settings(environment)
    config = build(*settings.sources)
    if settings.users is not None:
        config.settings.sasl_users = settings.users
    return config
