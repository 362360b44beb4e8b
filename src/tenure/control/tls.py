"""Makes the TLS contexts of the control plane, also for mutual TLS, from the files that the settings name; and explains why a connection failed."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Self

from tenure.errors import ConfigurationError, NodeUnavailableError, UntrustedPeerError


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The certificate that a node shows; with `client_ca`, it also requires one from its callers."""

    cert: str
    key: str
    client_ca: str = ""

    @classmethod
    def from_options(cls, cert: str, key: str, client_ca: str) -> Self | None:
        """Returns what the options of a command line say; None for a port without TLS. Raises `ConfigurationError`."""
        if not cert and (key or client_ca):
            raise ConfigurationError(
                "a key or a CA for clients is given without a certificate", remedy="Give --tls-cert too"
            )
        return cls(cert, key or cert, client_ca) if cert else None

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Reads the files into a context. Connections from now on use them."""
        _load("the certificate", f"{self.cert} and {self.key}", lambda: context.load_cert_chain(self.cert, self.key))
        if self.client_ca:
            _load("the clients' CA", self.client_ca, lambda: context.load_verify_locations(self.client_ca))
            context.verify_mode = ssl.CERT_REQUIRED


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The authority that a client trusts, and the certificate that it shows. Empty: the machine's own authorities, and no certificate."""

    ca: str = ""
    cert: str = ""
    key: str = ""

    @classmethod
    def from_environment(cls) -> Self:
        """Reads `TENURE_CA`, `TENURE_CERT` and `TENURE_KEY`."""
        return cls(*(os.environ.get(name, "") for name in ("TENURE_CA", "TENURE_CERT", "TENURE_KEY")))

    @property
    def given(self) -> bool:
        return bool(self.ca or self.cert)

    def context(self) -> ssl.SSLContext:
        return _client_context(self)

    def context_for(self, address: str) -> ssl.SSLContext | None:
        """Returns the context for an address; None for plain HTTP. An address without a scheme uses TLS where a CA or a certificate was given."""
        secure = address.startswith("https://") or ("://" not in address and self.given)
        return self.context() if secure else None


@lru_cache(maxsize=16)
def _client_context(tls: ClientTls) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.ca:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load("the CA", tls.ca, lambda: context.load_verify_locations(tls.ca))
    if tls.cert:
        files = f"{tls.cert} and {tls.key or tls.cert}"
        _load("the certificate", files, lambda: context.load_cert_chain(tls.cert, tls.key or None))
    return context


def read_anew() -> None:
    """Reads this process's certificates from their files again, for connections from now on."""
    _client_context.cache_clear()


def peer_name(certificate: object) -> str:
    """Returns the common name of a verified certificate (from `getpeercert`); empty where it has none."""
    subject = certificate.get("subject", ()) if isinstance(certificate, dict) else ()
    return next((value for part in subject for field, value in part if field == "commonName"), "")


def _load(what: str, files: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{what} in {files} cannot be used: {error.strerror or error}",
            remedy="Give PEM files that this user may read; the key belongs to the certificate and has no passphrase",
        ) from error


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
