"""Millions of frames through the server's core, without sockets: nothing may be raised, every reply must be well-formed
and every index of the server correct.

A run is split into epochs. Each has a fresh server, its own settings and a generator seeded with the run's seed and the
epoch's number, so an epoch can be repeated without the earlier ones::

    python -m fuzz.inprocess [--frames 10000000] [--seed 1] [--minutes 12]
    python -m fuzz.inprocess --replay SEED:EPOCH
    python -m fuzz.inprocess --replay build/fuzz/SEED-EPOCH.txt

After a finding, the actions of its epoch are reduced while the same finding still occurs. The rest is printed, and
saved in ``build/fuzz``.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from random import Random, SystemRandom
from typing import Final, NamedTuple

from fuzz import engines, frames
from fuzz.world import CONNECTIONS, Action, World

from zoolet.protocol.errors import ErrorCode
from zoolet.server.core.sessions import first_session_id

FRAMES_PER_EPOCH: Final = 20_000
"""Number of frames in one epoch."""
FRAMES_PER_CHECK: Final = 2_000
"""Number of frames between two checks of all indexes."""
POOL_FRAMES: Final = 20_000
EPOCHS_PER_POOL: Final = 25
"""Number of epochs that share a pool of frames."""
EPOCHS_PER_REPEAT: Final = 16
"""Interval of epochs that are repeated with all bytes sent in pieces: the server must answer the same bytes."""
PIECE_SIZES: Final = (64, 13, 5, 200, 29, 1)
"""Sizes of the pieces, in turn."""
SLOW_S: Final = 1.0
"""Limit for each action, in seconds of CPU; most take less than a millisecond."""
MAX_GROWTH_BYTES: Final = 30 << 20
"""Limit, in bytes, for the growth of the process between the first tenth and the end of the run."""
MAX_MINIMISE_S: Final = 60.0
FOLDER: Final = Path("build/fuzz")
FORECAST_FRAMES_PER_SECOND: Final = 40_000
"""Frames per second, used only for the forecast."""


class Finding(NamedTuple):
    """A violation: an exception or a broken invariant.

    Args:
        what: The exception, with its traceback.
        where: Key that distinguishes it from other findings.
        action: The number of the action that showed it.
    """

    what: str
    where: str
    action: int


# --- actions ---


def action_stream(rng: Random, pool: list[bytes], session: Callable[[], int] | None = None) -> Iterator[Action]:
    """Yield an endless sequence of actions.

    Args:
        rng: Source of all choices.
        pool: Valid frames.
        session: Function that returns the id of a session that may be alive; by default a guess for a fresh server.
    """
    first = first_session_id(1, engines.START_MS)
    sessions = 0
    draw, choices, size = rng.random, rng.choices, len(pool)
    while True:
        n = draw()
        slot = int(draw() * CONNECTIONS)
        if n < 0.80:
            chunk = choices(pool, k=1 + int(draw() * 40))
            for _ in range(int(draw() * 0.5 * len(chunk))):
                at = int(draw() * len(chunk))
                chunk[at] = frames.break_frame(rng, chunk[at], pool)
            data = b"".join(chunk)
            if n < 0.68:
                yield "data", slot, data
            else:  # send it in pieces, sometimes with other frames between them
                cuts = sorted(int(draw() * len(data)) for _ in range(1 + int(draw() * 4)))
                for at, stop in pairwise([0, *cuts, len(data)]):
                    yield "data", slot, data[at:stop]
                    if draw() < 0.2:
                        yield "data", int(draw() * CONNECTIONS), pool[int(draw() * size)]
        elif n < 0.86:
            sessions += 1
            known = session() if session is not None else first + max(0, sessions - int(draw() * 12))
            yield "hello", slot, frames.make_hello(rng, known)
        elif n < 0.89:
            yield "drop", slot
        elif n < 0.91:
            yield "login", slot, rng.choice((b"alice:wonder", b"bob:builder", b"super:secret", b"alice:x", b"eve:x"))
        elif n < 0.912:
            yield "data", slot, rng.randbytes(int(draw() * 300))
        elif n < 0.914:
            yield "mode", int(draw() < 0.3)
        elif n < 0.9145:
            long = frames.HEAVY_REQUESTS[rng.choice(list(frames.HEAVY_REQUESTS))](int(draw() * 3000))
            yield "data", slot, long
        else:
            jump = rng.choice((0, 1, 10, 50, 300, 1000, 1999, 2000, 2001)) if draw() < 0.97 else rng.randrange(90_000)
            yield "time", rng.choice((0, 0, 0, 0, 0, 3_600_000, -3_600_000)), jump


# --- runs of actions ---


class Run:
    """A run with one seed.

    Args:
        seed: Seed of everything.
        pool: Number of frames in the pool.
    """

    def __init__(self, seed: int, pool: int = POOL_FRAMES) -> None:
        self.seed = seed
        self._size = pool
        self._pool: tuple[int, list[bytes]] = (-1, [])
        self.frames = 0
        self.codes: Counter[int] = Counter()
        self.slowest: tuple[float, int, Action] = (0.0, 0, ())

    def pool(self, number: int) -> list[bytes]:
        """Return the frames that an epoch draws from."""
        which = number // EPOCHS_PER_POOL
        if self._pool[0] != which:
            self._pool = which, frames.make_pool(Random(f"{self.seed}:pool:{which}"), self._size)
        return self._pool[1]

    def script(self, number: int) -> Iterator[Action]:
        """Return the actions of an epoch."""
        return action_stream(Random(f"{self.seed}:{number}"), self.pool(number))

    def epoch(self, number: int, count: int = FRAMES_PER_EPOCH) -> Finding | None:
        """Run one epoch of about *count* frames. Stop at the first finding, and return the finding."""
        world = World(number)
        found = run_actions(world, self.script(number), count)
        self.frames += world.frames
        self.codes.update(world.codes)
        self.slowest = max(self.slowest, (world.slowest[0], number, world.slowest[1]))
        if found is None and piece_size(number):
            return self._repeat(number, world)
        return found

    def _repeat(self, number: int, first: World) -> Finding | None:
        again, found = run_in_pieces(number, list(islice(self.script(number), first.actions)), piece_size(number))
        self.frames += again.frames
        return found

    def actions(self, number: int, last: int) -> list[Action]:
        """Return the actions of an epoch up to number *last*."""
        return list(islice(self.script(number), last + 1))


def run_actions(world: World, actions: Iterator[Action], count: int, every: int = FRAMES_PER_CHECK) -> Finding | None:
    """Run actions until the server has received *count* frames, or until a finding.

    Args:
        world: The server and its connections.
        actions: The actions.
        count: Number of frames.
        every: Number of frames between two full checks.
    """
    due = every
    try:
        for action in actions:
            world.do(action)
            if world.frames >= due:
                world.check()
                due = world.frames + every
                if world.frames >= count:
                    break
        world.check()
        if world.slowest[0] > SLOW_S:
            raise AssertionError(f"an action took {world.slowest[0]:.1f} s of CPU", world.slowest[1])
    except Exception as error:  # every exception is a finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        message = str(error.args[0])[:40] if isinstance(error, AssertionError) and error.args else ""
        return Finding(traceback.format_exc(), f"{type(error).__name__} {last.name} {message}", world.actions - 1)
    return None


# --- findings ---


def piece_size(number: int) -> int:
    """Return the size of the pieces for the second run of an epoch, or 0 if the epoch has no second run."""
    stalls = (
        "max_output_per_turn" in engines.VARIANTS[number % len(engines.VARIANTS)]
    )  # between two pieces, other connections get turns
    return 0 if number % EPOCHS_PER_REPEAT or stalls else PIECE_SIZES[number // EPOCHS_PER_REPEAT % len(PIECE_SIZES)]


def run_in_pieces(variant: int, actions: list[Action], pieces: int) -> tuple[World, Finding | None]:
    """Run actions with all bytes sent in pieces, and again unchanged, and compare the server's output."""
    one, other = World(variant, pieces), World(variant)
    found = run_actions(one, iter(actions), sys.maxsize)
    if found is None and run_actions(other, iter(actions), sys.maxsize) is None and one.digest != other.digest:
        found = Finding("the server answered other bytes when it got the same in pieces", "pieces", len(actions) - 1)
    return one, found


