"""Facts that have one home: no other module writes them again."""

from __future__ import annotations

import re
from typing import Final

import pytest
from support.rooms import ROOMS, ROOT, modules

SOURCES: Final = {path.relative_to(ROOT).as_posix(): path.read_text() for path in modules(*ROOMS)}
FACTS: Final = {
    "protocol/hexadecimal.py": r"0x\{|0x%x|%#x|(zxid|session|last|transaction)\w*:#x\}",
}
"""The only module that may contain text of this form. Zxids and session ids as text have 64 bits, without a sign."""


@pytest.mark.parametrize(("home", "form"), FACTS.items(), ids=FACTS)
def test_fact_has_one_home(home: str, form: str) -> None:
    assert [name for name, text in SOURCES.items() if re.search(form, text)] == [home]
