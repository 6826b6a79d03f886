"""``zoolet serve``: the daemon."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from zoolet.event_loop import run_loop
from zoolet.progress import Progress
from zoolet.server.admin.four_letter import WORDS
from zoolet.server.admin.pages import ready
from zoolet.server.app import assemble, recovered_engine
from zoolet.server.cli import logs
from zoolet.server.cli.addresses import shown, why_not
from zoolet.server.cli.admin_ports import AdminPorts, check_installed
from zoolet.server.cli.logs import LEVELS
from zoolet.server.cli.systemd import Systemd
from zoolet.server.config import (
    KEYS,
    Config,
    ConfigError,
    Setting,
    Source,
    build,
    masked,
    parse_definitions,
    read_environment,
    read_file,
)
from zoolet.server.config.messages import suggestion
from zoolet.server.core.compat import BY_NAME
from zoolet.server.net.clock import RealClock
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.gc import GcTuner

if TYPE_CHECKING:  # most servers have no files, and no TLS
    from zoolet.server.console.attach import EngineConsole
    from zoolet.server.net.tls import ServerContext
    from zoolet.server.storage.opening import OpenDirectory
    from zoolet.server.storage.transfer import StateTransfer

_log = logging.getLogger("zoolet.server")
CERTIFICATE_WARNING: Final = 14 * 86_400
"""Seconds before the end of the certificate from which on a start and a reload warn of it."""
OPTIONS: Final = tuple((key.option, key) for key in KEYS if key.option is not None)
"""The options that set a key."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "serve", help="run the daemon", description="Run the daemon. -Dname=value sets a ZooKeeper property."
    )
    parser.add_argument("config", nargs="?", metavar="ZOO_CFG", help="a zoo.cfg")
    for option, key in OPTIONS:
        default = f" (default {key.default})" if key.default else ""
        metavar = option.rpartition("-")[2].upper()
        parser.add_argument(option, dest=key.name, metavar=metavar, help=f"{key.name}: {key.help}{default}")
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="the least level of lines in the log (default info)"
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="format of the log on stderr")
    parser.add_argument(
        "--compat",
        choices=sorted(BY_NAME),
        default="3.9",
        help="the ZooKeeper release to reproduce (default 3.9)",
    )
    parser.set_defaults(command=_serve)


def _serve(options: argparse.Namespace, definitions: list[str]) -> int:
    logs.configure(options.log_level, options.log_format)
    given = {
        key.name: Setting(value, "command line", Source.OPTION)
        for _, key in OPTIONS
        if (value := getattr(options, key.name)) is not None
    }
    if (host := given.get("clientPortAddress")) is not None and not host.value:
        raise ConfigError("command line: --host must be an address or a name, not ''.")
    return serve(options.config, {}, definitions, given, options.compat)


def serve(
    path: str | None,
    variables: Mapping[str, Setting],
    definitions: list[str],
    options: Mapping[str, Setting] | None = None,
    compat: str = "3.9",
) -> int:
    """Run the daemon until it is stopped; return its exit code.

    Args:
        path: The zoo.cfg; None for none.
        variables: Settings of an environment, which the file overrides.
        definitions: The ``-D`` options, which override the file.
        options: Other options, which override all.
        compat: The release to reproduce.

    Raises:
        ConfigError: The configuration is wrong.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a handler, it must not end the daemon
    file = read_file(path) if path is not None else {}
    text = masked(file) if path is not None else None
    given = parse_definitions(definitions, "command line") | dict(options or {})
    config = build(read_environment(os.environ), variables, file, given, compat=compat, file=text)
    check_installed(config.admin)
    return run_loop(_daemon(config))


async def _daemon(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; a second one disconnects clients at once. SIGUSR1 begins read-only mode, SIGUSR2
    ends it, SIGHUP reads the certificates again.
    """
    context = None
    if config.secure_port is not None:
        from zoolet.server.net import tls  # takes 10 ms to import

        try:
            context = tls.context(config.tls)
        except tls.TlsError as error:
            print(f"zoolet: {error}", file=sys.stderr)
            return 2
    if config.storage.data_dir is None:
        return await _serve_until_signal(config, context, None)
    from zoolet.server.storage.opening import OpenDirectory

    data = OpenDirectory(config.storage)
    try:
        return await _serve_until_signal(config, context, data)
    except OSError as error:
        error.filename = error.filename or config.storage.data_dir  # a failed write does not say where
        raise
    finally:
        data.release()


