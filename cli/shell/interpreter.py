"""The execution of lines: look up a command in the table, parse its flags, run it and report its errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from difflib import get_close_matches
from typing import Any, Final

from ...protocol.errors import ZooKeeperError
from ..addresses import cannot_connect_message
from ..options import INTERRUPTED_EXIT_CODE
from ..stdout import OutputError
from . import words
from .command import find, sorted_commands
from .errors import NOT_FOUND_EXIT_CODE, ShellCommandError, ShellUsageError, unknown_command_message
from .flags import FlagError, parse
from .output import ShellOutput
from .shell import ConnectionSettings, Shell

_log = logging.getLogger("zoolet.client")
USAGE: Final = "ZooKeeper -server host:port -client-configuration properties-file cmd args"
JSON_FLAG: Final = "--json"
"""The flag for JSON output, which every command accepts."""


async def execute(shell: Shell, line: str) -> int:
    """Execute a line, add it to the history, and return its exit code. Ignore blank lines and lines starting with #."""
    if not line.strip(words.BLANKS) or line.startswith("#"):
        return shell.exit_code
    shell.history.append(line)
    code = await run(shell, words.split(line))
    if shell.pending:
        line, shell.pending = shell.pending, ""
        code = await run(shell, words.split(line))
    return code


async def run(shell: Shell, arguments: Sequence[str]) -> int:
    """Execute a command, given as words, report its error, and return its exit code."""
    as_json, before = shell.out.as_json, shell.exit_code
    shell.exit_code = 1
    try:
        await _run(shell, arguments)
        shell.exit_code = before if shell.ended else 0  # quit keeps the code of the previous command
    except ShellCommandError as error:
        if error.advice:
            shell.out.error(error.advice)
        shell.out.error(str(error))
        shell.exit_code = error.code
    except FlagError as error:
        shell.out.error(str(error))
    except ZooKeeperError as error:
        shell.out.error(shell.error_message(error))
    except UnicodeEncodeError as error:
        shell.out.error(f"not UTF-8: {error.object!r}")
    except (OutputError, KeyboardInterrupt, asyncio.CancelledError):
        raise
    except Exception as error:  # a defect must not end the session, which would delete its ephemeral nodes
        _log.debug("%s failed", arguments[0], exc_info=True)
        shell.out.error(f"{arguments[0]} failed unexpectedly: {type(error).__name__}: {error}")
    finally:
        shell.out.as_json = as_json
    return shell.exit_code


async def _run(shell: Shell, arguments: Sequence[str]) -> None:
    if not arguments:
        raise ShellCommandError("No command entered", advice=usage())
    name, *rest = arguments
    row = find(name)
    if row is None:
        if shell.interactive or shell.out.errors_at_terminal:  # scripts get the message of zkCli instead
            near = get_close_matches(name, [other.name for other in sorted_commands()], 1)
            raise ShellCommandError(unknown_command_message(name, *near), NOT_FOUND_EXIT_CODE)
        raise ShellCommandError(f"Command not found: Command not found {name}", NOT_FOUND_EXIT_CODE, usage())
    if not row.offline:
        shell.client  # noqa: B018 - the property raises an error without a connection
    if JSON_FLAG in rest[: rest.index("--") if "--" in rest else len(rest)]:
        rest.remove(JSON_FLAG)
        shell.out.as_json = True
    parsed = parse(row.flags, rest, one_of=row.one_of, required=row.one_required)
    try:
        if len(parsed.words) < row.least or (row.most is not None and len(parsed.words) > row.most):
            raise ShellUsageError
        await row.run(shell, parsed)
    except ShellUsageError:
        raise ShellCommandError(row.usage_text()) from None


def usage() -> str:
    """Return the list of all commands, which zkCli prints for an unknown command."""
    return "\n".join([USAGE, *(f"\t{row.name} {row.usage}" for row in sorted_commands())])


async def run_until_interrupted(work: Coroutine[Any, Any, int]) -> int:
    """Run a coroutine until it returns or Ctrl-C cancels it. Return the exit code.

    This sets a signal handler that wakes the event loop. With asyncio's handler, Ctrl-C could wait for the next ping.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        with contextlib.suppress(NotImplementedError, ValueError):  # unsupported on Windows and in other threads
            loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        return INTERRUPTED_EXIT_CODE
    finally:
        with contextlib.suppress(NotImplementedError, ValueError):
            loop.remove_signal_handler(signal.SIGINT)


async def run_once(settings: ConnectionSettings, out: ShellOutput, arguments: Sequence[str]) -> int:
    """Connect, execute one command, and return its exit code."""
    shell = Shell(settings, out)
    try:
        await shell.connect()
    except ShellCommandError as error:
        out.error(str(error))
        return 1
    connecting = asyncio.ensure_future(shell.client.first_round())
    running: asyncio.Future[int] = asyncio.ensure_future(_run_when_settled(shell, arguments))
    try:
        either: list[asyncio.Future[Any]] = [connecting, running]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not (running.done() or settings.waits_first) and (reason := connecting.result()):
            out.error(f"KeeperErrorCode = ConnectionLoss: {cannot_connect_message(reason)}")
            return 1
        return await running
    finally:
        connecting.cancel()
        running.cancel()
        await asyncio.gather(connecting, running, return_exceptions=True)
        await shell.close()


async def _run_when_settled(shell: Shell, arguments: Sequence[str]) -> int:
    row = find(arguments[0])
    if row is not None and not row.offline:
        await shell.settle()
    return await run(shell, arguments)


async def run_script(settings: ConnectionSettings, out: ShellOutput, read_line: Callable[[], str]) -> int:
    """Connect, execute all lines, and return the exit code of the last command.

    Args:
        settings: Settings of the connection.
        out: Output of the shell.
        read_line: Function that returns the next line, or the empty string at the end. It is called in a thread.
    """
    shell = Shell(settings, out)
    try:
        await shell.connect()
    except ShellCommandError as error:
        out.error(str(error))
        return 1
    try:
        await shell.settle()
        lines, before = _read_in_thread(read_line), "\ufeff"  # the first line may start with a byte order mark
        while not shell.ended and (line := await anext(lines)):
            await execute(shell, line.removeprefix(before).rstrip("\r\n"))
            before = ""
        return shell.exit_code
    finally:
        await shell.close()


async def _read_in_thread(read_line: Callable[[], str]) -> AsyncIterator[str]:
    """Yield lines, which a thread reads on demand. The thread is a daemon, so it does not delay the exit.

    Raises:
        OSError: The input cannot be read.
    """
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | OSError] = asyncio.Queue()
    permits = threading.Semaphore(0)

    def read() -> None:
        line: str | OSError = "first"
        while line and permits.acquire():
            try:
                line = read_line()
            except OSError as error:
                line = error
            with contextlib.suppress(RuntimeError):  # the loop may be closed
                loop.call_soon_threadsafe(lines.put_nowait, line)

    threading.Thread(target=read, name="zoolet-script", daemon=True).start()
    while True:
        permits.release()
        line = await lines.get()
        if isinstance(line, OSError):
            raise line
        yield line
