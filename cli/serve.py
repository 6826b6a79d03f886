"""``zoolet serve``: the daemon."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from ..protocol.four_letter_words import WORDS
from ..server.admin.descriptors import raise_limit
from ..server.admin.observed import ready
from ..server.app import assemble, new_engine
from ..server.config import (
    KEYS,
    ConfigError,
    Key,
    ServerConfig,
    Setting,
    SettingSource,
    build,
    masked_lines,
    parse_definitions,
    read_environment,
    read_file,
)
from ..server.config.messages import suggestion
from ..server.core.compat import BY_NAME, NEWEST
from ..server.core.engine import Engine
from ..server.net.clock import RealClock
from ..server.net.daemon import Daemon
from ..server.net.gc import GcTuner
from ..server.net.listening import means_all
from . import logs
from .addresses import format_address
from .event_loop import run_loop
from .logs import LEVELS
from .options import STOP_EXIT_CODES, CommandError, add_definitions, add_sid, cannot_listen_error, listen_host
from .progress import Progress
from .systemd import Systemd
from .usage import add_example, path, pluralize

if TYPE_CHECKING:  # most servers have no files, no TLS and no HTTP, and observe no ensemble
    from ..console.attach import EngineConsole
    from ..server.config.config import AdminSettings
    from ..server.net.leader_link import LeaderLink
    from ..server.net.tls import ServerContext
    from ..server.observer import ObservedEnsemble
    from ..server.storage.opening import OpenDirectory
    from ..server.storage.transfer import StateTransfer
    from .admin_ports import AdminPorts

    _AdminPorts = AbstractAsyncContextManager[AdminPorts | None]

_log = logging.getLogger("zoolet.server")
KEY_OPTIONS: Final = tuple((key.option, key) for key in KEYS if key.option is not None)
"""Pairs of an option and the configuration key that it sets."""


def key_help(key: Key) -> str:
    """Return the help of an option: the first sentence of the key's description, and the key's name and default."""
    sentence = key.help.replace("`", "").partition(". ")[0].removesuffix(".")
    for article in ("The ", "A ", "An "):
        sentence = sentence.removeprefix(article)
    default = f", default {key.default or 'none'}"
    if not key.default and key.default_note:
        default = f"; default: {key.default_note.replace('`', '')}"
    if sentence[1].islower():  # an abbreviation such as PEM keeps its capitals
        sentence = f"{sentence[0].lower()}{sentence[1:]}"
    return f"{sentence} ({key.name}{default})"


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "serve",
        help="run the daemon",
        description="Run the daemon. Without --data-dir, all data is in memory and is lost when the server stops. With "
        "port 0, the daemon picks a free port. Names in parentheses are the keys in zoo.cfg. SIGTERM and Ctrl-C stop "
        "the daemon, and SIGHUP reloads the certificates. Exit codes: 0 after SIGTERM and 130 after Ctrl-C, 1 failure, "
        "2 invalid option or configuration.",
    )
    add_example(parser, "zoolet serve --data-dir /var/lib/zoolet --admin-port 8080")
    parser.usage = "zoolet serve [options] [-Dname=value ...] [ZOO_CFG]"
    parser.add_argument(
        "config",
        nargs="?",
        metavar="ZOO_CFG",
        type=path,
        help="ZooKeeper configuration file (zoo.cfg); options take precedence over it",
    )
    for option, key in KEY_OPTIONS:
        metavar = option.rpartition("-")[2].upper()
        kind = listen_host if option == "--host" else str
        parser.add_argument(option, dest=key.name, type=kind, metavar=metavar, help=key_help(key))
    parser.add_argument(
        "--observe",
        metavar="ADDRESSES",
        help="follow an ensemble as an observer, given the quorum addresses of all members, such as zk1:2888,zk2:2888",
    )
    parser.add_argument(
        "--observe-read-only",
        action="store_true",
        help="reject the writes of clients; required with --observe, because an observer cannot forward them",
    )
    add_sid(parser)
    add_definitions(parser)
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="lowest level of log lines (default info)")
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="format of the log on stderr (default text)"
    )
    parser.add_argument(
        "--compat",
        choices=sorted(BY_NAME),
        default=NEWEST,
        help=f"ZooKeeper release to emulate (default {NEWEST})",
    )
    parser.set_defaults(command=_serve)


def _serve(options: argparse.Namespace, definitions: list[str]) -> int:
    logs.configure(options.log_level, options.log_format)
    given = {
        key.name: Setting(value, "command line", SettingSource.OPTION)
        for _, key in KEY_OPTIONS
        if (value := getattr(options, key.name)) is not None
    }
    ensemble = None
    if options.observe is not None:
        from .observing import parse_ensemble  # most servers observe no ensemble

        ensemble = parse_ensemble(options.observe, options.sid, options.observe_read_only)
    elif options.observe_read_only:
        raise ConfigError("--observe-read-only requires --observe")
    elif options.sid is not None:
        raise ConfigError("--sid requires --observe")
    if (file := options.config) is not None and not os.path.isfile(file):
        if os.path.isdir(file):
            raise ConfigError(f"{file} is a directory, not a zoo.cfg; did you mean --data-dir {file}?")
        if file.isdecimal():
            raise ConfigError(f"cannot read {file}: no such file or directory; did you mean --port {file}?")
    sources = [read_environment(os.environ)]
    return serve(options.config, sources, definitions, given, options.compat, ensemble)


def serve(
    path: str | None,
    sources: Sequence[Mapping[str, Setting]],
    definitions: list[str],
    options: Mapping[str, Setting] | None = None,
    compat: str = NEWEST,
    ensemble: ObservedEnsemble | None = None,
    users: dict[str, str] | None = None,
) -> int:
    """Run the daemon until a signal stops it, and return the exit code.

    Args:
        path: Path of the zoo.cfg, or None to read no file.
        sources: Settings that the file overrides. Later sources override earlier ones.
        definitions: The ``-D`` options, which override the file.
        options: Other options, which override everything else.
        compat: ZooKeeper release to reproduce.
        ensemble: The ensemble to observe, or None for a server with its own data.
        users: The passwords of the SASL users; None to read them from a JAAS file.

    Raises:
        ConfigError: The configuration is invalid.
        OptionError: A package that the configuration requires is not installed.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # otherwise an early SIGHUP would kill the daemon
    file = read_file(path) if path is not None else {}
    text = masked_lines(file) if path is not None else None
    given = parse_definitions(definitions, "command line") | dict(options or {})
    config = build(*sources, file, given, compat=compat, file=text)
    if users is not None:
        config.settings.sasl_users = users
    ports = _admin_ports(config.admin)
    if ensemble is not None and config.storage.data_dir is not None:
        raise ConfigError("an observer keeps its data in memory; remove --data-dir (dataDir), or --observe")
    raise_limit()
    return run_loop(_run_daemon(config, ports, ensemble))


