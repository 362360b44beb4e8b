"""Learns how long healthy attempts of each workflow are silent, in each version, and proposes a stall threshold (decision 0485).

Each attempt teaches one number: its longest silence between two proofs. So the false-kill rate is one of attempts, whatever the silences of one
attempt have to do with each other. The record is a histogram with buckets of equal width in the logarithm: small, bounded, and two of them add up.

The threshold lies beyond everything that was seen, so the tail is continued. Above a high value, a share of the attempts falls with a power of the
silence (a Pareto tail, Hill's estimate). Tails that fall faster, as a lognormal's does, get a threshold that is longer than they need.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tenure.attempt_data import AttemptSilence
from tenure.jobs.budget import text_bytes
from tenure.jobs.learned_rates import rate_key
from tenure.jobs.states import AttemptCause

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook
    from tenure.jobs.decisions import JobEvent

FALSE_KILLS = 1e-4
"""The share of healthy attempts that the proposal may end."""
FEWEST = 200
"""Before so many attempts nothing is proposed: the rate is too far beyond what fewer can show."""
MEMORY = 600
"""When a record weighs so many attempts, all of it is halved: what is older counts less and less, so a workflow that became slower is known to be."""
FLOOR_S = 10.0
"""No proposal is shorter: a machine that swaps, collects garbage or moves to another host is silent for seconds."""
CEILING_S = 86_400.0
TAIL_SHARE, LEAST_TAIL = 0.05, 20.0
"""The part of the attempts from which the tail is estimated, and the least of them."""
CAUTION = 1.0
"""Standard errors that are added to the estimated exponent of the tail."""
LEAST_EXPONENT = 0.1
DRIFT = 1.25
"""The proposal is so much longer than estimated, because the estimate is behind what changes."""
BEYOND_LONGEST = 1.5
"""It is at least so much longer than the longest silence in the record."""
REFRESH = 16
"""Attempts after which the proposal is made anew. A silence beyond it does so at once."""
MOST_WRONG = 2.0
"""With so many wrong proposals in its record, a learned threshold holds no more, until they are halved away."""
MOST_WORKFLOWS = 500
"""Beyond these, the one that was learned of longest ago is forgotten."""
WIDTH = math.log(1.1)
"""The width of a bucket: a tenth."""
SHORTEST_S = 0.5
"""Shorter silences share the lowest bucket: no threshold comes near them."""
LOWEST, HIGHEST = math.floor(math.log(SHORTEST_S) / WIDTH), math.floor(math.log(CEILING_S) / WIDTH)
RECORD_BYTES = 400 + 12 * (HIGHEST - LOWEST + 1)
"""The most bytes of a record without its strings. A snapshot counts all of them from its first attempt on."""


class ShadowCall(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt on which the proposal and the threshold that held disagree."""

    job_id: str
    proposed_s: float
    silent_s: float
    """The silence after which it went on, or in which it was ended."""
    at: float


class GapRecord(msgspec.Struct, kw_only=True):
    """Holds everything that is known of the silences of one workflow in one version."""

    buckets: dict[int, float] = {}
    """Maps each bucket to the attempts whose longest silence is in it. Older attempts count for less than one."""
    seen: int = 0
    """All attempts that taught it, ever."""
    proposed_s: float = 0.0
    """0 before anything is proposed."""
    set_s: float = 0.0
    """The threshold that was set for the last attempt under which no learned one held."""
    wrong: float = 0.0
    """Attempts that the proposal would have ended, or did end, and that went on. They are halved as the attempts are."""
    wrong_ever: int = 0
    found: int = 0
    """Attempts that stalled and that the proposal would have ended, or did end, sooner than the set threshold."""
    sooner_s: float = 0.0
    """The seconds by which it was sooner, in all."""
    last_wrong: ShadowCall | None = None
    last_found: ShadowCall | None = None


class LearnedGaps(msgspec.Struct, kw_only=True):
    """Part of the state: the records in the order in which they were last learned of."""

    workflows: dict[str, GapRecord] = {}


class Learned(NamedTuple):
    """States whether a learned threshold may hold, which one, and why, or why not."""

    seconds: float | None
    why: str


def bucket_of(seconds: float) -> int:
    return max(LOWEST, min(HIGHEST, math.floor(math.log(max(seconds, SHORTEST_S)) / WIDTH)))


def weight(record: GapRecord) -> float:
    return sum(record.buckets.values())


