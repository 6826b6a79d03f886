"""The interactive shell: lines are read in the main thread, and the client runs in a second thread.

As a result, every line editor works, Ctrl-C reaches the editor, and events are printed while a line is typed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from ..options import INTERRUPTED_EXIT_CODE
from . import words
from .completion import completions
from .errors import ShellCommandError
from .interpreter import execute
from .output import ShellOutput
from .shell import ConnectionSettings, Shell

T = TypeVar("T")
WELCOME: Final = "Welcome to ZooKeeper! This is zoolet's shell: type help for a list of commands, Tab to complete."


class Editor(Protocol):
    """A reader of lines from a terminal."""

    def read(self, prompt: Callable[[], str]) -> str:
        """Read a line, or several pasted lines.

        Raises:
            EOFError: The input has ended.
            KeyboardInterrupt: Ctrl-C was typed.
        """
        ...

    def write(self, text: str) -> None:
        """Write text above the line that is being typed. The client's thread calls this while :meth:`read` waits."""
        ...

    def redraw(self) -> None:
        """Redraw the prompt, which may have changed. The client's thread calls this while :meth:`read` waits."""
        ...

    def drop(self) -> None:
        """Discard input that was typed or pasted, but not yet read."""
        ...

    def close(self) -> None:
        """Save the history at the end of the shell."""
        ...


class Terminal:
    """An interactive shell: its state, the thread of its client, and a line editor.

    Args:
        settings: Settings of the connection.
        out: Output of the shell.
    """

    def __init__(self, settings: ConnectionSettings, out: ShellOutput) -> None:
        self._shell = Shell(settings, out)
        self._shell.interactive = True
        self._out = out
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._ended: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._serve, name="zoolet-shell", daemon=True)

    def _serve(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._ended = asyncio.Event()
            self._ready.set()
            await self._ended.wait()
            await self._shell.close()

        asyncio.run(main())

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread of the client, and return its result. Ctrl-C cancels the coroutine.

        Raises:
            KeyboardInterrupt: Ctrl-C was typed, and no editor uses the terminal.
        """
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                return future.result()
            except KeyboardInterrupt:
                if self._shell.terminal_is_lent:
                    continue
                future.cancel()
                concurrent.futures.wait([future], timeout=2)
                raise

    def complete(self, line: str) -> list[str]:
        """Return the completions of the last word of a line."""
        return self._call(completions(self._shell, line))

    def run(self) -> int:
        """Connect, read and execute all lines, and return the exit code of the last command."""
        self._thread.start()
        self._ready.wait()
        editor = make_editor(self)
        self._out.write_above = editor.write
        try:
            return self._run(editor)
        finally:
            editor.close()
            assert self._loop is not None
            assert self._ended is not None
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(5)

    def _run(self, editor: Editor) -> int:
        shell = self._shell
        self._out.show({"connecting": shell.hosts}, [f"Connecting to {shell.hosts}", WELCOME])
        try:
            self._call(self._connect(editor))
        except ShellCommandError as error:
            self._out.error(str(error))
            return 1
        while not shell.ended:
            try:
                text = editor.read(lambda: shell.prompt)
            except EOFError:
                break
            except KeyboardInterrupt:
                continue  # Ctrl-C discards the line that was being typed
            self._execute(text, editor)
        return shell.exit_code

    async def _connect(self, editor: Editor) -> None:
        self._shell.on_prompt_changed = editor.redraw
        await self._shell.connect()
        await self._shell.report_connection()  # wait, because the first prompt should show CONNECTED

    def _execute(self, text: str, editor: Editor) -> None:
        """Execute a line, or several pasted lines. Ctrl-C interrupts the current line and discards the others."""
        for line in words.lines(text):
            try:
                self._call(execute(self._shell, line))
            except KeyboardInterrupt:
                editor.drop()
                self._out.error("interrupted")
                self._shell.exit_code = INTERRUPTED_EXIT_CODE
                return
            except concurrent.futures.CancelledError:
                self._out.error("cancelled")
            if self._shell.ended:
                return


def make_editor(terminal: Terminal) -> Editor:
    """Return a line editor: prompt_toolkit if it is installed, otherwise readline."""
    try:
        from .editing.toolkit import ToolkitEditor
    except ImportError:
        from .editing.plain import PlainEditor

        return PlainEditor(terminal.complete)
    return ToolkitEditor(terminal.complete)


def run_terminal(settings: ConnectionSettings, out: ShellOutput) -> int:
    """Run an interactive shell, and return its exit code."""
    return Terminal(settings, out).run()
