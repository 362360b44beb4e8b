"""How the port of a node is protected: where it listens, whose tokens it knows, what it shows and wants to be shown."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tenure.errors import ConfigurationError, TenureError
from tenure.nodes.calling.tls import ServerTls, read_anew
from tenure.web.admission import check_bind, is_loopback
from tenure.web.tokens import TokenBook, read_tokens
from tenure.web.transport import HttpServer

BARE = "the wire is not encrypted: whoever can read it can read tokens and results. Give --tls-cert and --tls-key"


@dataclass(frozen=True, slots=True)
class Front:
    """The protection of one port. A token alone may do everything; with a file of tokens, only those in the file count."""

    host: str = "127.0.0.1"
    token: str = ""
    tokens_file: str = ""
    tls: ServerTls | None = None

    def __post_init__(self) -> None:
        check_bind(
            self.host,
            self.token,
            tokens=bool(self.tokens_file),
            mutual_tls=self.tls is not None and bool(self.tls.client_ca),
        )

    @property
    def scheme(self) -> str:
        """Returns the scheme before host:port; empty for plain HTTP."""
        return "https://" if self.tls is not None else ""

    @property
    def bare(self) -> bool:
        """True when tokens and work cross a network where others can read them."""
        return self.tls is None and not is_loopback(self.host)

    def book(self) -> TokenBook:
        """Raises `ConfigurationError` for a file that cannot be used, or that lets nobody in."""
        if not self.tokens_file:
            return TokenBook(shared=self.token)
        book = TokenBook(read_tokens(self.tokens_file))
        if book.empty:
            raise ConfigurationError(f"{self.tokens_file} names no token", remedy="Write [[tokens]] for each")
        return book

    @contextlib.contextmanager
    def reloading(self, server: HttpServer, say: Callable[[str], None]) -> Iterator[None]:
        """While inside, SIGHUP reads tokens and certificates anew; what cannot be used leaves those from before."""

        def reload() -> None:
            try:
                book = self.book()
                server.reload_certificates()
            except TenureError as error:
                say(f"tokens and certificates stay as they were: {error}")
                return
            server.admission.tokens = book
            read_anew()  # the certificate that this node shows to others is renewed with the one that it serves
            say("read tokens and certificates anew")

        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGHUP, reload)
        except (NotImplementedError, RuntimeError, ValueError):
            yield  # not the main thread: then the process is somebody else's, and so are its signals
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)


def page_url(address: str) -> str:
    """Where a node that listens at host:port, or https://host:port, serves its dashboard."""
    url = address if "://" in address else f"http://{address}"
    # Nobody's browser is at 0.0.0.0; on this machine it means this machine.
    return f"{url.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:')}/"


def from_options(host: str, token: str, tokens_file: str, cert: str, key: str, client_ca: str) -> Front:
    """From what a command line says."""
    if not cert and (key or client_ca):
        raise ConfigurationError(
            "a key or a CA for clients is given without a certificate", remedy="Give --tls-cert too"
        )
    tls = ServerTls(cert, key or cert, client_ca) if cert else None
    return Front(host, token, tokens_file, tls)
