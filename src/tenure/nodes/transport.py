"""The control plane over HTTP: the only file that knows aiohttp.

One port for each node. A request is `POST /v1/NAME` with a JSON body, the reply is JSON; a problem has a status that says its kind, and a
write that came to a standby is answered with 307 and the leader's address. Nothing is served beyond this machine without a token.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from tenure.errors import ConfigurationError, PortTakenError
from tenure.nodes.messages import Problem, ProblemKind, Redirect
from tenure.nodes.operations import BY_NAME, decode_request
from tenure.nodes.wire import Reply, Request

MAX_REQUEST_BYTES = 1 << 20
CLOSE_AFTER_S = 3.0
"""How long requests that are being answered may take after the node was told to stop."""

Handler = Callable[[str, Request], Awaitable[Reply]]
"""Given the sender's address and the request, gives the reply. Raises nothing."""

_STATUS = {
    ProblemKind.INVALID: 400,
    ProblemKind.FORBIDDEN: 401,
    ProblemKind.UNKNOWN: 404,
    ProblemKind.CONFLICT: 409,
    ProblemKind.TOO_LARGE: 413,
    ProblemKind.FAILED: 500,
    ProblemKind.UNAVAILABLE: 503,
}
_KINDS = {401: ProblemKind.FORBIDDEN, 404: ProblemKind.UNKNOWN, 413: ProblemKind.TOO_LARGE}
_encode = msgspec.json.Encoder().encode


def check_bind(host: str, token: str) -> None:
    """Anybody who reaches the port may run the workflows: beyond this machine only with a token."""
    if token or is_loopback(host):
        return
    raise ConfigurationError(
        f"host {host!r} can be reached from other machines, and no token is set",
        remedy="Set a token (TENURE_TOKEN) for this node, its workers and its clients, or listen on 127.0.0.1",
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HttpServer:
    """Serves one node. `start`, then `stop`; long requests end when the handler lets them."""

    def __init__(self, handler: Handler, *, host: str = "127.0.0.1", port: int = 0, token: str = "") -> None:
        check_bind(host, token)
        self._handler, self._host, self._port, self._token = handler, host, port, token
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """The port that is served. Raises `PortTakenError`."""
        app = web.Application(client_max_size=MAX_REQUEST_BYTES, middlewares=[_as_problem])
        app.router.add_post("/v1/{name}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_AFTER_S)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self.stop()
            raise PortTakenError("the control plane", self._host, self._port, str(error)) from error
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _serve(self, request: web.Request) -> web.Response:
        if self._token and not _knows(request, self._token):
            return _response(Problem(kind=ProblemKind.FORBIDDEN, fact="wrong or no token", remedy="Set TENURE_TOKEN"))
        name = request.match_info["name"]
        if name not in BY_NAME:
            known = f"There are: {', '.join(BY_NAME)}"
            return _response(Problem(kind=ProblemKind.UNKNOWN, fact=f"there is no request {name!r}", remedy=known))
        if request.content_type != "application/json":
            # A web page may post a form to a local port without being asked, and may not post JSON.
            fact = f"the body's type is {request.content_type!r}"
            return _response(Problem(kind=ProblemKind.INVALID, fact=fact, remedy="Send application/json"))
        try:
            message = decode_request(name, await request.read())
        except msgspec.DecodeError as error:
            return _response(Problem(kind=ProblemKind.INVALID, fact=f"the body of {name!r} cannot be read: {error}"))
        reply = await self._handler(request.remote or "", message)
        return _response(reply, path=request.path)


def _knows(request: web.Request, token: str) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


@web.middleware
async def _as_problem(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """What aiohttp itself refuses is told as everything else is."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        kind = _KINDS.get(error.status, ProblemKind.INVALID)
        remedy = f"At most {MAX_REQUEST_BYTES:,} bytes are read" if kind is ProblemKind.TOO_LARGE else "POST /v1/NAME"
        return _response(Problem(kind=kind, fact=error.reason, remedy=remedy), status=error.status)


def _response(reply: Reply, status: int = 200, path: str = "") -> web.Response:
    headers = {}
    if isinstance(reply, Problem) and status == 200:
        status = _STATUS[reply.kind]
        if reply.retryable:
            headers["Retry-After"] = "1"
    elif isinstance(reply, Redirect):
        status = 307
        headers["Location"] = f"http://{reply.address}{path}"
    return web.Response(body=_encode(reply), status=status, content_type="application/json", headers=headers)