async def _assemble(config: Config, gc_tuner: GcTuner, data: OpenDirectory | None, ports: AdminPorts) -> Daemon:
    """Return the daemon; its data is recovered in a thread, so that the ports can say so meanwhile."""
    clock, rng = RealClock(), SystemRandom()
    if data is None:
        return assemble(config, clock=clock, rng=rng, gc_tuner=gc_tuner)
    with Progress("recovering") as progress:

        def show(what: str, done: int, total: int) -> None:
            ports.starting = f"recovering: {done:,}{f' of {total:,}' if total else ''} {what}"
            progress.show(what, done, total)

        ports.starting = "recovering"
        _stop_at_once(asyncio.get_running_loop())
        work = asyncio.get_running_loop().run_in_executor(None, recovered_engine, config, clock, rng, data, show)
        try:
            recovered = await asyncio.shield(work)
        except asyncio.CancelledError:  # the thread cannot be stopped, and writes
            await asyncio.wait((work,))
            raise
    return assemble(config, clock=clock, rng=rng, gc_tuner=gc_tuner, data=data, recovered=recovered)


def _stop_at_once(loop: asyncio.AbstractEventLoop) -> None:
    """End the process on a signal: what recovers writes nothing that a start does not find as after a crash."""
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, os._exit, 0)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        loop.add_signal_handler(number, lambda: None)


async def _serve_until_signal(config: Config, context: ServerContext | None, data: OpenDirectory | None) -> int:
    with GcTuner() as gc_tuner:
        try:
            async with AdminPorts(config.admin) as ports:
                daemon = await _assemble(config, gc_tuner, data, ports)
                return await _run(daemon, config, context, data, ports)
        except ConfigError as error:  # a port of operators cannot be had
            print(f"zoolet: {error}", file=sys.stderr)
            return 1


async def _run(
    daemon: Daemon, config: Config, context: ServerContext | None, data: OpenDirectory | None, ports: AdminPorts
) -> int:
    stop = asyncio.Event()
    _handle_signals(daemon, config, stop)
    logs.attach(daemon, config.admin)
    lines = await _listen(daemon, config, context)
    if lines is None:
        await daemon.stop(gracefully=False)
        return 1
    if context is not None:
        _watch_certificate(daemon, config)
    for warning in _warnings(config):
        _log.warning("%s", warning)
    if ports.lines:
        daemon.measure()
    console = _console(config, daemon, data, lines) if config.admin.port is not None else None
    ports.serve(daemon.observed, _transfer(config, daemon, data), console.pages if console is not None else None)
    print("\n".join([*lines, *ports.lines]), flush=True)
    with Systemd(os.environ, lambda: status_line(daemon)):
        await stop.wait()
    _log.info("stopping: %d connections, %d sessions", len(daemon.connections.open), len(daemon.engine.sessions.alive))
    ports.end()
    if console is not None:
        console.stop()
    is_logged = await daemon.stop()
    return 0 if is_logged else 1


def _transfer(config: Config, daemon: Daemon, data: OpenDirectory | None) -> StateTransfer | None:
    if config.admin.port is None:
        return None
    from zoolet.server.storage.transfer import StateTransfer

    connections = daemon.connections
    store = data.running if data is not None else None
    return StateTransfer(daemon.engine, store, connections.set_time, connections.deliver)


def _console(config: Config, daemon: Daemon, data: OpenDirectory | None, lines: list[str]) -> EngineConsole:
    from zoolet.server.console.attach import EngineConsole  # takes some ms to import

    name = lines[0].rpartition(" ")[2] if lines else ""
    past = data.past if data is not None else None
    return EngineConsole(daemon, history=config.admin.history, name=name, past=past)


