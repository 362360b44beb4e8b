"""Defines every error that a user of Tenure can meet, as one tree.

    TenureError
    ├── ConfigurationError            a setting or an argument is wrong; nothing was done
    │   ├── LimitError                a number or a size is outside of what is allowed
    │   │   └── OutOfBoundsError      one field is outside of the bounds of its type
    │   ├── LadderError               timeouts that cannot work together
    │   └── PortTakenError            another process listens where we should
    ├── EngineError                   the place where work lives did not do it
    │   ├── EngineUnavailableError    out of reach; the outcome may be unknown          (retry)
    │   │   └── MailboxConnectionError
    │   ├── EngineFullError           no room: disk, memory or quota                    (retry after making room)
    │   ├── EngineBusyError           another process holds it for longer than we waited (retry)
    │   ├── EngineReadOnlyError       we may not write there
    │   ├── EngineCorruptError        what is stored cannot be read
    │   │   └── JournalDamagedError   an entry or the snapshot of a journal cannot be read or applied; says which
    │   ├── EngineVersionError        a newer Tenure wrote it, or the server is too old
    │   ├── EngineRefusedError        this engine cannot give that guarantee, and says so
    │   ├── EngineWentBackError       it lost what it had acknowledged
    │   └── EngineClosedError         used after close()
    ├── MailboxError
    │   ├── ReceiptHandleExpiredError the delivery is no longer ours
    │   ├── KeyRefusedError           a key's generation is not newer, or the key was revoked
    │   ├── MailboxClosedError        used after close()
    │   ├── ReplyNotAvailableError    the sender did not say where to reply
    │   └── SerializationError        a body that cannot be written as JSON
    ├── JournalError
    │   ├── StaleEpochError           a newer leader has written
    │   ├── SequenceConflictError     another writer appended first
    │   ├── StaleSnapshotError        there is a newer snapshot
    │   └── Truncated                 the entries asked for were folded into a snapshot
    ├── SimulationError               a simulated run could not go on
    │   ├── SimulationForbiddenError  simulated code asked the real machine: a socket, a thread, a blocking wait
    │   ├── SimulationDeadlockError   nothing is ready and no timer is set
    │   ├── SimulationRunawayError    more steps or more time than a run may take
    │   └── InvariantError            the simulated system broke a promise
    ├── GossipError
    │   ├── WireError                 bytes that are not memberlist's protocol, or not meant for this pool
    │   └── JoinError                 none of the seeds let us in                       (retry)
    ├── WorkError                     something about taking and doing work
    │   ├── LeaseLostError            raised by a beat: the message is no longer ours
    │   ├── LoopDiedError             a loop of a group ended with an error
    │   ├── LoopProcessError          the process of a loop did not end well
    │   ├── BoardError                shared memory for beats cannot be had or read
    │   │   └── ForeignFileError      what lies under that name is not ours, so it is not opened
    │   ├── UnknownWorkflowError      no such name or version is registered here
    │   ├── ArgumentsError            arguments or a result that do not fit the function's types
    │   ├── CommandFailedError        a program that a workflow ran ended with an error
    │   └── Cancelled                 raised inside a workflow whose time is over
    ├── AgentError                    something about an LLM agent, its tools or its provider
    │   ├── VisibilityExpansionRequired  the model asked to read sections that it saw in summary
    │   ├── OutputError               the model's last answer does not fit the type that was asked for
    │   ├── SessionError              a session's file or checkpoint cannot be read
    │   ├── ResourceMissingError      a tool needs a resource that was not provided
    │   ├── ToolSilentError           a tool did not beat as often as it declared
    │   ├── PathEscapeError           a tool was asked for a path outside of its root
    │   └── ProviderError             the model's provider did not answer as it should
    │       ├── ProviderRefusedError      it will not do this: key, model, size, content
    │       ├── ProviderRateLimitedError  too many requests; it may say how long to wait  (retry)
    │       ├── ProviderUnavailableError  out of reach, or an error of its own            (retry)
    │       ├── ProviderStalledError      the stream stopped in the middle                (retry)
    │       └── ProviderStreamError       the stream broke off, or is not what it should be (retry)
    ├── JobError
    │   ├── IllegalTransitionError    a state machine was asked for a step that its table does not have
    │   ├── SubmissionConflictError   the id or the idempotency key is taken by a different job
    │   ├── DatacenterFullError       there is no room for more state now                   (retry)
    │   ├── UnknownJobError           no job of that id
    │   ├── UnknownScheduleError      no schedule of that name
    │   ├── JobNotEndedError          it still runs after the time that the caller waited   (retry)
    │   ├── JobFailed                 it ended without a result; says why
    │   └── JobsFailed                some of many jobs ended so; says which
    ├── NodeError                     something about the nodes of a datacenter
    │   ├── NodeUnavailableError      no node answered in time; the outcome may be unknown  (retry)
    │   │   └── UntrustedPeerError    it and we do not trust each other's certificates
    │   └── NodeRefusedError          a node answered that it does not do what was asked
    ├── ProductFailedError            Tenure's own code raised while it handled one thing: a bug of ours
    ├── DeposedError                  this node does not lead, or no longer: its writes are refused
    ├── TermLostError                 another node leads, or the term ran out
    ├── HealthError
    │   ├── UnknownWorkerError        that worker was never registered, or was removed
    │   └── PiggybackError            bytes that are not a health state
    └── StaleFenceError               a newer attempt has written that key

Each carries what it knows as attributes, says in `remedy` what to do, and in `retryable` whether trying the same thing
again can help. Leaves are named for the fact, not for the part that noticed it.
"""

