"""The fixtures and hooks of the pytest plugin.

The plugin imports modules on first use, because every project with zoolet installed loads it. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from ..cluster.cluster import Cluster
    from ..registry import Test
    from ..server import Server
    from .factories import KazooFactory, ServerFactory

_INI_CHOICES: Final = {
    "zoolet_leaks": ("off", "warn", "error"),
    "zoolet_clock": ("real", "manual"),
    "zoolet_compat": ("3.8", "3.9"),
    "zoolet_scope": ("function", "class", "module", "package", "session"),
}
STOP_S: Final = 10.0
"""Timeout, in seconds, for a KazooClient to stop at the end of a test."""
_CONNECTION_FAILURES: Final = pytest.StashKey[list[str]]()
"""Errors of failed connections to the server of ``--zoolet-hosts``. Later tests fail without a new attempt."""
_SERVER_OPTIONS: Final = ("data_dir", "initial_data", "sasl_users", "recording")
_CLUSTER_OPTIONS: Final = ("members", "observers", "election")
_MARKER_ARGUMENTS: Final = ("config", "clock", "compat", "seed", "tls", *_SERVER_OPTIONS, *_CLUSTER_OPTIONS)
_HOSTS_VARIABLES: Final = ("ZOOLET_HOSTS", "ZOOKEEPER_HOSTS")
_OLD_VARIABLES: Final = pytest.StashKey[list[tuple[str, dict[str, str | None]]]]()
"""For each server that a test has stopped: its address, and the environment variables before its start."""
_OUTER_TEST: Final = pytest.StashKey["Test | None"]()
"""The outer test, if a test runs pytest in its own process."""
_HAS_READ_MARKER: Final = pytest.StashKey[bool]()
"""Whether a fixture has read the marker of a test."""
_HAS_FAILED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether a test has failed. The leaks of a failed test are not reported."""


