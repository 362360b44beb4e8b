"""`tenure top`: shows the attempts that the workers of this machine run right now, read from their beat boards."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
import msgspec
from rich import box
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tenure.beat.board import BeatBoard, board_folder
from tenure.beat.record import Phase
from tenure.clock import Clock, SystemClock
from tenure.errors import BoardError
from tenure.work.slots.slot_deliveries import owner_is_gone


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One running attempt; times in seconds."""

    worker: str
    pid: int
    workflow: str
    job: str
    attempt: int
    phase: str
    progress: float
    beats: int
    last_proof_s: float
    lease_left_s: float
    stall_left_s: float
    deadline_left_s: float | None
    note: str


def rows(clock: Clock) -> Iterator[Row]:
    """Yields every attempt on every board of a living worker of this user."""
    for path in sorted(board_folder().glob("board-*")):
        try:
            board = BeatBoard.open(path)
        except BoardError:
            continue  # a worker is just making or removing this board
        try:
            if not owner_is_gone(board):
                yield from _rows_of(board, clock)
        finally:
            board.close()


def _rows_of(board: BeatBoard, clock: Clock) -> Iterator[Row]:
    monotonic, boottime = clock.monotonic(), clock.boottime()
    for record in board.records:
        reading = record.read()
        occupant = reading.occupant
        if occupant is None:
            continue
        since = max(reading.beat_at, min(reading.silent_until, monotonic))
        yield Row(
            worker=board.identity.incarnation,
            pid=reading.pid,
            workflow=occupant.workflow,
            job=occupant.job,
            attempt=occupant.attempt,
            phase=Phase(reading.phase).name.lower(),
            progress=round(reading.progress, 4),
            beats=reading.steps,
            last_proof_s=round(monotonic - reading.beat_at, 2),
            lease_left_s=round(record.lease_of(reading.serial) - boottime, 2),
            stall_left_s=round(occupant.stall_s - (monotonic - since), 2),
            deadline_left_s=None if occupant.deadline is None else round(occupant.deadline - boottime, 2),
            note=occupant.note,
        )


@click.command("top")
@click.option("--json", "as_json", is_flag=True, help="Print the rows once, as JSON, and end.")
@click.option("--once", is_flag=True, help="Print the table once, and end.")
@click.option("--interval", default=0.5, show_default=True, help="Seconds between two looks.")
def top(as_json: bool, once: bool, interval: float) -> None:
    """Show the running work of this machine's workers: how far it is, and the time left on every grant.

    \b
    proof     how long ago it last proved that it advances
    lease     until others may take it, unless it proves more
    stall     until it is ended for its silence
    deadline  until this attempt must be over

    Ctrl-C ends it. Without a terminal it prints one table and ends.
    """
    clock = SystemClock()
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(list(rows(clock)))) + b"\n")
        return
    console = Console()
    if once or not console.is_terminal:
        console.print(table_of(list(rows(clock)), console.width))
        return
    try:
        with Live(table_of(list(rows(clock)), console.width), console=console, auto_refresh=False, screen=True) as live:
            while True:
                live.update(table_of(list(rows(clock)), console.width), refresh=True)
                clock.sleep(interval)
    except KeyboardInterrupt:
        return


def table_of(found: list[Row], width: int = 120) -> Table:
    """Returns the table of attempts. Narrow terminals show the most important columns: the attempt, its progress, its last beat, its time."""
    table = Table(title=f"{len(found)} running", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    table.add_column("workflow", no_wrap=True, ratio=2)
    table.add_column("job", no_wrap=True, ratio=2)
    table.add_column("progress", min_width=10 if width < 90 else 14)
    for name, least in (("proof", 5), ("lease", 5), ("stall", 5)):
        table.add_column(name, justify="right", no_wrap=True, min_width=least)
    if width >= 90:
        table.add_column("deadline", justify="right", no_wrap=True, min_width=8)
        table.add_column("try", justify="right", no_wrap=True, min_width=3)
        table.add_column("doing", no_wrap=True, ratio=3)
    for row in found:
        cells: list[RenderableType] = [
            row.workflow,
            row.job,
            ProgressBar(total=1.0, completed=row.progress, width=10 if width < 90 else 14),
            _age(row.last_proof_s),
            _left(row.lease_left_s, 5),
            _left(row.stall_left_s, 10),
        ]
        if width >= 90:
            left = row.deadline_left_s
            cells += [
                Text("-", style="dim") if left is None else _left(left, 30),
                str(row.attempt),
                row.note or row.phase,
            ]
        table.add_row(*cells)
    return table


def _age(seconds: float) -> Text:
    return Text(_short(seconds), style="green" if seconds < 5 else "yellow" if seconds < 60 else "red")


def _left(seconds: float, urgent: float) -> Text:
    return Text(_short(max(0.0, seconds)), style="bold red" if seconds < urgent else "default")


def _short(seconds: float) -> str:
    """Formats a span in four or five characters, as 1.5s, 42s, 12m or 3h05."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 120:
        return f"{seconds:.0f}s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f}m"
    return f"{seconds / 3_600:.0f}h{seconds % 3_600 / 60:02.0f}"
