"""Protects the port of a node: the address that it listens on, the tokens that it knows, its certificate, and the CA of its clients."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tenure.control.admission import check_bind, is_loopback
from tenure.control.tls import ClientTls, ServerTls, read_anew
from tenure.control.tokens import TokenBook, read_tokens
from tenure.control.transport import HttpServer
from tenure.errors import ConfigurationError, TenureError
from tenure.logs import NodeLog

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
        """Returns the tokens. Raises `ConfigurationError` for a file that cannot be used, or that has no token."""
        if not self.tokens_file:
            return TokenBook(shared=self.token)
        found = read_tokens(self.tokens_file)
        book = TokenBook(found.tokens, found.certificates)
        if book.empty:
            raise ConfigurationError(
                f"{self.tokens_file} names no token", remedy="Write [[tokens]] or [[certificates]] for each"
            )
        return book

    @contextlib.contextmanager
    def reloading(self, server: HttpServer, install: Callable[[TokenBook], None], log: NodeLog) -> Iterator[None]:
        """Within the block, SIGHUP reads tokens and certificates anew, and `install` gets the tokens. Where a file cannot be used, the old ones stay.

        A node without such files leaves SIGHUP to its process, which ends by it as by SIGTERM: its terminal is gone.
        """
        if not (self.tokens_file or self.tls is not None or ClientTls.from_environment().given):
            yield
            return

        def reload() -> None:
            try:
                book = self.book()
                server.reload_certificates()
            except TenureError as error:
                log.warning(f"tokens and certificates stay as they were: {error}")
                return
            install(book)
            read_anew()  # this node's own requests use the new certificate, too
            log.info("read tokens and certificates anew")

        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGHUP, reload)
        except (NotImplementedError, RuntimeError, ValueError):
            yield  # not the main thread: then another program owns the process and its signals
            return
        try:
            yield
        finally:
            loop.add_signal_handler(signal.SIGHUP, lambda: None)  # the node is ending, and must not be cut short


def page_url(address: str) -> str:
    """Returns the URL of the dashboard of a node that listens at host:port, or https://host:port."""
    url = address if "://" in address else f"http://{address}"
    # 0.0.0.0 stands for all addresses of this machine. A browser on it needs one of them.
    return f"{url.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:')}/"
