"""The plugin as users meet it: fixtures in a test file of theirs, run by their own pytest."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tools.servers import CannotStart, binaries

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow
DOCS = Path(__file__).parent.parent.parent / "docs" / "testing.md"
OPTIONS = ("-q", "-pno:cacheprovider", "-pno:schemathesis", "-pno:anyio", "-W", "ignore")


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> None:
    """Where Tenure is installed its plugin is found by itself; here the source tree is tested."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path))


def test_every_example_of_the_documentation_passes(pytester: pytest.Pytester) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(blocks) >= 3
    for number, block in enumerate(blocks):
        pytester.makepyfile(**{f"test_block_{number}": block})
    done = pytester.runpytest_subprocess(*OPTIONS)
    outcomes = done.parseoutcomes()
    assert outcomes.get("failed", 0) == outcomes.get("errors", 0) == 0
    assert outcomes["passed"] >= 5


def test_a_real_server_is_started_from_the_path_and_each_test_has_its_own_part(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        program = binaries.find("valkey-server")
    except CannotStart as reason:
        pytest.skip(str(reason))
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("TENURE_TEST_REDIS_URL", raising=False)
    pytester.makepyfile("""
        import pytest
        from tenure.engines import Engine

        @pytest.mark.parametrize("time", [1, 2])
        def test_a_mailbox_on_redis(tenure_redis_url, time):
            with Engine.open(tenure_redis_url) as engine:
                mailbox = engine.mailbox("m")
                assert mailbox.depth().ready == 0
                mailbox.send({"n": 1})
                assert mailbox.receive()[0].body == {"n": 1}
    """)
    pytester.runpytest_subprocess(*OPTIONS).assert_outcomes(passed=2)


def test_a_server_that_cannot_be_had_is_a_skip_that_says_what_would_help(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("TENURE_TEST_NATS_URL", raising=False)
    pytester.makepyfile("def test_it(tenure_nats_url): assert False")
    done = pytester.runpytest_subprocess(*OPTIONS, "-rs")
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines(["*install nats-server, or set TENURE_TEST_NATS_URL*"])
