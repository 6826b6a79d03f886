"""Four-letter commands on a live port: how the server distinguishes them from a handshake, and the whitelist.

Source: NIOServerCnxn.checkFourLetterWord, FourLetterCommands, and replies of ZooKeeper 3.8.0 and 3.9.5.
"""

from __future__ import annotations

import pytest
from support.live_server import LiveServer, Serve

from zoolet.protocol.four_letter_words import WORDS

pytestmark = pytest.mark.usefixtures("no_error_is_logged")


# --- distinguishing a command from a handshake ---


@pytest.mark.parametrize("pieces", [(b"ru", b"ok"), (b"r", b"u", b"o", b"k"), (b"ruo", b"k\r\n")])
async def test_four_letter_word_may_arrive_in_pieces(server: LiveServer, pieces: tuple[bytes, ...]) -> None:
    assert await server.ask(*pieces) == "imok"


@pytest.mark.parametrize("rest", [b"\n", b"\r\n", b" now", b"ruok", bytes(100_000)])
async def test_bytes_after_four_letter_word_are_ignored(server: LiveServer, rest: bytes) -> None:
    assert await server.ask(b"ruok" + rest) == "imok"


@pytest.mark.parametrize("word", ["ruok", "mntr"])
async def test_megabyte_after_four_letter_word_does_not_cut_answer(server: LiveServer, word: str) -> None:
    client = await server.dial()

    client.send(word.encode() + bytes(1_000_000))
    await client.writer.drain()

    assert (await client.rest()).startswith({"ruok": b"imok", "mntr": b"zk_version"}[word])


@pytest.mark.parametrize("word", [word for word in WORDS if word not in ("hash", "stmk")])
async def test_four_letter_word_of_half_closed_client_is_answered(server: LiveServer, word: str) -> None:
    client = await server.dial()

    client.send(word.encode())
    client.end()

    assert await client.rest()


async def test_half_close_within_four_letter_word_gets_no_answer(server: LiveServer) -> None:
    client = await server.dial()

    client.send(b"ruo")
    client.end()

    assert await client.rest() == b""


@pytest.mark.parametrize("word", ["abcd", "RUOK", "Ruok", "kill", "reqs", "GET "])
async def test_unknown_four_letter_word_closes_connection(server: LiveServer, word: str) -> None:
    assert await server.ask(word.encode()) == ""


async def test_connection_answers_only_one_four_letter_word(server: LiveServer) -> None:
    assert await server.ask(b"ruokruok") == "imok"


@pytest.mark.parametrize("word", WORDS)
async def test_four_letter_word_after_handshake_closes_connection(server: LiveServer, word: str) -> None:
    session = await server.session()

    session.send(word.encode() + bytes(100))

    assert await session.rest() == b""


async def test_four_letter_word_after_handshake_keeps_session(server: LiveServer) -> None:
    session = await server.session()

    session.send(b"ruok")
    await session.rest()

    assert list(server.engine.sessions.alive) == [session.id]


async def test_telnet_close_sequence_closes_silently(server: LiveServer) -> None:
    assert await server.ask(b"\xff\xf4\xff\xfd") == ""


async def test_four_letter_word_uses_neither_session_nor_zxid(server: LiveServer) -> None:
    await server.ask(b"mntr")

    assert (server.engine.zxid, server.engine.sessions.alive) == (0, {})


# --- the whitelist ---


@pytest.mark.parametrize("word", [word for word in WORDS if word != "srvr"])
async def test_answer_names_four_letter_word_not_in_whitelist(serve: Serve, word: str) -> None:
    server = await serve(whitelist=())

    assert await server.ask(word.encode()) == f"{word} is not executed because it is not in the whitelist.\n"


@pytest.mark.parametrize("whitelist", [(), ("",), ("ruok",), ("nonsense",), ("*",)])
async def test_srvr_is_always_allowed(serve: Serve, whitelist: tuple[str, ...]) -> None:
    server = await serve(whitelist=whitelist)

    assert (await server.ask(b"srvr")).startswith("Zookeeper version: ")


async def test_whitelist_allows_only_listed_four_letter_words(serve: Serve) -> None:
    server = await serve(whitelist=("ruok", " mntr ", "nonsense"))

    assert await server.ask(b"ruok") == "imok"
    assert (await server.ask(b"mntr")).startswith("zk_version\t")
    assert "whitelist" in await server.ask(b"stat")


@pytest.mark.parametrize("word", WORDS)
async def test_star_in_whitelist_allows_every_four_letter_word(server: LiveServer, word: str) -> None:
    assert "whitelist" not in await server.ask(word.encode())


# --- ruok, isro, dirs ---


@pytest.mark.parametrize(
    ("word", "answer"),
    [("ruok", "imok"), ("isro", "rw"), ("dirs", "datadir_size: 0\nlogdir_size: 0\n")],
)
async def test_ruok_isro_and_dirs_have_fixed_answers(server: LiveServer, word: str, answer: str) -> None:
    assert await server.ask(word.encode()) == answer


async def test_read_only_server_reports_its_mode(server: LiveServer) -> None:
    server.engine.set_read_only(True)

    assert await server.ask(b"isro") == "ro"
    assert "\nMode: read-only\n" in await server.ask(b"srvr")


# --- envi ---


async def test_envi_lists_java_keys_in_order(server: LiveServer) -> None:
    first, *lines = (await server.ask(b"envi")).splitlines()

    assert first == "Environment:"
    assert [line.split("=")[0] for line in lines] == [
        "zookeeper.version",
        "host.name",
        "java.version",
        "java.vendor",
        "java.home",
        "java.class.path",
        "java.library.path",
        "java.io.tmpdir",
        "java.compiler",
        "os.name",
        "os.arch",
        "os.version",
        "user.name",
        "user.home",
        "user.dir",
        "os.memory.free",
        "os.memory.max",
        "os.memory.total",
    ]


async def test_envi_and_srvr_show_same_version(server: LiveServer) -> None:
    version = (await server.ask(b"envi")).splitlines()[1].removeprefix("zookeeper.version=")

    assert (await server.ask(b"srvr")).startswith(f"Zookeeper version: {version}\n")
