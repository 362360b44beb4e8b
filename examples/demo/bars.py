"""A bar for each job of a demo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Bars:
    """A bar for each job on a terminal; elsewhere only the lines are printed."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def show(self, name: str, fraction: float, state: str) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=1.0, state=state)
        self._progress.update(self._tasks[name], completed=fraction, state=state)


@contextmanager
def job_bars(console: Console) -> Iterator[Bars]:
    progress = Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(bar_width=40),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with progress:
        yield Bars(progress)
