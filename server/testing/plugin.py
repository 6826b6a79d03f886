"""The pytest plugin. Every project that has zoolet installed loads it, so it imports modules only on first use."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kazoo.client import KazooClient

    from zoolet.server.testing.cluster.cluster import Cluster
    from zoolet.server.testing.pytest.factories import KazooFactory, ServerFactory
    from zoolet.server.testing.run.registry import Test
    from zoolet.server.testing.server import Server
    from zoolet.server.testing.signatures import ClockName, CompatName

_CHOICES: Final = {
    "zoolet_leaks": ("off", "warn", "error"),
    "zoolet_clock": ("real", "manual"),
    "zoolet_compat": ("3.8", "3.9"),
    "zoolet_scope": ("function", "class", "module", "package", "session"),
}
_FAILURES: Final = pytest.StashKey[list[str]]()
"""Why the server of ``--zoolet-hosts`` could not be reached."""
_SERVER_ONLY: Final = ("data_dir", "begin_from", "tls", "sasl_users", "recording")
_CLUSTER_ONLY: Final = ("members", "observers", "election")
_OPTIONS: Final = ("config", "clock", "compat", "seed", *_SERVER_ONLY, *_CLUSTER_ONLY)
_HOSTS: Final = ("ZOOLET_HOSTS", "ZOOKEEPER_HOSTS")
_FAILED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether a test has failed: then what it has left is not reported, too."""


# --- options ---


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line and of the ini file."""
    group = parser.getgroup("zoolet")
    group.addoption("--zoolet-seed", type=int, metavar="N", help="the seed of the fixture zoolet, to repeat a run")
    group.addoption(
        "--zoolet-hosts",
        metavar="HOSTS",
        help="run the fixtures on a real ZooKeeper that has no nodes, with faults through a proxy in front; tests that "
        "need the embedded server are skipped",
    )
    group.addoption("--zoolet-report", metavar="DIR", help="write a page about the servers for each failing test")
    parser.addini(
        "zoolet_leaks",
        "what to do about sessions, ephemeral nodes, watches and lock contenders that a test leaves: off, warn, error",
        default="warn",
    )
    parser.addini("zoolet_config", "settings of the fixture zoolet: lines key=value, as in zoo.cfg", type="linelist")
    parser.addini("zoolet_clock", "the clock of the fixture zoolet: real, manual", default="real")
    parser.addini("zoolet_compat", "the release that the fixture zoolet reproduces: 3.8, 3.9", default="3.9")
    parser.addini("zoolet_begin_from", "a data directory with whose tree the fixture zoolet begins", default="")
    parser.addini("zoolet_scope", "the scope of the fixture zoolet, as of any fixture", default="function")


def _check_choices(config: pytest.Config) -> None:
    for name, values in _CHOICES.items():
        if (value := config.getini(name)) not in values:
            raise pytest.UsageError(f"{name} is {value!r}; it must be one of {', '.join(values)}")


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    return config.getini("zoolet_scope")


def _options(request: pytest.FixtureRequest, foreign: tuple[str, ...] = _CLUSTER_ONLY) -> dict[str, Any]:
    """Return the arguments of the server: from the ini file, the command line, and the markers, the nearest last.

    Args:
        request: The request for a fixture.
        foreign: Those that are for another fixture: without that one in the test, they are errors.
    """
    has_both = {"zoolet", "zoolet_cluster"} <= set(request.fixturenames)
    options, settings = _ini_options(request.config)
    for marker in reversed(list(request.node.iter_markers("zoolet"))):
        if wrong := [*map(repr, marker.args), *(name for name in marker.kwargs if name not in _OPTIONS)]:
            known = ", ".join(_OPTIONS)
            raise pytest.UsageError(f"@pytest.mark.zoolet has {', '.join(wrong)}; it has {known}, each by its name")
        given = {name: value for name, value in marker.kwargs.items() if name not in foreign}
        if len(given) < len(marker.kwargs) and not has_both:
            wrong = [name for name in marker.kwargs if name in foreign]
            raise pytest.UsageError(
                f"{request.node.nodeid}: the marker has {', '.join(wrong)}, which {request.fixturename} has not"
            )
        settings.update(_settings_of(given.pop("config", None)))
        options.update(given)
    return {**options, "config": settings}


def _ini_options(config: pytest.Config) -> tuple[dict[str, Any], dict[str, object]]:
    """Return the arguments of the server from the ini file and the command line, and its settings."""
    settings: dict[str, object] = {}
    for line in config.getini("zoolet_config"):
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"zoolet_config has the line {line!r}; each line must be key=value")
        settings[key.strip()] = value.strip()
    options = {
        "clock": config.getini("zoolet_clock"),
        "compat": config.getini("zoolet_compat"),
        "seed": config.getoption("zoolet_seed"),
        "begin_from": config.rootpath / folder if (folder := config.getini("zoolet_begin_from")) else None,
    }
    return options, settings


def _settings_of(config: object) -> dict[str, object]:
    if config is not None and not isinstance(config, dict):
        raise pytest.UsageError(f"@pytest.mark.zoolet has config={config!r}; it must be a dict of keys of zoo.cfg")
    return config or {}


# --- asyncio ---


class _WithoutAsyncio:
    """Replaces :mod:`.client_fixtures` if there is no plugin that runs asyncio fixtures."""

    @pytest.fixture
    def zoolet_client_factory(self) -> None:
        """Fail with a message that names the missing plugin."""
        pytest.fail(
            "zoolet_client and zoolet_client_factory need a plugin for asyncio: pip install pytest-asyncio, or anyio",
            pytrace=False,
        )

    @pytest.fixture
    def zoolet_client(self, zoolet_client_factory: None) -> None:
        """Fail as the factory does."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and the fixtures that need a plugin for asyncio."""
    config.addinivalue_line(
        "markers",
        "zoolet(config=None, clock='real', compat='3.9', seed=None, data_dir=None, begin_from=None, tls=False, "
        "sasl_users=None, recording=None, members=3, observers=0, election=0.0): how the fixture zoolet, or "
        "zoolet_cluster, is started; recording=True, or a file, records the first run of a test and replays it "
        "afterwards",
    )
    _check_choices(config)
    plugins = config.pluginmanager
    if plugins.hasplugin("asyncio") or plugins.hasplugin("anyio"):
        from zoolet.server.testing.pytest import client_fixtures as plugin_clients

        plugins.register(plugin_clients, "zoolet-clients")
        if plugins.hasplugin("asyncio"):
            from zoolet.server.testing.pytest import asyncio_fixtures as plugin_asyncio

            plugins.register(plugin_asyncio, "zoolet-asyncio")
    else:
        plugins.register(_WithoutAsyncio(), "zoolet-clients")


