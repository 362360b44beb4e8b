"""TLS and mutual TLS over real sockets, with certificates made for the occasion: for clients, workers and nodes alike."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.nodes.certificates import Authority, Pair
from tests.nodes.served import Served

from tenure.control.async_caller import HttpCaller
from tenure.control.caller import Caller
from tenure.control.messages.jobs import Cancel
from tenure.control.messages.wire import AskLeader, LeaderView
from tenure.control.messages.workers import WorkerDirective, WorkerReport
from tenure.control.tls import PLAIN, SHOW, TRUST, ClientTls, Reached, ServerTls, peer_name, read_anew, unanswered
from tenure.control.transport import HttpServer
from tenure.errors import ConfigurationError, NodeUnavailableError, UntrustedPeerError


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Pair:
    return authority.sign("server")


@pytest.fixture(scope="module")
def one_sided(authority: Authority, server: Pair) -> Iterator[Served]:
    with Served(ClientTls(ca=authority.file), tls=ServerTls(*server), token="secret") as node:
        yield node


@pytest.fixture(scope="module")
def mutual(authority: Authority, server: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    shown = ClientTls(authority.file, *authority.sign("ops-laptop"))
    roles = tmp_path_factory.mktemp("roles") / "tokens.toml"
    roles.write_text('[[certificates]]\nname = "ops-laptop"\nrole = "operator"\n')
    with Served(shown, tls=ServerTls(*server, authority.file), tokens_file=str(roles)) as node:
        yield node


def test_a_node_with_a_certificate_serves_tls_and_nothing_else(one_sided: Served, authority: Authority) -> None:
    assert one_sided.address.startswith("https://127.0.0.1:")
    assert one_sided.ask("/v1/leader", token="secret").body["address"] == one_sided.address
    with socket.create_connection(("127.0.0.1", one_sided.port), timeout=30) as sock:
        sock.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        sock.settimeout(30)
        assert b"alive" not in sock.recv(100)


def test_clients_and_nodes_ask_over_tls_and_check_whom_they_ask(one_sided: Served, authority: Authority) -> None:
    trusting = ClientTls(ca=authority.file)
    caller = Caller(token="secret", tls=trusting)
    assert isinstance(caller.ask(one_sided.address, AskLeader(), 30), LeaderView)
    # Where a CA is given, an address that does not say is asked over TLS.
    assert isinstance(caller.ask(one_sided.host, AskLeader(), 30), LeaderView)
    assert isinstance(caller.ask(one_sided.address, WorkerReport(worker="w"), 30), WorkerDirective)
    caller.close()
    strangers = Caller(token="secret", tls=ClientTls())
    with pytest.raises(NodeUnavailableError, match="certificate"):
        strangers.ask(one_sided.address, AskLeader(), 30)

    async def asynchronous() -> None:
        node = HttpCaller(token="secret", tls=trusting)
        assert isinstance(await node.ask(one_sided.address, AskLeader(), 30), LeaderView)
        assert isinstance(await node.ask(one_sided.address, AskLeader(), 30), LeaderView)
        node.close()
        with pytest.raises(NodeUnavailableError):
            await HttpCaller(token="secret", tls=ClientTls()).ask(one_sided.address, AskLeader(), 30)

    asyncio.run(asynchronous())


def test_the_environment_says_whom_to_trust(
    one_sided: Served, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_CA", authority.file)
    caller = Caller(token="secret")
    assert isinstance(caller.ask(one_sided.address, AskLeader(), 30), LeaderView)
    caller.close()


def test_old_versions_of_tls_are_refused_on_both_sides(server: Pair, authority: Authority) -> None:
    for context in (ServerTls(*server).context(), ClientTls(authority.file).context(), ClientTls().context()):
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_a_certificate_that_was_renewed_is_shown_to_new_connections_without_a_restart(
    authority: Authority, tmp_path: Path
) -> None:
    async def handler(sender: str, request: object) -> LeaderView:
        return LeaderView(leader="", address="", epoch=0, leads=False, seq=0)

    def serial(port: int) -> int:
        context = ClientTls(ca=authority.file).context()
        with (
            socket.create_connection(("127.0.0.1", port), timeout=30) as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1") as secure,
        ):
            return int(str((secure.getpeercert() or {})["serialNumber"]), 16)

    async def main() -> None:
        files = authority.sign("renewed")
        server = HttpServer(handler, tls=ServerTls(*files))
        port = await server.start()
        first = await asyncio.to_thread(serial, port)
        assert authority.sign("renewed") == files
        server.reload_certificates()
        assert await asyncio.to_thread(serial, port) != first
        Path(files.key).write_text("nonsense")
        with pytest.raises(ConfigurationError):
            server.reload_certificates()
        assert await asyncio.to_thread(serial, port)
        await server.stop()

    asyncio.run(main())


def test_with_mutual_tls_only_who_shows_a_certificate_gets_as_far_as_a_request(
    mutual: Served, authority: Authority, tmp_path: Path
) -> None:
    assert mutual.ask("/v1/leader").status == 200
    other = Authority(tmp_path, "other")
    for shown in ((), other.sign("stranger"), authority.sign("old", expired=True)):
        context = ClientTls(authority.file, *shown).context()
        connection = http.client.HTTPSConnection("127.0.0.1", mutual.port, timeout=30, context=context)
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            live(connection)
        connection.close()


def live(connection: http.client.HTTPSConnection) -> None:
    """In TLS 1.3 a refused certificate is heard of with the first answer."""
    connection.request("GET", "/health/live")
    connection.getresponse()


def test_the_name_of_a_certificate_stands_under_what_was_asked(mutual: Served) -> None:
    mutual.ask("/v1/cancel", {"job_id": "j", "by": "root"})
    assert mutual.audited("cancel")["by"] == "ops-laptop"
    events = mutual.ask("/v1/events", {"after": "0", "job_id": "j"}).body["events"]
    assert [line["event"]["by"] for line in events] == ["ops-laptop: root"]


def test_a_certificate_that_was_revoked_lets_nobody_in_although_its_entry_and_its_authority_stand(
    authority: Authority, server: Pair, tmp_path: Path
) -> None:
    roles = tmp_path / "tokens.toml"
    roles.write_text('[[certificates]]\nname = "lost-laptop"\nrole = "operator"\n')
    shown = ClientTls(authority.file, *authority.sign("lost-laptop"))
    with Served(shown, tls=ServerTls(*server, authority.file), tokens_file=str(roles)) as node:
        rows = node.ask("/v1/tokens").body["tokens"]
        assert [(row["id"], row["revoked"]) for row in rows] == [("certificate/lost-laptop", False)]
        assert node.ask("/v1/revoke_token", {"id": rows[0]["id"]}).status == 200
        assert node.ask("/v1/leader").status == 401


def test_a_handshake_that_never_ends_does_not_hold_up_others(mutual: Served) -> None:
    crowd = [socket.create_connection(("127.0.0.1", mutual.port), timeout=30) for _ in range(50)]
    for sock in crowd:
        sock.sendall(b"\x16\x03\x01")
    assert mutual.ask("/health/ready").status == 200
    for sock in crowd:
        sock.close()


def test_a_redirect_and_a_cancel_travel_over_tls(one_sided: Served, authority: Authority) -> None:
    caller = Caller(token="secret", tls=ClientTls(ca=authority.file))
    reply = caller.ask(one_sided.address, Cancel(job_id="x"), 30)
    assert reply.__class__.__name__ == "Done"
    caller.close()


@pytest.mark.parametrize("files", [("nowhere.pem", "nowhere.key"), (__file__, __file__)])
def test_files_that_are_no_certificate_are_refused_with_the_remedy(files: tuple[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="PEM"):
        ServerTls(*files).context()
    with pytest.raises(ConfigurationError, match="PEM"):
        ClientTls(ca=files[0]).context()


def test_a_certificate_without_a_name_has_none() -> None:
    assert peer_name({"subject": ((("organizationName", "x"),),)}) == ""
    assert peer_name(None) == ""
    assert peer_name({"subject": ((("countryName", "DE"),), (("commonName", "ann"),))}) == "ann"


def ssl_error(kind: type[ssl.SSLError], reason: str = "") -> ssl.SSLError:
    error = kind(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


def unverified() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("error", "reached", "remedy"),
    [
        (unverified(), Reached.NOBODY, TRUST),
        (ssl_error(ssl.SSLError, "TLSV13_ALERT_CERTIFICATE_REQUIRED"), Reached.PEER, SHOW),
        (ssl_error(ssl.SSLError, "TLSV1_ALERT_UNKNOWN_CA"), Reached.NOBODY, SHOW),
        (ssl_error(ssl.SSLError, "WRONG_VERSION_NUMBER"), Reached.NOBODY, PLAIN),
        (ConnectionResetError("reset"), Reached.PEER, SHOW),
        (ssl_error(ssl.SSLEOFError), Reached.PEER, SHOW),
    ],
)
def test_what_a_certificate_would_help_says_so_and_is_not_to_be_asked_again(
    error: Exception, reached: Reached, remedy: str
) -> None:
    found = unanswered("https://10.0.0.1:8470", error, reached)
    assert isinstance(found, UntrustedPeerError)
    assert (found.remedy, found.retryable) == (remedy, False)
    assert "https://10.0.0.1:8470" in found.fact


@pytest.mark.parametrize(
    ("error", "reached"),
    [
        (ConnectionRefusedError("refused"), Reached.NOBODY),
        (TimeoutError(), Reached.PEER),
        (ConnectionResetError("reset"), Reached.ANSWER),  # a connection that had worked: the node is gone
        (ssl_error(ssl.SSLEOFError), Reached.NOBODY),  # it hung up before certificates were exchanged
    ],
)
def test_a_node_that_is_away_is_only_away(error: Exception, reached: Reached) -> None:
    found = unanswered("https://10.0.0.1:8470", error, reached)
    assert type(found) is NodeUnavailableError
    assert found.retryable


def test_a_certificate_that_was_renewed_is_shown_from_then_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shown = ClientTls(authority.file, *authority.sign("node"))
    before = shown.context()
    assert shown.context() is before
    authority.sign("node")
    read_anew()
    assert shown.context() is not before
