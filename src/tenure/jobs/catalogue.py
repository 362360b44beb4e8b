"""The catalogue: which workflows workers serve, in which versions and queues, and what their authors set for them.

A worker registers an *offer*: its lanes and its workflows. Workers with the same modules share one offer, so the journal holds each once, and each
schema once by its hash. A registration belongs to one incarnation of a worker and ends with it. An entry outlives its last worker by `MEMORY_S`.

The catalogue is *in force* when it has entries and every worker in the fleet has registered. Before the first worker ever registered nothing is
known, and a worker of the first release registers nothing and may serve anything. Until then nothing is refused or parked (decision 0335).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from tenure import bounds as b
from tenure.bound_checks import check
from tenure.errors import LimitError
from tenure.jobs import budget
from tenure.jobs.budget import WORKER_BYTES, encoded_bytes, text_bytes
from tenure.jobs.decisions import Command, Decides, Decision, Event, Folds, Outcome, Rule, Rules
from tenure.jobs.model import WorkflowRecord
from tenure.jobs.state_records import EVICTED, WorkerRecord
from tenure.served_workflow import ServedWorkflow

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook
    from tenure.jobs.work_indexes import Lane

MEMORY_S = 604_800.0
"""The seconds for which the workflows of a worker that is gone are known: 7 days."""
MAX_OFFER_BYTES = 262_144
"""The most bytes of one offer: it must fit into one append."""
NOT_JUDGED = "unknown"
"""The verdict of a worker that has registered and that the health rules have not judged yet."""


Served = Annotated[tuple[ServedWorkflow, ...], b.items(0, 1_000)]
Lanes = Annotated[tuple[b.MailboxName, ...], b.items(0, 1_000)]
Schemas = dict[str, dict[str, Any]]
"""Maps the hash of a schema to the schema."""
ServedKey = tuple[str, int, str, str]
"""(queue, priority, function, version): work for which one mailbox stands. Version "" is work that any version may do."""


class CatalogueEntry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One workflow in one version, as its last registration described it."""

    served: ServedWorkflow
    gone_at: float = 0.0
    """When its last worker left; 0 while one serves it."""


class WorkerOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The lanes and the (name, version) of everything that workers with the same modules and options serve."""

    lanes: tuple[str, ...]
    workflows: tuple[tuple[str, str], ...]
    takes_over: tuple[tuple[str, str], ...] = ()
    """(name, version) of earlier versions whose work these workflows go on with."""


class Registration(msgspec.Struct, frozen=True):
    """Records the registration of one worker: its incarnation, and the digest of its offer."""

    incarnation: str
    offer: str


class RegisterWorkflows(Command, frozen=True, kw_only=True):
    """A worker says what it serves. `workflows` may be left out where the offer is known."""

    worker: b.WorkerName
    incarnation: b.IncarnationId
    offer: b.ShortWord
    lanes: Lanes = ()
    workflows: Served = ()


class ForgetWorkflows(Command, frozen=True, kw_only=True):
    """Time has passed: workflows whose last worker left long ago are known no more."""


class WorkflowsRegistered(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A worker registered what it serves. `workflows` and `schemas` hold what the catalogue did not know yet."""

    worker: str
    incarnation: str
    offer: str
    lanes: tuple[str, ...] = ()
    workflows: tuple[ServedWorkflow, ...] = ()
    schemas: Schemas = msgspec.field(default_factory=dict)

    def growth(self) -> int:
        # An offer names each workflow once more, and lanes stand in it.
        return (
            text_bytes(self.worker, self.incarnation, self.offer, *self.lanes)
            + 2 * encoded_bytes(self.workflows, self.schemas)
            + sum(text_bytes(one.name, one.version) + 20 for one in self.workflows)
            + WORKER_BYTES
            + 60
        )


