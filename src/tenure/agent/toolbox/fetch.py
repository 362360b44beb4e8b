"""Pages of the web for agents, with limits: size, time, redirects, and no way to this machine's own network unless allowed.

A host is resolved once for a fetch, and the address that was checked is the address that is connected to, also after a redirect: a name that resolves
differently the second time gains nothing. The whole fetch runs in a thread that is watched, so its time is bounded whatever it waits for: the resolver, a
handshake, or a server that sends a byte now and then.

The list of public networks is our own: Python's `is_global` changes from release to release, and calls addresses public that carry a private one inside. An IPv6
address in which an IPv4 address is embedded leads to that address, through a translator or a tunnel, and is judged by it.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urljoin, urlsplit

from tenure.agent.calls import LOOK_S, Hangup, ThreadedCall, run_watched, shut_down
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
    """Fetches by GET. `allowed_hosts` are the only ones, where given; `private` allows loopback and private networks.

    `timeout_s` bounds a fetch as a whole, from the resolver to the last byte of the last redirect.
    """

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
        watch = _FetchWatch(self, url, context)
        running: ThreadedCall[Page] = ThreadedCall(lambda: _Fetch(self, watch, running).follow(url), "fetch-page")
        return run_watched(running, watch, self.clock)


class _FetchWatch:
    """Ends a fetch when its time or the work's is over."""

    def __init__(self, fetcher: WebFetcher, url: str, context: ToolContext) -> None:
        self.context, self.hangup = context, Hangup()
        self._url, self._limit_s, self._clock = url, fetcher.timeout_s, fetcher.clock
        self._until = self._clock.monotonic() + min(fetcher.timeout_s, context.countdown.remaining_s)

    @property
    def left_s(self) -> float:
        return max(0.001, self._until - self._clock.monotonic())

    def look(self) -> float:
        self.context.raise_if_cancelled()
        if self._clock.monotonic() >= self._until:
            raise AgentError(f"{self._url} broke off: it took more than {self._limit_s:g} s")
        return min(self.left_s, LOOK_S)

    def given_up(self, reason: BaseException) -> None:
        self.hangup.now()


