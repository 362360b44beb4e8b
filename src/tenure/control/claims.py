"""Checks what a request claims against the identity of its caller, signs it with the caller's name, and keeps the caller's bounds while it is answered.

The door refuses what a request shows by itself: a role, a queue, the fields of a gate, the name of another worker. Whether a caller may see a job
depends on the job, so the handlers ask `scope()`. A gate tells both on: the token of its caller, and the caller's bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

import msgspec

from tenure import __version__
from tenure.control.messages.gates import Forward
from tenure.control.messages.operations import BY_NAME, OPERATIONS, Operation, Within
from tenure.control.messages.queues import ChangeQueue, SetSchedule, TriggerSchedule
from tenure.control.messages.tokens import UNBOUND, CallerBounds, Role, fits
from tenure.control.messages.wire import Problem, ProblemKind, Request
from tenure.control.messages.workers import ExtendDeadline, WorkerReport
from tenure.control.tokens import CallerIdentity, TokenBook
from tenure.jobs.model import JobSubmission

RequestT = TypeVar("RequestT", bound=Request)


class Scope(NamedTuple):
    """The bounds under which a request is answered: those of its caller, and those that a gate tells of the caller behind it. All of them hold."""

    bounds: tuple[CallerBounds, ...] = ()

    @property
    def scoped(self) -> bool:
        """True when some jobs only are in it."""
        return any(one.scoped for one in self.bounds)

    def covers(self, submission: JobSubmission | None) -> bool:
        """Returns True when the caller may see and change this job. A job whose submission a gate has lost is in no scope."""
        if not self.scoped:
            return True
        return submission is not None and self.covers_job(submission.queue, submission.labels)

    def covers_job(self, queue: str, labels: Mapping[str, str]) -> bool:
        return all(one.covers(queue, labels) for one in self.bounds)

    def covers_queue(self, queue: str) -> bool:
        return all(one.covers_queue(queue) for one in self.bounds)


ALL = Scope()
_scope: ContextVar[Scope] = ContextVar("tenure_scope", default=ALL)
_shown: ContextVar[str] = ContextVar("tenure_shown_token", default="")


def scope() -> Scope:
    """Returns the bounds of the caller that is being answered. Work that no caller asked for has none."""
    return _scope.get()


def scope_of(request: Request, identity: CallerIdentity, book: TokenBook) -> Scope:
    """Returns the bounds under which a request is answered."""
    found = [identity.bounds]
    if isinstance(request, Forward):
        found += request.bounds
        if request.proof and (behind := book.identify(request.proof)) is not None:
            found.append(behind.bounds)
    return Scope(tuple(one for one in found if one != UNBOUND))


def bearer(headers: Mapping[str, str]) -> str:
    """Returns the token that the head of a request shows; empty where it shows none."""
    return headers.get("Authorization", "").partition(" ")[2].strip()


@contextmanager
def showing(request: Request, token: str, within: Scope = ALL) -> Iterator[None]:
    """Inside, `scope()` is the caller's, and requests that a gate passes on carry the token that its caller showed: in this task, and in those that
    it starts."""
    # A gate that leads may be asked by a gate that does not. The caller is then the one behind both.
    shown = _shown.set(request.proof if isinstance(request, Forward) else token)
    bound = _scope.set(within)
    try:
        yield
    finally:
        _scope.reset(bound)
        _shown.reset(shown)


def passed_on(request: Request, by: str) -> Forward:
    """Returns a request as a gate passes it on, with the token and the bounds of the caller that is being answered."""
    wait_s = max(0.0, getattr(request, "wait_s", 0.0))
    body = msgspec.Raw(msgspec.json.encode(request))
    return Forward(
        name=str(request.__struct_config__.tag),
        body=body,
        by=by,
        wait_s=wait_s,
        proof=_shown.get(),
        bounds=scope().bounds,
    )


def why_not_open(operation: Operation, identity: CallerIdentity) -> Problem | None:
    """Returns the refusal of a caller that lacks the role."""
    if operation.open_to(identity.roles):
        return None
    has = f"The token {identity.name!r} has: {', '.join(sorted(identity.roles))}"
    return _denied(f"{operation.name!r} needs the role {operation.role.value}", has)


_GATES_OWN = ("gate_addr", "gate_addrs", "gate_epoch", "global_submitted_at")
"""A manager reports to `gate_addr` with its own token, so a caller that may set it could have that token sent to itself."""


def why_not_a_gates(request: Request, identity: CallerIdentity) -> Problem | None:
    """Returns the refusal of a submission that has a gate's fields and does not come from a node; None for every other request."""
    if Role.NODE in identity.roles:
        return None
    for one in _submissions(request):
        for field in _GATES_OWN:
            if given := getattr(one, field):
                return _denied(
                    f"the submission's {field} is {str(given)[:100]}, and only gates set it; the token {identity.name!r} is no node's",
                    f"Leave {field} out, and submit to a gate",
                )
    return None


