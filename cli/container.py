"""``zoolet container``: the entry point of an image, with the variables of the official, Bitnami and Confluent images.

A compose file or a manifest for one of these images works if you change only its ``image:``. As in the official image,
a mounted zoo.cfg is used unchanged; without one, the variables are used. The server listens on all addresses of the
container. :mod:`zoolet.cli.images` reads the variables.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ..protocol.addresses import host_and_port
from ..server.config import ConfigError, build, read_file
from ..server.net.listening import means_all
from . import logs, serve
from .addresses import cannot_connect_message
from .images import (
    expand_file_variables,
    ineffective_variables,
    java_options,
    read_settings,
    refuse_unknown_variables,
    unknown_variables,
)
from .options import CannotRunError
from .usage import add_example

CONFIG_FILES: Final = ("/conf/zoo.cfg", "/opt/bitnami/zookeeper/conf/zoo.cfg")
"""Paths where the images expect a mounted zoo.cfg."""
START_COMMANDS: Final = (
    "zkServer.sh",
    "/docker-entrypoint.sh",
    "/opt/bitnami/scripts/zookeeper/run.sh",
    "start-foreground",
)
"""Commands that start the server in the other images, so a container runs the daemon for them."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "container",
        help="run the daemon as the entry point of a container",
        description="Run the daemon as the entry point of a container. It is configured by a mounted zoo.cfg, or by "
        "the variables of the official, Bitnami and Confluent images. By default, it listens on port 2181 of all "
        "addresses and stores its data in /data (ZOO_DATA_DIR). 'zoolet container status' checks that it is serving.",
    )
    add_example(parser, "ZOO_TICK_TIME=1000 zoolet container")
    parser.add_argument("given", nargs="*", metavar="COMMAND", help="status, or a command to run instead of the daemon")
    parser.set_defaults(
        command=lambda options, definitions: _run_container(options.given or options.words, definitions)
    )


def command_index(words: Sequence[str]) -> int:
    """Return the index of the user's command among the arguments of ``zoolet``.

    If there is no such command, return the number of arguments.
    """
    place = next((place for place in range(1, len(words)) if not words[place].startswith("-")), len(words))
    if "--" in words[:place]:
        return words.index("--")
    return len(words) if words[place : place + 1] == ["status"] or _is_daemon(words[place:]) else place


def _is_daemon(words: Sequence[str]) -> bool:
    """Return whether the words are empty, or are a command that starts the server in the other images."""
    return not words or os.path.basename(words[0]) in map(os.path.basename, START_COMMANDS)


def _run_container(words: list[str], definitions: list[str]) -> int:
    is_daemon = _is_daemon(words)
    if definitions and not is_daemon:
        raise ConfigError(f"-D is only for the daemon, not for {words[0]!r}")
    if words[:1] == ["status"] and len(words) > 1:
        raise ConfigError(f"'status' accepts no arguments; found {words[1]!r}")
    if words != ["status"] and not is_daemon:
        try:
            os.execvp(words[0], words)
        except OSError as error:
            raise CannotRunError(words[0], error) from None
    environment = expand_file_variables(os.environ)
    if words == ["status"]:
        return _status(environment)
    _refuse_java_env(environment)
    logs.configure(environment.get("ZOO_LOG_LEVEL", "info").lower(), "text")
    if (file := _find_config_file(environment)) is not None:
        refuse_unknown_variables(environment)
        options = java_options(environment)
        if ignored := ineffective_variables(environment, build(options, read_file(file))):
            names = ", ".join(ignored)
            raise ConfigError(f"variables without effect, because {file} is mounted: {names}; set their keys in {file}")
        return serve.serve(file, [options], definitions)
    settings = read_settings(environment)
    for name in unknown_variables(environment):
        print(f"zoolet container: ignored unknown variable {name}", file=sys.stderr)
    return serve.serve(None, settings.sources, definitions, users=settings.users)


def _refuse_java_env(environment: Mapping[str, str]) -> None:
    """Refuse a mounted java.env that sets properties: only the other images have a shell that reads it.

    Raises:
        ConfigError: A mounted java.env sets properties.
    """
    for path in config_files(environment):
        file = Path(path).with_name("java.env")
        if file.is_file() and "-D" in file.read_text(encoding="utf-8", errors="replace"):
            raise ConfigError(f"{file} is not supported; set its options in the environment variable JVMFLAGS")


def _find_config_file(environment: Mapping[str, str]) -> str | None:
    return next((path for path in config_files(environment) if Path(path).is_file()), None)


def config_files(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths to search for a mounted zoo.cfg, in the order of the search."""
    folder = environment.get("ZOO_CONF_DIR")
    return (f"{folder}/zoo.cfg", *CONFIG_FILES) if folder else CONFIG_FILES


def _status(environment: Mapping[str, str]) -> int:
    """Check the server of this container over its plain port, its admin port or its TLS port."""
    words = status_words(environment)
    if words[0].startswith("tls://"):  # without a client certificate, only the connection can be checked
        return _check_tls_port(words[0].removeprefix("tls://"))
    if words[0].startswith("http://"):
        from http.client import HTTPConnection, HTTPException
        from urllib.parse import urlsplit

        from ..client.aio.dial import connection_failure

        url = urlsplit(words[0])
        try:
            connection = HTTPConnection(url.netloc, timeout=5)  # HTTPConnection ignores proxy settings
            connection.request("GET", url.path)
            response = connection.getresponse()
            print(response.read().decode().strip())
        except (OSError, HTTPException) as error:
            print(cannot_connect_message(f"{url.netloc}: {connection_failure(error)}"))
            return 1
        return 0 if response.status == 200 else 1
    command = [sys.executable, "-m", "zoolet", "status", *words]
    return os.spawnv(os.P_WAIT, sys.executable, command)


def _check_tls_port(address: str) -> int:
    import socket

    from ..client.aio.dial import connection_failure

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except OSError as error:
        print(cannot_connect_message(f"{address}: {connection_failure(error)}"))
        return 1
    print(f"{address} accepts connections")
    return 0


def status_words(environment: Mapping[str, str]) -> list[str]:
    """Return the arguments of ``zoolet status`` for the server of this container."""
    if (file := _find_config_file(environment)) is not None:
        config = build(java_options(environment), read_file(file))
    else:
        config = build(*read_settings(environment).sources)
    if config.port is not None:
        return [_reachable_address(config.host, config.port)]
    if config.admin.port is not None:
        return [f"http://{_reachable_address(config.admin.host, config.admin.port)}/readyz"]
    return [f"tls://{_reachable_address(config.secure_host, config.secure_port or 0)}"]


def _reachable_address(host: str | None, port: int) -> str:
    """Return an address to connect to: the first that the server listens on, or loopback if it listens on all."""
    first = (host or "::").split(",")[0]
    return host_and_port("127.0.0.1" if means_all(first) else first, port)