# --- servers ---


@pytest.fixture(scope="session")
def zoolet_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A ZooKeeper server for the whole run; its state is that which earlier tests have left."""
    with _server(request.config, {"clock": "real", "seed": request.config.getoption("zoolet_seed")}) as server:
        _begin()  # if the module that knows of servers was imported just now
        yield server


@pytest.fixture(scope=_scope)
def zoolet(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A ZooKeeper server for each test, on a port of its own: a client that another test has left never gets in.

    The environment variables ZOOKEEPER_HOSTS and ZOOLET_HOSTS have its address while it runs.
    """
    options = _options(request)
    file = options.pop("recording", None)
    with ExitStack() as stack:
        try:
            if file is None:
                server = stack.enter_context(_server(request.config, options))
            else:
                server = stack.enter_context(_recorded(request, _recording_file(request, file), options))
        except ValueError as error:
            raise pytest.UsageError(f"the options of the fixture zoolet are invalid: {error}") from None
        _begin()
        stack.enter_context(_in_environment(server.hosts))
        yield server


@contextmanager
def _in_environment(hosts: str) -> Iterator[None]:
    """Set the variables that programs under test read."""
    before = {name: os.environ.get(name) for name in _HOSTS}
    os.environ.update(dict.fromkeys(_HOSTS, hosts))
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture
def _zoolet_of_clients(request: pytest.FixtureRequest) -> Server:
    """The server that fixtures with clients connect to: ``zoolet_cluster`` if the test has it, or else ``zoolet``."""
    server: Server = request.getfixturevalue("zoolet_cluster" if "zoolet_cluster" in request.fixturenames else "zoolet")
    return server


