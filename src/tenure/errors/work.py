"""Defines the errors of work (loops, slots, workflows, agents and their providers), of jobs and their submission, and of nodes."""

from __future__ import annotations

from typing import Any, ClassVar

from tenure.errors.base import LimitError, TenureError


class WorkError(TenureError):
    """Something about taking and doing work."""


class LeaseLostError(WorkError):
    """Raised in the work by its next beat: the lease was lost, so the result would be refused."""

    remedy = "Stop: another delivery may be running"

    def __init__(self, message_id: str, reason: str) -> None:
        self.message_id, self.reason = message_id, reason
        super().__init__(f"the lease of message {message_id} was lost: {reason}")


class LoopDiedError(WorkError):
    """A loop of a group ended with an error, and the group with it. The cause is the loop's own error."""

    def __init__(self, loop: str, error: BaseException) -> None:
        self.loop, self.error = loop, error
        super().__init__(f"loop {loop!r} died: {type(error).__name__}: {error}")


class LoopProcessError(WorkError):
    """The process of a loop did not end well: it raised, it was killed because it stalled, or a signal from outside killed it."""

    def __init__(self, loop: str, exit_code: int, reason: str) -> None:
        self.loop, self.exit_code, self.reason = loop, exit_code, reason
        how = f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
        super().__init__(f"the process of loop {loop!r} {how}: {reason or 'nobody said why'}")


class BoardError(WorkError):
    """The shared memory for beats cannot be had or read."""


class ForeignFileError(BoardError):
    """A file under a name of ours is a link, or another user made it or could write to it. It was not opened."""

    def __init__(self, path: object, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"{path} is not ours: {why}", remedy="Look at who made it, and remove it")


class UnknownWorkflowError(WorkError):
    """No workflow of that name or version is registered in this worker."""


class StepConflictError(WorkError):
    """The steps of a workflow do not fit: one repeats without a key, or comes in another order than it was recorded in."""


class StepTimeoutError(WorkError, TimeoutError):
    """A step took longer than its timeout."""

    retryable = True

    def __init__(self, step: str, timeout: float) -> None:
        self.step, self.timeout = step, timeout
        super().__init__(f"step {step!r} took longer than its timeout of {timeout:g} s")


class WaitTimeoutError(WorkError, TimeoutError):
    """The signal that a workflow waited for did not come in time."""

    def __init__(self, event: str, timeout: float) -> None:
        self.event, self.timeout = event, timeout
        super().__init__(f"signal {event!r} did not come within {timeout:g} s")


class ArgumentsError(WorkError, TypeError):
    """Arguments, or a result, that do not fit the function's types."""


class CodecError(WorkError):
    """Arguments, a result or a checkpoint cannot be decoded with this codec, or only one of the two sides has one."""


class CommandFailedError(WorkError):
    """A program that a workflow ran ended with a non-zero exit code."""

    def __init__(self, command: tuple[str, ...], returncode: int, tail: tuple[str, ...]) -> None:
        self.command, self.returncode, self.tail = command, returncode, tail
        super().__init__(f"{command[0]} ended with {returncode}; its last lines:\n" + "\n".join(tail))


class Cancelled(WorkError):
    """Raised inside a workflow whose time is over: cancelled, lease lost, stalled, past its deadline, or draining."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"cancelled: {reason}")


class AgentError(TenureError):
    """Something about an LLM agent, its tools or its provider."""


class VisibilityExpansionRequired(AgentError):
    """The model asked to read sections in full that its prompt showed in summary: evaluate again with them open."""

    remedy = "Open these sections and evaluate the prompt again; a MainLoop does so by itself"

    def __init__(self, keys: tuple[str, ...], why: str = "") -> None:
        self.keys, self.why = keys, why
        super().__init__(f"sections to expand: {', '.join(keys)}" + (f" ({why})" if why else ""))


class SessionError(AgentError):
    """A session's file or checkpoint cannot be read, or belongs to another session."""


class ResourceMissingError(AgentError):
    """A tool needs a resource that was not provided."""

    def __init__(self, kind: type[object]) -> None:
        self.kind = kind
        super().__init__(
            f"no {kind.__name__} was provided",
            remedy=f"Put it into the resources: MainLoopConfig(resources={{{kind.__name__}: ...}})",
        )


