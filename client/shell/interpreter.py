"""Executing lines: from words to a row of the table of commands, its flags, and what it does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from difflib import get_close_matches
from typing import Any, Final

from zoolet.client.shell import words
from zoolet.client.shell.command import find, listed
from zoolet.client.shell.errors import INTERRUPTED, NOT_FOUND, CommandError, UsageError
from zoolet.client.shell.flags import FlagError, parse
from zoolet.client.shell.output import Output
from zoolet.client.shell.shell import Settings, Shell
from zoolet.protocol.errors import ZooKeeperError

_log = logging.getLogger("zoolet.client")
USAGE: Final = "ZooKeeper -server host:port -client-configuration properties-file cmd args"
JSON: Final = "--json"
"""A flag that each command has."""


async def execute(shell: Shell, line: str) -> int:
    """Execute a line that was typed, and return its exit code; one that begins with # is a comment."""
    if not line.strip(words.BLANKS) or line.startswith("#"):
        return shell.exit_code
    shell.history.append(line)
    code = await run(shell, words.split(line))
    if shell.pending:
        line, shell.pending = shell.pending, ""
        code = await run(shell, words.split(line))
    return code


async def run(shell: Shell, arguments: Sequence[str]) -> int:
    """Execute the words of a command, and return its exit code."""
    as_json, before = shell.out.as_json, shell.exit_code
    shell.exit_code = 1
    try:
        await _run(shell, arguments)
        shell.exit_code = before if shell.ended else 0  # quit ends with the code of the command before it
    except CommandError as error:
        if error.advice:
            shell.out.error(error.advice)
        shell.out.error(str(error))
        shell.exit_code = error.code
    except FlagError as error:
        shell.out.error(str(error))
    except ZooKeeperError as error:
        shell.out.error(shell.explained(error))
    except UnicodeEncodeError as error:
        shell.out.error(f"not UTF-8: {error.object!r}")
    except (BrokenPipeError, KeyboardInterrupt, asyncio.CancelledError):
        raise
    except Exception as error:  # a defect of a command's must not end the shell, and the ephemeral nodes of its session
        _log.debug("%s failed", arguments[0], exc_info=True)
        shell.out.error(f"{arguments[0]} failed unexpectedly: {type(error).__name__}: {error}")
    finally:
        shell.out.as_json = as_json
    return shell.exit_code


async def _run(shell: Shell, arguments: Sequence[str]) -> None:
    if not arguments:
        raise CommandError("No command entered", advice=usage())
    name, *rest = arguments
    row = find(name)
    if row is None:
        if shell.interactive or shell.out.errors_at_terminal:  # a script gets what zkCli prints
            near = get_close_matches(name, [other.name for other in listed()], 1)
            hint = f"did you mean {near[0]}?" if near else "help lists the commands"
            raise CommandError(f"Command not found: {name}; {hint}", NOT_FOUND)
        raise CommandError(f"Command not found: Command not found {name}", NOT_FOUND, usage())
    if not row.offline:
        shell.client  # noqa: B018 - it raises that there is no connection
    if JSON in rest[: rest.index("--") if "--" in rest else len(rest)]:
        rest.remove(JSON)
        shell.out.as_json = True
    parsed = parse(row.flags, rest, one_of=row.one_of, required=row.one_required)
    try:
        if len(parsed.words) < row.least or (row.most is not None and len(parsed.words) > row.most):
            raise UsageError
        await row.run(shell, parsed)
    except UsageError:
        raise CommandError(row.usage_text()) from None


def usage() -> str:
    """Return the list of all commands, as it is shown for one that is unknown."""
    return "\n".join([USAGE, *(f"\t{row.name} {row.usage}" for row in listed())])


async def interruptible(work: Coroutine[Any, Any, int]) -> int:
    """Run something until it ends, or until Ctrl-C cancels it; return its exit code.

    asyncio's own handler of the signal does not wake the loop, so that it may be noticed at the next ping only.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        with contextlib.suppress(NotImplementedError, ValueError):  # not on Windows, and only in the main thread
            loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        return INTERRUPTED
    finally:
        with contextlib.suppress(NotImplementedError, ValueError):
            loop.remove_signal_handler(signal.SIGINT)


async def run_once(settings: Settings, out: Output, arguments: Sequence[str]) -> int:
    """Connect, execute one command, and return its exit code."""
    shell = Shell(settings, out)
    try:
        shell.connect()
    except CommandError as error:
        out.error(str(error))
        return 1
    connecting = asyncio.ensure_future(shell.client.first_round())
    running: asyncio.Future[int] = asyncio.ensure_future(run(shell, arguments))
    try:
        either: list[asyncio.Future[Any]] = [connecting, running]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not (running.done() or settings.waits_first) and (reason := connecting.result()):
            out.error(f"KeeperErrorCode = ConnectionLoss: {reason}")
            return 1
        return await running
    finally:
        connecting.cancel()
        running.cancel()
        await asyncio.gather(connecting, running, return_exceptions=True)
        await shell.close()


async def run_script(settings: Settings, out: Output, read_line: Callable[[], str]) -> int:
    """Connect, execute lines until there are no more, and return the exit code of the last one.

    Args:
        settings: How to connect.
        out: Where to write.
        read_line: Returns the next line, or the empty string; called in another thread.
    """
    shell = Shell(settings, out)
    try:
        shell.connect()
    except CommandError as error:
        out.error(str(error))
        return 1
    try:
        lines = _read_in_thread(read_line)
        while not shell.ended and (line := await anext(lines)):
            await execute(shell, line.rstrip("\r\n"))
        return shell.exit_code
    finally:
        await shell.close()


async def _read_in_thread(read_line: Callable[[], str]) -> AsyncIterator[str]:
    """Yield lines, each read in another thread when it is asked for; the thread does not keep the process from ending.

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
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(lines.put_nowait, line)

    threading.Thread(target=read, name="zoolet-script", daemon=True).start()
    while True:
        permits.release()
        line = await lines.get()
        if isinstance(line, OSError):
            raise line
        yield line
