"""``zoolet container``: the entry point of an image, with the variables of the official, Bitnami and Confluent images.

A compose file or a manifest for one of these images works if you change only its ``image:``. As in the official image,
a mounted zoo.cfg is used unchanged; without one, the variables are used. The server listens on all addresses of the
container.

Source: the entry points of zookeeper:3.9, bitnami/zookeeper and confluentinc/cp-zookeeper.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ..server.config import ConfigError, Setting, read_file
from . import logs, serve
from .addresses import cannot_connect
from .options import CannotRunError
from .usage import add_example

CONFIG_FILES: Final = ("/conf/zoo.cfg", "/opt/bitnami/zookeeper/conf/zoo.cfg")
"""Paths where a zoo.cfg may be mounted."""
COMMANDS: Final = ("zkServer.sh", "/docker-entrypoint.sh", "/opt/bitnami/scripts/zookeeper/run.sh", "start-foreground")
"""Commands that start the server in the other images."""
_PROMETHEUS: Final = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"
_SASL_PROVIDER: Final = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
# fmt: off
OFFICIAL: Final = {
    "ZOO_DATA_DIR": "dataDir", "ZOO_DATA_LOG_DIR": "dataLogDir", "ZOO_TICK_TIME": "tickTime",
    "ZOO_INIT_LIMIT": "initLimit", "ZOO_SYNC_LIMIT": "syncLimit",
    "ZOO_AUTOPURGE_SNAPRETAINCOUNT": "autopurge.snapRetainCount",
    "ZOO_AUTOPURGE_PURGEINTERVAL": "autopurge.purgeInterval", "ZOO_MAX_CLIENT_CNXNS": "maxClientCnxns",
    "ZOO_STANDALONE_ENABLED": "standaloneEnabled", "ZOO_ADMINSERVER_ENABLED": "admin.enableServer",
    "ZOO_4LW_COMMANDS_WHITELIST": "4lw.commands.whitelist", "ZOO_PORT": "clientPort",
}
"""Variables of the official image, and the key that each sets."""
BITNAMI: Final = {
    "ZOO_PORT_NUMBER": "clientPort", "ZOO_MAX_CNXNS": "maxCnxns", "ZOO_MAX_SESSION_TIMEOUT": "maxSessionTimeout",
    "ZOO_AUTOPURGE_INTERVAL": "autopurge.purgeInterval", "ZOO_AUTOPURGE_RETAIN_COUNT": "autopurge.snapRetainCount",
    "ZOO_PRE_ALLOC_SIZE": "preAllocSize", "ZOO_SNAPCOUNT": "snapCount",
    "ZOO_ADMIN_SERVER_ADDRESS": "admin.serverAddress", "ZOO_ADMIN_SERVER_PORT_NUMBER": "admin.serverPort",
    "ZOO_PROMETHEUS_METRICS_PORT_NUMBER": "metricsProvider.httpPort",
    "ZOO_TLS_CLIENT_KEYSTORE_FILE": "ssl.keyStore.location", "ZOO_TLS_CLIENT_KEYSTORE_TYPE": "ssl.keyStore.type",
    "ZOO_TLS_CLIENT_KEYSTORE_PASSWORD": "ssl.keyStore.password",
    "ZOO_TLS_CLIENT_TRUSTSTORE_FILE": "ssl.trustStore.location",
    "ZOO_TLS_CLIENT_TRUSTSTORE_TYPE": "ssl.trustStore.type",
    "ZOO_TLS_CLIENT_TRUSTSTORE_PASSWORD": "ssl.trustStore.password", "ZOO_TLS_CLIENT_AUTH": "ssl.clientAuth",
}
"""Variables of the Bitnami image, and the key that each sets."""
CONFLUENT: Final = {
    "ZOOKEEPER_CLIENT_PORT": "clientPort", "ZOOKEEPER_TICK_TIME": "tickTime", "ZOOKEEPER_INIT_LIMIT": "initLimit",
    "ZOOKEEPER_SYNC_LIMIT": "syncLimit", "ZOOKEEPER_MAX_CLIENT_CNXNS": "maxClientCnxns",
    "ZOOKEEPER_AUTOPURGE_SNAP_RETAIN_COUNT": "autopurge.snapRetainCount",
    "ZOOKEEPER_AUTOPURGE_PURGE_INTERVAL": "autopurge.purgeInterval",
    "ZOOKEEPER_ADMIN_ENABLE_SERVER": "admin.enableServer", "ZOOKEEPER_ADMIN_SERVER_PORT": "admin.serverPort",
}
"""Variables of the Confluent image, and the key that each sets."""
# fmt: on
OTHERS: Final = (
    "ZOO_CONF_DIR",
    "ZOO_LOG_DIR",
    "ZOO_SERVERS",
    "ZOO_MY_ID",
    "ZOO_SERVER_ID",
    "ZOO_ENABLE_ADMIN_SERVER",
    "ZOO_ENABLE_PROMETHEUS_METRICS",
    "ZOO_RECONFIG_ENABLED",
    "ZOO_LISTEN_ALLIPS_ENABLED",
    "ZOO_PEER_TYPE",
    "ZOO_ENABLE_AUTH",
    "ZOO_SERVER_USERS",
    "ZOO_SERVER_PASSWORDS",
    "ZOO_CLIENT_USER",
    "ZOO_CLIENT_PASSWORD",
    "ZOO_TLS_CLIENT_ENABLE",
    "ZOO_TLS_PORT_NUMBER",
    "ZOO_LOG_LEVEL",
    "ZOO_HEAP_SIZE",
    "ZOO_FIPS_MODE",
    "ZOO_HC_TIMEOUT",
    "ZOOKEEPER_SERVER_ID",
    "ZOOKEEPER_SERVERS",
)  # fmt: skip
"""Variables that are handled separately, or that have no meaning for a single server without a JVM."""
ONLY_BITNAMI: Final = ("ALLOW_EMPTY_PASSWORD", "ALLOW_ANONYMOUS_LOGIN", "ZOO_ENABLE_", "ZOO_SERVER_ID", "ZOO_TLS_")
"""Prefixes of variables that only the Bitnami image has."""
DEFAULT: Final = "the default of zoolet container"
YES: Final = frozenset({"yes", "true", "1"})


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "container",
        help="run the daemon as the entry point of a container",
        description="Run the daemon as the entry point of a container. A mounted zoo.cfg configures it, or the "
        "variables of the official, Bitnami and Confluent images. Without them, the daemon listens on port 2181 of "
        "all addresses, and data is in /data unless ZOO_DATA_DIR is set. 'zoolet container status' checks it.",
    )
    add_example(parser, "ZOO_DATA_DIR=/data zoolet container")
    parser.add_argument("given", nargs="*", metavar="WORD", help="status, or a command to run instead of the daemon")
    parser.set_defaults(command=lambda options, definitions: _container(options.given, definitions))


def _container(words: list[str], definitions: list[str]) -> int:
    environment = with_files(os.environ)
    if words == ["status"]:
        return _status(environment)
    if words and os.path.basename(words[0]) not in {os.path.basename(each) for each in COMMANDS}:
        try:
            os.execvp(words[0], words)
        except OSError as error:
            raise CannotRunError(words[0], error) from None
    file = next((path for path in config_files(environment) if Path(path).is_file()), None)
    settings = {} if file is not None else settings_of(environment, jaas_file)
    if file is None:
        for name in unknown_variables(environment):
            print(f"zoolet container: ignored unknown variable {name}", file=sys.stderr)
    logs.configure(environment.get("ZOO_LOG_LEVEL", "info").lower(), "text")
    try:
        return serve.serve(file, settings, definitions)
    finally:
        if (jaas := settings.get("java.security.auth.login.config")) is not None and "ZOO_ENABLE_AUTH" in environment:
            Path(jaas.value).unlink(missing_ok=True)  # the file contains passwords


def config_files(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths where a zoo.cfg may be mounted."""
    folder = environment.get("ZOO_CONF_DIR")
    return (f"{folder}/zoo.cfg", *CONFIG_FILES) if folder else CONFIG_FILES


