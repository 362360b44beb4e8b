"""Defines the errors of jobs, nodes, health and gossip, and of simulated runs of them."""

from __future__ import annotations

from tenure.errors.base import TenureError


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