@pytest.fixture
def zoolet_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of three members, with ports of their own, for each test. The ini file, the command line and the marker
    say its configuration, clock, release and seed, as for ``zoolet``; the marker also ``members``, ``observers`` and
    ``election``. The clients of other fixtures connect to it, and the environment variables have its addresses.
    """
    options = {name: value for name, value in _options(request, _SERVER_ONLY).items() if name != "begin_from"}
    try:
        cluster = _cluster(request.config, options)
    except ValueError as error:
        raise pytest.UsageError(f"the options of the fixture zoolet_cluster are invalid: {error}") from None
    with cluster, _in_environment(cluster.hosts):
        _begin()
        yield cluster


def _server(config: pytest.Config, options: dict[str, Any], *arguments: Any) -> Server:
    """Return a server, not started: an embedded one, or with ``--zoolet-hosts`` a real one behind a proxy."""
    if config.getoption("zoolet_hosts") is None:
        from zoolet.server.testing.server import Server

        return Server(*arguments, **options)
    from zoolet.server.testing.real import RealServer

    return cast("Server", _real(RealServer, "zoolet", config, options))


def _cluster(config: pytest.Config, options: dict[str, Any]) -> Cluster:
    """Return a cluster, not started: an embedded one, or with ``--zoolet-hosts`` real servers, each behind a proxy."""
    if config.getoption("zoolet_hosts") is None:
        from zoolet.server.testing.cluster.cluster import Cluster

        return Cluster(options.pop("members", 3), **options)
    from zoolet.server.testing.cluster.real import RealCluster

    return cast("Cluster", _real(RealCluster, "zoolet_cluster", config, options))


def _real(kind: type, fixture: str, config: pytest.Config, options: dict[str, Any]) -> Any:
    """Return real servers behind proxies; skip the test if it needs more than they can do."""
    plain: tuple[object, ...] = (None, False, "real", {})
    needed = [name for name, value in options.items() if value not in plain and name not in ("seed", "compat")]
    if needed:  # not the seed, which the proxy has too, and not the release: that of a real server is given
        pytest.skip(f"{', '.join(needed)} of the fixture {fixture} needs the embedded server, without --zoolet-hosts")
    hosts, failures = config.getoption("zoolet_hosts"), config.stash.setdefault(_FAILURES, [])
    return kind(hosts, seed=options.get("seed"), failures=failures)


def _recording_file(request: pytest.FixtureRequest, file: object) -> Path:
    """Return the file of a test's recording: as it is given, or for True one of its own."""
    if file is True:
        name = "".join(each if each.isalnum() or each in "-_." else "-" for each in request.node.name)
        return request.path.with_name(f"{request.path.stem}.{name}.zoolet")
    if not isinstance(file, str | os.PathLike):
        raise pytest.UsageError(f"@pytest.mark.zoolet has recording={file!r}; it must be the name of a file, or True")
    return request.path.parent / file


@contextmanager
def _recorded(request: pytest.FixtureRequest, path: Path, options: dict[str, Any]) -> Iterator[Server]:
    """Serve, and record what passes in a file, unless the test fails; if the file is there, replay it instead."""
    from zoolet.server.testing.recording.recording import Recording

    if path.exists():
        from zoolet.server.testing.recording.canned import CannedServer

        with CannedServer(Recording.load(path).entries, "127.0.0.1", 0, strict=True, answers=True) as canned:
            yield cast("Server", canned)  # as far as it goes: an AttributeError says what needs a server
        return
    with _server(request.config, options) as server:
        with server.recording() as recording:
            yield server
        if not request.node.stash.get(_FAILED, False):
            recording.save(path)


def zoolet_fixture(
    scope: Literal["session", "package", "module", "class", "function"] = "function",
    *,
    clock: ClockName | None = None,
    seed: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    begin_from: str | os.PathLike[str] | None = None,
    tls: bool = False,
    sasl_users: Mapping[str, str] | None = None,
    config: Mapping[str, object] | None = None,
    compat: CompatName | None = None,
) -> Any:
    """Return a fixture that is one more ZooKeeper server, beside ``zoolet``, with a scope of its own::

        shared_zoolet = zoolet_fixture(scope="session", config={"maxClientCnxns": 5})

    in a ``conftest.py`` or a test's module; tests have it as ``def test_it(shared_zoolet: Server)``. The arguments are
    those of ``Server``; what is left out is as the ini file and the command line say. The marker is for ``zoolet``.
    """
    given = {"clock": clock, "seed": seed, "data_dir": data_dir, "begin_from": begin_from, "compat": compat}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    options |= {"tls": tls, "sasl_users": sasl_users}

    @pytest.fixture(scope=scope)
    def one_more(request: pytest.FixtureRequest) -> Iterator[Server]:
        if request.config.getoption("zoolet_hosts"):
            pytest.skip("a second server needs embedded ones, without --zoolet-hosts")
        from zoolet.server.testing.server import Server

        known, settings = _ini_options(request.config)
        if data_dir is not None:
            known.pop("begin_from")
        with Server(**{**known, **options, "config": {**settings, **(config or {})}}) as server:
            _begin()
            yield server

    return one_more


class _Servers:
    """Starts servers; the value of ``zoolet_factory``."""

    def __init__(self, config: pytest.Config, options: dict[str, Any]) -> None:
        self.started: list[Server] = []
        self._config = config
        self._options = options

    def __call__(self, *arguments: Any, **options: Any) -> Server:
        config = options.pop("config", None)
        if config is None or isinstance(config, dict):
            options["config"] = {**self._options["config"], **(config or {})}
        else:
            options["config"] = config
        if self.started and self._config.getoption("zoolet_hosts"):
            pytest.skip("a second server needs embedded ones, without --zoolet-hosts")
        server = _server(self._config, {**self._options, **options}, *arguments)
        server.start()
        _begin()
        self.started.append(server)
        return server