class ToolSilentError(AgentError):
    """A tool did not beat as often as it declared; it is abandoned, and its next beat raises this."""

    remedy = "Beat more often inside the tool, or declare a longer beat_every_s"

    def __init__(self, tool: str, silent_s: float, declared_s: float) -> None:
        self.tool, self.silent_s, self.declared_s = tool, silent_s, declared_s
        super().__init__(
            f"tool {tool!r} was silent for {silent_s:.1f} s and had declared a beat every {declared_s:g} s"
        )


class PathEscapeError(AgentError):
    """A tool was asked for a path outside of its root, directly or through a link."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path!r} is outside of the tool's root", remedy="Use paths below the root, without links out"
        )


class ProviderError(AgentError):
    """The model's provider did not answer as it should."""


class ProviderRefusedError(ProviderError):
    """The provider will not do this: the key, the model's name, the size or the content is wrong."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(f"the provider refused with status {status}: {reason}", remedy="Correct the request")


class ProviderRateLimitedError(ProviderError):
    """Too many requests; `retry_after_s` where the provider said how long to wait."""

    retryable = True

    def __init__(self, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        said = "it did not say for how long" if retry_after_s is None else f"it asks to wait {retry_after_s:g} s"
        super().__init__(f"the provider limits our rate; {said}")


class ProviderUnavailableError(ProviderError):
    """The provider is out of reach, or answered with an error of its own."""

    retryable = True

    def __init__(self, fact: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(fact)


class ProviderStalledError(ProviderError):
    """The provider sent nothing for longer than we were willing to wait, before or in the middle of its answer."""

    retryable = True


class ProviderStreamError(ProviderError):
    """The provider's stream broke off, or is not what its format says."""

    retryable = True


class JobError(TenureError):
    """Something about one job."""


class IllegalTransitionError(JobError):
    """A state machine was asked for a step that its table does not have. Terminal states are written once."""

    def __init__(self, what: str, old: str, new: str) -> None:
        self.what, self.old, self.new = what, old, new
        super().__init__(f"{what} cannot go from {old} to {new}")


