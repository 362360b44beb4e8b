from __future__ import annotations

from pathlib import Path

import pytest
from tools.run_tests import TAIL, Result, run_suite, show_failures, show_late, suites
from tools.suite_shares import MOST_S, SHARES, Machine, Usage

from tools import run_tests


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A suite with a failure in a test, one in a fixture, a skip and a success."""
    path = tmp_path_factory.mktemp("suite") / "test_some.py"
    path.write_text(
        "import pytest\n"
        "def test_fine(): print('nobody wants to read this')\n"
        "def test_wrong():\n    print('what the worker said')\n    assert 1 == 2\n"
        "@pytest.fixture\ndef broken(): raise OSError('no such server')\n"
        "def test_broken(broken): pass\n"
        "def test_skipped(): pytest.skip('not today')\n"
    )
    return run_suite("browser", [str(path), "--rootdir", str(path.parent)], quick=False, soak=False)


def test_a_suite_counts_its_tests_and_keeps_what_the_failed_ones_said(ended: Result) -> None:
    assert (ended.ok, ended.passed, ended.failed, ended.skipped) == (False, 1, 2, ["not today"])
    (_, why, printed), (_, broken, _) = ended.failures
    assert "assert 1 == 2" in why
    assert "what the worker said" in printed
    assert "no such server" in broken


def test_tests_of_engines_are_counted_per_engine_with_what_each_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "test_some.py"
    path.write_text(
        "import pytest\n"
        "@pytest.fixture(params=['one', 'two'])\n"
        "def engine(request, record_property):\n"
        "    record_property('engine', request.param)\n"
        "    record_property('refusals', 3 if request.param == 'two' else 0)\n"
        "    return request.param\n"
        "def test_fine(engine): pass\n"
        "def test_more(engine):\n    if engine == 'two': pytest.skip('two refuses it')\n"
        "def test_of_nobody(): pass\n"
    )
    result = run_suite("browser", [str(path), "--rootdir", str(path.parent)], quick=False, soak=False)
    assert result.engines == {"one": {"passed": 2, "refusals": 0}, "two": {"passed": 1, "skipped": 1, "refusals": 3}}
    run_tests.show_engines([result])
    shown = capsys.readouterr().out.splitlines()
    assert [line.split() for line in shown if line.startswith(("one", "two"))] == [
        ["one", "2", "0", "0", "0"],
        ["two", "1", "0", "1", "3"],
    ]


def test_failures_are_shown_with_what_was_printed(ended: Result, capsys: pytest.CaptureFixture[str]) -> None:
    show_failures([ended])
    shown = capsys.readouterr().out
    for words in ("FAILED", "test_wrong", "assert 1 == 2", "what the worker said", "no such server"):
        assert words in shown
    assert "nobody wants to read this" not in shown


@pytest.mark.parametrize("count", [1, 3, 50])
def test_failures_fit_into_the_tail_of_a_log_that_ci_keeps(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    failures = [(f"test_{n}", "x" * 50_000 + "the error", "y" * 50_000 + "the last words") for n in range(count)]
    show_failures([Result("process", 1.0, False, failures=failures)])
    shown = capsys.readouterr().out
    assert len(shown) < TAIL * 1.25
    details, _, names = shown.partition(f"{count} FAILED:")
    assert details.count("the error") == details.count("the last words") == min(count, 20)
    assert names.count("test_") == min(count, run_tests.LINES)


def test_the_very_last_lines_name_each_failed_test_with_its_error_also_a_lost_worker_and_a_timeout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "test_some.py"
    path.write_text(
        "import os, time, pytest\n"
        "def test_lost(): os._exit(3)\n"
        "@pytest.mark.timeout(1)\ndef test_hangs(): time.sleep(60)\n"
        "def test_wrong():\n    assert 1 == 2\n"
    )
    ended = run_suite("seeds", [str(path), "--rootdir", str(tmp_path)], quick=False, soak=False)
    capsys.readouterr()
    show_failures([ended])
    assert set(capsys.readouterr().out.splitlines()[-4:]) == {
        "3 FAILED:",
        "  test_some::test_hangs: Failed: Timeout (>1.0s) from pytest-timeout.",
        next(line for line in run_tests.failed_lines([ended]) if "test_lost: worker 'gw" in line),
        "  test_some::test_wrong: assert 1 == 2",
    }


def test_a_suite_that_ends_without_naming_a_test_leaves_its_last_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conftest.py").write_text("def pytest_collection_modifyitems(items): raise KeyError('a broken hook')\n")
    (tmp_path / "test_some.py").write_text("def test_it(): pass\n")
    ended = run_suite("browser", [str(tmp_path), "--rootdir", str(tmp_path)], quick=False, soak=False)
    capsys.readouterr()
    show_failures([ended])
    assert not ended.ok
    assert "a broken hook" in capsys.readouterr().out


def test_a_check_that_fails_is_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_tests.check("lint", ["sh", "-c", "echo line 3 is wrong; exit 1"])
    assert not result.ok
    show_failures([result])
    shown = capsys.readouterr().out
    assert "line 3 is wrong" in shown.split("=== FAILED")[1]
    # The last lines are all that CI keeps: they name the check, and say what it said.
    assert shown.splitlines()[-2:] == ["  check lint:", "    line 3 is wrong"]


def test_many_failed_tests_do_not_hide_a_failed_check() -> None:
    check = run_tests.check("readability", ["sh", "-c", "echo a docstring without a subject; exit 1"])
    tests = run_tests.Result("unit", 1.0, ok=False, failures=[(f"test_{n}", "E   wrong", "") for n in range(100)])
    lines = run_tests.failed_lines([check, tests])
    assert lines[-2:] == ["  check readability:", "    a docstring without a subject"]
    assert "  test_0: wrong" in lines


def test_every_suite_has_its_share_and_all_shares_fit_into_twelve_minutes() -> None:
    assert set(suites()) == set(SHARES) - {"checks"}
    one_after_the_other = sum(share.seconds for share in SHARES.values() if not share.together)
    assert one_after_the_other <= MOST_S == 12 * 60
    for host in {share.during for share in SHARES.values() if share.during}:
        assert sum(share.seconds for share in SHARES.values() if share.during == host) <= SHARES[host].seconds
        assert not SHARES[host].together
    assert all(SHARES["checks"].seconds + share.seconds <= MOST_S for share in SHARES.values() if share.beside)


def test_a_suite_that_only_computes_yields_to_the_others_and_is_shown_when_it_ends(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "test_some.py"
    path.write_text("import os\ndef test_priority(): assert os.nice(0) == 19, os.nice(0)\n")
    monkeypatch.setattr(run_tests, "suites", lambda: {"sim": [str(path), "--rootdir", str(tmp_path)]})
    (result,) = run_tests.run_suites(quick=False, soak=False)
    assert (result.ok, result.passed) == (True, 1), result.failures
    assert result.cpu_s > 0
    first, _, then = capfd.readouterr().out.partition("--- sim has ended")
    assert first == "--- sim, beside the others\n"
    assert "1 passed" in then


def test_small_suites_run_one_after_the_other_during_a_large_one_and_the_next_waits_for_all(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each test notes its begin and its end; that of the large suite ends when both small ones have begun."""
    note = "import time\nfrom pathlib import Path\nLOG = Path(__file__).with_name('log')\n"
    note += "def say(word):\n    with LOG.open('a') as out: out.write(word + '\\n')\n"
    bodies = {
        "contract": "while 'fuzz' not in LOG.read_text(): time.sleep(0.01)",
        "seeds": "time.sleep(0.2)",
        "fuzz": "assert 'end seeds' in LOG.read_text(); time.sleep(0.2)",
        "unit": "assert 'end fuzz' in LOG.read_text()",
    }
    (tmp_path / "log").touch()
    collect = {}
    for name, body in bodies.items():
        path = tmp_path / f"test_{name}.py"
        path.write_text(
            f"{note}def test_it():\n    say('begin {name}'); {body}\n    say('end {name}')\n".replace(
                "; while", "\n    while"
            )
        )
        collect[name] = [str(path), "--rootdir", str(tmp_path)]
    monkeypatch.setattr(run_tests, "suites", lambda: collect)
    results = run_tests.run_suites(quick=False, soak=False)
    assert [(one.name, one.ok) for one in results] == [(name, True) for name in bodies], results
    out = capfd.readouterr().out
    assert "--- seeds, during contract\n" in out
    assert "--- fuzz has ended" in out


