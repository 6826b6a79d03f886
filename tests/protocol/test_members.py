"""Member lines of an ensemble, such as ``host:2888:3888:observer;2181``, and its configuration."""

from __future__ import annotations

import pytest

from zoolet.protocol.members import MemberLine, encode_config, parse_config, voter_numbers


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a:1:2", ("a:1:2", "participant", None, None, "")),
        ("a:1:2;3", ("a:1:2", "participant", None, "3", "")),
        ("a:1:2:OBSERVER;h:3", ("a:1:2", "observer", "h", "3", "")),
        ("[::1]:1:2:participant;[::2]:3", ("[::1]:1:2", "participant", "[::2]", "3", "")),
        ("a:1:2|b:1:2;3", ("a:1:2", "participant", None, None, "|b:1:2;3")),
        ("a:1:2;3;4", ("a:1:2", "participant", None, "3", ";4")),
    ],
)
def test_member_line_is_parsed_into_parts(text: str, line: tuple[object, ...]) -> None:
    assert MemberLine.parse(text) == line


@pytest.mark.parametrize("text", ["", "a", "a:1", "a:1:b", "a:1:2:leader", "::1:1:2", "a:1:2 ;3"])
def test_invalid_member_line_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected host:port:port"):
        MemberLine.parse(text)


def test_ensemble_configuration_survives_round_trip() -> None:
    members = {1: "a:1:2:participant;h:3", 10: "b:1:2:observer;h:3"}

    assert parse_config(encode_config(members, 0x1F)) == (members, 0x1F)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (b"server.1=a:1:2:participant;h:3\nserver.2=b:1:2:observer;3\nserver.10=c:1:2;3\nversion=0", [1, 10]),
        (b"server.1=a:1:2|b:1:2:participant;3\nserver.3=observer:1:2;3", [1, 3]),
        (b"server.1=[::1]:1:2:observer", []),
        (b"", []),
        (None, []),
    ],
)
def test_numbers_of_voting_members_exclude_observers(text: bytes | None, numbers: list[int]) -> None:
    assert voter_numbers(parse_config(text)[0]) == numbers