def _submissions(request: Request) -> list[JobSubmission]:
    """Returns the submissions in a request, also the one that a schedule makes jobs from."""
    single = getattr(request, "submission", None) or getattr(getattr(request, "schedule", None), "job", None)
    return [single] if single is not None else list(getattr(request, "submissions", ()))


def why_not_that_worker(request: Request, identity: CallerIdentity) -> Problem | None:
    """Returns the refusal of a worker that speaks for another one; None for every other request."""
    worker: str = request.worker if isinstance(request, WorkerReport) else ""
    if isinstance(request, ExtendDeadline):
        worker = request.request.worker_id
    bound = identity.bounds.worker
    if not worker or not bound or fits(worker, bound):
        return None
    return _denied(
        f"{identity.name!r} speaks for {bound!r} only, and not for the worker {worker!r}",
        "Start the worker with that name (--name), or give it a token of its own",
    )


def why_not_within(operation: Operation, request: Request, within: Scope, here: str) -> Problem | None:
    """Returns the refusal of a request that reaches beyond its caller's bounds, as far as the request shows it; None where it may go on."""
    for one in within.bounds:
        if one.datacenter and (refusal := _why_not_there(operation, request, one.datacenter, here)):
            return refusal
        if one.scoped and (refusal := _why_out_of_scope(operation, request, one)):
            return refusal
        if one.limited and isinstance(request, (SetSchedule, TriggerSchedule)):
            return _denied(
                "this token has a quota, and a schedule submits without one",
                "Let a token without a quota set schedules",
            )
    return None


def _why_not_there(operation: Operation, request: Request, datacenter: str, here: str) -> Problem | None:
    if here or operation.within is Within.OPEN:
        is_there = here in ("", datacenter)
    elif (named := getattr(request, "datacenter", None)) is not None:
        is_there = named == datacenter
    else:
        targets = [one.target_datacenters for one in _submissions(request)]
        is_there = bool(targets) and all(one == (datacenter,) for one in targets)
    if is_there:
        return None
    return _denied(f"this token counts in the datacenter {datacenter!r} only", f"Ask there, or name it: {datacenter}")


def _is_closed(operation: Operation, bounds: CallerBounds) -> bool:
    """Returns True when a caller with these bounds is refused whatever it asks. A list of queues counts the jobs of all labels and names their keys."""
    return bounds.scoped and (
        operation.within is Within.NOBODY or (operation.within is Within.QUEUES and bool(bounds.labels))
    )


def _why_out_of_scope(operation: Operation, request: Request, bounds: CallerBounds) -> Problem | None:
    limits = ", ".join([*bounds.queues, *(f"{key}={value}" for key, value in bounds.labels.items())])
    if _is_closed(operation, bounds):
        return _denied(
            f"{operation.name!r} is not for tokens that are bound to queues or labels",
            f"This token is bound to {limits}: ask with one that is not",
        )
    if isinstance(request, ChangeQueue) and isinstance(request.preempt_after, float):
        return _denied(
            "a queue that preempts takes slots of work in other queues, and this token is bound to some",
            f"It is bound to {limits}: let an operator without bounds set preempt_after",
        )
    queue = getattr(request, "queue", "") if operation.within is Within.QUEUE else ""
    wrong = f"the queue {queue!r}" if queue and (bounds.labels or not bounds.covers_queue(queue)) else ""
    for one in _submissions(request):
        if not bounds.covers_queue(one.queue):
            wrong = f"the queue {one.queue[:200]!r}"
        for key, value in bounds.labels.items():
            if one.labels.get(key, value) != value:  # one that is left out is added (`sign`), none is changed
                wrong = f"the label {key}={one.labels[key][:200]!r}"
    return _denied(f"{wrong} is outside of this token's bounds", f"It is bound to {limits}") if wrong else None


