"""Sends blocking requests to nodes, for programs without an event loop, and decides which node a client asks next and when it gives up.

That decision performs no I/O: blocking and asyncio clients drive one generator. It yields `Ask` or `Pause`, the client sends it the outcome, and it returns the reply.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Generator, Sequence
from random import Random
from typing import NamedTuple

import msgspec

from tenure.backoff import Backoff
from tenure.control.messages.operations import decode_reply
from tenure.control.messages.wire import Problem, ProblemKind, Redirect, Reply, Request, path_of
from tenure.control.tls import ClientTls, Reached, unanswered
from tenure.errors import (
    ConfigurationError,
    NodeRefusedError,
    NodeUnavailableError,
    UnknownJobError,
    UntrustedPeerError,
)

MAX_REPLY_BYTES = 16 << 20
_encode = msgspec.json.Encoder().encode


def parse_address(text: str) -> tuple[str, int]:
    """Returns host and port of `host:port`, with or without `http://` or `https://` before it. Raises `ConfigurationError`."""
    host, colon, port = text.removeprefix("http://").removeprefix("https://").rstrip("/").rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ConfigurationError(f"{text!r} is not the address of a node", remedy="Write host:port, as 127.0.0.1:8470")
    return host.strip("[]"), int(port)


def redirected(origin: str, address: str) -> str:
    """Returns the address to ask after a redirect from `origin`; empty where it would lead from TLS to plain HTTP, and the token with it.

    An address without a scheme has that of the node which named it.
    """
    if origin.startswith("https://") and "://" not in address:
        return f"https://{address}"
    return "" if address.startswith("http://") and not origin.startswith("http://") else address


def read_answer(status: int, retry_after: str, body: bytes) -> Reply:
    """Returns the reply in an HTTP answer. Raises `msgspec.DecodeError`.

    An answer without a reply but with `Retry-After` comes from a proxy before the node, and becomes a `Problem`.
    """
    try:
        return decode_reply(body)
    except msgspec.DecodeError:
        if status not in (429, 502, 503, 504) or not retry_after.isdigit():
            raise
        return Problem(
            kind=ProblemKind.TOO_MANY if status == 429 else ProblemKind.UNAVAILABLE,
            fact=f"whatever stands before the node answered {status}",
            remedy=f"Ask again after {retry_after} s",
            retryable=True,
            retry_after_s=float(retry_after[:6]),
        )


class Caller:
    """Asks nodes, one request at a time, over connections that stay open. Not for several threads."""

    def __init__(self, *, token: str = "", tls: ClientTls | None = None) -> None:
        """Without `tls`, `TENURE_CA`, `TENURE_CERT` and `TENURE_KEY` name the files."""
        self._tls = tls if tls is not None else ClientTls.from_environment()
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._open: dict[str, http.client.HTTPConnection] = {}
        self._reached = Reached.NOBODY

    def ask(self, address: str, request: Request, timeout: float) -> Reply:
        """Returns the reply. Raises `NodeUnavailableError`; then the node may have acted or not, and asking again is safe."""
        kept = address in self._open
        try:
            return self._ask(address, request, timeout)
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            self._drop(address)
            if not kept or isinstance(error, TimeoutError):
                raise unanswered(address, error, self._reached) from error
        # The node may have closed a kept connection meanwhile. Only a new one shows if the node is there.
        try:
            return self._ask(address, request, timeout)
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            self._drop(address)
            raise unanswered(address, error, self._reached) from error

    def _ask(self, address: str, request: Request, timeout: float) -> Reply:
        connection, self._reached = self._open.get(address), Reached.ANSWER
        if connection is None:
            self._reached = Reached.NOBODY
            connection = self._open[address] = self._connection(address)
            connection.timeout = timeout
            connection.connect()
            if isinstance(connection, http.client.HTTPSConnection):
                self._reached = Reached.PEER
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        connection.request("POST", path_of(request), _encode(request), self._headers)
        answer = connection.getresponse()
        self._reached = Reached.ANSWER
        body = answer.read(MAX_REPLY_BYTES + 1)
        if len(body) > MAX_REPLY_BYTES:
            raise http.client.HTTPException(f"the answer is larger than {MAX_REPLY_BYTES:,} bytes")
        return read_answer(answer.status, answer.headers.get("Retry-After", ""), body)

    def _connection(self, address: str) -> http.client.HTTPConnection:
        host, port = parse_address(address)
        context = self._tls.context_for(address)
        if context is None:
            return http.client.HTTPConnection(host, port)
        return http.client.HTTPSConnection(host, port, context=context)

    def _drop(self, address: str) -> None:
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        for address in list(self._open):
            self._drop(address)


class CallerPerThread:
    """Asks nodes from any thread: each thread gets a `Caller` of its own, because connections are not shared."""

    def __init__(self, *, token: str = "", tls: ClientTls | None = None) -> None:
        self._token, self._tls = token, tls
        self._own = threading.local()
        self._made: list[Caller] = []

    def ask(self, address: str, request: Request, timeout: float) -> Reply:
        """Returns the reply. Raises `NodeUnavailableError`; then the node may have acted or not, and asking again is safe."""
        caller: Caller | None = getattr(self._own, "caller", None)
        if caller is None:
            caller = self._own.caller = Caller(token=self._token, tls=self._tls)
            self._made.append(caller)
        return caller.ask(address, request, timeout)

    def close(self) -> None:
        for caller in self._made:
            caller.close()


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
        heard, distrusted = _Heard(), 0
        backoff: Backoff | None = None  # nearly every search is answered in its first round
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
            backoff = backoff or Backoff(self._random, first_s=0.05, most_s=1.0)
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
