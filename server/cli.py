"""The ``zoolet`` command.

Exit codes: 0 fine, 1 the thing asked for failed, 2 wrong usage. An error is one line on stderr that says what and
where.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from zoolet.server.app import assemble
from zoolet.server.config import Config, ConfigError, Setting, build, parse_definitions, read_environment, read_file
from zoolet.server.core.compat import BY_NAME
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.gc import GcTuner

_log = logging.getLogger("zoolet.server")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the result is its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = len(given)  # where a command of the user's begins, whose words are its own
    if given[:1] == ["run"]:
        end = next((at for at, word in enumerate(given) if at and not word.startswith("-D")), end)
    definitions = [argument for argument in given[:end] if argument.startswith("-D")]
    kept = [argument for argument in given[:end] if argument not in definitions]
    options = _parser().parse_args([*kept, *given[end:]])
    try:
        return int(options.command(options, definitions))
    except ConfigError as error:
        print(f"zoolet: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"zoolet: {error.strerror or error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="zoolet", description="A ZooKeeper-compatible coordination server.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve", help="run the daemon", description="Run the daemon. -Dname=value sets a ZooKeeper property."
    )
    serve.add_argument("config", nargs="?", metavar="ZOO_CFG", help="a zoo.cfg")
    serve.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=_port, help="port to listen on (default 2181; 0 takes a free one)")
    serve.add_argument("--secure-port", type=_port, help="port for connections over TLS (0 takes a free one)")
    serve.add_argument("--tls-cert", metavar="PEM", help="the server's certificate, and its key unless --tls-key")
    serve.add_argument("--tls-key", metavar="PEM", help="the key of the certificate")
    serve.add_argument("--tls-ca", metavar="PEM", help="authorities whose certificates clients must show")
    serve.add_argument("--log-format", choices=("text", "json"), default="text", help="how log lines look on stderr")
    serve.add_argument(
        "--compat", choices=sorted(BY_NAME), default="3.9", help="which ZooKeeper to answer like (default 3.9)"
    )
    serve.set_defaults(command=_serve)
    run_it = commands.add_parser(
        "run",
        help="run a command with a server of its own",
        description="Run a command with a server on a free port, which ZOOLET_HOSTS and ZOOKEEPER_HOSTS name. "
        "Signals are handed on, and the exit code is the command's.",
    )
    run_it.add_argument("words", nargs=argparse.REMAINDER, metavar="-- CMD ARG...", help="the command")
    run_it.set_defaults(command=_run)
    return parser


class _Version(argparse.Action):
    """Print the version; what knows it takes 20 ms to import, so nothing else does."""

    def __call__(self, parser: argparse.ArgumentParser, *ignored: object) -> None:
        from importlib.metadata import version

        print(f"zoolet {version('zoolet')}")
        parser.exit()


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: it must be a number from 0 to 65535")
    return int(text)


class _JsonLines(logging.Formatter):
    """Log lines as JSON objects."""

    def format(self, record: logging.LogRecord) -> str:
        import json  # 3 ms that most daemons can do without

        line = {
            "time": record.created,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _serve(options: argparse.Namespace, definitions: list[str]) -> int:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it means something, it must not end the daemon
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_JsonLines() if options.log_format == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    said: dict[str, Setting] = parse_definitions(definitions, "command line")
    if options.host is not None:
        said["clientPortAddress"] = Setting(options.host, "command line")
    for name, value in (
        ("secureClientPort", options.secure_port),
        ("ssl.keyStore.location", options.tls_cert),
        ("ssl.keyStore.key.location", options.tls_key),
        ("ssl.trustStore.location", options.tls_ca),
    ):
        if value is not None:
            said[name] = Setting(str(value), "command line")
    filed = read_file(options.config) if options.config else {}
    config = build(read_environment(os.environ), filed, said, compat=options.compat)
    if options.port is not None:
        config.port = options.port
    return run(_daemon(config))


def _run(options: argparse.Namespace, definitions: list[str]) -> int:
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise ConfigError("run: no command is given; zoolet run -- CMD ARG...")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    said = {"maxClientCnxns": "0", "4lw.commands.whitelist": "*"}
    settings = {name: Setting(value, "zoolet run") for name, value in said.items()}
    config = build(settings, parse_definitions(definitions, "command line"), strict=True)
    if config.secure_port is not None:
        raise ConfigError("run: secureClientPort is for zoolet serve; this server does not speak TLS")
    return run(_beside(config, words))


HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that ``zoolet run`` hands on to its command."""


