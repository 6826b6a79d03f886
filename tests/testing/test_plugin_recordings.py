"""Recordings of the fixture ``zoolet``: each belongs to one test, and only a test that passes is kept."""

from __future__ import annotations

import kazoo.client  # noqa: F401 - what a pytest in this process imports first, it forgets at its end
import pytest

RECORDED = "import pytest\nfrom kazoo.exceptions import NoNodeError\n\n"
TWO_CLASSES = (
    RECORDED
    + """
class TestOld:
    @pytest.mark.zoolet(recording=True)
    def test_it(self, zoolet_kazoo):
        zoolet_kazoo.create("/a")
        zoolet_kazoo.get("/a")

class TestNew:
    @pytest.mark.zoolet(recording=True)
    def test_it(self, zoolet_kazoo):
        with pytest.raises(NoNodeError):
            zoolet_kazoo.get("/a")
"""
)
ODD_PARAMETERS = (
    RECORDED
    + """
@pytest.mark.zoolet(recording=True)
@pytest.mark.parametrize("name", ["a/b", "a b", "a-b", "long" * 100])
def test_it(zoolet_kazoo, name):
    zoolet_kazoo.create("/" + name.replace("/", "~"))
"""
)


def recordings(project: pytest.Pytester) -> list[str]:
    """Return the names of the recordings in a project."""
    return sorted(path.name for path in project.path.glob("*.zoolet"))


@pytest.mark.parametrize(("code", "count"), [(TWO_CLASSES, 2), (ODD_PARAMETERS, 4)], ids=["classes", "parameters"])
def test_tests_do_not_share_recordings(project: pytest.Pytester, code: str, count: int) -> None:
    project.makepyfile(code)

    for _ in range(2):
        project.runpytest_inprocess().assert_outcomes(passed=count)
    assert len(recordings(project)) == count


def test_recording_of_different_test_is_refused(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_shared=RECORDED
        + """
@pytest.mark.zoolet(recording="shared.zoolet")
class TestBoth:
    def test_first(self, zoolet_kazoo):
        zoolet_kazoo.exists("/")

    def test_second(self, zoolet_kazoo):
        zoolet_kazoo.exists("/")
"""
    )
    project.runpytest_inprocess().assert_outcomes(passed=1, errors=1)

    result = project.runpytest_inprocess("-k", "second")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*shared.zoolet is the recording of test_shared.py::TestBoth::test_first, not of *::test_second; use a *"]
    )


@pytest.mark.parametrize(
    "ending",
    [
        "pytest.skip('half-way')",
        "pytest.xfail('half-way')",
        "raise KeyboardInterrupt",
        "assert False",
        "request.addfinalizer(lambda: 1 / 0)",
    ],
)
def test_unfinished_run_is_not_recorded(project: pytest.Pytester, ending: str) -> None:
    project.makepyfile(
        RECORDED
        + f"""
@pytest.mark.zoolet(recording=True)
def test_it(request, zoolet_kazoo):
    zoolet_kazoo.exists("/")
    {ending}
"""
    )

    result = project.runpytest_subprocess()  # an interrupt would also end the run of this test

    assert result.ret != pytest.ExitCode.USAGE_ERROR
    assert recordings(project) == []


def test_recording_of_shared_server_is_refused(project: pytest.Pytester) -> None:
    path = project.path / "tox.ini"
    path.write_text(path.read_text() + "\nzoolet_scope = module\n")
    project.makepyfile(
        RECORDED
        + """
pytestmark = pytest.mark.zoolet(recording=True)

def test_it(zoolet_kazoo): ...
"""
    )

    result = project.runpytest_inprocess()

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*recording=True, but with zoolet_scope = module its server is shared*"])


def test_recording_of_same_test_in_other_folder_raises(project: pytest.Pytester) -> None:
    for folder in ("one", "two"):
        (project.path / folder).mkdir()
        (project.path / folder / "__init__.py").touch()
        (project.path / folder / "test_it.py").write_text(
            RECORDED
            + """
@pytest.mark.zoolet(recording="../shared.zoolet")
def test_it(zoolet_kazoo):
    zoolet_kazoo.exists("/")
"""
        )

    result = project.runpytest_inprocess()

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*shared.zoolet is the recording of one/test_it.py::test_it, not of two/test_it.py*"])


def test_unwritable_recording_fails_its_test_alone(project: pytest.Pytester) -> None:
    (project.path / "file").touch()
    project.makepyfile(
        RECORDED
        + """
@pytest.mark.zoolet(recording="file/session.zoolet")
def test_first(zoolet_kazoo): ...

@pytest.mark.zoolet(recording="new/folder/session.zoolet")
def test_second(zoolet_kazoo): ...
"""
    )

    result = project.runpytest_inprocess()

    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["cannot write */file/session.zoolet: *"])
    assert [path.name for path in (project.path / "new" / "folder").iterdir()] == ["session.zoolet"]


def test_rerun_of_failed_test_is_recorded_and_checked(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):  # runs a failed test again, as pytest-rerunfailures does
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            for _ in range(2):
                item._initrequest()
                reports = runtestprotocol(item, nextitem=nextitem, log=False)
                if not any(report.failed for report in reports):
                    break
            for report in reports:
                item.ihook.pytest_runtest_logreport(report=report)
            return True
        """
    )
    project.makepyfile(
        RECORDED
        + """
attempts = []

@pytest.mark.zoolet(recording=True)
def test_it(zoolet, zoolet_kazoo):
    attempts.append(1)
    zoolet_kazoo.exists("/")
    assert len(attempts) == 2

def test_leak(zoolet, request):
    from kazoo.client import KazooClient

    zk = KazooClient(zoolet.hosts)
    zk.start()
    request.config.add_cleanup(zk.close)
    request.config.add_cleanup(zk.stop)
    attempts.append(1)
    assert len(attempts) == 4
"""
    )

    result = project.runpytest_inprocess()

    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*::test_leak has left at zoolet:*"])
    assert len(recordings(project)) == 1


def test_recording_has_no_credentials(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    project.makepyfile(
        RECORDED
        + """
import os

@pytest.mark.zoolet(recording=True)
def test_it(zoolet_kazoo):
    zoolet_kazoo.add_auth("digest", os.environ["CREDENTIALS"])
    zoolet_kazoo.exists("/")
"""
    )
    monkeypatch.setenv("CREDENTIALS", "user:first-password")
    project.runpytest_inprocess().assert_outcomes(passed=1)
    [name] = recordings(project)
    assert b"first-password" not in (project.path / name).read_bytes()

    monkeypatch.setenv("CREDENTIALS", "user:other-password")
    project.runpytest_inprocess().assert_outcomes(passed=1)
