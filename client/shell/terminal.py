"""The shell at a terminal: lines are typed in the main thread, and the client runs in another one.

So a line can be edited by whatever reads lines, Ctrl-C reaches the one who types, and events are printed meanwhile.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from zoolet.client.shell import words
from zoolet.client.shell.completion import completions
from zoolet.client.shell.errors import INTERRUPTED, CommandError
from zoolet.client.shell.interpreter import execute
from zoolet.client.shell.output import Output
from zoolet.client.shell.shell import Settings, Shell

T = TypeVar("T")
WELCOME: Final = "Welcome to ZooKeeper! This is zoolet's shell: help lists the commands, Tab completes."


class Editor(Protocol):
    """A reader of lines from a terminal."""

    def read(self, prompt: Callable[[], str]) -> str:
        """Read a line, or several that were pasted.

        Raises:
            EOFError: There are no more.
            KeyboardInterrupt: Ctrl-C was typed.
        """
        ...

    def write(self, text: str) -> None:
        """Write text beside the line that is being typed; called in another thread."""
        ...

    def redraw(self) -> None:
        """Draw the prompt again, which may have changed; called in another thread."""
        ...

    def drop(self) -> None:
        """Forget what was typed or pasted and not read yet."""
        ...

    def close(self) -> None:
        """Keep the history."""
        ...


class Terminal:
    """A shell, the thread of its client, and what reads lines.

    Args:
        settings: How to connect.
        out: Where to write.
    """

    def __init__(self, settings: Settings, out: Output) -> None:
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
        """Run something in the thread of the client; Ctrl-C ends it."""
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
        """Return what the last word of a line may be."""
        return self._call(completions(self._shell, line))

    def run(self) -> int:
        """Read and execute lines until there are no more; return the exit code of the last command."""
        self._thread.start()
        self._ready.wait()
        editor = make_editor(self)
        self._out.beside = editor.write
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
        except CommandError as error:
            self._out.error(str(error))
            return 1
        while not shell.ended:
            try:
                text = editor.read(lambda: shell.prompt)
            except EOFError:
                break
            except KeyboardInterrupt:
                continue  # the line that was being typed is dropped
            self._execute(text, editor)
        return shell.exit_code

    async def _connect(self, editor: Editor) -> None:
        self._shell.on_prompt_changed = editor.redraw
        self._shell.connect()
        await self._shell.report_connection()  # so that the first prompt can say that it is connected

    def _execute(self, text: str, editor: Editor) -> None:
        """Execute a line, or several that were pasted; Ctrl-C ends the one that runs, and drops the others."""
        for line in words.lines(text):
            try:
                self._call(execute(self._shell, line))
            except KeyboardInterrupt:
                editor.drop()
                self._out.error("interrupted")
                self._shell.exit_code = INTERRUPTED
                return
            except concurrent.futures.CancelledError:
                self._out.error("cancelled")
            if self._shell.ended:
                return


def make_editor(terminal: Terminal) -> Editor:
    """Return what reads lines: prompt_toolkit if it is installed, otherwise readline."""
    try:
        from zoolet.client.shell.editing.toolkit import ToolkitEditor
    except ImportError:
        from zoolet.client.shell.editing.plain import PlainEditor

        return PlainEditor(terminal.complete)
    return ToolkitEditor(terminal.complete)


def run_terminal(settings: Settings, out: Output) -> int:
    """Run a shell at a terminal; return its exit code."""
    return Terminal(settings, out).run()