async def _beside(config: Config, words: list[str]) -> int:
    """Serve for as long as a command runs; give its exit code, as a shell does: 128 and the signal that killed it."""
    listener = assemble(config)
    port = await listener.start("127.0.0.1", 0)
    hosts = _address("127.0.0.1", port)
    handed = _Signals()
    try:
        environment = {**os.environ, "ZOOLET_HOSTS": hosts, "ZOOKEEPER_HOSTS": hosts}
        command = await asyncio.create_subprocess_exec(*words, env=environment)
    except OSError as error:
        print(f"zoolet: cannot run {words[0]}: {error.strerror}", file=sys.stderr)
        await listener.stop(patient=False)
        return 127 if isinstance(error, FileNotFoundError) else 126
    handed.to(command)
    code = await command.wait()
    await listener.stop(patient=False)
    return code if code >= 0 else 128 - code


class _Signals:
    """Hands signals on to a command, also those that come before it runs."""

    def __init__(self) -> None:
        self._command: asyncio.subprocess.Process | None = None
        self._early: list[signal.Signals] = []
        typed = {signal.SIGINT, signal.SIGQUIT} if _at_a_terminal() else set()
        for number in HANDED_ON:
            heard = self._leave_it if number in typed else self._hand_on
            asyncio.get_running_loop().add_signal_handler(number, heard, number)

    def to(self, command: asyncio.subprocess.Process) -> None:
        """Hand them to this command from now on."""
        self._command = command
        for number in self._early:
            self._hand_on(number)

    def _leave_it(self, number: signal.Signals) -> None:
        """The command has got it too."""

    def _hand_on(self, number: signal.Signals) -> None:
        if self._command is None:
            self._early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            self._command.send_signal(number)


def _at_a_terminal() -> bool:
    """Return whether what is typed at a terminal, such as Ctrl-C, reaches this process and its command alike."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # no terminal, or no stdin at all
        return False


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _daemon(config: Config) -> int:
    """Serve until SIGTERM or SIGINT, and at a second one end at once; SIGUSR1 switches to read-only mode, SIGUSR2 back,
    SIGHUP reads the certificates again.
    """
    context = None
    if config.secure_port is not None:
        from zoolet.server.net import tls  # takes 10 ms to import

        try:
            context = tls.context(config.tls)
        except tls.TlsError as error:
            print(f"zoolet: {error}", file=sys.stderr)
            return 2
    with GcTuner() as gc_tuner:
        listener = assemble(config, gc_tuner=gc_tuner)
        stop = asyncio.Event()
        _handle_signals(listener, config, stop)
        ready = []
        for kind, host, port in (
            ("on", config.host, config.port),
            ("for TLS on", config.secure_host, config.secure_port),
        ):
            if port is None:
                continue
            try:
                if kind == "on":
                    bound = await listener.start(host, port)
                else:
                    assert context is not None
                    bound = await listener.start_secure(host, port, context)
            except (OSError, UnicodeError) as error:  # a name may not even be one
                code = getattr(error, "errno", None) or 0
                why = os.strerror(code) if code > 0 else getattr(error, "strerror", None) or error
                print(f"zoolet: cannot listen on {_address(host or '*', port)}: {why}", file=sys.stderr)
                await listener.stop(patient=False)
                return 1
            ready.append(f"zoolet ready {kind} {_address(host or '0.0.0.0', bound)}")
        if config.ignored:
            _log.warning("ignored (not supported): %s", ", ".join(config.ignored))
        for name, nearest in config.unknown:
            _log.warning("ignored (unknown): %s%s", name, nearest)
        print("\n".join(ready), flush=True)
        await stop.wait()
        _log.info("stopping: %d connections, %d sessions", len(listener.open), len(listener.engine.sessions.alive))
        await listener.stop()
    return 0


def _handle_signals(listener: Daemon, config: Config, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        if stop.is_set():
            listener.abort_all()
        stop.set()

    def reload() -> None:
        if config.secure_port is None:
            _log.info("SIGHUP: there are no certificates to read again")
            return
        from zoolet.server.net import tls

        try:
            listener.use_certificates(tls.context(config.tls))
        except tls.TlsError as error:
            _log.error("SIGHUP: the certificates stay as they are: %s", error)
        else:
            _log.info("SIGHUP: new connections get the certificates just read")

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(signal.SIGHUP, reload)
    loop.add_signal_handler(signal.SIGUSR1, listener.read_only, True)
    loop.add_signal_handler(signal.SIGUSR2, listener.read_only, False)


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run a coroutine on uvloop, or on asyncio's own loop where there is no uvloop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
