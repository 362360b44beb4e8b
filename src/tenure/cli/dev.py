"""`tenure dev app.py`: manager, worker and API in one command, with the code reloaded as it changes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import click

from tenure.clock import SystemClock
from tenure.errors import TenureError
from tenure.local.dev import Dev, module_folder
from tenure.local.embedded import FOLDER
from tenure.local.site import Site
from tenure.local.sources import Sources, workflows_in


@click.command("dev")
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@click.option(
    "--folder", default=FOLDER, show_default=True, type=click.Path(path_type=Path), help="Where jobs are kept."
)
@click.option("--port", default=8470, show_default=True, help="Of the API; 0 for a free one.")
@click.option("--slots", default=min(4, os.cpu_count() or 2), show_default=True, help="Workflows that run at once.")
@click.option("--stall", default=300.0, show_default=True, help="Seconds without a beat before a workflow is ended.")
@click.option("--datacenters", default=1, show_default=True, help="More than one: so many, and a gate before them.")
def command(modules: tuple[str, ...], folder: Path, port: int, slots: int, stall: float, datacenters: int) -> None:
    """Run a datacenter for MODULE (a .py file or a dotted name) on SQLite, in a folder. No server is needed.

    \b
    Example:
      tenure dev app.py
      tenure run encode path=a.mov          (in another terminal)
      tenure dev app.py --datacenters 3     (three datacenters and a gate; code is not reloaded)

    When a source file changes, the worker starts anew: jobs that run are handed over, and go on from their checkpoints.
    Ctrl-C leaves nothing running, and every job in the folder. Exit codes: 0 after Ctrl-C, 1 when it cannot start.
    """
    paths = [Path(module) for module in modules if module.endswith(".py")]
    for path in paths:
        if not path.is_file():
            raise click.UsageError(f"there is no file {path}")
    served = [str(Path(module).resolve()) if module.endswith(".py") else module for module in modules]
    if datacenters > 1:
        _world(served, folder, port, slots, datacenters)
        return
    say: list[Dev] = []
    site = Site(
        folder,
        served,
        port,
        {"slots": slots, "stall_s": stall, "wait_s": 5.0},
        lambda who, text: say[0].say(who, text, "dim") if say else None,
    )
    dev = Dev(
        site,
        Sources(module_folder(modules[0])),
        lambda: [found for path in paths for found in workflows_in(path)],
        clock=SystemClock(),
    )
    say.append(dev)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        dev.run()
    except KeyboardInterrupt:
        return
    except TenureError as error:
        raise click.ClickException(str(error)) from error
    raise click.ClickException("the manager ended by itself; the lines above say why")


def _world(modules: list[str], folder: Path, port: int, slots: int, count: int) -> None:
    """Several datacenters and a gate: for trying out what is only true of several. Code is read once, at the start."""
    from tenure.demo.cluster import Cluster, Tempo

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    names = [f"dc-{number + 1}" for number in range(count)]
    try:
        (folder / "world").mkdir(parents=True, exist_ok=True)
        click.echo(f"starting {count} datacenters and a gate in {folder / 'world'} …", err=True)
        with Cluster(
            folder / "world", modules, datacenters=names, gates=1, slots=slots, tempo=Tempo(0.2), port=port
        ) as cluster:
            click.echo(f"the gate listens on {cluster.gate_addresses[0]}; datacenters: {', '.join(names)}", err=True)
            while all(node.process.poll() is None for node in cluster.nodes()):
                SystemClock().sleep(0.5)
            gone = next(node for node in cluster.nodes() if node.process.poll() is not None)
            raise click.ClickException(f"{gone.name} ended by itself; {gone.log} says why")
    except KeyboardInterrupt:
        return
    except TenureError as error:
        raise click.ClickException(str(error)) from error


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
