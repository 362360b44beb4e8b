"""Decides in which datacenters a job runs (those that it names, or the best ones now), and makes the decision durable."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenure.control.caller import parse_address
from tenure.errors import ConfigurationError, NodeUnavailableError, TenureError
from tenure.jobs.decisions import GateDecision
from tenure.jobs.gate_jobs import GateSubmit
from tenure.jobs.model import Address, JobSubmission
from tenure.nodes.gate.datacenter_health import DatacenterWatch
from tenure.nodes.gate.leader import GateLeadership
from tenure.nodes.gate.measurements import Forwarding
from tenure.nodes.loop_keeper import FailedOn


class Placement:
    """Places jobs. Part of a gate that leads."""

    def __init__(
        self, address: str, peers: Sequence[str], leadership: GateLeadership, watch: DatacenterWatch, flow: Forwarding
    ) -> None:
        self._address, self._peers = address, peers
        self._leadership, self._watch, self._flow = leadership, watch, flow

    async def place_all(self, submissions: Sequence[JobSubmission]) -> list[GateDecision | TenureError]:
        """Places many jobs. Returns for each its decision, or the error that refused it."""
        commands = [self._placed(submission) for submission in submissions]
        outcomes = await self._leadership.commit_all([one for one in commands if isinstance(one, GateSubmit)])
        made = iter(outcomes)
        answers: list[GateDecision | TenureError] = []
        for command in commands:
            answer = command if isinstance(command, TenureError) else next(made)
            if isinstance(command, GateSubmit) and isinstance(answer, GateDecision) and answer.events:
                self._flow.accepted(command.target_datacenters)
            answers.append(answer)
        return answers

    def _placed(self, submission: JobSubmission) -> GateSubmit | TenureError:
        try:
            submission = self._addressed(submission)
            targets = self._targets(submission)
        except TenureError as error:
            return error
        except Exception as error:
            return self._leadership.failures.note(FailedOn.JOB, submission.job_id, "placing it", error)
        return GateSubmit(by=submission.submitted_by, submission=submission, target_datacenters=targets)

    def _addressed(self, submission: JobSubmission) -> JobSubmission:
        """Returns the submission with the addresses to which managers report: this gate first, then its peers."""
        others = tuple(_pair(peer) for peer in self._peers)
        return msgspec.structs.replace(
            submission, gate_addr=_pair(self._address), gate_addrs=others, gate_epoch=0, global_submitted_at=0.0
        )

    def _targets(self, submission: JobSubmission) -> tuple[str, ...]:
        """Returns the datacenters that the job names, or the best ones now. A job that the gate knows already stays where it is."""
        tracker = self._leadership.ledger.book
        if info := tracker.jobs.get(submission.job_id):
            return tuple(info.target_datacenters)
        unknown = [name for name in submission.target_datacenters if name not in self._watch.datacenters]
        if unknown:
            raise ConfigurationError(
                f"job {submission.job_id!r} names datacenter {unknown[0]!r}, which this gate does not know",
                remedy=f"There are: {', '.join(self._watch.datacenters)}",
            )
        if submission.target_datacenters:
            return submission.target_datacenters
        if submission.datacenters > len(self._watch.datacenters):
            raise ConfigurationError(
                f"job {submission.job_id!r} needs {submission.datacenters} datacenters, and this gate has {len(self._watch.datacenters)}",
                remedy=f"Ask for fewer. There are: {', '.join(self._watch.datacenters)}",
            )
        choice = self._watch.choose(submission.datacenters)
        if len(choice.chosen) < submission.datacenters:
            said = "; ".join(f"{name}: {reason}" for name, reason in choice.reasons.items())
            raise NodeUnavailableError(
                f"job {submission.job_id!r} needs {submission.datacenters} datacenters, and {len(choice.chosen)} can take it ({said})",
                remedy="Ask again, or name target_datacenters: a named one gets the job when it is back",
            )
        return choice.chosen


def _pair(address: str) -> Address:
    """Returns host and port. A scheme stays with the host, because the manager that reports joins the two again."""
    parse_address(address)
    host, _, port = address.rpartition(":")
    return host, int(port)