from __future__ import annotations

from typing import ClassVar

MOST_FACT_CHARS = 1_000
"""The most characters of a fact that quotes a foreign error, whose text may be as long as its input."""


class TenureError(Exception):
    """The root. `str(error)` is the fact, followed by the remedy where there is one."""

    retryable: ClassVar[bool] = False
    remedy: str = ""

    def __init__(self, fact: str, *, remedy: str | None = None) -> None:
        if remedy is not None:
            self.remedy = remedy
        self.fact = fact
        super().__init__(f"{fact}. {self.remedy}" if self.remedy else fact)


class ConfigurationError(TenureError, ValueError):
    """A setting or an argument is wrong. Nothing was done."""


class LimitError(ConfigurationError):
    """A number or a size is outside of what is allowed."""

    def __init__(self, field: str, value: object, allowed: str, *, remedy: str | None = None) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        super().__init__(f"{field} is {value}, and must be {allowed}", remedy=remedy)


class OutOfBoundsError(LimitError):
    """One field is outside of the bounds that its type states, whatever the other fields say."""

    remedy = "docs/limits.md and /v1/openapi.json list all bounds"


class LadderError(ConfigurationError):
    """Timeouts that cannot work together: a shorter one would not act before the longer one that relies on it."""

    def __init__(self, ladder: str, broken: list[str]) -> None:
        self.ladder, self.broken = ladder, broken
        super().__init__(
            "these timeouts cannot work together:\n" + ladder + "\n" + "\n".join(f"- {rule}" for rule in broken)
        )


class PortTakenError(ConfigurationError):
    """Another process listens on the port that we were to serve. Nothing was started."""

    def __init__(self, what: str, host: str, port: int, reason: str) -> None:
        self.host, self.port = host, port
        super().__init__(
            f"cannot serve {what} on {host or 'any address'}, port {port}: {reason}",
            remedy="Choose another port, 0 for a free one, or end the process that has it",
        )


class EngineError(TenureError):
    """The place where work and decisions live did not do what it was asked."""


class EngineUnavailableError(EngineError):
    """The engine is out of reach. The request may or may not have been done."""

    retryable = True
    remedy = "Check that the server runs and can be reached; Tenure goes on trying"


class MailboxConnectionError(EngineUnavailableError):
    """A mailbox lost its connection: this is never reported as an empty queue."""


class EngineFullError(EngineError):
    """No room is left: disk, memory or quota. Nothing was changed."""

    retryable = True
    remedy = "Make room and try again; nothing was changed"


class EngineBusyError(EngineError):
    """Another process holds the engine for longer than we were willing to wait."""

    retryable = True
    remedy = "Find the process that holds it, or wait longer"


class EngineReadOnlyError(EngineError):
    """The engine may not be written by this user."""


class EngineCorruptError(EngineError):
    """A stored value cannot be read."""