@pytest.mark.parametrize(("others", "advice"), [(0.0, "find what is slow"), (0.6, "Others had 60% of this machine")])
def test_a_suite_that_takes_longer_than_its_share_is_named_with_what_to_do(
    others: float, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = Result("sim", SHARES["sim"].seconds + 1, True, cpu_s=500.0)
    in_time = Result("unit", SHARES["unit"].seconds - 1, True)
    show_late([slow, in_time], 500.0, Usage(500.0, others))
    (line,) = capsys.readouterr().out.split("!!! LATE: ")[1:]
    assert line.startswith(f"sim took {SHARES['sim'].seconds + 1:.0f} s; its share is")
    assert advice in line


def test_a_whole_run_that_is_late_says_so_unless_the_machine_was_shared(capsys: pytest.CaptureFixture[str]) -> None:
    show_late([], MOST_S + 1, Usage(1_000.0, 0.0))
    assert "!!! LATE: all took 721 s" in capsys.readouterr().out
    show_late([], MOST_S + 1, Usage(1_000.0, 0.9))
    assert capsys.readouterr().out == ""


def test_what_others_do_on_the_machine_is_told_from_what_we_do(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1000 0 1000 5000 10 0 0 0 0 0\ncpu0 ...\n")
    machine = Machine(stat)
    assert not machine.used().starved
    stat.write_text("cpu  9000000 0 1000 5000 10 0 0 0 0 0\n")
    assert machine.used().starved


def test_a_machine_that_counts_nothing_is_taken_for_idle(tmp_path: Path) -> None:
    assert not Machine(tmp_path / "missing").used().starved


def test_what_is_left_to_the_long_runs_is_read_from_the_tests_themselves(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("COUNT = sized('sheep', short=3, long=5_000) * len(MEADOWS)\n")
    assert [line.split() for line in run_tests.left_to_soak(tmp_path)] == [["3", "of", "5,000", "sheep"]]


def test_every_size_of_ours_can_be_read() -> None:
    assert any(line.endswith("schedules of one datacenter") for line in run_tests.left_to_soak())
