"""A datacenter inside a program, as programs meet it: scripts, two at once, exceptions, kill -9. Nothing may be left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from tests.patience import PATIENCE_S, wait_until

from tenure import embedded, workflow
from tenure.client.client import Client

APP = """
    import os, sys, time
    from tenure import JobFailed, embedded, workflow

    @workflow
    def add(ctx, a: int, b: int = 1) -> int:
        return a + b

    @workflow
    def total(ctx, upto: int) -> int:
        jobs = [ctx.submit(add, a=n, b=0) for n in range(upto)]
        ctx.log.info("waiting for %d children", len(jobs))
        return sum(job.wait() for job in jobs)

    @workflow(stall=60)
    def count(ctx, to: int) -> list[int]:
        begun = ctx.resume or 0
        for n in ctx.track(range(begun, to)):
            time.sleep(0.02)
            ctx.checkpoint(n + 1)
        return [begun, to]
"""


def script(folder: Path, main: str) -> Path:
    path = folder / "app.py"
    path.write_text(textwrap.dedent(APP) + textwrap.dedent(main))
    return path


def run(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, path.name], cwd=path.parent, capture_output=True, text=True, timeout=180, check=False
    )


def gone(pid: int) -> bool:
    """Ended, whether or not anybody has taken notice: a test process that adopts orphans does not."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(autouse=True)
def _source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))


def test_a_script_without_a_guard_submits_maps_and_is_told_why(tmp_path: Path) -> None:
    done = run(
        script(
            tmp_path,
            """
            with embedded(workflows=[add, count, total]) as t:
                print(t.submit(add, a=1, b=2).wait(progress=True), t.map(add, range(4)))
                parent = t.submit(total, upto=5)
                print(parent.wait(), [line.text for line in parent.logs()])
                print([job.wait() for job in t.submit_many(add, [{"a": 1}, {"a": 2}])])
                job = t.submit(count, to=10_000)
                try:
                    job.wait(0.3)
                except TimeoutError as error:
                    print(type(error).__name__)
                job.cancel("enough")
                try:
                    job.wait()
                except JobFailed as error:
                    print(error.state, error.reason)
                print(t.host.pid)
            print("main", __name__)
            """,
        )
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["3 [1, 2, 3, 4]", "10 ['waiting for 5 children']", "[2, 3]"]
    assert lines[3:5] == ["JobNotEndedError", "cancelled enough"]
    assert gone(int(lines[5]))
    assert lines[6:] == ["main __main__"]  # once: slots import the script, and stop where its main part begins


def test_what_is_cut_off_by_an_error_or_kill_9_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        if __name__ == "__main__":
            with embedded(workflows=[add, count]) as t:
                job = t.submit(count, to=200, job_id="long")
                print(t.host.pid, flush=True)
                if len(sys.argv) > 1:
                    while job.status().workflows[0].steps < 20:
                        time.sleep(0.05)
                    if sys.argv[1] == "raise":
                        raise ValueError("on purpose")
                    os.kill(os.getpid(), 9)
                print(job.wait())
        """,
    )
    for ending, code in (("raise", 1), ("kill", -signal.SIGKILL)):
        done = subprocess.run(
            [sys.executable, path.name, ending], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == code, done.stderr
        host = int(done.stdout.split()[0])
        wait_until(lambda pid=host: gone(pid), "the host ends when its program is gone")
    done = run(path)
    assert done.returncode == 0, done.stderr
    begun, to = eval(done.stdout.splitlines()[-1])
    assert (begun > 10, to) == (True, 200)


def test_two_programs_on_one_folder_share_their_jobs(tmp_path: Path) -> None:
    main = """
        if __name__ == "__main__":
            with embedded(workflows=[add, count]) as t:
                print(t.submit(add, a=1, job_id="shared").wait(), len(t.jobs().jobs), flush=True)
                sys.stdin.readline()
    """
    path = script(tmp_path, main)
    first, second = (
        subprocess.Popen([sys.executable, path.name], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    )
    try:
        assert [one.stdout.readline() for one in (first, second) if one.stdout] == [b"2 1\n", b"2 1\n"]
    finally:
        codes = [one.communicate(b"\n", PATIENCE_S) and one.returncode for one in (first, second)]
    assert codes == [0, 0]


def test_a_workflow_that_only_this_process_has_runs_in_its_threads_and_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    @workflow
    async def local(ctx: object, n: int) -> int:
        return n + 1

    with embedded(tmp_path, workflows=[local]) as t:
        assert t.submit(local, n=1).wait() == 2
        with Client(t.host.address) as other:
            assert other.get(t.jobs().jobs[0].job_id).wait() == 2
    assert "run in threads of this process" in capfd.readouterr().err


def test_modules_that_cannot_be_imported_are_told_at_once(tmp_path: Path) -> None:
    done = run(
        script(
            tmp_path,
            """
            if __name__ != "__main__":
                raise RuntimeError("only as a script")
            with embedded(workflows=[add]):
                print("not reached")
            """,
        )
    )
    assert done.returncode == 1
    assert "only as a script" in done.stderr
    assert "not reached" not in done.stdout