def replay_actions(variant: int, actions: list[Action]) -> Finding | None:
    """Run these actions, with a full check after each of them if they are few."""
    found = run_actions(World(variant), iter(actions), sys.maxsize, every=0 if len(actions) < 200 else FRAMES_PER_CHECK)
    if found is None and piece_size(variant):
        return run_in_pieces(variant, actions, piece_size(variant))[1]
    return found


def minimise(variant: int, actions: list[Action], where: str, seconds: float = MAX_MINIMISE_S) -> list[Action]:
    """Remove actions, and frames within them, as long as the same finding occurs."""
    stop = time.monotonic() + seconds

    def found(some: list[Action]) -> bool:
        again = replay_actions(variant, some)
        return again is not None and again.where == where

    def fewer(some: list[Action]) -> list[Action]:
        size = max(1, len(some) // 2)
        while True:
            at = 0
            while at < len(some) and time.monotonic() < stop:
                rest = some[:at] + some[at + size :]
                if found(rest):
                    some = rest
                else:
                    at += size
            if size == 1 or time.monotonic() >= stop:
                return some
            size = max(1, size // 2)

    if not found(actions):
        return actions
    actions = fewer(actions)
    single = [part for action in actions for part in split_action(action)]
    return fewer(single) if found(single) else actions


def split_action(action: Action) -> Iterator[Action]:
    """Split an action that sends several frames into one action per frame."""
    if action[0] != "data":
        yield action
        return
    data = action[2]
    while len(data) >= 12:
        stop = 4 + int.from_bytes(data[:4], "big", signed=True)
        if not 12 <= stop <= len(data):
            break
        yield "data", action[1], data[:stop]
        data = data[stop:]
    if data:
        yield "data", action[1], data


def encode_actions(variant: int, actions: list[Action]) -> str:
    """Encode actions in the format of ``--replay``."""
    lines = [" ".join(part.hex() or "-" if isinstance(part, bytes) else str(part) for part in one) for one in actions]
    return "\n".join([f"variant {variant}", *lines, ""])


def decode_actions(text: str) -> tuple[int, list[Action]]:
    """Decode the output of :func:`encode_actions`."""
    head, *lines = text.splitlines()
    actions: list[Action] = []
    for kind, *rest in map(str.split, lines):
        if kind in ("data", "hello", "login"):
            actions.append((kind, int(rest[0]), bytes.fromhex(rest[1].strip("-"))))
        else:
            actions.append((kind, *map(int, rest)))
    return int(head.split()[1]), actions


def print_finding(run: Run, number: int, finding: Finding) -> None:
    """Print a finding and how to reproduce it."""
    print(f"\nFOUND in epoch {number} of seed {run.seed}, at action {finding.action}:\n{finding.what}", flush=True)
    print(f"settings: {engines.VARIANTS[number % len(engines.VARIANTS)]}")
    actions = minimise(number, run.actions(number, finding.action), finding.where)
    text = encode_actions(number, actions)
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{run.seed}-{number}.txt"
    path.write_text(text)
    print(f"{len(actions)} actions are enough:\n{text[:4000]}")
    print(f"again: python -m fuzz.inprocess --replay {path}\n", flush=True)


# --- a whole run ---


def resident() -> int:
    """Return the resident memory of the process in bytes, or 0 if the system does not report it."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def fuzz(seed: int, count: int, minutes: float) -> int:
    """Run epochs until *count* frames or *minutes*, and show progress. Return the number of findings."""
    began = last = time.monotonic()
    stop = began + minutes * 60
    run, epoch, found, kinds = Run(seed), 0, 0, set()
    early = 0
    while run.frames < count and time.monotonic() < stop:
        finding = run.epoch(epoch, min(FRAMES_PER_EPOCH, count - run.frames))
        if finding is not None:
            found += 1
            if finding.where not in kinds:
                kinds.add(finding.where)
                print_finding(run, epoch, finding)
        epoch += 1
        now = time.monotonic()
        if not early and (run.frames >= count / 10 or now >= began + minutes * 6):
            gc.collect()
            early = resident()
        if now - last > 5:
            last = now
            rate = run.frames / (now - began)
            left = min((count - run.frames) / rate, stop - now)
            print(
                f"{run.frames:>12,} frames  {rate:>7,.0f}/s  {resident() >> 20} MB  {found} found  {left:.0f} s left",
                flush=True,
            )
    gc.collect()
    late = resident()
    took = time.monotonic() - began
    print(f"{run.frames:,} frames in {epoch} epochs and {took:.0f} s: {run.frames / took:,.0f}/s, {found} findings")
    total = sum(run.codes.values())
    shares = [f"{ErrorCode(code).name} {100 * times / total:.1f} %" for code, times in run.codes.most_common(8)]
    print("answered with " + ", ".join(shares))
    print(f"slowest action: {run.slowest[0] * 1000:.0f} ms of CPU, in epoch {run.slowest[1]}, a {run.slowest[2][0]}")
    print(f"memory: {early >> 20} MB at a tenth, {late >> 20} MB at the end")
    if late - early > MAX_GROWTH_BYTES:
        print("FOUND: memory grows")
        found += 1
    return found


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Fuzz the server's core in process.")
    parser.add_argument("--frames", type=int, default=10_000_000)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so long, whatever has been done")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--replay", help="SEED:EPOCH, or a file that an earlier run wrote")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # refused logins and exceeded quotas are expected by the thousand
    if arguments.replay:
        if ":" in arguments.replay:
            seed, epoch = map(int, arguments.replay.split(":"))
            run = Run(seed)
            finding = run.epoch(epoch)
            if finding is not None:
                print_finding(run, epoch, finding)
        else:
            finding = replay_actions(*decode_actions(Path(arguments.replay).read_text()))
            print(finding.what if finding else "nothing was found")
        return finding is not None
    seed = SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(
        f"in process: seed {seed}, {arguments.frames:,} frames, "
        f"about {min(arguments.frames / FORECAST_FRAMES_PER_SECOND / 60, arguments.minutes):.1f} minutes",
        flush=True,
    )
    return fuzz(seed, arguments.frames, arguments.minutes) > 0


if __name__ == "__main__":
    sys.exit(main())
