"""Explains why a connection over TLS failed, and names the setting that mends it. Pure: from an error to an error."""

from __future__ import annotations

import ssl
from enum import Enum, auto

from tenure.errors import NodeUnavailableError, UntrustedPeerError

SHOW = "It wants a certificate that its authority signed: set TENURE_CERT and TENURE_KEY"
TRUST = "Name the authority that signed its certificate: set TENURE_CA"
PLAIN = "Nothing there speaks TLS: ask it as http://HOST:PORT, or start it with --tls-cert"
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})


class Reached(Enum):
    """How far a request got over TLS before it failed."""

    NOBODY = auto()
    """There was no connection yet, or it was a plain one."""
    PEER = auto()
    """A new connection: the certificates were exchanged, and nothing was answered."""
    ANSWER = auto()
    """The node had answered on this connection, or had begun to."""


def unanswered(address: str, error: BaseException, reached: Reached) -> NodeUnavailableError:
    """Returns the error for a request that got no answer."""
    hung_up = isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
    if isinstance(error, ssl.SSLCertVerificationError):
        return UntrustedPeerError(f"{address} is not trusted: {error.verify_message}", remedy=TRUST)
    if isinstance(error, ssl.SSLError) and not hung_up:
        remedy = PLAIN if error.reason in _NO_TLS else SHOW
        return UntrustedPeerError(f"{address} refused the connection: {error.reason or error}", remedy=remedy)
    if reached is Reached.PEER and not isinstance(error, TimeoutError):
        # Since TLS 1.3 a client learns only after the handshake that the server missed or refused its certificate, and the server's alert may be
        # lost with the connection. A node that dies looks alike, once: so `failover` counts such rounds before it gives up.
        return UntrustedPeerError(f"{address} hung up as soon as it was asked", remedy=SHOW)
    return NodeUnavailableError(f"{address} did not answer: {str(error) or type(error).__name__}")