def why_not_forwarded(request: Request, identity: CallerIdentity, book: TokenBook, now: float) -> Problem | None:
    """Returns the refusal of a forwarded request that neither the node that forwards it nor its caller may make; None for every other request."""
    operation = BY_NAME.get(request.name) if isinstance(request, Forward) else None
    if operation is None or operation.open_to(identity.roles):
        return None
    caller = book.identify(request.proof) if isinstance(request, Forward) and request.proof else None
    if caller is not None and caller.expires_at > now and operation.open_to(caller.roles):
        return None
    return _denied(
        f"{operation.name!r} needs the role {operation.role.value}, and {identity.name!r} forwarded it without a token that has it",
        "Give this node the same tokens as its gates (--tokens), and update the gates",
    )


def _denied(fact: str, remedy: str) -> Problem:
    return Problem(kind=ProblemKind.DENIED, fact=fact, remedy=remedy)


def sign(request: RequestT, identity: CallerIdentity) -> RequestT:
    """Returns the request in the name of its caller: `by`, and `submitted_by` of its submissions, begin with the token's name, so that no request can
    pass for another caller's. Submissions get the labels that the caller is bound to."""
    if not identity.name:
        return request
    changes: dict[str, object] = {}
    given: str | None = getattr(request, "by", None)
    if given is not None:
        changes["by"] = _signature(identity, given)
    if (submission := getattr(request, "submission", None)) is not None:
        changes["submission"] = _sign_submission(submission, identity)
    if (submissions := getattr(request, "submissions", None)) is not None:
        changes["submissions"] = tuple(_sign_submission(one, identity) for one in submissions)
    if isinstance(request, SetSchedule):
        job = _sign_submission(request.schedule.job, identity)
        changes["schedule"] = msgspec.structs.replace(request.schedule, job=job)
    return msgspec.structs.replace(request, **changes) if changes else request


def _sign_submission(submission: JobSubmission, identity: CallerIdentity) -> JobSubmission:
    labels = {**submission.labels, **identity.bounds.labels}
    by = _signature(identity, submission.submitted_by)
    among = identity.bounds.labels or submission.among
    return msgspec.structs.replace(submission, submitted_by=by, labels=labels, among=among)


def _signature(identity: CallerIdentity, given: str) -> str:
    return f"{identity.name}: {given}" if given else identity.name


def subject_of(submitted_by: str) -> str:
    """Returns the name of the token that a submission was signed with. Names have no colon."""
    return submitted_by.partition(":")[0]


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `GET /v1/me`."""

    name: str
    """The name of the token or the certificate; empty where neither has one."""
    roles: tuple[str, ...]
    may: tuple[str, ...]
    """The operations that would not be refused for who asks."""
    bounds: CallerBounds = UNBOUND
    node: str = ""
    """`manager` or `gate`."""
    node_name: str = ""
    datacenter: str = ""
    version: str = __version__


def who(identity: CallerIdentity, about: dict[str, str]) -> Me:
    return Me(
        name=identity.name,
        roles=tuple(sorted(identity.roles)),
        may=tuple(one.name for one in _open_to(identity, OPERATIONS)),
        bounds=identity.bounds,
        **about,
    )


def _open_to(identity: CallerIdentity, operations: Iterable[Operation]) -> Iterator[Operation]:
    for one in operations:
        if one.open_to(identity.roles) and not _is_closed(one, identity.bounds):
            yield one