class _Fetch:
    """One fetch, from its first address to the page, in the thread of the call."""

    def __init__(self, fetcher: WebFetcher, watch: _FetchWatch, running: ThreadedCall[Page]) -> None:
        self._fetcher, self._watch, self._running = fetcher, watch, running
        self._resolved: dict[tuple[str, int], list[str]] = {}
        """The addresses of each host and port that this fetch came to, all of them checked."""

    def follow(self, url: str) -> Page:
        for _ in range(self._fetcher.max_redirects + 1):
            self._beat()
            found = self._get(url)
            if isinstance(found, Page):
                return found
            url = found
        raise AgentError(f"more than {self._fetcher.max_redirects} redirects, the last one to {url}")

    def _beat(self) -> None:
        self._running.in_waiting_thread(self._watch.context.beat)

    def _get(self, url: str) -> Page | str:
        """Returns the page, or the address where it is now."""
        parts = urlsplit(url)
        host = parts.hostname
        if parts.scheme not in ("http", "https") or host is None:
            raise AgentError(f"{url!r} is no address of a page", remedy="Give http:// or https:// and a host")
        if self._fetcher.allowed_hosts is not None and host not in self._fetcher.allowed_hosts:
            raise AgentError(f"{host!r} may not be fetched from here")
        try:
            connection = self._connect(host, parts.port or (443 if parts.scheme == "https" else 80), parts.scheme)
        except (OSError, ValueError) as error:
            raise AgentError(f"{host} cannot be reached: {error}") from error
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            headers = {"User-Agent": self._fetcher.user_agent, "Accept-Encoding": "identity"}
            connection.request("GET", target, headers=headers)
            response = connection.getresponse()
            location = response.getheader("location")
            if response.status in _REDIRECTS and location:
                return urljoin(url, location)
            return self._read(url, response)
        except (OSError, http.client.HTTPException) as error:
            raise AgentError(f"{url} broke off: {error or type(error).__name__}") from error
        finally:
            connection.close()

    def _read(self, url: str, response: http.client.HTTPResponse) -> Page:
        data, most = bytearray(), self._fetcher.max_bytes
        while len(data) <= most and (piece := response.read1(65_536)):
            self._beat()
            data += piece
        charset = response.headers.get_content_charset() or "utf-8"
        try:
            text = bytes(data[:most]).decode(charset, errors="replace")
        except LookupError:
            text = bytes(data[:most]).decode(errors="replace")
        kind = response.headers.get_content_type()
        return Page(url, response.status, kind, text, truncated=len(data) > most)

    def _connect(self, host: str, port: int, scheme: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(host, port)
        connection.sock = sock = self._open(self._addresses(host, port), port)
        try:
            sock.settimeout(None)  # from here on the watch ends every wait, and says why
            self._watch.hangup.by(partial(shut_down, sock))
            if scheme == "https":
                tls = ssl.create_default_context()
                wrapped = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
                connection.sock = wrapped  # it has taken the descriptor over from `sock`
                self._watch.hangup.by(partial(shut_down, wrapped))  # before the handshake, which may take for ever
                wrapped.do_handshake()
        except BaseException:
            connection.close()  # nobody else has it yet
            raise
        return connection

    def _open(self, addresses: list[str], port: int) -> socket.socket:
        """Connects to the first address that answers."""
        for last, address in enumerate(addresses, 1 - len(addresses)):
            try:
                return socket.create_connection((address, port), self._watch.left_s)
            except OSError:
                if last == 0:
                    raise
        raise OSError("it has no address")

    def _addresses(self, host: str, port: int) -> list[str]:
        """Returns the addresses of a host, in the resolver's order. Raises when one of them is not of the public network."""
        known = self._resolved.get((host, port))
        if known is not None:
            return known
        found = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        for address in () if self._fetcher.private else found:
            if why := why_not_public(address):
                raise AgentError(
                    f"{host} is at {address}, inside of a private network ({why})",
                    remedy="Allow it: WebFetcher(private=True)",
                )
        return self._resolved.setdefault((host, port), list(dict.fromkeys(found)))


@dataclass(frozen=True, slots=True)
class FetchParams:
    url: str


@tool
def fetch_page(params: FetchParams, *, context: ToolContext) -> ToolResult[Page]:
    """Fetch a page of the web by its http or https address."""
    return ToolResult.ok(context.resources.get(WebFetcher).fetch(params.url, context))


_DENIED_V4 = {
    IPv4Network(net): name
    for net, name in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relays"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarks"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
}
_DENIED_V6 = {
    IPv6Network(net): name
    for net, name in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("2001::/23", "protocol assignments"),
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
}
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_TEREDO = IPv6Network("2001::/32")
_IN_LAST_BITS = {
    IPv6Network(net): name
    for net, name in (
        ("::/96", "IPv4-compatible"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("64:ff9b::/96", "NAT64"),
    )
}
"""Networks whose addresses end in an IPv4 address."""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""The middle of an interface id that ends in an IPv4 address, in any network (RFC 5214)."""


def why_not_public(text: str) -> str | None:
    """Returns the reason why an address is not one of the public network, or None when it is. A zone id names a link of this machine."""
    bare, zone, _ = text.partition("%")
    if zone:
        return "it has a zone id"
    address = ip_address(bare)
    if isinstance(address, IPv4Address):
        return next((name for net, name in _DENIED_V4.items() if address in net), None)
    for how, inner in _embedded(address):
        if why := why_not_public(str(inner)):
            return f"{how} {inner}: {why}"
        if how in _IN_LAST_BITS.values():
            return None  # the translator's network itself is in no list
    if address not in _TEREDO:
        for net, name in _DENIED_V6.items():
            if address in net:
                return name
    return None if address in _GLOBAL_UNICAST else "not global unicast"


def _embedded(address: IPv6Address) -> Iterator[tuple[str, IPv4Address]]:
    """Yields each IPv4 address that an IPv6 address leads to, with the name of the way."""
    bits, last = int(address), IPv4Address(int(address) & 0xFFFFFFFF)
    if bits in (0, 1):  # `is_loopback` of Python 3.13 also says yes to ::ffff:127.0.0.1
        return  # ::1 and :: are in the network of the IPv4-compatible addresses, and are none
    for net, name in _IN_LAST_BITS.items():
        if address in net:
            yield name, last
    if address.sixtofour is not None:
        yield "6to4", address.sixtofour
    if address.teredo is not None:
        yield from (("Teredo server", address.teredo[0]), ("Teredo client", address.teredo[1]))
    if (bits >> 32) & 0xFFFFFFFF in _ISATAP:
        yield "ISATAP", last