def with_files(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment, with the content of the file that each variable ``NAME_FILE`` names as ``NAME``.

    Raises:
        ConfigError: A file cannot be read.
    """
    found = dict(environment)
    for name, path in environment.items():
        plain = name.removesuffix("_FILE")
        is_store = name in BITNAMI  # the key store variables already name a file
        if name.startswith("ZOO_") and plain != name and plain not in environment and not is_store:
            try:
                found[plain] = Path(path).read_text(encoding="utf-8").rstrip("\n")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or error
                raise ConfigError(f"{name}: cannot read {path}: {reason}") from None
    return found


def settings_of(environment: Mapping[str, str], write_jaas: Callable[[dict[str, str]], str]) -> dict[str, Setting]:
    """Return the settings by key, from the variables of any of the three images.

    Args:
        environment: The variables.
        write_jaas: Function that writes a JAAS file with users and their passwords, and returns its path.

    Raises:
        ConfigError: The numbers of users and passwords differ.
    """
    folder = "/data"
    if any(name in BITNAMI or name.startswith(ONLY_BITNAMI) for name in environment):
        folder = "/bitnami/zookeeper/data"
    elif any(name in CONFLUENT for name in environment):
        folder = "/var/lib/zookeeper/data"
    words = {"dataDir": folder, "4lw.commands.whitelist": "srvr, ruok, mntr", "admin.serverAddress": "0.0.0.0"}
    if ";" not in environment.get("ZOO_SERVERS", ""):  # in ZOO_SERVERS, a port may follow a semicolon
        words["clientPort"] = "2181"
    settings = {key: Setting(value, DEFAULT) for key, value in words.items()}

    def put(key: str, value: str, name: str) -> None:
        settings[key] = Setting(value, f"environment variable {name}")

    for name, key in (OFFICIAL | BITNAMI | CONFLUENT).items():
        value = environment.get(name, "").strip()
        if value and not value.startswith("tcp://"):  # Kubernetes sets such values for a service of this name
            put(key, value, name)
    for name, value in environment.items():
        if name.startswith("ZOO_CFG_") and name != "ZOO_CFG_EXTRA":
            put(name.removeprefix("ZOO_CFG_").replace("_", "."), value, name)
    for word in environment.get("ZOO_CFG_EXTRA", "").split():
        key, _, value = word.partition("=")
        put(key, value, "ZOO_CFG_EXTRA")
    for name, key, value in (
        ("ZOO_ENABLE_ADMIN_SERVER", "admin.enableServer", "true"),
        ("ZOO_ENABLE_PROMETHEUS_METRICS", "metricsProvider.className", _PROMETHEUS),
        ("ZOO_RECONFIG_ENABLED", "reconfigEnabled", "true"),
    ):
        if environment.get(name, "").lower() in YES:
            put(key, value, name)
    _put_servers(environment, put)
    _put_tls(environment, settings, put)
    if environment.get("ZOO_ENABLE_AUTH", "").lower() in YES:
        put("authProvider.1", _SASL_PROVIDER, "ZOO_ENABLE_AUTH")
        put("sessionRequireClientSASLAuth", "true", "ZOO_ENABLE_AUTH")
        put("java.security.auth.login.config", write_jaas(users_of(environment)), "ZOO_SERVER_USERS")
    return settings


def _put_tls(
    environment: Mapping[str, str], settings: dict[str, Setting], put: Callable[[str, str, str], None]
) -> None:
    """Set the TLS port instead of the plain port. The health check then uses the admin port."""
    if environment.get("ZOO_TLS_CLIENT_ENABLE", "").lower() in YES:
        put("secureClientPort", environment.get("ZOO_TLS_PORT_NUMBER", "3181"), "ZOO_TLS_PORT_NUMBER")
        settings.pop("clientPort", None)
        settings.setdefault("admin.serverPort", Setting("8080", DEFAULT))
        if settings["admin.serverAddress"].where == DEFAULT:
            put("admin.serverAddress", "127.0.0.1", "ZOO_TLS_CLIENT_ENABLE")  # the health check needs only this address
    else:
        for key in [key for key in settings if key.startswith("ssl.")]:
            del settings[key]


def _put_servers(environment: Mapping[str, str], put: Callable[[str, str, str], None]) -> None:
    """Set the line of each server. The official image has complete lines, the Bitnami image only addresses."""
    for number, word in enumerate(re.split(r"[ ,]+", environment.get("ZOO_SERVERS", "").strip()), 1):
        if word.startswith("server."):
            key, _, value = word.partition("=")
            put(key, value, "ZOO_SERVERS")
        elif word:
            put(f"server.{number}", word.partition("::")[0], "ZOO_SERVERS")


def users_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the password of each SASL user.

    Raises:
        ConfigError: The environment contains no users, or the numbers of users and passwords differ.
    """
    users = re.split(r"[;, ]", environment.get("ZOO_SERVER_USERS", ""))
    passwords = re.split(r"[;, ]", environment.get("ZOO_SERVER_PASSWORDS", ""))
    if users == [""] or len(users) != len(passwords):
        raise ConfigError("ZOO_ENABLE_AUTH requires ZOO_SERVER_USERS and one of ZOO_SERVER_PASSWORDS for each of them")
    return dict(zip(users, passwords, strict=True))


def jaas_file(users: dict[str, str]) -> str:
    """Write a JAAS file that only this user can read; return its path."""
    import tempfile

    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    escaped = {user: re.sub(r'(["\\])', r"\\\1", password) for user, password in users.items()}
    lines = "".join(f'\n  user_{user}="{password}"' for user, password in escaped.items())
    descriptor, path = tempfile.mkstemp(prefix="zoolet-jaas-")
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(f"Server {{\n  {module}{lines};\n}};\n")
    return path


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the variables with a prefix of the three images that zoolet does not know."""
    known = {*OFFICIAL, *BITNAMI, *CONFLUENT, *OTHERS}
    # Kubernetes sets such variables for a service with the name zoo or zookeeper.
    of_kubernetes = re.compile(r"(ZOO|ZOOKEEPER)_(SERVICE_|PORT$|PORT_\d)")
    names = [name for name in environment if name.startswith(("ZOO_", "ZOOKEEPER_")) and not of_kubernetes.match(name)]
    names = [name for name in names if not name.startswith("ZOO_CFG_")]
    return sorted(name for name in names if name not in known and name.removesuffix("_FILE") not in known)


def _status(environment: Mapping[str, str]) -> int:
    """Check the server of this container over its plain port, or over its admin port if it has no plain port."""
    words = status_words(environment)
    if words[0].startswith("http://"):
        from http.client import HTTPConnection, HTTPException
        from urllib.parse import urlsplit

        from ..client.aio.dial import reason_of

        url = urlsplit(words[0])
        try:
            connection = HTTPConnection(url.netloc, timeout=5)  # HTTPConnection ignores proxy settings
            connection.request("GET", url.path)
            response = connection.getresponse()
            print(response.read().decode().strip())
        except (OSError, HTTPException) as error:
            print(cannot_connect(f"{url.netloc}: {reason_of(error)}"))
            return 1
        return 0 if response.status == 200 else 1
    command = [sys.executable, "-m", "zoolet", "status", *words]
    return os.spawnv(os.P_WAIT, sys.executable, command)


def status_words(environment: Mapping[str, str]) -> list[str]:
    """Return the arguments of ``zoolet status`` for the server of this container."""
    file = next((path for path in config_files(environment) if Path(path).is_file()), None)
    settings = settings_of(environment, lambda users: "") if file is None else read_file(file)
    if (plain := settings.get("clientPort")) is not None:
        return [f"127.0.0.1:{plain.value}"]
    if (admin := settings.get("admin.serverPort")) is not None:
        return [f"http://127.0.0.1:{admin.value}/readyz"]
    return ["127.0.0.1:2181"]