class JournalDamagedError(EngineCorruptError):
    """An entry or the snapshot of a journal cannot be read, has a wrong checksum, or cannot be applied.

    `part` is "entry" or "snapshot", `seq` its sequence (0 where nothing says which), `why` what is wrong with it.
    """

    remedy = "See it with `tenure journal check --engine URL`, mend it with `tenure journal repair`; no node leads until then"

    def __init__(self, journal: str, part: str, seq: int, why: str, *, remedy: str | None = None) -> None:
        self.journal, self.part, self.seq, self.why = journal, part, seq, why
        which = {"entry": f"entry {seq}", "snapshot": f"the snapshot at {seq}"}.get(part, part)
        super().__init__(f"{which} of journal {journal!r} is damaged: {why}", remedy=remedy)


class EngineVersionError(EngineError):
    """A newer Tenure wrote this data, or the server is older than we support."""


class EngineRefusedError(EngineError):
    """This engine cannot give that guarantee in this set-up, and says so rather than pretend."""


class EngineWentBackError(EngineError):
    """The engine shows less than it had acknowledged: a failover or a restart lost writes."""


class EngineClosedError(EngineError):
    """The engine was used after close()."""


class MailboxError(TenureError):
    """Something about one mailbox or one message."""


class ReceiptHandleExpiredError(MailboxError):
    """This delivery is no longer ours: its lease ran out, it was settled, or a newer generation replaced it."""

    remedy = "Stop the work: another delivery may be running, and this one's result is refused"

    def __init__(self, message_id: str, reason: str = "its lease ran out") -> None:
        self.message_id, self.reason = message_id, reason
        super().__init__(f"receipt handle expired for message {message_id}: {reason}")


class KeyRefusedError(MailboxError):
    """A key's generation is not newer than the one that was sent, or the key was revoked."""

    def __init__(self, key: str, generation: int, current: int, *, revoked: bool = False) -> None:
        self.key, self.generation, self.current, self.revoked = key, generation, current, revoked
        why = "the key was revoked" if revoked else f"generation {current} was sent already"
        super().__init__(
            f"message with key {key!r}, generation {generation}, refused: {why}",
            remedy="Nothing is lost: this work is already known" if not revoked else "Cancelled work stays cancelled",
        )


class MailboxClosedError(MailboxError):
    """The mailbox was used after close()."""


class ReplyNotAvailableError(MailboxError):
    """The sender of this message did not say where to reply."""

    remedy = "Send it with reply_to=, or acknowledge() without a reply"


class SerializationError(MailboxError):
    """A body that cannot be written as JSON, or does not fit the mailbox's type."""


class JournalError(TenureError):
    """Something about one journal."""


class StaleEpochError(JournalError):
    """A newer leader has written: this one was deposed."""

    remedy = "Step down, and follow the journal"

    def __init__(self, epoch: int, current: int) -> None:
        self.epoch, self.current = epoch, current
        super().__init__(f"append with epoch {epoch} refused: epoch {current} has written")


class SequenceConflictError(JournalError):
    """Another writer appended first, so this decision was made on old state."""

    remedy = "Read the tail: if your append_id is there it succeeded, otherwise decide again"

    def __init__(self, expect: int, last: int) -> None:
        self.expect, self.last = expect, last
        super().__init__(f"append expected to follow sequence {expect}, and the last is {last}")


class StaleSnapshotError(JournalError):
    """There is a newer snapshot; a snapshot only moves forward."""

    def __init__(self, seq: int, current: int) -> None:
        self.seq, self.current = seq, current
        super().__init__(f"snapshot at sequence {seq} refused: there is one at {current}")


class Truncated(JournalError):
    """The entries asked for were folded into a snapshot and removed."""

    remedy = "Start from the snapshot, then read after its sequence"

    def __init__(self, after: int, first: int) -> None:
        self.after, self.first = after, first
        super().__init__(f"entries after {after} are gone: the journal begins at {first}")


class SimulationError(TenureError):
    """A simulated run could not go on."""


class SimulationForbiddenError(SimulationError):
    """Simulated code asked the real machine for something that a seed cannot decide."""


class SimulationDeadlockError(SimulationError):
    """Nothing is ready to run and no timer is set, so nothing would ever happen again."""