@pytest.fixture
def zoolet_factory(request: pytest.FixtureRequest) -> Iterator[ServerFactory]:
    """Start more ZooKeeper servers, with the arguments of ``Server``; they run until the end of the test. What is left
    out is as for ``zoolet``: the ini file's, the command line's, and the marker's, without a data directory.
    """
    options = _options(request)
    del options["begin_from"]
    for own in ("data_dir", "recording"):
        options.pop(own, None)
    servers = _Servers(request.config, options)
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
    """Start KazooClients for ``zoolet``, or the test's ``zoolet_cluster``, with the arguments of ``KazooClient``; they
    are stopped at the end.
    """
    from kazoo.client import KazooClient

    from zoolet.server.testing.run.clients import authority_of, heal_all, session_id_of

    clients: list[KazooClient] = []
    zoolet = _zoolet_of_clients

    def connect(hosts: str | None = None, **options: Any) -> KazooClient:
        servers = [zoolet, *getattr(zoolet_factory, "started", ())]
        if (authority := authority_of(servers, hosts or zoolet.hosts)) is not None:
            options = {"use_ssl": True, "ca": str(authority), **options}
        client = KazooClient(hosts or zoolet.hosts, **options)
        clients.append(client)
        client.start()
        return client

    yield connect
    others = getattr(zoolet_factory, "started", ())
    servers = heal_all([zoolet, *others])
    for client in clients:
        session_id = session_id_of(client, 0)
        client.stop()
        client.close()
        for server in servers:
            if session_id in server.sessions():  # the client had no connection on which to close it
                with suppress(LookupError, RuntimeError):  # it has ended just now, or there is no leader
                    server.expire(session_id)


# --- what failing tests show, and what tests leave ---


def _registry() -> Any:
    """Return the module that knows all servers; None while nothing has imported it."""
    return sys.modules.get("zoolet.server.testing.run.registry")


def _begin() -> None:
    known = _registry()
    if known is not None and known.test is None:
        known.test = known.Test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Begin to watch the servers of this process."""
    _begin()
    _check_markers(item)
    return (yield)


def _check_markers(item: pytest.Item) -> None:
    """Raise a UsageError if a test has a marker for a server that others share."""
    names = set(getattr(item, "fixturenames", ()))
    if "zoolet_server" in names and not names & {"zoolet", "zoolet_factory", "zoolet_cluster"}:
        if any(marker.name == "zoolet" for marker in item.own_markers):
            raise pytest.UsageError(
                f"{item.nodeid} has @pytest.mark.zoolet, which is for the fixture zoolet: "
                "the whole run shares zoolet_server"
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
    # A function outside of a class has a server of its own with scope "class".
    shared = item.getparent(kinds[scope]) or (item if scope == "class" else item.session)
    above = set(shared.iter_parents())
    for node, _ in item.iter_markers_with_node("zoolet"):
        if node not in above:
            raise pytest.UsageError(
                f"{node.nodeid} has @pytest.mark.zoolet, and with zoolet_scope = {scope} the server is shared: "
                f"the marker can only be on a {scope}"
            )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Report what the test has left at any server."""
    test = None
    try:
        yield
    finally:
        known = _registry()
        if known is not None:
            test, known.test = known.test, None
    if test is not None:  # and the teardown itself has not failed
        _report_leaks(item, test)


def _report_leaks(item: pytest.Item, test: Test) -> None:
    on_leaks = "off" if item.stash.get(_FAILED, False) else item.config.getini("zoolet_leaks")
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
    """Add the state of all servers to the report of a test that fails."""
    unsupported = getattr(sys.modules.get("zoolet.server.testing.real"), "UnsupportedError", None)
    if unsupported is not None and call.excinfo is not None and call.excinfo.errisinstance(unsupported):
        reason = f"with --zoolet-hosts: {call.excinfo.value}"
        call.excinfo = pytest.ExceptionInfo.from_exception(
            pytest.skip.Exception(reason).with_traceback(call.excinfo.value.__traceback__)
        )
    report = yield
    known = _registry()
    if not report.failed:
        return report
    item.stash[_FAILED] = True
    if call.when == "teardown" or known is None or known.test is None:
        return report
    states = dict(known.test.failed)
    for endpoint in known.test.used():
        states.setdefault(repr(endpoint), known.report_of(endpoint))
    for name, text in states.items():
        report.sections.append(("zoolet" if len(states) == 1 else f"zoolet: {name}", text))
    if (directory := item.config.getoption("zoolet_report")) is not None and states:
        report.sections.append(("zoolet report", _write_page(directory, item.nodeid, report.longreprtext, states)))
    return report


def _write_page(directory: str, test: str, failure: str, states: dict[str, str]) -> str:
    from pathlib import Path

    from zoolet.server.testing.state.report import as_html, file_name

    path = Path(directory) / file_name(test)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(as_html(test, failure, states), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        return f"cannot write {path}: {error.strerror}"
    return str(path)
