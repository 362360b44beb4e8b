"""Serves the control plane of one node over HTTP. No other file of the serving side but `stream_answers` imports aiohttp's server.

Each node has one port. A request is `POST /v1/NAME` with a JSON body, or, where it only reads, `GET /v1/NAME?field=value`; the reply is JSON. A
problem has a status for its kind, and a standby answers a write with 307 and the leader's address. `admission` decides which callers are let in,
`claims` checks what requests say of their callers, `request_bounds` reads bodies and ends late answers, and `request_decoding` decodes requests.

It uses aiohttp's low-level server without its router, because the operations are a table already.
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from tenure.clock import Clock, SystemClock
from tenure.control.access_log import AccessLog
from tenure.control.admission import (
    NAMESPACE_HEADER,
    Admission,
    AdmittedCaller,
    HttpLimits,
    Visitor,
    check_bind,
    is_loopback,
)
from tenure.control.claims import bearer, scope, showing, sign, who, why_not_open
from tenure.control.connections import READ_BYTES, PortConnections
from tenure.control.dashboard_files import PREFIX, page_files
from tenure.control.messages.jobs import MAX_WAIT_S
from tenure.control.messages.operations import BY_NAME, MAX_REQUEST_BYTES, Operation
from tenure.control.messages.wire import Problem, ProblemKind, Reply, Request
from tenure.control.openapi import document
from tenure.control.problems import Refused, base_headers, full, head_of, not_in_time, refused, too_large, wrong_method
from tenure.control.request_bounds import AnswerDeadlines, BodyReader, Visit
from tenure.control.request_decoding import read_body, read_query
from tenure.control.streams import StreamAnswers, Streams
from tenure.control.tls import ServerTls, peer_name
from tenure.control.tokens import TokenBook
from tenure.errors import ConfigurationError, PortTakenError
from tenure.logs import facts
from tenure.randomness import IdSource, new_id

__all__ = ["MAX_REQUEST_BYTES", "Handler", "HttpServer", "check_bind", "is_loopback"]

CLOSE_AFTER_S = 3.0
"""The seconds that requests under way may take after the node begins to stop."""
SPARE_FILES = 128
"""The open files that a process needs beside its connections."""
MAX_HEADERS = 64
"""The most lines of a head; each costs about 300 bytes, however short it is. Browsers send about 20."""
_LARGE = 64 << 10
_log = logging.getLogger(__name__)
# aiohttp would log every malformed head with a traceback, so that any client could fill the disk.
_aiohttp_log = logging.getLogger(f"{__name__}.malformed")
_aiohttp_log.setLevel(logging.CRITICAL)

Handler = Callable[[str, Request], Awaitable[Reply]]
"""Takes the caller's name for the log and the request, and returns the reply. Raises nothing."""
Metrics = Callable[[], tuple[bytes, str]]
Ready = Callable[[], tuple[bool, Any]]
"""Returns for the probes True when the node can serve, and a report with the reasons."""
Follow = Callable[[Request, str], Awaitable[Reply | None]]
"""Takes a request and the token that came with it, and returns the leader's answer; None where this node should answer."""

FOLLOW_HEADER = "X-Tenure-Follow"
_LIVE = ("/health/live", "/livez")
_READY = ("/health/ready", "/readyz")
_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_encode = msgspec.json.Encoder().encode


