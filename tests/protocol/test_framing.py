"""Frames: a length and that many bytes, however the bytes are split."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.frames import unhex
from support.record_strategies import thorough

from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.framing import Frames, frame


def test_frame_consists_of_length_and_bytes() -> None:
    assert frame(b"") == unhex("00000000")
    assert frame(b"abc") == unhex("00000003") + b"abc"


def test_frame_is_complete_after_last_byte() -> None:
    frames = Frames()

    assert [frames.feed(bytes([byte])) for byte in frame(b"ab")] == [[], [], [], [], [], [b"ab"]]


def test_incomplete_frame_is_kept_for_next_bytes() -> None:
    frames = Frames()

    first = frames.feed(frame(b"a") + frame(b"") + frame(b"bc")[:5])

    assert first == [b"a", b""]
    assert frames.feed(b"c") == [b"bc"]


@thorough
@given(st.lists(st.binary(max_size=20), max_size=5), st.lists(st.integers(0, 120), max_size=8))
def test_frames_do_not_depend_on_how_bytes_are_split(payloads: list[bytes], cuts: list[int]) -> None:
    raw = b"".join(map(frame, payloads))
    edges = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    frames = Frames()

    out = [whole for start, stop in pairwise(edges) for whole in frames.feed(raw[start:stop])]

    assert out == payloads


@pytest.mark.parametrize("length", [-1, -2, -(2**31 - 1) - 1, 11, (2**31 - 1)])
def test_frame_of_invalid_length_is_refused_before_its_body(length: int) -> None:
    with pytest.raises(MarshallingError):
        Frames(limit=10).feed(length.to_bytes(4, "big", signed=True))


def test_frame_of_exactly_maximum_size_is_accepted() -> None:
    assert Frames(limit=10).feed(frame(bytes(10))) == [bytes(10)]


def test_default_frame_limit_is_jute_maxbuffer() -> None:
    assert Frames().feed((1_048_575).to_bytes(4, "big")) == []
    with pytest.raises(MarshallingError):
        Frames().feed((1_048_576).to_bytes(4, "big"))


def test_incomplete_frame_does_not_allocate_announced_length() -> None:
    tracemalloc.start()

    payloads = Frames(limit=None).feed((2**31 - 1).to_bytes(4, "big") + b"a")

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (payloads, peak < 100_000) == ([], True)
