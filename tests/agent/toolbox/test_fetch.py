"""KEEP"""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tenure.agent import Prompt, Session, ToolContext
from tenure.agent.toolbox import WebFetcher
from tenure.agent.toolbox.fetch import why_not_public
from tenure.beat.heartbeat import Heartbeat
from tenure.clock import SystemClock
from tenure.errors import AgentError, LeaseLostError

closing = threading.Event()


class Site(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/loop":
            self.answer(302, b"", location="/loop")
        elif self.path == "/moved":
            self.answer(301, b"", location="/page?x=1")
        elif self.path == "/out":
            self.answer(302, b"", location="file:///etc/passwd")
        elif self.path == "/big":
            self.answer(200, b"x" * 500_000)
        elif self.path == "/slow":
            self.send_response(200)
            self.send_header("content-length", "100")
            self.end_headers()
            self.wfile.write(b"half")
            self.wfile.flush()
            closing.wait(60)
        elif self.path == "/drip":
            self.drip(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", b"x")
        elif self.path == "/drip-headers":
            self.drip(b"HTTP/1.1 200 OK\r\nx: ", b"x")
        elif self.path == "/latin":
            self.answer(200, "grün".encode("latin-1"), kind="text/plain; charset=latin-1")
        else:
            self.answer(200 if self.path.startswith("/page") else 404, f"you asked {self.path}".encode())

    def drip(self, begin: bytes, piece: bytes) -> None:
        """Sends a byte now and then: no wait for the next one is ever long."""
        self.wfile.write(begin)
        while not closing.wait(0.02):
            self.wfile.write(piece)

    def answer(self, status: int, body: bytes, *, location: str = "", kind: str = "text/plain") -> None:
        self.send_response(status)
        if location:
            self.send_header("location", location)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are what some tests are about; everything else shows in the answer that they do not get."""


@pytest.fixture
def site() -> Iterator[str]:
    closing.clear()
    server = Server(("127.0.0.1", 0), Site)
    server.daemon_threads, server.block_on_close = True, False
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    closing.set()
    server.shutdown()
    server.server_close()
    thread.join()


HERE = WebFetcher(private=True, max_bytes=100_000, timeout_s=5)


def a_context(heartbeat: Heartbeat | None = None) -> ToolContext:
    return ToolContext(Prompt[str]("p", "x"), Session(), heartbeat=heartbeat)


def test_a_page_is_fetched_and_redirects_are_followed(site: str) -> None:
    page = HERE.fetch(f"{site}/moved", a_context())
    assert (page.url, page.status, page.content_type, page.text) == (
        f"{site}/page?x=1", 200, "text/plain", "you asked /page?x=1",
    )  # fmt: skip
    assert HERE.fetch(f"{site}/gone", a_context()).status == 404
    assert HERE.fetch(f"{site}/latin", a_context()).text == "grün"


def test_redirects_have_a_limit_and_lead_only_to_the_web(site: str) -> None:
    with pytest.raises(AgentError, match="more than 5 redirects"):
        HERE.fetch(f"{site}/loop", a_context())
    with pytest.raises(AgentError, match="no address of a page"):
        HERE.fetch(f"{site}/out", a_context())


def test_a_large_page_is_cut_and_each_piece_is_a_beat(site: str) -> None:
    heartbeat = Heartbeat()
    page = HERE.fetch(f"{site}/big", a_context(heartbeat))
    assert (len(page.text), page.truncated) == (100_000, True)
    assert heartbeat.count >= 3


def test_a_slow_page_is_given_up_in_time(site: str) -> None:
    with pytest.raises(AgentError, match="broke off"):
        WebFetcher(private=True, timeout_s=0.3).fetch(f"{site}/slow", a_context())


@pytest.mark.parametrize("path", ["drip", "drip-headers", "slow"])
def test_the_limit_bounds_the_fetch_as_a_whole_whatever_it_waits_for(site: str, path: str) -> None:
    clock = SystemClock()
    begun = clock.monotonic()
    with pytest.raises(AgentError, match=r"broke off: it took more than 0.5 s"):
        WebFetcher(private=True, timeout_s=0.5).fetch(f"{site}/{path}", a_context())
    assert clock.monotonic() - begun < 60


def test_a_handshake_that_is_never_answered_is_given_up_in_time_and_hung_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fetcher = WebFetcher(private=True, timeout_s=0.5)
        with pytest.raises(AgentError, match=r"it took more than 0.5 s"):
            fetcher.fetch(f"https://127.0.0.1:{listener.getsockname()[1]}/", a_context())
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(30)
            while connection.recv(65_536):  # its hello, then the end
                pass
        left = [thread for thread in threading.enumerate() if thread.name == "fetch-page"]
        for thread in left:
            thread.join(60)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del fetcher, left
        gc.collect()
    assert [str(one.message) for one in warned if "unclosed" in str(one.message)] == []


@pytest.mark.parametrize("path", ["drip", "drip-headers", "slow"])
def test_a_lost_lease_ends_a_fetch(site: str, path: str) -> None:
    heartbeat = Heartbeat()
    threading.Timer(0.3, heartbeat.interrupt, [LeaseLostError("m", "gone")]).start()
    with pytest.raises(LeaseLostError):
        WebFetcher(private=True, timeout_s=3_600).fetch(f"{site}/{path}", a_context(heartbeat))


def test_a_resolver_that_does_not_answer_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **given: closing.wait(60))
    closing.clear()
    with pytest.raises(AgentError, match=r"it took more than 0.3 s"):
        WebFetcher(timeout_s=0.3).fetch("http://slow.example/", a_context())
    closing.set()


def test_a_host_is_resolved_once_also_over_redirects(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads elsewhere the second time, as an attacker's server of names has it."""
    asked = []
    port = int(site.rpartition(":")[2])

    def resolve(host: str, *args: Any, **given: Any) -> Any:
        if host[0].isdigit():  # `create_connection` asks for an address that is a number already
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    page = HERE.fetch(f"http://rebinding.example:{port}/moved", a_context())
    assert (page.text, page.url) == ("you asked /page?x=1", f"http://rebinding.example:{port}/page?x=1")
    assert asked == ["rebinding.example"]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://localhost/", "http://169.254.169.254/meta", "http://[::1]/"]
)
def test_this_machines_own_network_is_out_of_reach_unless_allowed(url: str) -> None:
    with pytest.raises(AgentError, match="inside of a private network"):
        WebFetcher().fetch(url, a_context())


def test_only_allowed_hosts_are_asked(site: str) -> None:
    with pytest.raises(AgentError, match="may not be fetched"):
        WebFetcher(private=True, allowed_hosts=frozenset({"example.org"})).fetch(site, a_context())


@pytest.mark.parametrize("url", ["ftp://example.org/x", "example.org", "file:///etc/passwd"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(AgentError, match="no address of a page"):
        WebFetcher().fetch(url, a_context())


def test_a_host_that_is_not_there_is_said_so() -> None:
    with pytest.raises(AgentError, match="cannot be reached"):
        WebFetcher(private=True, timeout_s=1).fetch("http://127.0.0.1:1/", a_context())


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("0.0.0.0", "this network"),
        ("10.1.2.3", "private"),
        ("100.64.0.1", "shared by a carrier"),
        ("169.254.169.254", "link-local"),
        ("172.31.255.255", "private"),
        ("192.168.0.1", "private"),
        ("192.0.0.192", "protocol assignments"),
        ("198.19.0.1", "benchmarks"),
        ("224.0.0.1", "multicast"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "it has a zone id"),
        ("2606:4700::1111%1", "it has a zone id"),
        ("fec0::1", "site-local"),
        ("fd00:ec2::254", "private"),
        ("ff02::1", "multicast"),
        ("2001:db8::1", "documentation"),
        ("4000::1", "not global unicast"),
        ("::ffff:127.0.0.1", "IPv4-mapped 127.0.0.1: loopback"),
        ("::ffff:169.254.169.254", "IPv4-mapped 169.254.169.254: link-local"),
        ("::ffff:0:10.0.0.1", "IPv4-translated 10.0.0.1: private"),
        ("::10.0.0.1", "IPv4-compatible 10.0.0.1: private"),
        ("64:ff9b::169.254.169.254", "NAT64 169.254.169.254: link-local"),
        ("64:ff9b::127.0.0.1", "NAT64 127.0.0.1: loopback"),
        ("64:ff9b:1::8.8.8.8", "local NAT64"),
        ("2002:7f00:1::", "6to4 127.0.0.1: loopback"),
        ("2002:a9fe:a9fe::1", "6to4 169.254.169.254: link-local"),
        ("2001:0:808:808::f5ff:fffe", "Teredo client 10.0.0.1: private"),
        ("2001:0:7f00:1::f7f7:f7f7", "Teredo server 127.0.0.1: loopback"),
        ("2606:4700::5efe:10.0.0.1", "ISATAP 10.0.0.1: private"),
        ("2606:4700::200:5efe:192.168.1.1", "ISATAP 192.168.1.1: private"),
    ],
)
def test_addresses_inside_are_known_also_in_their_disguises(address: str, why: str) -> None:
    assert why_not_public(address) == why


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "100.63.255.255", "172.32.0.1", "192.0.1.1", "2606:4700::1111", "2a00:1450:4001:828::200e",
     "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"],
)  # fmt: skip
def test_addresses_of_the_public_network_are_let_through_and_so_is_a_translator_that_leads_to_one(address: str) -> None:
    assert why_not_public(address) is None
