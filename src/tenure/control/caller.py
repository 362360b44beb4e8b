"""Sends blocking requests to nodes, for programs without an event loop: clients and the command line."""

from __future__ import annotations

import http.client
import threading

import msgspec

from tenure.control.messages.jobs import Problem, ProblemKind
from tenure.control.messages.operations import decode_reply
from tenure.control.messages.wire import Reply, Request, path_of
from tenure.control.tls import ClientTls, Reached, unanswered
from tenure.errors import ConfigurationError

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