class DatacenterFullError(JobError):
    """The state of a datacenter is at its budget: nothing new is accepted until jobs end. Accepted jobs go on."""

    retryable = True
    remedy = "Ask again later; wait for jobs to end, cancel some, keep finished ones for less long (--keep-finished), or submit smaller arguments"

    def __init__(self, fact: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(fact)


class QuotaExceededError(JobError):
    """The token that submits has as many jobs or bytes under way as it may, or submits too fast. What was accepted goes on."""

    retryable = True
    remedy = (
        "Ask again later; wait for jobs to end, or cancel some; or have an operator create a token with another quota"
    )

    def __init__(self, fact: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(fact)


class UnknownJobError(JobError):
    """No job of that id is known, live or archived."""

    remedy = (
        "Check the id. A job that ended can be read for 30 days, or as long as `tenure manager --keep-archive` says"
    )

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"there is no job {job_id!r}")


class UnknownScheduleError(JobError):
    """There is no schedule of that name: it was removed, or never put."""

    remedy = "`tenure schedule list` shows those that there are"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no schedule {name!r}")


class JobNotEndedError(JobError, TimeoutError):
    """The job still runs after the time that the caller waited for it. It goes on."""

    retryable = True
    remedy = "Wait again, ask why, or cancel it"

    def __init__(self, job_id: str, state: str, waited: float) -> None:
        self.job_id, self.state = job_id, state
        super().__init__(f"job {job_id!r} has not ended within {waited:g} s: it is {state}")


class JobFailed(JobError):
    """The job ended without a result: failed, cancelled or timed out. `why` says who ended it, with the traceback and the chain of decisions.

    `evidence` has the same as data: for each workflow that failed, its last attempt (`AttemptEvidence`: traceback, stacks, log, note, beats).
    """

    def __init__(self, job_id: str, state: str, reason: str, why: str = "", evidence: tuple[Any, ...] = ()) -> None:
        self.job_id, self.state, self.reason, self.why, self.evidence = job_id, state, reason, why, evidence
        said = f"job {job_id!r} ended as {state}: {reason}"
        super().__init__(f"{said}\n\n{why.rstrip()}" if why else said)


class JobsFailed(JobError):
    """Some jobs of a `map` ended without a result. `failures` has them by the place of their input; `results` the others'."""

    def __init__(self, failures: dict[int, JobFailed], results: list[object]) -> None:
        self.failures, self.results = failures, results
        shown = [
            f"- input {place}: job {error.job_id!r} ended as {error.state}: {error.reason}"
            for place, error in failures.items()
        ]
        more = [f"- and {len(shown) - 10} more"] if len(shown) > 10 else []
        super().__init__("\n".join([f"{len(failures)} of {len(results)} jobs brought no result:", *shown[:10], *more]))


class NodeError(TenureError):
    """Something about the nodes of a datacenter."""


class NodeUnavailableError(NodeError):
    """No node answered in time. The request may or may not have been done; asking again is safe."""

    retryable = True
    remedy = "Check that a manager runs at one of the addresses, then ask again"

    def __init__(self, fact: str, *, remedy: str | None = None, retry_after_s: float = 0.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(fact, remedy=remedy)


class UntrustedPeerError(NodeUnavailableError):
    """A peer answers, and one of us does not trust the certificate of the other, or misses it. Nothing was asked."""

    retryable = False
    remedy = "Set TENURE_CA to the authority that signed its certificate, and TENURE_CERT and TENURE_KEY to what it wants to see"


class NodeRefusedError(NodeError):
    """A node answered that it refuses the request."""

    def __init__(self, kind: str, fact: str, *, remedy: str | None = None, page: str = "") -> None:
        self.kind, self._page = kind, page
        super().__init__(fact, remedy=remedy)

    @property
    def page(self) -> str:
        """The page of the error that the node met, where it said so."""
        return self._page or super().page


class NoResultError(WorkError, KeyError):
    """`ctx.results` has no result of that workflow: it failed, or this one does not come after it."""

    def __init__(self, workflow: str, why: str, *, remedy: str | None = None) -> None:
        self.workflow, self.why = workflow, why
        super().__init__(f"there is no result of {workflow!r}: {why}", remedy=remedy)

    def __str__(self) -> str:
        return Exception.__str__(self)  # that of KeyError would put it in quotes


class Permanent(WorkError):
    """A workflow, a loop's function or a tool raises this to say that no further attempt can help: the work fails now."""

    def __init__(self, reason: str = "another attempt cannot help") -> None:
        self.reason = reason
        super().__init__(reason)


class RetryAfter(WorkError):
    """A workflow, a loop's function or a tool raises this to be tried again after so many seconds. It counts as an attempt."""

    MOST_S: ClassVar[float] = 30 * 86_400.0
    retryable = True

    def __init__(self, seconds: float, reason: str = "") -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= self.MOST_S:
            raise LimitError("RetryAfter", repr(seconds), "seconds, from 0 to 2,592,000 (30 days)")
        self.seconds, self.reason = float(seconds), reason
        super().__init__(f"to be tried again after {seconds:g} s" + (f": {reason}" if reason else ""))

    def __reduce__(self) -> tuple[type[RetryAfter], tuple[float, str]]:
        # Pools of processes pickle what their work raised. By its text alone this one could not be made again, and would break the pool.
        return type(self), (self.seconds, self.reason)


class SubmissionConflictError(JobError):
    """The id or the idempotency key of a submission is taken by a different job."""

    remedy = "Send the same submission again to get the same job, or choose a new key"

    def __init__(self, field: str, value: str, job_id: str) -> None:
        """`job_id` is empty where the caller may not learn which job has it."""
        self.field, self.value, self.job_id = field, value, job_id
        other = f"job {job_id!r}, which was submitted with other contents" if job_id else "another job"
        super().__init__(f"{field} {value!r} belongs to {other}")


class DuplicateJobError(JobError):
    """An equal job was accepted lately, and the submission asked to be refused then (`on_duplicate="reject"`)."""

    remedy = "Wait for that job, or submit with on_duplicate='keep' to get it"

    def __init__(self, job_id: str, for_s: float) -> None:
        self.job_id, self.for_s = job_id, for_s
        super().__init__(f"job {job_id!r} is equal and was accepted within the last {for_s:g} s")