class WorkflowsForgotten(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """No worker has served these workflows for 7 days: they are known no more."""

    workflows: tuple[tuple[str, str], ...]


def offer_digest(lanes: Iterable[str], workflows: Iterable[ServedWorkflow]) -> str:
    """Returns the name of an offer: equal for equal lanes and workflows, in whatever order."""
    contents = sorted(lanes), sorted(msgspec.json.encode(one, order="sorted") for one in workflows)
    return hashlib.blake2b(repr(contents).encode(), digest_size=16).hexdigest()


def schema_hash(schema: dict[str, Any]) -> str:
    return hashlib.blake2b(msgspec.json.encode(schema, order="sorted"), digest_size=12).hexdigest()


def register_workflows(book: JobBook, command: RegisterWorkflows, now: float, rules: Rules) -> Decision:
    """Registers an offer. A worker that serves nothing yet registers an empty one: that tells it from a worker of the first release."""
    check(command)
    state = book.state
    if not command.offer:
        command = msgspec.structs.replace(command, lanes=(), workflows=())
    if state.registered.get(command.worker) == Registration(command.incarnation, command.offer):
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is registered so")
    workflows, schemas = command.workflows, {}
    known = command.offer in state.offers
    if known:
        workflows = ()
    elif command.offer and offer_digest(command.lanes, workflows) != command.offer:
        return Decision([], Outcome.REFUSED, Rule.WORKER_SAID, "the workflows are not those of the offer")
    size = encoded_bytes(workflows)
    if size > MAX_OFFER_BYTES:
        raise LimitError(
            f"workflows of {command.worker}",
            f"{size:,} bytes",
            f"at most {MAX_OFFER_BYTES:,} bytes",
            remedy="Serve the modules with several workers",
        )
    budget.check_reserve(book, budget.SMALL_RECORD_BYTES + 3 * size)
    for schema in (part for one in workflows for part in (one.arguments, one.signals) if part is not None):
        if (name := schema_hash(schema)) not in state.schemas:
            schemas[name] = schema
    event = WorkflowsRegistered(
        at=now,
        by=command.worker,
        rule=Rule.WORKER_SAID,
        worker=command.worker,
        incarnation=command.incarnation,
        offer=command.offer,
        lanes=() if known else command.lanes,
        workflows=tuple(map(_by_hash, workflows)),
        schemas=schemas,
    )
    return Decision([event], Outcome.ACCEPTED, Rule.WORKER_SAID)


def _by_hash(one: ServedWorkflow) -> ServedWorkflow:
    changes: dict[str, Any] = {}
    if one.arguments is not None:
        changes |= {"arguments": None, "schema": schema_hash(one.arguments)}
    if one.signals is not None:
        changes |= {"signals": None, "signals_schema": schema_hash(one.signals)}
    return msgspec.structs.replace(one, **changes)


def with_schemas(book: JobBook, one: ServedWorkflow) -> ServedWorkflow:
    """Returns an entry as its worker registered it, with its schemas."""
    schemas = book.state.schemas
    return msgspec.structs.replace(one, arguments=schemas.get(one.schema), signals=schemas.get(one.signals_schema))


def forget_workflows(book: JobBook, command: ForgetWorkflows, now: float, rules: Rules) -> Decision:
    old = expired(book, now)
    if not old:
        return Decision([], Outcome.NOTHING, Rule.RETENTION, "all of it is young")
    event = WorkflowsForgotten(at=now, by=command.by, rule=Rule.RETENTION, workflows=old)
    return Decision([event], Outcome.ACCEPTED, Rule.RETENTION)


def expired(book: JobBook, now: float) -> tuple[tuple[str, str], ...]:
    """Returns (name, version) of each entry whose last worker left longer ago than the catalogue remembers."""
    return tuple(
        (name, version)
        for name, versions in book.state.catalogue.items()
        for version, entry in versions.items()
        if entry.gone_at and entry.gone_at + MEMORY_S <= now
    )


def workflows_registered(book: JobBook, event: WorkflowsRegistered) -> None:
    state, services = book.state, book.services
    state.schemas.update(event.schemas)
    if event.offer not in state.offers:
        state.offers[event.offer] = WorkerOffer(
            lanes=event.lanes,
            workflows=tuple((one.name, one.version) for one in event.workflows),
            takes_over=tuple(kind for one in event.workflows for kind in one.takes_over),
        )
    for one in event.workflows:
        state.catalogue.setdefault(one.name, {})[one.version] = CatalogueEntry(served=one)
    for name, version in state.offers[event.offer].workflows:
        if entry := state.catalogue.get(name, {}).get(version):
            entry.gone_at = 0.0
    before = state.registered.get(event.worker)
    state.registered[event.worker] = Registration(event.incarnation, event.offer)
    services.joined(state.offers[event.offer], event.offer)
    book.waits.versions_came({one.name for one in event.workflows}, event.at)
    # The last offer ends after the new one began, so that what is in both is never without a worker.
    lost = before is not None and _end(book, before, event.at)
    record = state.workers.get(event.worker)
    if record is None or record.incarnation != event.incarnation:
        # The record lets every later leader notice that this worker is gone, also one that never judged it.
        state.workers[event.worker] = WorkerRecord(
            incarnation=event.incarnation, verdict=NOT_JUDGED, reason="it registered", since=event.at
        )
    services.look_at(book, event.worker)
    # With the first registration the catalogue may be in force.
    book.sort_parked(event.at, lost=lost or len(state.registered) == 1)


def _end(book: JobBook, registration: Registration, at: float) -> bool:
    """Ends a registration. Returns True when it was the last of its offer, so that there may be work that nobody serves any more."""
    offer = book.state.offers[registration.offer]
    if not book.services.left(offer, registration.offer):
        return False
    del book.state.offers[registration.offer]
    for name, version in offer.workflows:
        if (entry := book.state.catalogue.get(name, {}).get(version)) and not book.services.offers(name, version):
            entry.gone_at = at
    return True


def drop_registration(book: JobBook, worker: str, at: float, incarnation: str = "") -> None:
    """Ends a worker's registration, unless it is of another incarnation. The folds of its eviction and of its leaving call it."""
    known, lost = book.state.registered.get(worker), False
    if known is not None and incarnation in ("", known.incarnation):
        del book.state.registered[worker]
        lost = _end(book, known, at)
    worker_came_or_went(book, worker, at, lost=lost)


def worker_came_or_went(book: JobBook, worker: str, at: float, *, lost: bool = False) -> None:
    """Notes whether a worker is in the fleet without having registered: with the first such the catalogue is out of force, without any in force."""
    changed = book.services.look_at(book, worker)
    if lost or changed:
        book.sort_parked(at, lost=True)


def workflows_forgotten(book: JobBook, event: WorkflowsForgotten) -> None:
    state = book.state
    for name, version in event.workflows:
        versions = state.catalogue.get(name, {})
        versions.pop(version, None)
        if not versions:
            state.catalogue.pop(name, None)
    served = [entry.served for versions in state.catalogue.values() for entry in versions.values()]
    used = {name for one in served for name in (one.schema, one.signals_schema)}
    for name in [name for name in state.schemas if name not in used]:
        del state.schemas[name]
    book.sort_parked(event.at, lost=True)


class Services:
    """An index over the registrations: how many workers serve each kind of work. It is not part of a snapshot."""

    def __init__(self) -> None:
        self._workers: dict[str, int] = {}
        """Maps each offer to the number of workers that registered it."""
        self._serving: dict[ServedKey, int] = {}
        """Maps each kind of work to the number of offers that have it."""
        self._offered: dict[tuple[str, str], int] = {}
        """Maps (name, version) to the number of offers that have it."""
        self.unregistered: set[str] = set()
        """The workers in the fleet that registered nothing: workers of the first release. They may serve anything."""

    def restore(self, book: JobBook) -> None:
        for registration in book.state.registered.values():
            self.joined(book.state.offers[registration.offer], registration.offer)
        for worker in book.state.workers:
            self.look_at(book, worker)

    def joined(self, offer: WorkerOffer, digest: str) -> None:
        self._workers[digest] = self._workers.get(digest, 0) + 1
        if self._workers[digest] == 1:
            self._count(offer, 1)

    def left(self, offer: WorkerOffer, digest: str) -> bool:
        """Returns True when the worker that left was the last one of its offer."""
        self._workers[digest] -= 1
        if self._workers[digest]:
            return False
        del self._workers[digest]
        self._count(offer, -1)
        return True

    def look_at(self, book: JobBook, worker: str) -> bool:
        """Notes whether this worker is in the fleet without having registered. Returns True when that changed whether there is any such worker."""
        before = bool(self.unregistered)
        record = book.state.workers.get(worker)
        if record is not None and record.verdict != EVICTED and worker not in book.state.registered:
            self.unregistered.add(worker)
        else:
            self.unregistered.discard(worker)
        return before != bool(self.unregistered)

    def serves(self, key: ServedKey) -> bool:
        return key in self._serving

    def offers(self, name: str, version: str) -> bool:
        return (name, version) in self._offered

    def queues(self, name: str, version: str) -> list[str]:
        """Returns the queues in which workers serve a function now."""
        return sorted({key[0] for key in self._serving if key[2:] == (name, version)})

    def _count(self, offer: WorkerOffer, by: int) -> None:
        lanes = [lane_named(name) for name in offer.lanes]
        for function, version in offer.workflows:
            _add(self._offered, (function, version), by)
            for queue, priority in lanes:
                _add(self._serving, (queue, priority, function, version), by)
                _add(self._serving, (queue, priority, function, ""), by)
        for function, version in offer.takes_over:
            for queue, priority in lanes:
                _add(self._serving, (queue, priority, function, version), by)


def _add(counts: dict[Any, int], key: Any, by: int) -> None:
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]


