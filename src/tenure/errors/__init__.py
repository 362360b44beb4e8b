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
    │   ├── StepConflictError         steps that repeat without a key, or come in another order than before
    │   ├── StepTimeoutError          a step took longer than its timeout                   (retry)
    │   ├── WaitTimeoutError          the signal that a workflow waited for did not come in time
    │   ├── ArgumentsError            arguments or a result that do not fit the function's types
    │   ├── CodecError                what a codec encoded cannot be decoded here
    │   ├── CommandFailedError        a program that a workflow ran ended with an error
    │   ├── NoResultError             a workflow that this one comes after has no result, or it comes after no such one
    │   ├── Permanent                 raised by work: another attempt cannot help
    │   ├── RetryAfter                raised by work: try again after so many seconds   (retry)
    │   └── Cancelled                 raised inside a workflow whose time is over
    ├── AgentError                    something about an LLM agent, its tools or its provider
    │   ├── VisibilityExpansionRequired  the model asked to read sections that it saw in summary
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
    │   ├── DuplicateJobError         an equal job was accepted lately
    │   ├── SubmissionConflictError   the id or the idempotency key is taken by a different job
    │   ├── DatacenterFullError       there is no room for more state now                   (retry)
    │   ├── QuotaExceededError        the token that submits has used up its quota          (retry)
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

from tenure.errors.base import *  # noqa: F403

# The tree above is the list of names: a second one here would only repeat it.
from tenure.errors.work import *  # noqa: F403
