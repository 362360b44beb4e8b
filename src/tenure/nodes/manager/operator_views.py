"""Makes lines for operators: the workers in the list of nodes, and which stall threshold holds for each workflow, and why."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.control.messages.nodes import WorkerNode
from tenure.control.messages.workflows import ThresholdEntry, ThresholdExample, ThresholdList
from tenure.jobs.book import JobBook
from tenure.jobs.learned_gaps import FALSE_KILLS, GapRecord, ShadowCall, threshold
from tenure.jobs.state_records import DrainRecord


def with_drained(workers: list[WorkerNode], drained: dict[str, DrainRecord]) -> tuple[WorkerNode, ...]:
    """Returns the workers, with those that an operator drained shown so. Adds the drained workers that do not report now."""
    shown = [
        replace(one, drained=True, verdict="drain", reason=drained[one.name].reason, since=drained[one.name].at)
        if one.name in drained
        else one
        for one in workers
    ]
    here = {one.name for one in workers}
    for name, record in drained.items():
        if name not in here:
            shown.append(WorkerNode(name=name, verdict="drain", reason=record.reason, drained=True, since=record.at))
    return tuple(shown)


def threshold_list(book: JobBook, name: str, now: float) -> ThresholdList:
    """Returns a line for every workflow and version that was learned of, by name."""
    found = [
        _entry(book, *key.rpartition("@")[::2], record) for key, record in sorted(book.state.gaps.workflows.items())
    ]
    return ThresholdList(thresholds=tuple(one for one in found if name in ("", one.name)), now=now)


def _entry(book: JobBook, name: str, version: str, record: GapRecord) -> ThresholdEntry:
    known = book.state.catalogue.get(name, {}).get(version)
    learns, learned = known is not None and known.served.learn, threshold(record)
    holds_s, why = record.set_s, learned.why
    if not learns:
        why = 'it is set; @workflow(stall="learn") lets the learned one hold' if learned.seconds else learned.why
    elif learned.seconds is not None:
        if record.set_s and learned.seconds >= record.set_s:
            why = "it is set, and the learned one is longer"
        else:
            holds_s = learned.seconds
    return ThresholdEntry(
        name=name,
        version=version,
        attempts=record.seen,
        set_s=record.set_s,
        learned_s=record.proposed_s or None,
        false_kills=FALSE_KILLS,
        learns=learns,
        holds_s=holds_s,
        why=why,
        wrong=record.wrong_ever,
        found=record.found,
        sooner_s=round(record.sooner_s, 1),
        last_wrong=_wrong(record.last_wrong),
        last_found=_found(record.last_found),
    )


def _wrong(call: ShadowCall | None) -> ThresholdExample | None:
    if call is None:
        return None
    text = f"would have ended it at {call.proposed_s:g} s; it went on at {call.silent_s:g} s: wrong"
    return _example(call, text)


def _found(call: ShadowCall | None) -> ThresholdExample | None:
    if call is None:
        return None
    return _example(call, f"ends it at {call.proposed_s:g} s; the set threshold ends it at {call.silent_s:g} s: right")


def _example(call: ShadowCall, text: str) -> ThresholdExample:
    return ThresholdExample(
        job_id=call.job_id, at=call.at, learned_s=call.proposed_s, silent_s=call.silent_s, text=text
    )
