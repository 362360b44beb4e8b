"""Settles the outcome of an attempt: by a reply, by a retry, or by giving its message up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tenure.attempt_data import (
    ARGUMENTS_STORE,
    LIVE_TTL_S,
    MAX_MESSAGE_RESULT_BYTES,
    OUTPUT_STORE,
    RESULTS_STORE,
    result_key,
)
from tenure.backoff import MOST_NACK_S, Backoff, Retry
from tenure.clock import Clock
from tenure.engines.contracts import Engine, Fence
from tenure.engines.contracts.engine import MAX_KEY_CHARS
from tenure.errors import KeyRefusedError, ReceiptHandleExpiredError, TenureError
from tenure.logs import NodeLog
from tenure.randomness import Random
from tenure.work.delivery import Cause, WorkFailure, WorkMessage, WorkResult
from tenure.work.kept_compensations import KeptCompensations
from tenure.work.kept_steps import KeptSteps
from tenure.work.result_signatures import ClaimedAttempt, ResultSigner, digest_of

if TYPE_CHECKING:
    from tenure.work.attempt_steps import Steps

EVIDENCE_TTL_S = 7 * 86_400
ONCE = Retry(max_attempts=1)
"""The policy for work whose function is not known here: one attempt."""
NAME_CHARS = 200
"""Names in log lines are cut to this."""
_NOT_COUNTED = frozenset({Cause.DRAINED})
"""Work that is handed over did nothing wrong: its delivery does not count."""


class Settler:
    """Settles by the item's policy: a leader gets a reply; a plain queue retries with backoff, then gives up."""

    def __init__(
        self, engine: Engine, *, clock: Clock, random: Random, log: NodeLog, signer: ResultSigner | None = None
    ) -> None:
        """`signer` signs what leaders get; None where they check nothing."""
        self._clock, self._random, self._log, self._signer = clock, random, log, signer
        self._evidence = engine.store("evidence")
        self.results, self.output, self.arguments = map(engine.store, (RESULTS_STORE, OUTPUT_STORE, ARGUMENTS_STORE))
        self.kept_steps, self.compensations = KeptSteps(engine), KeptCompensations(engine)

    def until_settled(
        self, settle: Callable[[WorkResult], str], result: WorkResult, lease_until: Callable[[], float]
    ) -> Steps[str]:
        """Calls `settle` until the outcome is settled, as long as the lease is ours. Returns how that ended, for logs and tables.

        When the engine refuses an outcome for good, a failure that says so replaces it. Otherwise the work would run again when the lease
        runs out, and end the same way.
        """
        if result.failure is not None and result.failure.cause is Cause.LEASE_LOST:
            return "refused: the lease was lost"
        backoff: Backoff | None = None  # nearly every outcome is settled at once
        replaced = False
        while True:
            try:
                word: str = yield partial(settle, result)
            except (ReceiptHandleExpiredError, KeyRefusedError) as error:
                self._log.warning(f"the outcome of {result.workflow[:NAME_CHARS]} was refused: {error}")
                return "refused: the lease was lost"
            except TenureError as error:
                if not error.retryable:
                    if replaced:
                        raise
                    result, replaced = _not_taken(result, error), True
                    continue
                self._log.warning(f"cannot settle {result.workflow[:NAME_CHARS]} yet: {error}")
                backoff = backoff or Backoff(self._random, first_s=0.05, most_s=2.0)
                pause = backoff.next()
                if self._clock.boottime() + pause >= lease_until():
                    return "not settled: the engine was out of reach until the lease ran out"
            else:
                return word
            yield pause

    def settle(
        self,
        message: WorkMessage,
        result: WorkResult,
        *,
        managed: bool,
        retry: Retry = ONCE,
        claim: ClaimedAttempt | None = None,
    ) -> str:
        """Settles the message, and tries once. Returns a word on how that ended; raises what the engine raised.

        `claim` names the attempt for the signature; None where the result was made in this process, which claimed the work.
        """
        failure = result.failure
        if managed and result.ok:
            result = self._stored(message, result)
        if managed and self._signer is not None:
            result = self._signer.signed(result, claim or ClaimedAttempt.told_by(result))
        if result.suspended is not None:
            self.kept_steps.keep(message, result.job_id, result.workflow_id)
            return self._finish(message, result, "suspended")
        if failure is None:
            return self._finish(message, result, "done")
        if failure.evidence:
            self._keep_evidence(result, failure)
        if failure.cause in _NOT_COUNTED:
            message.release()
            return "handed over"
        if managed:
            self.kept_steps.keep_failed(message, result)
            return self._finish(message, result, "failed")
        if failure.cause is Cause.CANCELLED:
            return self._finish(message, result, "cancelled")
        if failure.retryable and message.attempt < retry.max_attempts:
            chosen = retry.delay_s(message.attempt, self._random.random())
            delay = chosen if failure.rest_s is None else min(failure.rest_s, MOST_NACK_S)  # the longest of any engine
            message.nack(delay)
            return f"retried in {delay:.1f} s"
        message.dead_letter(f"{failure.cause}: {failure.reason}"[:2_000])
        return "dead letter"

    def _stored(self, message: WorkMessage, result: WorkResult) -> WorkResult:
        """Returns the result as it fits into a message. A larger one is stored first, under the fence: a delivery that lost its lease overwrites nothing."""
        if len(result.result) <= MAX_MESSAGE_RESULT_BYTES:
            return result
        message.extend_visibility(0)  # the engine has to count the delivery before its fence is used (RULINGS 7)
        key = result_key(result.job_id, result.workflow_id, result.attempt)
        self.results.put(key, bytes(result.result), fence=Fence(*message.fence), ttl=LIVE_TTL_S)
        digest = msgspec.UNSET if self._signer is None else digest_of(bytes(result.result))
        return msgspec.structs.replace(result, result=msgspec.Raw(b"null"), stored=True, digest=digest)

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
            self._log.error(f"the evidence on {result.workflow[:NAME_CHARS]} could not be kept: {error}")


def _not_taken(result: WorkResult, error: TenureError) -> WorkResult:
    cause = Cause.BAD_RESULT if result.failure is None else result.failure.cause
    failure = WorkFailure(cause=cause, reason=f"its outcome could not be handed over: {error}")
    return msgspec.structs.replace(result, result=msgspec.Raw(b"null"), failure=failure)