def propose(buckets: dict[int, float]) -> float:
    """Returns the threshold that at most the share `FALSE_KILLS` of healthy attempts exceeds, by the tail of the record. It must hold some attempts."""
    total = sum(buckets.values())
    found = sorted(buckets.items(), reverse=True)
    wanted = max(LEAST_TAIL, TAIL_SHARE * total)
    beyond, start = 0.0, found[-1][0]
    for bucket, count in found:
        beyond, start = beyond + count, bucket
        if beyond >= wanted:
            break
    # Hill's estimate: the mean of the logarithms of those beyond `start`. A count lies in the middle of its bucket.
    mean = sum(count * (bucket + 0.5 - start) * WIDTH for bucket, count in found if bucket >= start) / beyond
    exponent = max(LEAST_EXPONENT, mean * (1 + CAUTION / math.sqrt(beyond)))
    log_s = start * WIDTH + exponent * math.log(beyond / (total * FALSE_KILLS))
    longest = math.exp(min((found[0][0] + 1) * WIDTH, math.log(CEILING_S)))
    tail = math.exp(min(log_s, math.log(CEILING_S)))
    return min(CEILING_S, max(FLOOR_S, DRIFT * tail, BEYOND_LONGEST * longest))


def teach(record: GapRecord, seconds: float) -> None:
    """Learns the longest silence of one attempt that was not cut short."""
    bucket = bucket_of(seconds)
    record.buckets[bucket] = record.buckets.get(bucket, 0.0) + 1.0
    record.seen += 1
    _bound(record)
    if record.seen % REFRESH == 0 or seconds > record.proposed_s:
        _refresh(record)


def _bound(record: GapRecord) -> None:
    while weight(record) >= MEMORY:
        # What weighs less than one attempt was halved before, and goes now: so the longest silence of all is forgotten some time, too.
        record.buckets = {bucket: count / 2 for bucket, count in record.buckets.items() if count >= 1}
        record.wrong /= 2


def _refresh(record: GapRecord) -> None:
    if record.seen >= FEWEST:
        record.proposed_s = round(propose(record.buckets), 1)


def threshold(record: GapRecord | None) -> Learned:
    """Returns the threshold that may hold for the next attempt, if one may."""
    if record is None or record.seen < FEWEST:
        seen = record.seen if record is not None else 0
        return Learned(None, f"its record is too short: {seen} of {FEWEST} attempts")
    if record.wrong >= MOST_WRONG:
        return Learned(None, f"it would have been wrong {record.wrong_ever} times, the last time not long ago")
    longest = math.exp((max(record.buckets) + 1) * WIDTH)
    return Learned(record.proposed_s, f"learned from {record.seen} attempts, the longest silence {longest:.0f} s")


def learned_for(gaps: LearnedGaps, function: str, versions: list[str]) -> Learned:
    """Returns the threshold for work that any of these versions may do: the longest of theirs, and none where one of them has none."""
    found = [threshold(gaps.workflows.get(rate_key(function, version))) for version in versions]
    if not found:
        return Learned(None, "nobody serves it")
    missing = next((one for one in found if one.seconds is None), None)
    return missing or max(found, key=lambda one: one.seconds or 0.0)


def learn_gaps(
    book: JobBook, function: str, ended: JobEvent, silence: AttemptSilence | None, cause: AttemptCause | None = None
) -> None:
    """Learns from an attempt that `ended`, by itself where it has no `cause` or raised an error. The fold calls it.

    One that was cut short is compared and teaches nothing, because nobody knows how long it would have been silent.
    """
    if silence is None:
        return
    key = rate_key(function, silence.version)
    gaps = book.state.gaps
    if key not in gaps.workflows:
        book.size.grew(text_bytes(key) + RECORD_BYTES)
    record = gaps.workflows.pop(key, None) or GapRecord()
    gaps.workflows[key] = record
    if not silence.learned:
        record.set_s = silence.allowed_s
    whole = cause is None or cause is AttemptCause.ERROR
    went_on_s = max(silence.longest_s, silence.last_s if whole else 0.0)
    if went_on_s > record.proposed_s > 0:
        _was_wrong(record, ended, went_on_s)
    elif cause is AttemptCause.STALL and silence.last_s >= silence.allowed_s:
        _was_stalled(record, ended, silence)
    book.size.grew(text_bytes(ended.job_id))  # the job may be named as an example
    if whole:
        teach(record, went_on_s)
    if len(gaps.workflows) > MOST_WORKFLOWS:
        del gaps.workflows[next(iter(gaps.workflows))]


def _was_wrong(record: GapRecord, ended: JobEvent, went_on_s: float) -> None:
    record.wrong, record.wrong_ever = record.wrong + 1, record.wrong_ever + 1
    record.last_wrong = ShadowCall(
        job_id=ended.job_id, proposed_s=record.proposed_s, silent_s=round(went_on_s, 1), at=ended.at
    )


def _was_stalled(record: GapRecord, ended: JobEvent, silence: AttemptSilence) -> None:
    """Notes an attempt that stalled, where the learned threshold ended it, or would have ended it, sooner than the set one."""
    found_s = silence.allowed_s if silence.learned else record.proposed_s
    if not 0 < found_s < record.set_s:
        return
    record.found, record.sooner_s = record.found + 1, record.sooner_s + record.set_s - found_s
    record.last_found = ShadowCall(job_id=ended.job_id, proposed_s=found_s, silent_s=record.set_s, at=ended.at)
