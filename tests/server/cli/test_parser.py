"""The options of the ``zoolet`` command, and the rows of the table of keys that they come from."""

from __future__ import annotations

import re

import pytest

from zoolet.server.cli import main, parser
from zoolet.server.config import KEYS, Key

WITH_OPTION = [key for key in KEYS if key.option is not None]


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the help of a command, on one line."""
    with pytest.raises(SystemExit):
        main([command, "--help"])
    return re.sub(r"\s+", " ", capsys.readouterr().out)


def test_the_options_of_the_contract_stand_for_keys() -> None:
    assert {key.option: key.name for key in WITH_OPTION} == {
        "--host": "clientPortAddress",
        "--port": "clientPort",
        "--data-dir": "dataDir",
        "--admin-port": "admin.serverPort",
        "--admin-token-file": "zoolet.adminTokenFile",
        "--secure-port": "secureClientPort",
        "--tls-cert": "ssl.keyStore.location",
        "--tls-key": "ssl.keyStore.key.location",
        "--tls-ca": "ssl.trustStore.location",
    }


@pytest.mark.parametrize("key", WITH_OPTION, ids=lambda key: key.option)
def test_an_option_sets_the_key_of_its_row(key: Key) -> None:
    options = parser().parse_args(["serve", str(key.option), key.example])

    assert getattr(options, key.name) == key.example


@pytest.mark.parametrize("key", WITH_OPTION, ids=lambda key: key.option)
def test_the_help_describes_an_option_as_its_row_does(key: Key, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("serve", capsys)

    assert f"{key.option} " in text
    assert f"{key.name}: {key.help}" in text
    assert f"(default {key.default})" in text or not key.default