def _admin_ports(settings: AdminSettings) -> _AdminPorts:
    if settings.port is None and not settings.metrics:
        return nullcontext()
    from .admin_ports import AdminPorts  # the import takes 10 ms

    return AdminPorts(settings)


async def _run_daemon(config: ServerConfig, ports: _AdminPorts, ensemble: ObservedEnsemble | None) -> int:
    """Load the certificates and the data directory, serve until SIGTERM or SIGINT, and return the exit code."""
    context = None
    if config.secure_port is not None:
        from . import certificates  # the import takes 10 ms

        context = certificates.load(config.tls)
    if config.storage.data_dir is None:
        return await _serve_until_signal(config, context, None, ports, ensemble)
    from ..server.storage.opening import OpenDirectory

    data = OpenDirectory(config.storage)
    try:
        return await _serve_until_signal(config, context, data, ports, None)
    except OSError as error:
        error.filename = error.filename or config.storage.data_dir  # a failed write has no file name
        raise
    finally:
        data.release()


async def _serve_until_signal(
    config: ServerConfig,
    context: ServerContext | None,
    data: OpenDirectory | None,
    ports: _AdminPorts,
    ensemble: ObservedEnsemble | None,
) -> int:
    with GcTuner() as gc_tuner:
        async with ports as opened:
            service = _Service(config, context, data, opened, ensemble)
            await service.assemble(gc_tuner)
            return await service.run()