class SimulationRunawayError(SimulationError):
    """A run took more steps or more virtual time than it may."""


class InvariantError(SimulationError):
    """The simulated system broke a promise."""


class GossipError(TenureError):
    """Something about the gossip plane. It costs knowledge of others, never work."""


class WireError(GossipError):
    """Bytes that are not memberlist's protocol, or not meant for this pool."""


class JoinError(GossipError):
    """None of the seeds let us in."""

    retryable = True
    remedy = "Check addresses, label and keys; the node goes on without a pool and tries its seeds again"


class JobError(TenureError):
    """Something about one job."""


class IllegalTransitionError(JobError):
    """A state machine was asked for a step that its table does not have. Terminal states are written once."""

    def __init__(self, what: str, old: str, new: str) -> None:
        self.what, self.old, self.new = what, old, new
        super().__init__(f"{what} cannot go from {old} to {new}")


class SubmissionConflictError(JobError):
    """The id or the idempotency key of a submission is taken by a different job."""

    remedy = "Send the same submission again to get the same job, or choose a new key"

    def __init__(self, field: str, value: str, job_id: str) -> None:
        self.field, self.value, self.job_id = field, value, job_id
        super().__init__(f"{field} {value!r} belongs to job {job_id!r}, which was submitted with other contents")


class DatacenterFullError(JobError):
    """The state of a datacenter is at its budget: nothing new is accepted until jobs end. Accepted jobs go on."""

    retryable = True
    remedy = "Ask again later; wait for jobs to end, cancel some, keep finished ones for less long (--keep-finished), or submit smaller arguments"

    def __init__(self, fact: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(fact)


class UnknownJobError(JobError):
    """No job of that id is known, live or archived."""

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
    """The job ended without a result: failed, cancelled or timed out. `why` is the chain of decisions that led there."""

    def __init__(self, job_id: str, state: str, reason: str, why: str = "") -> None:
        self.job_id, self.state, self.reason, self.why = job_id, state, reason, why
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

    def __init__(self, kind: str, fact: str, *, remedy: str | None = None) -> None:
        self.kind = kind
        super().__init__(fact, remedy=remedy)


class ProductFailedError(TenureError):
    """Tenure's own code raised while it handled one thing. That thing is refused; everything else goes on."""

    remedy = "This is a fault of Tenure: its node's log has the traceback, please report it"

    def __init__(self, doing: str, cause: BaseException, trace: str = "") -> None:
        self.doing, self.trace = doing, trace
        super().__init__(f"Tenure itself failed while {doing}: {type(cause).__name__}: {cause}"[:MOST_FACT_CHARS])


class DeposedError(TenureError):
    """This node does not lead, or no longer does: its decisions are refused."""

    remedy = "Ask the node that leads"


class TermLostError(TenureError):
    """Another node leads, or the term ran out before it was renewed."""

    remedy = "Step down; campaign again"

    def __init__(self, name: str, epoch: int, current: int) -> None:
        self.name, self.epoch, self.current = name, epoch, current
        super().__init__(f"term {epoch} of election {name!r} is over (the newest is {current})")


class StaleFenceError(TenureError):
    """A newer attempt has written that key."""

    remedy = "Stop the work: its results are refused"

    def __init__(self, key: str, fence: tuple[int, int], current: tuple[int, int]) -> None:
        self.key, self.fence, self.current = key, fence, current
        super().__init__(f"write to {key!r} with fence {tuple(fence)} refused: {tuple(current)} has written")


class HealthError(TenureError):
    """Something about the health of a node."""


class UnknownWorkerError(HealthError):
    """That worker was never registered here, or was removed: it has no deadline that could move."""

    remedy = "Register the worker first; one that was evicted rejoins under a new incarnation"

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        super().__init__(f"worker {worker_id!r} is not known here")


class PiggybackError(HealthError):
    """Bytes that came as a node's health and are not."""

    remedy = "Drop them and count it; check that both nodes run compatible versions"


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


class ArgumentsError(WorkError, TypeError):
    """Arguments, or a result, that do not fit the function's types."""


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


class OutputError(AgentError):
    """The model's last answer does not fit the type that was asked for."""

    remedy = "Raise output_retries, simplify the output type, or use a model that follows schemas"


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