def status_line(daemon: Daemon) -> str:
    """Return how a daemon serves, in one line."""
    reason = ready(daemon.observed)
    engine = daemon.engine
    counts = f"{len(engine.sessions.alive):,} sessions, {daemon.observed.node_count():,} nodes"
    return f"{reason}; {counts}" if reason else f"serving {counts}"


async def _listen(daemon: Daemon, config: Config, context: ServerContext | None) -> list[str] | None:
    """Listen on the ports of a configuration.

    Returns:
        A line for each port; None if one cannot be listened on, which is reported on stderr.
    """
    lines = []
    for kind, host, port in (("on", config.host, config.port), ("for TLS on", config.secure_host, config.secure_port)):
        if port is None:
            continue
        try:
            if kind == "on":
                bound = await daemon.start(host, port)
            else:
                assert context is not None
                bound = await daemon.start_secure(host, port, context)
        except (OSError, UnicodeError) as error:  # the host may not be encodable as a name
            print(f"zoolet: cannot listen on {shown(host or '*', port)}: {why_not(error)}", file=sys.stderr)
            return None
        lines += [f"zoolet ready {kind} {shown(one, bound)}" for one in (host or "0.0.0.0").split(",")]
    if (path := config.unix_socket) is not None:
        try:
            await daemon.start_unix(path)
        except OSError as error:
            print(f"zoolet: cannot listen on unix:{path}: {why_not(error)}", file=sys.stderr)
            return None
        lines.append(f"zoolet ready on unix:{path}")
    return lines


def _watch_certificate(daemon: Daemon, config: Config) -> None:
    """Warn of the end of the certificate now, and look again each day."""
    _warn_of_certificate(daemon, config)
    asyncio.get_running_loop().call_later(86_400, _watch_certificate, daemon, config)


def _warn_of_certificate(daemon: Daemon, config: Config) -> None:
    """Log that the certificate ends soon, or that it is not known when."""
    ends = daemon.observed.certificate_ends
    when = datetime.fromtimestamp(ends, UTC).isoformat(" ", "minutes")
    left = ends - time.time()
    if not ends:
        _log.warning("cannot read when the certificate in %s ends", config.tls.key_store)
    elif left <= 0:
        text = "a certificate in %s has ended, so that no client connects: %s; replace it, and send SIGHUP"
        _log.warning(text, config.tls.key_store, when)
    elif left < CERTIFICATE_WARNING:
        _log.warning("a certificate in %s ends %s; replace it, and send SIGHUP", config.tls.key_store, when)


def _warnings(config: Config) -> Iterator[str]:
    """Yield a line for the keys that are ignored, and one for each key or four-letter command that is unknown."""
    if config.ignored:
        yield f"ignored (not supported): {', '.join(config.ignored)}"
    for key in config.unknown:
        yield f"{key.where}: ignored (unknown): {key.name}{suggestion(key.nearest)}"
    if unknown := sorted({*config.whitelist} - {"*", *WORDS}):
        from difflib import get_close_matches  # it takes 2 ms to import

        for word in unknown:
            near = next(iter(get_close_matches(word, WORDS, 1, 0.7)), None)
            yield f"ignored (no four-letter command): {word} in 4lw.commands.whitelist{suggestion(near)}"


def _handle_signals(daemon: Daemon, config: Config, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        if stop.is_set():
            daemon.abort_all()
        stop.set()

    def reload() -> None:
        """Read the certificates again; if they cannot be used, those in use stay."""
        if config.secure_port is None:
            _log.info("SIGHUP: there are no certificates to read again")
            return
        from zoolet.server.net import tls

        try:
            context = tls.context(config.tls)
        except tls.TlsError as error:
            _log.error("SIGHUP: the certificates stay as they are: %s", error)
        else:
            daemon.use_certificates(context)
            _warn_of_certificate(daemon, config)
            _log.info("SIGHUP: new connections get the certificates just read")

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(signal.SIGHUP, reload)

    def set_read_only(on: bool) -> None:
        daemon.set_read_only(on)
        _log.info("%s: %s", "SIGUSR1" if on else "SIGUSR2", "read-only" if on else "clients can write again")

    loop.add_signal_handler(signal.SIGUSR1, set_read_only, True)
    loop.add_signal_handler(signal.SIGUSR2, set_read_only, False)
