from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tenure.agent import Prompt, Session, ToolContext
from tenure.agent.toolbox import WebFetcher
from tenure.beat import Heartbeat
from tenure.errors import AgentError

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
        elif self.path == "/latin":
            self.answer(200, "grün".encode("latin-1"), kind="text/plain; charset=latin-1")
        else:
            self.answer(200 if self.path.startswith("/page") else 404, f"you asked {self.path}".encode())

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