class HttpServer:
    """The HTTP server of one node. Call `start`, and `stop` in the end."""

    def __init__(
        self,
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        tokens: TokenBook | None = None,
        tls: ServerTls | None = None,
        limits: HttpLimits | None = None,
        streams: Streams | None = None,
        ready: Ready = lambda: (True, {"ready": True}),
        metrics: Metrics | None = None,
        follow: Follow | None = None,
        about: dict[str, str] | None = None,
        log: AccessLog | None = None,
        clock: Clock | None = None,
        ids: IdSource = new_id,
    ) -> None:
        tokens = tokens if tokens is not None else TokenBook(shared=token)
        mutual = tls is not None and bool(tls.client_ca)
        check_bind(host, token, tokens=not tokens.empty, mutual_tls=mutual)
        self._handler, self._ready, self._metrics = handler, ready, metrics
        self._follow, self._about = follow, about
        self._host, self._port, self._ids, self._log = host, port, ids, log or AccessLog()
        self._clock, self._limits = clock or SystemClock(), limits or HttpLimits()
        self._tls, self._ssl = tls, tls.context() if tls is not None else None
        self._scheme = "https" if tls is not None else "http"
        self.admission = Admission(tokens, self._limits, self._clock, (about or {}).get("datacenter", ""))
        self._streams = StreamAnswers(streams, self.admission, self._limits) if streams is not None else None
        self._server: web.Server | None = None
        self._listener: asyncio.Server | None = None
        self._deadlines = AnswerDeadlines()
        self.bodies = BodyReader(self._limits, self._log.dropped)

    async def start(self) -> int:
        """Begins to listen, and returns the port. Raises `PortTakenError`."""
        self._server = web.Server(
            self._serve,
            handler_cancellation=True,  # a caller that hangs up must not count as waiting any longer
            access_log=None,
            logger=_aiohttp_log,
            keepalive_timeout=self._limits.idle_s,
            lingering_time=1.0,
            auto_decompress=False,
            read_bufsize=READ_BYTES,
            max_headers=MAX_HEADERS,
        )
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = max(16, min(self._limits.connections, soft - SPARE_FILES))
        self.connections = PortConnections(self._limits, most, self._server, self._log.dropped, self._ssl)
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(self.connections.accept, self._host, self._port, backlog=1_024)
        except OSError as error:
            await self.stop()
            raise PortTakenError("the control plane", self._host, self._port, str(error)) from error
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        server, self._server = self._server, None
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        if server is not None:
            self.connections.drop_handshakes()
            server.pre_shutdown()
            await server.shutdown(CLOSE_AFTER_S)
            self._deadlines.close()

    def reload_certificates(self) -> None:
        """Reads the certificates anew, for connections from now on. Raises `ConfigurationError`, and then changes nothing."""
        if self._tls is not None and self._ssl is not None:
            self._tls.context()  # tries the files in a context that serves no connection, because `load_into` could leave the real one half changed
            self._tls.load_into(self._ssl)

    # One request

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        given = request.headers.get("X-Request-Id", "")
        request_id = given if _ID.fullmatch(given) else self._ids()[:16]
        visit = Visit(request, self.connections.of(request.protocol), request_id, self._clock.monotonic())
        visit.connection.begin(None if visit.is_chunked else request.content_length or 0)
        try:
            try:
                response = await self._route(visit)
            except Refused as error:
                response = self._respond(visit, error.problem, error.status, error.headers)
            except Exception as error:
                _log.exception("The answer to %s failed", request.path)
                fact = f"{type(error).__name__} while it was answered"
                response = self._respond(
                    visit, Problem(kind=ProblemKind.FAILED, fact=fact, remedy="See the node's log")
                )
            if not visit.connection.finish(body_is_complete=request.content.is_eof()):
                response.force_close()
            if isinstance(response, web.Response) and response.content_length and response.content_length > _LARGE:
                await self._send(request, response)
        finally:
            if visit.body is not None:
                self.bodies.release(visit.body)
        self._log.answered(visit.name, response.status, self._clock.monotonic() - visit.began)
        return response

    async def _route(self, visit: Visit) -> web.StreamResponse:
        request = visit.request
        path = request.path.rstrip("/")
        if visit.is_chunked and request.method != "POST":
            # The connection counts the bytes after a body, and the server would not read this one to its end.
            raise Refused(ProblemKind.INVALID, f"a {request.method[:20]} has a body", "Leave it out")
        if path in _LIVE:
            return self._plain(visit, b'{"alive":true}\n')
        if path in _READY:
            ready, said = self._ready()
            return self._plain(visit, _encode(said) + b"\n", status=200 if ready else 503)
        if not path or path.startswith(PREFIX):
            return self._page(visit, path)
        caller = self._admit(visit)
        if path == "/v1/me":
            return self._plain(visit, _encode(who(caller.identity, self._about or {})))
        if path == "/metrics" and self._metrics is not None and not caller.identity.bounds.scoped:
            body, kind = self._metrics()
            return self._plain(visit, body, kind)
        if path == "/v1/openapi.json":
            return self._plain(visit, document())
        operation = BY_NAME.get(path.removeprefix("/v1/")) if path.startswith("/v1/") else None
        if operation is None:
            known = f"POST /v1/NAME, where NAME is one of: {', '.join(BY_NAME)}"
            raise Refused(ProblemKind.UNKNOWN, f"there is no {path[:200]!r}", known)
        visit.name = operation.name
        if lacking := why_not_open(operation, caller.identity):
            raise refused(lacking)
        return await self._ask(visit, caller, operation)

    def _admit(self, visit: Visit) -> AdmittedCaller:
        request = visit.request
        headers, transport = request.headers, request.transport
        certificate = transport.get_extra_info("peercert") if self._ssl is not None and transport is not None else None
        visitor = Visitor(
            request.remote or "",
            headers.get("Authorization", ""),
            headers.get("Host", ""),
            headers.get("Origin", ""),
            peer_name(certificate),
            headers.get(NAMESPACE_HEADER, ""),
        )
        caller = self.admission.admit(visitor)
        if isinstance(caller, AdmittedCaller):
            return caller
        raise refused(caller)

    async def _ask(self, visit: Visit, caller: AdmittedCaller, operation: Operation) -> web.StreamResponse:
        message = await self._read(visit, operation)
        if found := self.admission.refuse(operation, message, caller.identity):
            raise refused(found)
        within = self.admission.scope_of(message, caller.identity)
        with facts(request=visit.request_id), showing(message, bearer(visit.request.headers), within):
            if self._streams is not None and (form := self._streams.form_of(visit.request, operation)) is not None:
                return await self._streams.answer(visit, caller, message, form)
            return await self._answer(visit, caller, operation, message)

    async def _answer(
        self, visit: Visit, caller: AdmittedCaller, operation: Operation, message: Request
    ) -> web.StreamResponse:
        wait_s: float = getattr(message, "wait_s", 0.0)
        stile = self.admission.waiting if wait_s > 0 else self.admission.answering
        if not stile.enter(caller.key):
            raise full()
        # The handler itself ends the wait that a request asks for. This bounds its other waits: for an engine, or for another node.
        most_s = self._limits.answer_s + min(max(0.0, wait_s), MAX_WAIT_S)
        scope = self._deadlines.begin(most_s)
        try:
            async with scope:
                reply = await self._passed_on(visit, caller, message)
                if reply is None:
                    message = sign(message, caller.identity)
                    reply = await self._handler(str(caller), message)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise not_in_time(most_s) from error
        finally:
            self._deadlines.end(scope)
            stile.leave(caller.key)
        if wait_s > 0 and not self.admission.still_knows(caller):  # it was revoked, or expired, while it waited
            raise Refused(ProblemKind.FORBIDDEN, "the token is not known any more", "Ask with another one")
        if not operation.reads:
            self._log.wrote(visit.request_id, caller, message, reply)
        return self._respond(visit, reply)

    async def _passed_on(self, visit: Visit, caller: AdmittedCaller, message: Request) -> Reply | None:
        """Returns the leader's answer to a caller that cannot follow a redirect to another host, as a browser cannot; None for other callers."""
        if self._follow is None or visit.request.headers.get(FOLLOW_HEADER) != "leader":
            return None
        given = bearer(visit.request.headers)
        # The leader identifies the caller by the token. It does not see the caller's certificate, so this node signs with the certificate's name;
        # but this node's own token has no bounds, so a certificate with bounds is answered here.
        if not given and scope().bounds:
            return None
        return await self._follow(message if given else sign(message, caller.identity), given)

    def _page(self, visit: Visit, path: str) -> web.Response:
        request = visit.request
        if found := self.admission.admit_reader(request.remote or ""):
            raise refused(found)
        if request.method not in ("GET", "HEAD"):
            raise wrong_method(request.method, path or "/", "GET, HEAD")
        headers = request.headers
        answer = page_files().answer(
            request.path, have=headers.get("If-None-Match", ""), accepts=headers.get("Accept-Encoding", "")
        )
        if answer is None:
            raise Refused(ProblemKind.UNKNOWN, f"there is no {path[:200]!r}", "The dashboard is at /")
        return web.Response(
            status=answer.status, body=answer.body, headers={**base_headers(visit.request_id), **answer.headers}
        )

    async def _read(self, visit: Visit, operation: Operation) -> Request:
        request = visit.request
        try:
            if request.method == "POST":
                return read_body(operation, await self._body(visit, operation))
            if request.method in ("GET", "HEAD") and operation.reads:
                last = request.headers.get("Last-Event-ID", "") if operation.streams else ""
                # `Last-Event-ID` comes last and so wins over `after`: a browser that reconnects resumes behind the last event that it saw.
                return read_query(operation, [*request.query.items(), *([("after", last)] if last else [])])
        except ConfigurationError as error:
            raise Refused(ProblemKind.INVALID, error.fact, error.remedy) from error
        raise wrong_method(request.method, operation.name, "GET, HEAD, POST" if operation.reads else "POST")

    async def _body(self, visit: Visit, operation: Operation) -> bytes:
        request = visit.request
        if not request.body_exists and "Content-Type" not in request.headers:
            return b""  # without a body, every field has its default
        if request.content_type != "application/json":
            # A page of another site may post a form to a local port, but a browser does not let it post JSON.
            fact = f"the body's type is {request.content_type[:100]!r}"
            raise Refused(ProblemKind.INVALID, fact, "Send application/json", status=415)
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise Refused(ProblemKind.INVALID, "the body is compressed", "Send it as it is", status=415)
        most = operation.body_bytes
        if (request.content_length or 0) > most:
            raise too_large(most)
        content, visit.body = request.content, self.bodies.in_memory(request.remote or "")
        if not content.is_eof() and request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        try:
            body = await self.bodies.read(visit.body, content, most)
        except web.RequestPayloadError as error:
            raise Refused(ProblemKind.INVALID, f"the body cannot be read: {error}"[:300], Connection="close") from error
        visit.connection.body_read()
        return body

    # Answers

    async def _send(self, request: web.BaseRequest, response: web.Response) -> None:
        """Sends a large answer within `send_s`: a client that does not read it must not hold its connection for ever."""
        try:
            async with asyncio.timeout(self._limits.send_s):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            return

    def _plain(self, visit: Visit, body: bytes, kind: str = "application/json", status: int = 200) -> web.Response:
        if visit.request.method not in ("GET", "HEAD"):
            raise wrong_method(visit.request.method, visit.request.path, "GET, HEAD")
        return web.Response(body=body, status=status, headers={"Content-Type": kind, **base_headers(visit.request_id)})

    def _respond(
        self, visit: Visit, reply: Reply, status: int = 0, extra: dict[str, str] | None = None
    ) -> web.Response:
        status, headers = head_of(reply, status, visit.request_id, f"{self._scheme}://", visit.request.path_qs)
        if isinstance(reply, Problem):
            reply = msgspec.structs.replace(reply, request_id=visit.request_id)
            self._log.refused(visit.request_id, visit.request.remote or "", visit.name, status, reply)
        return web.Response(body=_encode(reply), status=status, headers=headers | (extra or {}))