# --- options ---


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line and of the ini file."""
    group = parser.getgroup("zoolet")
    group.addoption("--zoolet-seed", type=int, metavar="N", help="seed of the fixture zoolet, to repeat a run")
    group.addoption(
        "--zoolet-hosts",
        metavar="HOSTS",
        help="run the fixtures on a real, empty ZooKeeper behind a proxy for faults; tests that need the embedded "
        "server are skipped",
    )
    group.addoption("--zoolet-report", metavar="DIR", help="write an HTML report on the servers for each failed test")
    parser.addini(
        "zoolet_leaks",
        "how to report sessions, ephemeral nodes, watches and lock contenders that a test leaves: off, warn or error",
        default="warn",
    )
    parser.addini("zoolet_config", "settings of the fixture zoolet: lines key=value, as in zoo.cfg", type="linelist")
    parser.addini("zoolet_clock", "clock of the fixture zoolet: real or manual", default="real")
    parser.addini("zoolet_compat", "release that the fixture zoolet reproduces: 3.8 or 3.9", default="3.9")
    parser.addini("zoolet_initial_data", "data directory with the initial tree of the fixture zoolet", default="")
    parser.addini("zoolet_scope", "scope of the fixture zoolet, such as function or module", default="function")


def _check_choices(config: pytest.Config) -> None:
    for name, values in _INI_CHOICES.items():
        if (value := config.getini(name)) not in values:
            raise pytest.UsageError(f"{name} must be one of {', '.join(values)}, not {value!r}")


def _configured_scope(fixture_name: str, config: pytest.Config) -> Any:
    return config.getini("zoolet_scope")


def _options(request: pytest.FixtureRequest, foreign: tuple[str, ...] = _CLUSTER_OPTIONS) -> dict[str, Any]:
    """Return the server's arguments from the ini file, the command line and the markers. The nearest marker wins.

    Args:
        request: The request for a fixture.
        foreign: Arguments of a different fixture, which are errors unless the test uses that fixture as well.
    """
    has_other = ("zoolet" if foreign is _SERVER_OPTIONS else "zoolet_cluster") in request.fixturenames
    options, settings = _ini_options(request.config)
    request.node.stash[_HAS_READ_MARKER] = True
    for marker in reversed(list(request.node.iter_markers("zoolet"))):
        if wrong := [*map(repr, marker.args), *(name for name in marker.kwargs if name not in _MARKER_ARGUMENTS)]:
            known = ", ".join(_MARKER_ARGUMENTS)
            raise pytest.UsageError(f"@pytest.mark.zoolet has {', '.join(wrong)}; expected keyword arguments: {known}")
        given = {name: value for name, value in marker.kwargs.items() if name not in foreign}
        if len(given) < len(marker.kwargs) and not has_other:
            wrong = [name for name in marker.kwargs if name in foreign]
            raise pytest.UsageError(
                f"{request.node.nodeid}: the marker has {', '.join(wrong)}, "
                f"which the fixture {request.fixturename} does not support"
            )
        settings.update(_marker_settings(given.pop("config", None)))
        options.update(given)
    return {**options, "config": settings}


def _ini_options(config: pytest.Config) -> tuple[dict[str, Any], dict[str, object]]:
    """Return the arguments of the server from the ini file and the command line, and its settings."""
    settings: dict[str, object] = {}
    for line in config.getini("zoolet_config"):
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"invalid line {line!r} in zoolet_config; expected key=value")
        settings[key.strip()] = value.strip()
    options = {
        "clock": config.getini("zoolet_clock"),
        "compat": config.getini("zoolet_compat"),
        "seed": config.getoption("zoolet_seed"),
        "initial_data": config.rootpath / folder if (folder := config.getini("zoolet_initial_data")) else None,
    }
    return options, settings


def _marker_settings(config: object) -> dict[str, object]:
    if config is not None and not isinstance(config, dict):
        raise pytest.UsageError(f"@pytest.mark.zoolet has config={config!r}; expected a dict of zoo.cfg keys")
    return config or {}


# --- asyncio ---


class _MissingPluginFixtures:
    """The fixtures that replace :mod:`.client_fixtures` if no plugin for asyncio fixtures is installed."""

    @pytest.fixture
    def zoolet_client_factory(self) -> None:
        """Fail with a message that names the missing plugin."""
        pytest.fail(
            "zoolet_client and zoolet_client_factory require a plugin: pip install pytest-asyncio, or anyio",
            pytrace=False,
        )

    @pytest.fixture
    def zoolet_client(self, zoolet_client_factory: None) -> None:
        """Fail in the factory, which names the missing plugin."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and the fixtures that need a plugin for asyncio."""
    config.addinivalue_line(
        "markers",
        "zoolet(config=None, clock='real', compat='3.9', seed=None, data_dir=None, initial_data=None, tls=False, "
        "sasl_users=None, recording=None, members=3, observers=0, election=0.0): arguments of the fixtures zoolet and "
        "zoolet_cluster; recording=True, or a file name, records the first run of a test and replays it afterwards",
    )
    _check_choices(config)
    if (hosts := config.getoption("zoolet_hosts")) is not None:
        if config.getoption("numprocesses", None) not in (None, 0, 1):
            raise pytest.UsageError("--zoolet-hosts can run only one test at a time; do not use -n")
        from .. import registry

        config.add_cleanup(partial(setattr, registry, "real_hosts", registry.real_hosts))
        registry.real_hosts = hosts
    plugins = config.pluginmanager
    if plugins.hasplugin("asyncio") or plugins.hasplugin("anyio"):
        from . import client_fixtures as plugin_clients

        plugins.register(plugin_clients, "zoolet-clients")
        if plugins.hasplugin("asyncio"):
            from . import asyncio_fixtures as plugin_asyncio

            plugins.register(plugin_asyncio, "zoolet-asyncio")
    else:
        plugins.register(_MissingPluginFixtures(), "zoolet-clients")


# --- servers ---


@pytest.fixture(scope="session")
def zoolet_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A ZooKeeper server for the whole run, with the state that earlier tests have left."""
    with _make_server(request.config, {"clock": "real", "seed": request.config.getoption("zoolet_seed")}) as server:
        _start_test()  # _make_server() may have been the first to import the registry
        yield server


@pytest.fixture(scope=_configured_scope)
def zoolet(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A ZooKeeper server for each test. The port is new, so clients of earlier tests cannot connect.

    The environment variables ZOOKEEPER_HOSTS and ZOOLET_HOSTS contain its address while it runs.
    """
    options = _options(request)
    file = options.pop("recording", None)
    with ExitStack() as stack:
        try:
            serve: Callable[[], AbstractContextManager[Server]] = partial(_make_server, request.config, options)
            if file is not None:
                from .recordings import record_or_replay

                serve = partial(record_or_replay, request, file, serve)
            server = stack.enter_context(serve())
        except (TypeError, ValueError) as error:
            raise pytest.UsageError(f"the options of the fixture zoolet are invalid: {error}") from None
        _start_test()
        stack.enter_context(_export_hosts(request.config, server.hosts))
        yield server


