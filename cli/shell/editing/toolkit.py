"""The line editor based on prompt_toolkit, which the extra ``shell`` installs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, get_common_complete_suffix
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import History
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import patch_stdout

from .. import words
from .history import append_line, read_lines


class _Completer(Completer):
    def __init__(self, complete: Callable[[str], list[str]]) -> None:
        self._complete = complete

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        line = document.text_before_cursor
        _, _, start = words.last_word(line)
        for word in self._complete(line):
            shown = word.rpartition("/")[2] if word.startswith("/") else word
            yield Completion(words.quote(word), start_position=start - len(line), display=shown or "/")


class _History(History):
    """The history of prompt_toolkit, stored in the history file of the shell."""

    def load_history_strings(self) -> Iterable[str]:
        return reversed(read_lines())

    def store_string(self, string: str) -> None:
        append_line(string)


class ToolkitEditor:
    """A line editor that uses prompt_toolkit and redraws a changed prompt.

    Args:
        complete: Function that returns the completions of the last word of a line.
    """

    def __init__(self, complete: Callable[[str], list[str]]) -> None:
        self._completer = _Completer(complete)
        self._session: PromptSession[str] = PromptSession(
            history=_History(),
            completer=self._completer,
            key_bindings=self._make_key_bindings(),
            complete_while_typing=False,
            auto_suggest=AutoSuggestFromHistory(),
            enable_history_search=True,
            enable_suspend=True,
        )

    def _make_key_bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        @bindings.add("tab")
        def complete(event: KeyPressEvent) -> None:
            """Complete synchronously: an Enter right after Tab must submit the completed word."""
            buffer = event.current_buffer
            if buffer.complete_state is not None:
                buffer.complete_next()
                return
            offered = list(self._completer.get_completions(buffer.document, CompleteEvent(completion_requested=True)))
            if len(offered) == 1:
                buffer.apply_completion(offered[0])
            elif offered:
                buffer.insert_text(get_common_complete_suffix(buffer.document, offered))
                buffer.start_completion()

        return bindings

    def read(self, prompt: Callable[[], str]) -> str:
        """Return the next line, or several pasted lines, and add them to the history."""
        line = self._pop_typed_line()
        if line is not None:
            print(f"{prompt()}{line}")
            self._session.history.append_string(line)
            return line
        with patch_stdout(raw=True):
            text = self._session.prompt(lambda: ANSI(prompt()))
        pasted = words.lines(text)
        for line in pasted if len(pasted) > 1 else ():
            self._session.history.append_string(line)
        return text

    def _pop_typed_line(self) -> str | None:
        """Return a complete line that was typed or pasted ahead, or None if there is no such line.

        Such lines get no live prompt, because drawing thousands of prompts would take minutes.
        """
        keys = get_typeahead(self._session.app.input)
        end = next((place for place, press in enumerate(keys) if press.key == Keys.Enter), None)
        if end is None or any(press.key != press.data or not press.data.isprintable() for press in keys[:end]):
            store_typeahead(self._session.app.input, keys)
            return None
        store_typeahead(self._session.app.input, keys[end + 1 :])
        return "".join(press.data for press in keys[:end])

    def write(self, text: str) -> None:
        """Write text above the line that is being typed, which :func:`patch_stdout` redraws."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def redraw(self) -> None:
        """Redraw the prompt."""
        self._session.app.invalidate()

    def drop(self) -> None:
        """Discard input that was typed ahead."""
        get_typeahead(self._session.app.input)

    def close(self) -> None:
        """Do nothing: the history is already saved."""
