"""Shows progress bars to people: on the error stream of a terminal, and nowhere else."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from tenure.control.messages.jobs import JobView

if TYPE_CHECKING:
    from rich.progress import Progress


def on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


class ProgressBar:
    """One bar. Without a label, or without a terminal, it is silent and costs nothing."""

    def __init__(self, label: str, total: float = 1.0) -> None:
        self.shown = bool(label) and on_terminal()
        self._label, self._total = label, total
        self._progress: Progress | None = None

    def show(self, view: JobView) -> None:
        """Shows how far a job is: fractions where its workflows report them, else counted steps."""
        if self._progress is None:
            return
        done = sum(one.fraction or 0.0 for one in view.workflows) / max(1, len(view.workflows))
        running = [one for one in view.workflows if one.state == "running"]
        steps = sum(one.steps for one in running)
        tries = max((one.attempt for one in view.workflows), default=1)
        words = [str(view.state), f"{steps} beats" if steps else "", f"attempt {tries}" if tries > 1 else ""]
        self.move(done, ", ".join(word for word in words if word))

    def move(self, done: float, words: str) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=done, words=words)

    def __enter__(self) -> ProgressBar:
        if self.shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

            console = Console(stderr=True)
            wide = console.width >= 80
            columns = [TextColumn("{task.description}"), BarColumn(bar_width=30 if wide else 12), TaskProgressColumn()]
            self._progress = Progress(
                *columns, TimeElapsedColumn(), TextColumn("{task.fields[words]}"), console=console
            )
            label = self._label if wide else self._label[:20]
            self._task = self._progress.add_task(label, total=self._total, words="")
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
