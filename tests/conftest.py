"""Shared setup of all tests: Ctrl-C, fast garbage collection, and an option for the general forms of requests."""

import contextlib
import gc
import importlib
import signal
import sys
from pathlib import Path

import pytest

# A pytest that runs inside a test removes the modules that it imported. If these two were imported a second time, their
# compiled parts would know only the classes of the first time.
for name in ("msgpack", "cryptography.hazmat.primitives.asymmetric.ec"):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell started the run in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an option to test the general forms of requests."""
    parser.addoption("--general-forms", action="store_true", help="execute no request in its straight form")


def pytest_configure(config: pytest.Config) -> None:
    """Hide the straight forms of requests if the option is set."""
    if config.getoption("--general-forms"):
        from support.forms import general_forms

        forms = general_forms()
        forms.__enter__()
        config.add_cleanup(lambda: forms.__exit__(None, None, None))


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leave these tests out of the run of a project that contains a clone: they need the clone's settings."""
    clone = Path(__file__).resolve().parents[1]
    is_inside = config.rootpath.resolve() in clone.parents
    return True if is_inside and not config.invocation_params.dir.resolve().is_relative_to(clone) else None


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection, which makes ``gc.collect`` in a test fast."""
    if "hypothesis" in sys.modules:  # if imported later, it treats objects that only frozen objects refer to as garbage
        gc.collect()
        gc.freeze()


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project without settings for zoolet. Its options configure other plugins in this test environment."""
    pytester.makeini(
        """
        [pytest]
        addopts = -p no:hypothesispytest
        asyncio_default_fixture_loop_scope = function
        filterwarnings = default
        """
    )
    return pytester
