"""What all tests share: pytest's own means of testing plugins, and Ctrl-C."""

import signal

import pytest

pytest_plugins = ["pytester"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell has started this run in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project that says nothing of zoolet; its options are about plugins that this test environment has."""
    pytester.makeini(
        """
        [pytest]
        addopts = -p no:hypothesispytest
        asyncio_default_fixture_loop_scope = function
        filterwarnings = default
        """
    )
    return pytester
