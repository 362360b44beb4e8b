"""Pages of the web for agents, with limits: size, time, redirects, and no way to this machine's own network unless allowed.

The address that was checked is the address that is connected to, so a name that resolves differently the second time gains nothing.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

from tenure.agent.tools import ToolContext, ToolResult, tool
from tenure.clock import Clock, SystemClock
from tenure.errors import AgentError, LimitError

_REDIRECTS = {301, 302, 303, 307, 308}


@dataclass(frozen=True, slots=True)
class Page:
    """One page that was fetched."""

    url: str
    status: int
    content_type: str
    text: str
    truncated: bool = False


@dataclass(frozen=True)
class WebFetcher:
    """Fetches by GET. `allowed_hosts` are the only ones, where given; `private` allows loopback and private networks."""

    allowed_hosts: frozenset[str] | None = None
    private: bool = False
    max_bytes: int = 1_000_000
    timeout_s: float = 30.0
    max_redirects: int = 5
    user_agent: str = "tenure-agent"
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        if self.max_bytes < 1 or not self.timeout_s > 0:
            raise LimitError("max_bytes, timeout_s", (self.max_bytes, self.timeout_s), "above 0")

    def fetch(self, url: str, context: ToolContext) -> Page:
        """Get a page, with a beat per piece. Raises `AgentError` with the reason when it cannot be had."""
        until = self.clock.monotonic() + min(self.timeout_s, context.countdown.remaining_s)
        for _ in range(self.max_redirects + 1):
            context.beat()
            found = self._get(url, until, context)
            if isinstance(found, Page):
                return found
            url = found
        raise AgentError(f"more than {self.max_redirects} redirects, the last one to {url}")

    def _get(self, url: str, until: float, context: ToolContext) -> Page | str:
        """The page, or where it is now."""
        parts = urlsplit(url)
        host = parts.hostname
        if parts.scheme not in ("http", "https") or host is None:
            raise AgentError(f"{url!r} is no address of a page", remedy="Give http:// or https:// and a host")
        if self.allowed_hosts is not None and host not in self.allowed_hosts:
            raise AgentError(f"{host!r} may not be fetched from here")
        try:
            connection = self._connect(
                host, parts.port or (443 if parts.scheme == "https" else 80), parts.scheme, until
            )
        except (OSError, ValueError) as error:
            raise AgentError(f"{host} cannot be reached: {error}") from error
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", target, headers={"User-Agent": self.user_agent, "Accept-Encoding": "identity"})
            response = connection.getresponse()
            location = response.getheader("location")
            if response.status in _REDIRECTS and location:
                return urljoin(url, location)
            return self._read(url, response, connection, until, context)
        except (OSError, http.client.HTTPException) as error:
            raise AgentError(f"{url} broke off: {error or type(error).__name__}") from error
        finally:
            connection.close()

    def _read(
        self,
        url: str,
        response: http.client.HTTPResponse,
        connection: http.client.HTTPConnection,
        until: float,
        context: ToolContext,
    ) -> Page:
        data = bytearray()
        while len(data) <= self.max_bytes:
            if connection.sock is not None:
                connection.sock.settimeout(self._left(until))
            piece = response.read1(65_536)
            if not piece:
                break
            context.beat()
            data += piece
        charset = response.headers.get_content_charset() or "utf-8"
        try:
            text = bytes(data[: self.max_bytes]).decode(charset, errors="replace")
        except LookupError:
            text = bytes(data[: self.max_bytes]).decode(errors="replace")
        kind = response.headers.get_content_type()
        return Page(url, response.status, kind, text, truncated=len(data) > self.max_bytes)

    def _left(self, until: float) -> float:
        left = until - self.clock.monotonic()
        if left <= 0:
            raise TimeoutError(f"it took more than {self.timeout_s:g} s")
        return left

    def _connect(self, host: str, port: int, scheme: str, until: float) -> http.client.HTTPConnection:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        if not self.private:
            inner = [address for address in addresses if not ipaddress.ip_address(address.split("%")[0]).is_global]
            if inner:
                raise AgentError(
                    f"{host} is at {inner[0]}, inside of a private network", remedy="Allow it: WebFetcher(private=True)"
                )
        connection = http.client.HTTPConnection(host, port)
        sock: socket.socket = socket.create_connection((min(addresses), port), self._left(until))
        if scheme == "https":
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        connection.sock = sock
        return connection


@dataclass(frozen=True, slots=True)
class FetchParams:
    url: str


@tool
def fetch_page(params: FetchParams, *, context: ToolContext) -> ToolResult[Page]:
    """Fetch a page of the web by its http or https address."""
    return ToolResult.ok(context.resources.get(WebFetcher).fetch(params.url, context))
