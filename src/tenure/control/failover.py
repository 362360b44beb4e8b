"""Decides which node a client asks next, and when it gives up. It performs no I/O.

Blocking and asyncio clients drive one generator: it yields `Ask` or `Pause`, the client sends it the outcome, and it returns the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from random import Random
from typing import NamedTuple

from tenure.backoff import Backoff
from tenure.control.caller import parse_address, redirected
from tenure.control.messages.jobs import Problem, ProblemKind, Redirect
from tenure.control.messages.wire import Reply, Request
from tenure.errors import (
    ConfigurationError,
    NodeRefusedError,
    NodeUnavailableError,
    UnknownJobError,
    UntrustedPeerError,
)

ANSWER_S = 5.0
"""The seconds that one node may take for one answer, beyond the wait that the request asks for."""
DISTRUSTED = 3
"""After this many rounds in which no node answered, and one failed for its certificate or ours, the search ends.

More than one, because a node that is just being stopped may look so once.
"""
LATER = 1.25
"""Callers that a node refused together come back spread over a quarter more than they were asked to wait, and never sooner."""


class Ask(NamedTuple):
    """Ask this node; send back its reply, or the `NodeUnavailableError`."""

    address: str
    timeout: float


class Pause(NamedTuple):
    """No node could answer: wait, and send back None."""

    seconds: float


class _Heard:
    """Collects the answers of one search."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}
        """Maps each address to its last answer in words, for the error of a search that fails."""
        self.not_before: dict[str, float] = {}
        """Maps an address that asked us to stay away to the time until then."""
        self.refusals: list[UntrustedPeerError] = []
        self.answered = False

    def begin_round(self) -> None:
        """Forgets what holds for one round only: certificates that were refused in it, and that a node answered."""
        self.refusals, self.answered = [], False

    def note(self, answer: Reply | NodeUnavailableError | None) -> None:
        if isinstance(answer, UntrustedPeerError):
            self.refusals.append(answer)
        self.answered = self.answered or isinstance(answer, Reply)


Search = Generator["Ask | Pause", "Reply | NodeUnavailableError | None", Reply]


class Directory:
    """The nodes that a client knows, and the one that answered last. Its threads share it without a lock: a stale preference costs a detour."""

    def __init__(
        self, addresses: Sequence[str], *, patience_s: float, random: Random, monotonic: Callable[[], float]
    ) -> None:
        if isinstance(addresses, str):
            addresses = [part.strip() for part in addresses.split(",") if part.strip()]
        if not addresses:
            raise ConfigurationError("no manager is named", remedy="Give at least one address, as 127.0.0.1:8470")
        for address in addresses:
            parse_address(address)
        self._addresses, self._patience_s = list(addresses), patience_s
        self._random, self._monotonic = random, monotonic
        self._preferred = self._addresses[0]

    def search(self, request: Request, wait_s: float = 0.0) -> Search:
        """Asks one node after the other until one gives a final answer; for `patience_s` and `wait_s` at most."""
        until = self._monotonic() + self._patience_s + wait_s
        heard, backoff, distrusted = _Heard(), Backoff(self._random, first_s=0.05, most_s=1.0), 0
        while True:
            heard.begin_round()
            reply = yield from self._round(request, ANSWER_S + wait_s, heard)
            if reply is not None:
                return reply
            distrusted += bool(heard.refusals) and not heard.answered
            if distrusted >= DISTRUSTED:
                raise heard.refusals[0]  # waiting longer would not mend a certificate
            again = min(heard.not_before.get(address, 0.0) for address in self._addresses)
            if (late := self._too_late(again, until, heard)) is not None:
                raise late
            yield Pause(max(backoff.next(), again - self._monotonic()))

    def _round(
        self, request: Request, timeout: float, heard: _Heard
    ) -> Generator[Ask, Reply | NodeUnavailableError | None, Reply | None]:
        """Asks every node once, and those that they redirect to. Returns the final answer, or None where no node had one."""
        asked: set[str] = set()
        targets = [self._preferred, *self._addresses]
        while targets:
            address = targets.pop(0)
            if address in asked or self._monotonic() < heard.not_before.get(address, 0.0):
                continue
            asked.add(address)
            answer = yield Ask(address, timeout)
            reply = _judge(address, request, answer, heard.said)
            heard.note(answer)
            if reply is None and (rest := _retry_after(answer)):
                heard.not_before[address] = self._monotonic() + rest * self._random.uniform(1.0, LATER)
            if isinstance(reply, Redirect):
                targets[:0] = [leader] if (leader := redirected(address, reply.address)) else []
            elif reply is not None:
                self._preferred = address
                return reply
            elif address == self._preferred:
                # A node that hangs costs its whole timeout, so the next round begins with another one.
                self._preferred = self._random.choice(self._addresses)
        return None

    def _too_late(self, again: float, until: float, heard: _Heard) -> NodeUnavailableError | None:
        """Returns the error for a search whose patience is over, or ends before any node wants to be asked again at `again`."""
        words = "; ".join(f"{address}: {text}" for address, text in heard.said.items())
        if self._monotonic() >= until:
            return NodeUnavailableError(f"no node answered within {self._patience_s:g} s ({words})")
        if again >= until:
            return NodeUnavailableError(
                f"every node turns it away for longer than the patience of {self._patience_s:g} s ({words})",
                remedy="Ask again later, or give the client more patience_s",
            )
        return None


def _retry_after(answer: Reply | NodeUnavailableError | None) -> float:
    """Returns the seconds that the node asked us to stay away."""
    return answer.retry_after_s if isinstance(answer, Problem) else 0.0


def _judge(
    address: str, request: Request, answer: Reply | NodeUnavailableError | None, said: dict[str, str]
) -> Reply | None:
    """Returns the reply; None where another node, or this one later, may answer. Raises the error of a final refusal."""
    if answer is None or isinstance(answer, NodeUnavailableError):
        said[address] = answer.fact if answer else "did not answer"
        return None
    if isinstance(answer, Redirect):
        said[address] = f"says that {answer.address} leads"
    if not isinstance(answer, Problem):
        return answer
    if answer.retryable:
        later = f" (it asks to be left alone for {answer.retry_after_s:g} s)" if answer.retry_after_s else ""
        said[address] = f"{answer.fact}{later}"
        return None
    job_id = getattr(request, "job_id", "")
    if answer.kind is ProblemKind.UNKNOWN and job_id and answer.fact == UnknownJobError(job_id).fact:
        raise UnknownJobError(job_id)
    raise NodeRefusedError(answer.kind, answer.fact, remedy=answer.remedy, page=answer.page)
