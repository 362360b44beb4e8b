"""What a request over TLS that came to nothing says: what is missing, and which setting would help."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.nodes.certificates import Authority

from tenure.control.tls import ClientTls, read_anew
from tenure.control.tls_errors import PLAIN, SHOW, TRUST, Reached, unanswered
from tenure.errors import NodeUnavailableError, UntrustedPeerError


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