class _Service:
    """A daemon with its ports, data and certificates, which runs until a signal.

    Args:
        config: The configuration.
        context: The certificates; None without a TLS port.
        data: The data directory; None to keep all data in memory.
        ports: The open HTTP ports; None if there are none.
        ensemble: The ensemble to observe; None for a server with data of its own.

    Attributes:
        daemon: The daemon, set by :meth:`assemble`.
        link: The link to the leader of the ensemble, set by :meth:`assemble`.
        exit_code: The exit code, set by the first signal.
    """

    def __init__(
        self,
        config: ServerConfig,
        context: ServerContext | None,
        data: OpenDirectory | None,
        ports: AdminPorts | None,
        ensemble: ObservedEnsemble | None,
    ) -> None:
        self.config = config
        self.context = context
        self.data = data
        self.ports = ports
        self.ensemble = ensemble
        self.daemon: Daemon
        self.link: LeaderLink | None = None
        self.exit_code = 0

    async def assemble(self, gc_tuner: GcTuner) -> None:
        """Create the daemon, and recover its data in a thread while the HTTP ports report the progress."""
        clock, rng = RealClock(), SystemRandom()
        if self.ensemble is not None:
            from ..server.observer import assemble_observer

            self.daemon, self.link = assemble_observer(self.ensemble, self.config, clock=clock, gc_tuner=gc_tuner)
            return
        make = partial(new_engine, self.config, clock, rng)
        engine = make() if self.data is None else await self._recover_engine(partial(make, data=self.data))
        self.daemon = assemble(self.config, engine, clock=clock, data=self.data, gc_tuner=gc_tuner)

    async def _recover_engine(self, make: Callable[..., Engine]) -> Engine:
        """Recover the data in a thread, report the progress, and return the engine."""
        with Progress("recovering") as progress:

            def show(what: str, done: int, total: int) -> None:
                self._report_activity(f"recovering: {done:,}{f' of {total:,}' if total else ''} {what}")
                progress.show(what, done, total)

            self._report_activity("recovering")
            loop = asyncio.get_running_loop()
            _exit_on_signals(loop)
            work = loop.run_in_executor(None, partial(make, progress=show))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:  # wait for the thread, which writes files and cannot be stopped
                await asyncio.wait((work,))
                raise

    def _report_activity(self, activity: str) -> None:
        """Set the activity that the HTTP ports report while the server is not ready."""
        if self.ports is not None:
            self.ports.activity = activity

    def handle_signals(self, stop: asyncio.Event) -> None:
        """Set the signal handlers.

        SIGTERM and SIGINT stop the daemon; a second signal disconnects clients immediately. SIGHUP reloads the
        certificates. SIGUSR1 starts read-only mode, SIGUSR2 stops it.
        """
        config, daemon = self.config, self.daemon
        loop = asyncio.get_running_loop()

        def end(code: int) -> None:
            if stop.is_set():
                daemon.abort_all()
            else:
                self.exit_code = code
            stop.set()

        def reload() -> None:
            """Reload the certificates of the TLS port, if there is one."""
            if config.secure_port is None:
                _log.info("SIGHUP: no certificates to reload")
                return
            from . import certificates

            certificates.reload(config.tls, daemon)

        for number, code in STOP_EXIT_CODES.items():
            loop.add_signal_handler(number, end, code)
        loop.add_signal_handler(signal.SIGHUP, reload)

        def set_read_only(on: bool) -> None:
            name, effect = ("SIGUSR1", "started") if on else ("SIGUSR2", "ended")
            if self.link is not None:
                _log.info("ignoring %s: an observer is always read-only", name)
                return
            daemon.set_read_only(on)
            _log.info("%s: read-only mode %s", name, effect)

        loop.add_signal_handler(signal.SIGUSR1, set_read_only, True)
        loop.add_signal_handler(signal.SIGUSR2, set_read_only, False)

    async def listen(self) -> list[str]:
        """Listen on the configured addresses. Return a line to print for each.

        Raises:
            CommandError: An address cannot be listened on.
        """
        config, daemon, lines = self.config, self.daemon, []
        secure = ("for TLS on", config.secure_host, config.secure_port)
        for kind, host, port in (("on", config.host, config.port), secure):
            if port is None:
                continue
            try:
                if kind == "on":
                    # A numeric address is bound without a lookup, which would import codecs.
                    is_number = means_all(host) or str(host).replace(".", "").isdecimal()
                    bound = await daemon.start(host, port, without_waiting=is_number)
                else:
                    assert self.context is not None
                    bound = await daemon.start_secure(host, port, self.context)
            except (OSError, UnicodeError) as error:  # UnicodeError: the host is not a valid name
                raise cannot_listen_error(format_address(host or "0.0.0.0", port), error) from None
            lines += [f"zoolet ready {kind} {format_address(one, bound)}" for one in (host or "0.0.0.0").split(",")]
        if (path := config.unix_socket) is not None:
            try:
                await daemon.start_unix(path)
            except OSError as error:
                raise cannot_listen_error(f"unix:{path}", error) from None
            lines.append(f"zoolet ready on unix:{path}")
        return lines

    async def run(self) -> int:
        """Serve until a signal, and return the exit code.

        Raises:
            CommandError: An address cannot be listened on.
            ConfigError: The ensemble cannot be observed.
        """
        config, daemon = self.config, self.daemon
        stop = asyncio.Event()
        self.handle_signals(stop)
        logs.attach(daemon, config.admin)
        try:
            lines = await self.listen()
        except CommandError:
            logs.audit_server("serverStart", "failure")
            await daemon.stop(gracefully=False)
            raise
        logs.audit_server("serverStart", "success")
        if self.context is not None:
            from . import certificates

            certificates.watch(config.tls, daemon)
        for warning in _config_warnings(config):
            _log.warning("%s", warning)
        console = self._console(lines) if config.admin.port is not None else None
        if self.ports is not None:
            daemon.measure()
            self.ports.serve(daemon.observed, self._transfer(), console.routes if console is not None else None)
            lines += self.ports.lines
        print("\n".join(lines), flush=True)
        problem = ""
        with Systemd(os.environ, lambda: status_line(daemon)):
            if self.link is None:
                await stop.wait()
            else:
                from .observing import follow

                problem = await follow(self.link, stop)
        connections, sessions = len(daemon.connections.open), len(daemon.engine.sessions.alive)
        _log.info("stopping: %s, %s", pluralize(connections, "connection"), pluralize(sessions, "session"))
        logs.audit_server("serverStop", "invoked")
        if self.ports is not None:
            self.ports.end()
        if console is not None:
            console.stop()
        is_logged = await daemon.stop()
        if problem:
            raise ConfigError(problem)
        return self.exit_code if is_logged else 1

    def _transfer(self) -> StateTransfer | None:
        if self.config.admin.port is None or self.link is not None:
            return None
        from ..server.storage.transfer import StateTransfer

        connections = self.daemon.connections
        store = self.data.running if self.data is not None else None
        return StateTransfer(self.daemon.engine, store, connections.set_time, connections.deliver)

    def _console(self, lines: list[str]) -> EngineConsole:
        from ..console.attach import EngineConsole  # most servers have no console

        name = lines[0].rpartition(" ")[2] if lines else ""
        past = self.data.past if self.data is not None else None
        return EngineConsole(self.daemon, history=self.config.admin.history, name=name, past=past)