@contextmanager
def _export_hosts(config: pytest.Config, hosts: str) -> Iterator[None]:
    """Set the environment variables with the addresses, and restore the old values after the block."""
    before = {name: os.environ.get(name) for name in _HOSTS_VARIABLES}
    os.environ.update(dict.fromkeys(_HOSTS_VARIABLES, hosts))
    yield
    _restore_variables(before)
    config.stash.setdefault(_OLD_VARIABLES, []).append((hosts, before))


def _restore_variables(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture
def _zoolet_of_clients(request: pytest.FixtureRequest) -> Server:
    """The server for the fixtures with clients: ``zoolet_cluster`` if the test uses it, or else ``zoolet``."""
    server: Server = request.getfixturevalue("zoolet_cluster" if "zoolet_cluster" in request.fixturenames else "zoolet")
    return server


@pytest.fixture
def zoolet_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster for each test, by default of three members, on new ports.

    The ini file, the command line and the marker set its configuration, clock, release and seed, as for ``zoolet``. The
    marker also sets ``tls``, ``members``, ``observers`` and ``election``. The clients of other fixtures connect to it,
    and the environment variables ZOOKEEPER_HOSTS and ZOOLET_HOSTS contain its addresses.
    """
    options = {name: value for name, value in _options(request, _SERVER_OPTIONS).items() if name != "initial_data"}
    try:
        cluster = _make_cluster(request.config, options)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"the options of the fixture zoolet_cluster are invalid: {error}") from None
    with cluster, _export_hosts(request.config, cluster.hosts):
        _start_test()
        yield cluster


def _make_server(config: pytest.Config, options: dict[str, Any], *arguments: Any) -> Server:
    """Return a new server: embedded, or with ``--zoolet-hosts`` a real server behind a proxy. It is not started."""
    if config.getoption("zoolet_hosts") is None:
        from ..server import Server

        return Server(*arguments, **options)
    return cast("Server", _make_real(config, options))


def _make_cluster(config: pytest.Config, options: dict[str, Any]) -> Cluster:
    """Return a new cluster: embedded, or with ``--zoolet-hosts`` real servers with proxies. It is not started."""
    if config.getoption("zoolet_hosts") is None:
        from ..cluster.cluster import Cluster

        return Cluster(options.pop("members", 3), **options)
    return cast("Cluster", _make_real(config, options, options.pop("members", 3)))


def _make_real(config: pytest.Config, options: dict[str, Any], members: int | None = None) -> Any:
    """Return one real server, or with *members* several, each behind a proxy."""
    from ..cluster.real import make_stand_in

    failures = config.stash.setdefault(_CONNECTION_FAILURES, [])
    return make_stand_in(str(config.getoption("zoolet_hosts")), options, members=members, failures=failures)


def _merged_config(settings: dict[str, object], config: Any) -> Any:
    """Return the configuration of a server: its own file, or the common settings updated with its own settings."""
    return {**settings, **(config or {})} if config is None or isinstance(config, Mapping) else config


def additional_server(scope: Any, options: dict[str, Any]) -> Any:
    """Return the fixture of :func:`~zoolet.testing.zoolet_fixture`."""

    @pytest.fixture(scope=scope)
    def one_more(request: pytest.FixtureRequest) -> Iterator[Server]:
        """An additional ZooKeeper server."""
        if request.config.getoption("zoolet_hosts", "") == "":
            reason = "zoolet_fixture() requires zoolet's pytest plugin, which is off; remove '-p no:zoolet'"
            pytest.fail(f"{reason}, or add '-p zoolet.testing.plugin' if plugins are not loaded by default", False)
        if request.config.getoption("zoolet_hosts"):
            pytest.skip("a second server must be embedded; do not use --zoolet-hosts")
        from ..server import Server

        known, settings = _ini_options(request.config)
        if "data_dir" in options:
            known.pop("initial_data")
        with Server(**{**known, **options, "config": _merged_config(settings, options.get("config"))}) as server:
            _start_test()
            yield server

    return one_more


class _ServerFactory:
    """The value of the fixture ``zoolet_factory``: a function that starts servers, and the started servers."""

    def __init__(self, config: pytest.Config, options: dict[str, Any]) -> None:
        self.started: list[Server] = []
        self._config = config
        self._options = options

    def __call__(self, *arguments: Any, **options: Any) -> Server:
        options["config"] = _merged_config(self._options["config"], options.get("config"))
        if self.started and self._config.getoption("zoolet_hosts"):
            pytest.skip("a second server must be embedded; do not use --zoolet-hosts")
        server = _make_server(self._config, {**self._options, **options}, *arguments)
        server.start()
        _start_test()
        self.started.append(server)
        return server


@pytest.fixture
def zoolet_factory(request: pytest.FixtureRequest) -> Iterator[ServerFactory]:
    """Start additional ZooKeeper servers: ``server = zoolet_factory(clock="manual")``. They run until the test ends.

    The arguments are the same as for ``Server``. Their defaults are the same as for ``zoolet``, from the ini file, the
    command line and the marker, but without a data directory.
    """
    options = _options(request)
    del options["initial_data"]
    for own in ("data_dir", "recording"):
        options.pop(own, None)
    servers = _ServerFactory(request.config, options)
    yield servers
    for server in servers.started:
        server.__exit__(None, None, None)


# --- KazooClients ---


@pytest.fixture
def zoolet_kazoo(zoolet_kazoo_factory: KazooFactory) -> KazooClient:
    """A connected KazooClient of ``zoolet``, stopped at the end of the test."""
    return zoolet_kazoo_factory()


@pytest.fixture
def zoolet_kazoo_factory(_zoolet_of_clients: Server, zoolet_factory: ServerFactory) -> Iterator[KazooFactory]:
    """Start KazooClients for ``zoolet`` or the test's ``zoolet_cluster``: ``zk = zoolet_kazoo_factory(timeout=2.0)``.

    The arguments are the same as for ``KazooClient``. The clients are stopped at the end of the test.
    """
    try:
        from kazoo.client import KazooClient
    except ModuleNotFoundError:
        pytest.fail("zoolet_kazoo and zoolet_kazoo_factory require kazoo: pip install kazoo", pytrace=False)
    from ..registry import heal_all
    from ..run.clients import name_client, session_id_of, stop_kazoo, trusted_ca_file
    from ..state import report

    clients: dict[KazooClient, str] = {}
    zoolet = _zoolet_of_clients

    def connect(hosts: str | None = None, **options: Any) -> KazooClient:
        servers = [zoolet, *getattr(zoolet_factory, "started", ())]
        if (authority := trusted_ca_file(servers, hosts or zoolet.hosts)) is not None:
            options = {"use_ssl": True, "ca": str(authority), **options}
        client = KazooClient(hosts or zoolet.hosts, **options)
        clients[client] = "zoolet_kazoo"
        client.start()
        clients[client] = name_client(client, "zoolet_kazoo")
        return client

    yield connect
    report.names.clear()
    others = getattr(zoolet_factory, "started", ())
    servers = heal_all([zoolet, *others])
    for client, name in clients.items():
        session_id = session_id_of(client, 0)
        if not stop_kazoo(client, STOP_S):
            problem = f"{name} did not stop within {STOP_S} s; does one of its listeners or watch functions wait?"
            warnings.warn(pytest.PytestWarning(problem), stacklevel=1)
        for server in servers:
            if session_id in server.sessions():  # the client had no connection to close its session
                with suppress(LookupError, RuntimeError):  # the session may have expired, or the cluster has no leader
                    server.expire(session_id)


# --- failed tests and leaks ---


def _registry() -> Any:
    """Return the module with the registry of servers, or None if nothing has imported it."""
    return sys.modules.get("zoolet.testing.registry")


def _start_test() -> None:
    known = _registry()
    if known is not None and known.test is None:
        known.test = known.Test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Start to track the servers that the test uses, and check its markers."""
    item.stash[_HAS_FAILED] = False  # a plugin may repeat a failed test
    known = _registry()
    item.stash[_OUTER_TEST] = None if known is None else known.test  # the test that runs this pytest in its own process
    if known is not None:
        known.test = known.Test()
    _check_markers(item)
    return (yield)


def _check_markers(item: pytest.Item) -> None:
    """Raise a UsageError if a test has a marker for a server that it shares with other tests."""
    names = set(getattr(item, "fixturenames", ()))
    if "zoolet_server" in names and not names & {"zoolet", "zoolet_factory", "zoolet_cluster"}:
        if any(marker.name == "zoolet" for marker in item.own_markers):
            raise pytest.UsageError(
                f"{item.nodeid} has @pytest.mark.zoolet, which is for the fixture zoolet; "
                "the whole run shares zoolet_server; use the fixture zoolet, or remove the marker"
            )
    scope = item.config.getini("zoolet_scope")
    if scope == "function" or "zoolet" not in getattr(item, "fixturenames", ()):
        return
    kinds: dict[str, Any] = {
        "class": pytest.Class,
        "module": pytest.Module,
        "package": pytest.Package,
        "session": pytest.Session,
    }
    # With the scope "class", each function outside a class gets its own server.
    shared = item.getparent(kinds[scope]) or (item if scope == "class" else item.session)
    above = set(shared.listchain())
    for node, _ in item.iter_markers_with_node("zoolet"):
        if node not in above:
            raise pytest.UsageError(
                f"{node.nodeid} has @pytest.mark.zoolet, but with zoolet_scope = {scope} its server is shared; "
                f"put the marker on a {scope}"
            )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Warn about a marker that has no effect."""
    yield
    if _HAS_READ_MARKER not in item.stash and any(marker.name == "zoolet" for marker in item.own_markers):
        warnings.warn(
            pytest.PytestWarning(f"{item.nodeid} has @pytest.mark.zoolet, but no fixture reads it"), stacklevel=1
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Restore the environment variables, and report the leaks of the test."""
    test = None
    try:
        yield
    finally:
        for hosts, before in item.config.stash.get(_OLD_VARIABLES, ()):  # a monkeypatch may have set variables again
            _restore_variables({name: value for name, value in before.items() if os.environ.get(name) == hosts})
        item.config.stash[_OLD_VARIABLES] = []
        known = _registry()
        if known is not None:
            test, known.test = known.test, item.stash.get(_OUTER_TEST, None)
    if test is not None:  # leaks are not reported after a failed teardown
        _report_leaks(item, test)


def _report_leaks(item: pytest.Item, test: Test) -> None:
    on_leaks = "off" if item.stash.get(_HAS_FAILED, False) else item.config.getini("zoolet_leaks")
    left = test.end() if on_leaks != "off" else {}
    if not left:
        return
    lines = [line for name, leaks in left.items() for line in (f"  at {name}:", *(f"    {leak}" for leak in leaks))]
    message = f"{item.nodeid} has left at zoolet:\n" + "\n".join(lines)
    if on_leaks == "error":
        pytest.fail(message, pytrace=False)
    warnings.warn(pytest.PytestWarning(message), stacklevel=1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of the servers to the report of a failed test, and skip tests that need an embedded server."""
    real: Any = sys.modules.get("zoolet.testing.real")
    error = None if call.excinfo is None else call.excinfo.value
    if real is not None and error is not None and isinstance(error, real.UnsupportedError | real.LeftoverError):
        outcome: BaseException = pytest.skip.Exception(f"with --zoolet-hosts: {error}")
        if isinstance(error, real.LeftoverError):  # every later test would fail for the same reason
            item.session.shouldstop = str(error)
            outcome = pytest.fail.Exception(str(error), pytrace=False)
        call.excinfo = pytest.ExceptionInfo.from_exception(outcome.with_traceback(error.__traceback__))
    report = yield
    recordings: Any = sys.modules.get("zoolet.testing.pytest.recordings")
    if recordings is not None:
        recordings.receive(item.config, report)
    known = _registry()
    if not report.failed:
        return report
    item.stash[_HAS_FAILED] = True
    if call.when == "teardown" or known is None or known.test is None:
        return report
    states = dict(known.test.failed)
    for endpoint in known.test.used():
        states.setdefault(repr(endpoint), known.report_of(endpoint))
    for name, text in states.items():
        report.sections.append(("zoolet" if len(states) == 1 else f"zoolet: {name}", text))
    if (directory := item.config.getoption("zoolet_report")) is not None and states:
        from ..state.report import write_page

        directory = item.config.invocation_params.dir / directory  # the test may have changed the working directory
        report.sections.append(("zoolet report", write_page(directory, item.nodeid, report.longreprtext, states)))
    return report