def lane_named(mailbox: str) -> Lane:
    """Returns the lane of a mailbox of the old form, `queue.pN`; priority 0 where the name has none."""
    queue, mark, priority = mailbox.rpartition(".p")
    try:
        return (queue, int(priority)) if mark else (mailbox, 0)
    except ValueError:
        return mailbox, 0


def in_force(book: JobBook) -> bool:
    """Returns True when the catalogue says all that workers serve."""
    return bool(book.state.catalogue) and not book.services.unregistered


def is_served(book: JobBook, key: ServedKey, *, by_workflow: bool) -> bool:
    """Returns False for work that has to wait for a worker that serves it.

    A worker that registered nothing may serve anything, and takes it from the mailbox that all workflows share. It knows no other mailbox.
    """
    return book.services.serves(key) or not (by_workflow or in_force(book))


def in_words(key: ServedKey) -> str:
    """Returns the worker that this work waits for."""
    queue, priority, function, version = key
    named = f"{function!r} in version {version!r}" if version else repr(function)
    return f"a worker that serves {named} in queue {queue!r}" + (f" at priority {priority}" if priority else "")


def served_key(lane: Lane, workflow: WorkflowRecord) -> ServedKey:
    return (*lane, workflow.spec.called, workflow.version)


DECIDE: Decides = {RegisterWorkflows: register_workflows, ForgetWorkflows: forget_workflows}
FOLD: Folds = {WorkflowsRegistered: workflows_registered, WorkflowsForgotten: workflows_forgotten}
