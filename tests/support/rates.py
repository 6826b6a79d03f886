"""The share of errors that the checker finds, when single answers of honest histories are changed blindly.

    PYTHONPATH=tests python -m support.rates [--tries 200] [--seed 1]

The errors of ``test_planted.py`` are planted where a rule can see them; these are not. A changed answer may still be
one that ZooKeeper could give, so no rate can be 100 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from random import Random
from typing import Final

from support import histories as h

from zoolet.protocol import records as r
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.operations import OpCode
from zoolet.testing.checking.checker import check
from zoolet.testing.frames.requests import Entry

HISTORIES: Final = 4
REQUESTS: Final = 800
Change = Callable[[list[Entry], Random], None]
READS: Final = (OpCode.EXISTS, OpCode.GET_DATA)


def _replace(entries: list[Entry], rng: Random, change: Callable[[Entry], Entry], *ops: OpCode) -> None:
    place = rng.choice(h.request_places(entries, *ops))
    entries[place] = change(entries[place])


def loses_an_event(entries: list[Entry], rng: Random) -> None:
    """An event is not sent."""
    del entries[rng.choice([place for place, entry in enumerate(entries) if h.is_event(entry)])]


def doubles_an_event(entries: list[Entry], rng: Random) -> None:
    """An event is sent twice."""
    place = rng.choice([place for place, entry in enumerate(entries) if h.is_event(entry)])
    entries.insert(place, entries[place])


def loses_a_write(entries: list[Entry], rng: Random) -> None:
    """A read shows the previous version."""

    def change(entry: Entry) -> Entry:
        stat = h.reply_record(entry, r.StatResponse).stat
        return h.with_stat(entry, r.StatResponse, version=stat.version - 1, mzxid=stat.mzxid - 1)

    _replace(entries, rng, change, OpCode.EXISTS)


def shows_other_data(entries: list[Entry], rng: Random) -> None:
    """A read shows other data of the same size."""

    def change(entry: Entry) -> Entry:
        answer = h.reply_record(entry, r.GetDataResponse)
        return h.with_answer(entry, r.GetDataResponse(b"~" * len(answer.data or b"x"), answer.stat))

    _replace(entries, rng, change, OpCode.GET_DATA)


def misses_a_node(entries: list[Entry], rng: Random) -> None:
    """A read finds nothing."""
    _replace(entries, rng, lambda entry: h.with_error(entry, ErrorCode.NO_NODE), *READS)


def misses_a_child(entries: list[Entry], rng: Random) -> None:
    """A list misses a child."""

    def change(entry: Entry) -> Entry:
        names = list(h.reply_record(entry, r.GetChildrenResponse).children)
        return h.with_answer(entry, r.GetChildrenResponse(names[1:]))

    _replace(entries, rng, change, OpCode.GET_CHILDREN)


def invents_a_child(entries: list[Entry], rng: Random) -> None:
    """A list contains a child that was never created."""

    def change(entry: Entry) -> Entry:
        names = list(h.reply_record(entry, r.GetChildrenResponse).children)
        return h.with_answer(entry, r.GetChildrenResponse([*names, "nobody-s"]))

    _replace(entries, rng, change, OpCode.GET_CHILDREN)


def refuses_a_write(entries: list[Entry], rng: Random) -> None:
    """A write that was applied is answered with BAD_VERSION."""
    _replace(entries, rng, lambda entry: h.with_error(entry, ErrorCode.BAD_VERSION), OpCode.SET_DATA)


def repeats_a_zxid(entries: list[Entry], rng: Random) -> None:
    """A write is answered with the previous zxid."""
    _replace(entries, rng, lambda entry: h.with_zxid(entry, h.reply_zxid(entry) - 1), OpCode.SET_DATA, OpCode.CREATE)


def reads_the_past(entries: list[Entry], rng: Random) -> None:
    """A read has an earlier zxid in its reply, but shows the current state."""
    _replace(entries, rng, lambda entry: h.with_zxid(entry, h.reply_zxid(entry) - 3), *READS)


CHANGES: Final[tuple[Change, ...]] = (
    loses_an_event, doubles_an_event, loses_a_write, shows_other_data, misses_a_node, misses_a_child, invents_a_child,
    refuses_a_write, repeats_a_zxid, reads_the_past,
)  # fmt: skip


def detection_rates(tries: int, seed: int) -> dict[str, float]:
    """Return the detection rate of each change."""
    rng = Random(seed)
    honest = [h.record_history(seed * 100 + number, REQUESTS) for number in range(HISTORIES)]
    found: dict[str, float] = {}
    for change in CHANGES:
        hits = 0
        for number in range(tries):
            entries = list(honest[number % HISTORIES])
            change(entries, rng)
            hits += check(entries) is not None
        found[(change.__doc__ or "").strip()] = hits / tries
    return found


def main() -> None:
    """Print the rates, with the options of the command line."""
    parser = argparse.ArgumentParser(prog="checking.rates", description=__doc__)
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for what, share in detection_rates(options.tries, options.seed).items():
        print(f"{share:6.1%}  {what}", flush=True)


if __name__ == "__main__":
    main()
