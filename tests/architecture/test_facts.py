"""Facts that only one module may contain, such as the form of a zxid as text."""

from __future__ import annotations

import re
from typing import Final

import pytest
from support.rooms import ROOMS, ROOT, modules

SOURCES: Final = {path.relative_to(ROOT).as_posix(): path.read_text() for path in modules(*ROOMS)}
FACT_PATTERNS: Final = {
    "protocol/hexadecimal.py": r"0x\{|0x%x|%#x|(zxid|session|last|transaction)\w*:#x\}",
}
"""The only module that may contain text of this form. Zxids and session ids as text have 64 bits, without a sign."""


@pytest.mark.parametrize(("home", "form"), FACT_PATTERNS.items(), ids=FACT_PATTERNS)
def test_fact_is_written_in_only_one_module(home: str, form: str) -> None:
    assert [name for name, text in SOURCES.items() if re.search(form, text)] == [home]
