"""Settles the outcome of an attempt with the engine, once, and keeps trying while the engine is away."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import msgspec

from tenure.backoff import Backoff, Retry
from tenure.clock import Clock
from tenure.engines.contracts import Engine
from tenure.engines.contracts.engine import MAX_KEY_CHARS
from tenure.errors import KeyRefusedError, ReceiptHandleExpiredError, TenureError
from tenure.work.delivery import WorkMessage
from tenure.work.envelope import Cause, WorkFailure, WorkResult
from tenure.work.steps import Steps

EVIDENCE_TTL_S = 7 * 86_400
ONCE = Retry(max_attempts=1)
"""The policy for work whose function is not known here: one attempt."""
NAME_CHARS = 200
"""Names in log lines are cut to this."""
_NOT_COUNTED = frozenset({Cause.DRAINED})
"""Work that is handed over did nothing wrong: its delivery does not count."""


class Settler:
    """Settles by the item's policy: a leader gets a reply; a plain queue retries with backoff, then gives up."""

    def __init__(self, engine: Engine, *, clock: Clock, random: Random, say: Callable[[str], None]) -> None:
        self._clock, self._random, self._say = clock, random, say
        self._evidence = engine.store("evidence")

    def until_settled(
        self, settle: Callable[[WorkResult], str], result: WorkResult, lease_until: Callable[[], float]
    ) -> Steps[str]:
        """Calls `settle` until the outcome is settled, as long as the lease is ours. Returns how that ended, for logs and tables.

        When the engine refuses an outcome for good, a failure that says so replaces it. Otherwise the work would run again when the lease
        runs out, and end the same way.
        """
        if result.failure is not None and result.failure.cause is Cause.LEASE_LOST:
            return "refused: the lease was lost"
        backoff, replaced = Backoff(self._random, first_s=0.05, most_s=2.0), False
        while True:
            try:
                word: str = yield partial(settle, result)
            except (ReceiptHandleExpiredError, KeyRefusedError) as error:
                self._say(f"the outcome of {result.workflow[:NAME_CHARS]} was refused: {error}")
                return "refused: the lease was lost"
            except TenureError as error:
                if not error.retryable:
                    if replaced:
                        raise
                    result, replaced = _not_taken(result, error), True
                    continue
                self._say(f"cannot settle {result.workflow[:NAME_CHARS]} yet: {error}")
                pause = backoff.next()
                if self._clock.boottime() + pause >= lease_until():
                    return "not settled: the engine was out of reach until the lease ran out"
            else:
                return word
            yield pause

    def settle(self, message: WorkMessage, result: WorkResult, *, managed: bool, retry: Retry = ONCE) -> str:
        """Settles the message, and tries once. Returns a word on how that ended; raises what the engine raised."""
        failure = result.failure
        if failure is None:
            return self._finish(message, result, "done")
        if failure.evidence:
            self._keep_evidence(result, failure)
        if failure.cause in _NOT_COUNTED:
            message.release()
            return "handed over"
        if managed:
            return self._finish(message, result, "failed")
        if failure.cause is Cause.CANCELLED:
            return self._finish(message, result, "cancelled")
        if failure.retryable and message.attempt < retry.max_attempts:
            delay = retry.delay_s(message.attempt, self._random.random())
            message.nack(delay)
            return f"retried in {delay:.1f} s"
        message.dead_letter(f"{failure.cause}: {failure.reason}"[:2_000])
        return "dead letter"

    def _finish(self, message: WorkMessage, result: WorkResult, word: str) -> str:
        if message.reply_to is None:
            message.acknowledge()
        else:
            message.settle(result)
        return word

    def _keep_evidence(self, result: WorkResult, failure: WorkFailure) -> None:
        key = f"{result.job_id or result.workflow}/{result.workflow_id}/{result.attempt}"[-MAX_KEY_CHARS:]
        try:
            self._evidence.put(key, msgspec.json.encode(failure), ttl=EVIDENCE_TTL_S)
        except TenureError as error:
            if error.retryable:
                raise
            # An outcome without its evidence is better than none.
            self._say(f"the evidence on {result.workflow[:NAME_CHARS]} could not be kept: {error}")


def _not_taken(result: WorkResult, error: TenureError) -> WorkResult:
    cause = Cause.BAD_RESULT if result.failure is None else result.failure.cause
    failure = WorkFailure(cause=cause, reason=f"its outcome could not be handed over: {error}")
    return msgspec.structs.replace(result, result=msgspec.Raw(b"null"), failure=failure)