def _exit_on_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Set signal handlers that end the process immediately: an interrupted recovery is like a crash.

    SIGUSR1 and SIGUSR2 are ignored.
    """
    for number, code in STOP_EXIT_CODES.items():
        loop.add_signal_handler(number, os._exit, code)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        loop.add_signal_handler(number, lambda: None)


def status_line(daemon: Daemon) -> str:
    """Return the status of a daemon in one line: the reason if it is not ready, and the sessions and nodes."""
    reason = ready(daemon.observed)
    engine = daemon.engine
    counts = f"{pluralize(len(engine.sessions.alive), 'session')}, {pluralize(daemon.observed.node_count(), 'node')}"
    return f"{reason}; {counts}" if reason else f"serving {counts}"


def _config_warnings(config: ServerConfig) -> Iterator[str]:
    """Yield one line for all ignored keys, and one line for each unknown key or four-letter command."""
    if config.ignored:
        yield f"ignored (not supported): {', '.join(config.ignored)}"
    for key in config.unknown:
        yield f"{key.where}: ignored (unknown): {key.name}{suggestion(key.nearest)}"
    if unknown := sorted({*config.whitelist} - {"*", *WORDS}):
        from difflib import get_close_matches  # the import takes 2 ms

        for word in unknown:
            near = next(iter(get_close_matches(word, WORDS, 1, 0.7)), None)
            yield f"ignored (not a four-letter command): {word} in 4lw.commands.whitelist{suggestion(near)}"
