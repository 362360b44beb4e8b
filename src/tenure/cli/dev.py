"""`tenure dev app.py`: manager, worker and API in one command, with the code reloaded as it changes; and `tenure demo`, one job with a crash in it."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import click

from tenure.cli.node_options import friendly
from tenure.cli.options import say
from tenure.clock import SystemClock
from tenure.local.dev import Dev, Gateway, Say, Site, Sources, module_files, module_folder, workflows_in
from tenure.local.embedded import FOLDER
from tenure.work.registry import workflow

FRAMES = 50
CRASH_AT = 30
CHECKPOINT_EVERY = 10
FRAME_S = 0.1


@workflow(stall=5, max_attempts=3)
def encode(ctx: Any, frames: int = FRAMES) -> int:
    """Each frame is a beat. The first attempt kills its own process, as a machine that fails would."""
    clock = SystemClock()
    for frame in range(ctx.resume or 0, frames):
        clock.sleep(FRAME_S)
        ctx.beat(progress=(frame + 1) / frames)
        if frame % CHECKPOINT_EVERY == 0:
            ctx.checkpoint(frame)  # the next attempt begins here
        if ctx.attempt == 1 and frame == CRASH_AT:
            os.kill(os.getpid(), signal.SIGKILL)
    return frames


@click.command("demo")
def demo() -> None:
    """Run a job of five seconds here, with a crash in the middle: its progress, what it returned, and why it went so.

    Everything is on SQLite in a temporary folder, which is removed at the end.
    """
    from tenure.local.embedded import embedded

    with (
        tempfile.TemporaryDirectory(prefix="tenure-demo-") as folder,
        embedded(folder, [encode], slots=1) as datacenter,
    ):
        job = datacenter.submit(encode)
        say(f"job {job.id}: {FRAMES} frames; its process is killed at frame {CRASH_AT}, the first time")
        say(f"it returned {job.wait(progress=True)}\n")
        say(datacenter.why(job.id).text, nl=False)
        say("\nThe same with your own code: tenure dev app.py")


@click.command("dev")
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@click.option(
    "--folder", default=FOLDER, show_default=True, type=click.Path(path_type=Path), help="Where jobs are kept."
)
@click.option("--port", default=8470, show_default=True, help="Of the API; 0 for a free one.")
@click.option("--slots", default=min(4, os.cpu_count() or 2), show_default=True, help="Workflows that run at once.")
@click.option("--stall", default=300.0, show_default=True, help="Seconds without a beat before a workflow is ended.")
@click.option(
    "--datacenters",
    default=1,
    type=click.IntRange(1, 9),
    show_default=True,
    help="More than one: so many, and a gate before them.",
)
def dev(modules: tuple[str, ...], folder: Path, port: int, slots: int, stall: float, datacenters: int) -> None:
    """Run a datacenter for MODULE (a .py file or a dotted name) on SQLite, in a folder. No server is needed.

    \b
    Example:
      tenure dev app.py
      tenure run encode path=a.mov          (in another terminal)
      tenure dev app.py --datacenters 3     (three datacenters, and a gate at the same address)

    When MODULE or a file that it imports changes, the worker starts anew: jobs that run are handed over, and go on from their checkpoints.
    Ctrl-C leaves nothing running, and every job in the folder. Exit codes: 0 after Ctrl-C, 1 when it cannot start.
    """
    paths = [Path(module) for module in modules if module.endswith(".py")]
    for path in paths:
        if not path.is_file():
            raise click.UsageError(f"there is no file {path}")
    served = [str(Path(module).resolve()) if module.endswith(".py") else module for module in modules]
    listeners: list[Dev] = []

    def told(who: str, text: str) -> None:
        for dev in listeners:
            dev.heard(who, text)

    settings = {"slots": slots, "stall_s": stall, "wait_s": 5.0}
    gate = Gateway(folder / "gate", port, told) if datacenters > 1 else None
    sites = (
        [Site(folder, served, port, settings, told)]
        if gate is None
        else [_site_of(folder, number + 1, served, settings, told) for number in range(datacenters)]
    )
    sources, workflows = (
        Sources(module_folder(modules[0]), module_files(modules)),
        lambda: [one for path in paths for one in workflows_in(path)],
    )
    listeners.append(Dev(sites, sources, workflows, gate=gate, clock=SystemClock()))
    _run(listeners[0])


def _run(dev: Dev) -> None:
    """Runs until Ctrl-C or a signal."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        with friendly():
            dev.run()
    except KeyboardInterrupt:
        return
    raise click.ClickException("a manager or the gate ended by itself; the lines above say why")


def _site_of(folder: Path, number: int, modules: list[str], settings: dict[str, Any], say: Say) -> Site:
    """Returns one of several datacenters. It listens on any free port, because clients ask only the gate, and its log lines carry its name."""
    name = f"dc-{number}"
    return Site(folder / name, modules, 0, settings, lambda who, text: say(name, text), name=name)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
