"""Reads the answers about jobs (results, attempts, the words for an event), splits many submissions into few requests, and draws the bar of a job."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import msgspec

from tenure.attempt_data import is_elsewhere, output_about
from tenure.bound_checks import check
from tenure.codec import Codec, opened_value
from tenure.control.messages.events import EventLine, ProgressLine
from tenure.control.messages.job_output import OutputPage
from tenure.control.messages.jobs import MAX_SUBMISSIONS, JobView, ResultView, Submitted, WorkflowView
from tenure.control.messages.workflows import WorkflowEntry
from tenure.errors import ConfigurationError, NodeRefusedError, UnknownWorkflowError
from tenure.jobs.eta import Eta, eta_in_words
from tenure.jobs.model import JobSubmission
from tenure.jobs.states import WorkflowState
from tenure.jobs.why_answer import Link
from tenure.served_workflow import ServedWorkflow, version_order

if TYPE_CHECKING:
    from rich.progress import Progress


@runtime_checkable
class ResultDecoder(Protocol):
    """Decodes results, as a `Workflow` does by the annotation of its function."""

    def decode_result(self, value: Any) -> Any: ...


LONG_POLL_S = 10.0
"""A node holds one request for at most this long while a client waits for a job."""
LOOK_EVERY_S = 0.25
"""How often a progress bar moves."""
ENDED = frozenset({"JobEnded", "GateJobEnded"})
"""The event that ends a job: a manager writes the first kind, a gate the second."""


class BulkDone(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one of many jobs or dead letters that were asked for at once."""

    id: str
    outcome: str
    """`retried`, `cancelled`, `replayed`; `would be …` for a dry run; `refused`."""
    reason: str = ""
    new_job_id: str = ""


def link_of(line: EventLine, begun: float) -> Link:
    """Returns an event in the words of `why`."""
    # The events of all topics bring fifty modules along, and few programs read events: they are imported with the first one.
    from tenure.jobs.topics import decode_any_event
    from tenure.jobs.why import link

    return link(decode_any_event(msgspec.json.encode(line.event)), begun)


class JobUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `job.watch()`: how the job stands now. `str()` of it is for people, `json()` for a page."""

    job_id: str
    state: str
    ended: bool = False
    progress: float = 0.0
    """From 0 to 1, over all its workflows."""
    workflow: str = ""
    attempt: int = 0
    steps: int = 0
    note: str = ""
    eta: Eta | None = None
    decision: str = ""
    """The words of the decision that this line is about; else empty."""
    reason: str = ""

    def json(self) -> str:
        return msgspec.json.encode(self).decode()

    def __str__(self) -> str:
        eta = eta_in_words(self.eta) if self.eta is not None else ""
        beats = f"{self.steps} beats" if self.steps else ""
        words = [f"{self.state} {self.progress:.0%}", beats, self.note, eta, self.decision]
        return ", ".join(word for word in words if word)


def update_of_view(view: JobView, link: Link | None = None) -> JobUpdate:
    """Returns how a job stands, and a decision about it where there was one."""
    done = sum(1.0 if one.state == "completed" else one.fraction or 0.0 for one in view.workflows)
    newest = next((one for one in view.workflows if one.state == "running"), None)
    return JobUpdate(
        job_id=view.job_id,
        state=view.state,
        ended=view.ended,
        progress=round(done / max(1, len(view.workflows)), 4),
        decision=link.what if link is not None else "",
        reason=view.reason if view.ended else "",
        **({} if newest is None else _of_workflow(newest.name, newest)),
    )


def update_of_progress(view: JobView, line: ProgressLine) -> JobUpdate:
    """Returns how a job stands by the newest word of one of its workflows."""
    others = sum(
        1.0 if one.state == "completed" else one.fraction or 0.0 for one in view.workflows if one.name != line.workflow
    )
    done = (others + (line.fraction or 0.0)) / max(1, len(view.workflows))
    return JobUpdate(job_id=view.job_id, state="running", progress=round(done, 4), **_of_workflow(line.workflow, line))


def _of_workflow(name: str, one: WorkflowView | ProgressLine) -> dict[str, Any]:
    return {"workflow": name, "attempt": one.attempt, "steps": one.steps, "note": one.note, "eta": one.eta}


def attempts_of(view: JobView) -> int:
    """Counts the attempts of all workflows. One that waits for another has not been tried yet, and one that was taken over not in this job."""
    return sum(one.attempt for one in view.workflows if one.state != "waiting" and not one.taken_from)


def result_of(view: JobView, workflow: ResultDecoder | None) -> Any:
    """Returns the result of a job of one workflow, decoded as the function is annotated; of several, a dictionary by name."""
    if len(view.workflows) != 1:
        return {one.name: one.result for one in view.workflows}
    value = view.workflows[0].result
    return workflow.decode_result(value) if workflow is not None else value


def too_large_results(view: JobView) -> list[WorkflowView]:
    """Returns the workflows of an ended job whose results did not fit into its view, and have to be asked for alone."""
    return [one for one in view.workflows if view.ended and is_elsewhere(one.result)]


def with_result(view: JobView, name: str, result: Any) -> JobView:
    workflows = (msgspec.structs.replace(one, result=result) if one.name == name else one for one in view.workflows)
    return msgspec.structs.replace(view, workflows=tuple(workflows))


def decoded(codec: Codec | None, view: JobView) -> JobView:
    """Returns the view of a job with its results as the workflows returned them. Raises `CodecError` for one that a codec did not encode."""
    if codec is None:
        return view
    return msgspec.structs.replace(view, workflows=tuple(_decoded(codec, view, one) for one in view.workflows))


def _decoded(codec: Codec, view: JobView, one: WorkflowView) -> WorkflowView:
    if one.state is not WorkflowState.COMPLETED or view.results_expired or is_elsewhere(one.result):
        return one
    # A gate calls the workflow DATACENTER/NAME; the worker that encoded its result knows the name only.
    about = f"result {one.taken_from or view.job_id}/{one.name.rpartition('/')[2]}"
    return msgspec.structs.replace(one, result=opened_value(codec, one.result, about))


def decoded_result(codec: Codec | None, reply: ResultView) -> ResultView:
    if codec is None or not reply.ready:
        return reply
    about = f"result {reply.taken_from or reply.job_id}/{reply.workflow.rpartition('/')[2]}"
    return msgspec.structs.replace(reply, result=opened_value(codec, reply.result, about))


def decoded_output(codec: Codec | None, page: OutputPage) -> OutputPage:
    if codec is None:
        return page
    about = output_about(page.job_id, page.workflow.rpartition("/")[2])
    opened = (msgspec.structs.replace(one, item=opened_value(codec, one.item, about)) for one in page.items)
    return msgspec.structs.replace(page, items=tuple(opened))


OUTPUT_WAIT_S = 10.0
"""The seconds for which one question of a reader that follows an output waits."""
BATCH_BYTES = 4 << 20
"""The most bytes of submissions in one request."""


def batches(submissions: list[JobSubmission]) -> Iterator[tuple[JobSubmission, ...]]:
    """Yields the submissions in parts that fit into one request, by number and by size. Raises `OutOfBoundsError` before any is sent."""
    for place, one in enumerate(submissions):
        check(one, field=f"submissions[{place}]")
    return _parts(submissions)


def _parts(submissions: list[JobSubmission]) -> Iterator[tuple[JobSubmission, ...]]:
    part: list[JobSubmission] = []
    size = 0
    for one in submissions:
        bytes_of_one = len(msgspec.json.encode(one))
        if part and (len(part) == MAX_SUBMISSIONS or size + bytes_of_one > BATCH_BYTES):
            yield tuple(part)
            part, size = [], 0
        part.append(one)
        size += bytes_of_one
    if part:
        yield tuple(part)


def accepted(answers: Sequence[Submitted]) -> list[str]:
    """Returns the ids of the jobs. Raises the first refusal; the accepted ones run all the same, and a repeated call submits
    the same jobs only where the caller gave them ids."""
    for one in answers:
        if one.problem is not None:
            raise NodeRefusedError(one.problem, f"job {one.job_id!r} of {len(answers)} was refused: {one.reason}")
    return [one.job_id for one in answers]


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
        eta = next((eta_in_words(one.eta) for one in running if one.eta is not None), "")
        words = [str(view.state), f"{steps} beats" if steps else "", f"attempt {tries}" if tries > 1 else "", eta]
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


# Workflows of the catalogue


def newest_served(entries: Sequence[WorkflowEntry], name: str, version: str) -> ServedWorkflow:
    """Returns the workflow in this version, or in the newest that is served; where none is, the newest that is known."""
    known = [one for one in entries if one.served.name == name and version in ("", one.served.version)]
    if not known:
        versions = sorted({one.served.version for one in entries if one.served.name == name}, key=version_order)
        raise UnknownWorkflowError(
            f"no worker has registered {f'version {version!r} of ' if versions else ''}workflow {name!r} within 7 days",
            remedy=f"Known are: {', '.join(versions)}" if versions else _meant_workflow(entries, name),
        )
    return max(known, key=lambda one: (bool(one.workers), version_order(one.served.version))).served


def _meant_workflow(entries: Sequence[WorkflowEntry], name: str) -> str:
    near = get_close_matches(name, sorted({one.served.name for one in entries}), 1)
    return f"Did you mean {near[0]!r}?" if near else "`tenure workflows` lists those that are known"


def properties_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a workflow, by name, of their JSON Schema."""
    if ref := schema.get("$ref"):
        schema = schema.get("$defs", {}).get(str(ref).rpartition("/")[2], {})
    return cast("dict[str, Any]", schema.get("properties", {}))


def check_likeness(like: Callable[..., Any], served: ServedWorkflow) -> None:
    """Raises where `like` has a parameter that the workflow has not, or lacks one that it needs."""
    schema = served.arguments
    if schema is None:
        return
    known, mine = properties_of(schema), inspect.signature(like).parameters
    inner = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    more = [name for name in mine if name not in known]
    lacks = [name for name in inner.get("required", ()) if name not in mine]
    if more or lacks:
        what = (
            f"has {more[0]!r}, which the workflow has not" if more else f"lacks {lacks[0]!r}, which the workflow needs"
        )
        raise ConfigurationError(
            f"{getattr(like, '__name__', 'like')} is not like {served.name!r} in version {served.version!r}: it {what}",
            remedy=f"The workflow takes ({', '.join(known)}); leave ctx out",
        )
