"""One connection to a server: connects, speaks TLS, logs in, sends commands and reads their answers. hiredis packs and parses.

redis-py is not used: to import it takes longer than all the rest of a worker's supervisor (decision 0811).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import hiredis

if TYPE_CHECKING:
    from tenure.engines.redis.address import RedisSettings

Argument = str | bytes | int
Command = Sequence[Argument]
_pack: Callable[[Any], bytes] = hiredis.pack_command  # its stub allows a tuple of one only
_READ_BYTES = 65_536
NOT_YET = object()
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A server that vanished without a word is noticed within these seconds, also by a session that only listens."""
_TOLD_BY_CODE = frozenset(
    [
        "ERR",
        "OOM",
        "WRONGPASS",
        "LOADING",
        "NOSCRIPT",
        "READONLY",
        "NOAUTH",
        "NOPERM",
        "MOVED",
        "CLUSTERDOWN",
        "MASTERDOWN",
    ]
)
"""The words before errors whose text is a sentence without them."""
_ENDS_SESSION = frozenset(["READONLY", "LOADING", "NOAUTH", "WRONGPASS"])
"""After these the next session is a new one: it logs in anew, and finds the primary of that time."""
_TOO_MANY = "max number of clients reached"
_CLOSED = "Connection closed by server."
_NO_PASSWORD_SET = "AUTH <password> called without any password"  # noqa: S105  the words of a server


class RedisFailure(Exception):
    """The root of the errors of a session. They are translated before a caller sees them."""

    ends_session = True
    """True when the session can be used no more."""
    word = ""
    """The first word of an error that the server answered."""


class RedisConnectionLost(RedisFailure):
    """The connection could not be made, or was lost: the outcome of what was sent is unknown."""


class RedisAnswerLate(RedisConnectionLost):
    """The server did not answer within the patience."""


class RedisRefused(RedisFailure):
    """The server answered with an error: nothing happened."""

    def __init__(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        self.word = "WRONGPASS" if rest.startswith(_NO_PASSWORD_SET) else word
        self.ends_session = self.word in _ENDS_SESSION or rest == _TOO_MANY
        super().__init__(rest if word in _TOLD_BY_CODE else text)


class RedisSession:
    """Opened by making it. Every method raises `RedisFailure`; after one that lost the connection it is of no use."""

    _socket: socket.socket | None = None

    def __init__(self, settings: RedisSettings) -> None:
        options = settings.connection
        self._timeout_s: float = options["socket_timeout"]
        self._owner, self._place = os.getpid(), _place(options)
        self._reader = hiredis.Reader(RedisConnectionLost, RedisRefused, notEnoughData=NOT_YET)
        self._buffer = bytearray(_READ_BYTES)
        self._socket = _connect(options, tls=settings.tls)
        self._socket.settimeout(self._timeout_s)
        self._nothing_yet = _nothing_yet(tls=settings.tls)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        try:
            self._log_in(options)
        except BaseException:
            self.close()
            raise

    def _log_in(self, options: Mapping[str, Any]) -> None:
        """Makes one round trip. The first refusal counts: of a wrong password, not of what could not be done without it."""
        commands: list[Command] = [("CLIENT", "SETNAME", options["client_name"])]
        if options["password"]:
            login = [word for word in (options["username"], options["password"]) if word]
            commands.insert(0, ("AUTH", *login))
        if options["db"]:
            commands.append(("SELECT", options["db"]))
        self.send(*commands)
        for _ in commands:
            self.read()

    def send(self, *commands: Command) -> None:
        """Several commands in one go: each will be answered."""
        packed = [_pack(tuple(command)) for command in commands]
        try:
            self._open_socket().sendall(packed[0] if len(packed) == 1 else b"".join(packed))
        except TimeoutError:
            raise self._lost(RedisAnswerLate("Timeout writing to socket")) from None
        except OSError as error:
            raise self._lost(
                RedisConnectionLost(f"Error {_number(error)} while writing to socket. {_words(error)}.")
            ) from error

    def read(self) -> Any:
        """Waits for an answer and returns it."""
        try:
            answer = self._reader.gets()
            while answer is NOT_YET:
                self._receive(self._open_socket())
                answer = self._reader.gets()
        except TimeoutError:
            raise self._lost(RedisAnswerLate("Timeout reading from socket")) from None
        except OSError as error:
            raise self._lost(RedisConnectionLost(f"Error while reading from {self._place}: {error.args}")) from error
        except RedisConnectionLost as error:
            raise self._lost(error) from None
        if isinstance(answer, RedisRefused):
            raise self._lost(answer) if answer.ends_session else answer
        return answer

    def arrived(self) -> Any:
        """Returns the answer if all of it has arrived, else `NOT_YET`. It does not wait. Not for TLS, of whose bytes a look tells nothing."""
        source = self._open_socket()
        source.settimeout(0)
        try:
            self._receive(source)
            answer = self._reader.gets()
        except BlockingIOError:
            return NOT_YET
        except OSError as error:
            raise self._lost(RedisConnectionLost(f"Error while reading from {self._place}: {error.args}")) from error
        except RedisConnectionLost as error:
            raise self._lost(error) from None
        finally:
            source.settimeout(self._timeout_s)
        if isinstance(answer, RedisRefused):
            raise self._lost(answer) if answer.ends_session else answer
        return answer

    def ask(self, *words: Argument) -> Any:
        """One command and its answer."""
        self.send(words)
        return self.read()

    def pending(self, within_s: float = 0) -> bool:
        """Returns True when bytes can be read, at once or within the given seconds."""
        if self._reader.has_data():
            return True
        source = self._open_socket()
        # TLS may have read bytes that it has not given out. The kernel has none of them.
        has_decrypted = getattr(source, "pending", None)
        if not (has_decrypted is not None and has_decrypted()) and not self._poll.poll(within_s * 1e3):
            return False
        source.settimeout(0)  # what can be read may be a record of TLS without data
        try:
            self._receive(source)
        except self._nothing_yet:
            pass
        except OSError as error:
            raise self._lost(RedisConnectionLost(f"Error while reading from {self._place}: {error.args}")) from error
        except RedisConnectionLost as error:
            raise self._lost(error) from None
        source.settimeout(self._timeout_s)
        return bool(self._reader.has_data())

    @property
    def connected(self) -> bool:
        return self._socket is not None

    @property
    def fresh(self) -> bool:
        """Returns True when the session can be used: an idle one on which bytes wait was closed by the server, or is out of step."""
        try:
            return not self.pending()
        except RedisFailure:
            return False

    def fileno(self) -> int:
        return self._open_socket().fileno()

    def close(self) -> None:
        closed, self._socket = self._socket, None
        if closed is None:
            return
        if self._owner == os.getpid():  # in a forked child, the parent goes on with the connection
            with contextlib.suppress(OSError):
                closed.shutdown(socket.SHUT_RDWR)  # a thread that reads from it ends
        with contextlib.suppress(OSError):
            closed.close()

    def __del__(self) -> None:
        self.close()  # of an engine that nobody closed: it says nothing, and leaves no socket

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise RedisConnectionLost(_CLOSED)
        return self._socket

    def _receive(self, source: socket.socket) -> None:
        count = source.recv_into(self._buffer)
        if not count:
            raise RedisConnectionLost(_CLOSED)
        self._reader.feed(self._buffer, 0, count)  # type: ignore[arg-type]  # its stub does not know that it takes any buffer

    def _lost(self, error: RedisFailure) -> RedisFailure:
        """Closes the session, and returns the error to raise."""
        self.close()
        return error


def _connect(options: Mapping[str, Any], *, tls: bool) -> socket.socket:
    try:
        reached = _reach(options)
        return _encrypt(reached, options) if tls else reached
    except TimeoutError:
        raise RedisAnswerLate("Timeout connecting to server") from None
    except OSError as error:
        text = f"Error {_number(error)} connecting to {_place(options)}. {_words(error)}."
        raise RedisConnectionLost(text) from error


def _reach(options: Mapping[str, Any]) -> socket.socket:
    """Returns a socket that is connected to the first address of the host that answers."""
    failure = OSError("the host has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(
        options["host"], options["port"], 0, socket.SOCK_STREAM
    ):
        try:
            made = socket.socket(family, kind, protocol)
        except OSError as error:  # this machine may have no IPv6
            failure = error
            continue
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEP_ALIVE.items():
                if hasattr(socket, name):
                    made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            made.settimeout(options["socket_connect_timeout"])
            made.connect(address)
        except OSError as error:
            made.close()
            failure = error
        else:
            return made
    raise failure


def _encrypt(plain: socket.socket, options: Mapping[str, Any]) -> socket.socket:
    import ssl  # most connections are not encrypted, and a worker pays for what it imports at each start

    try:
        context = ssl.create_default_context()
        context.check_hostname = options["ssl_check_hostname"]
        context.verify_mode = ssl.VerifyMode[f"CERT_{options['ssl_cert_reqs'].upper()}"]
        if options.get("ssl_certfile") or options.get("ssl_keyfile"):
            context.load_cert_chain(options.get("ssl_certfile", ""), options.get("ssl_keyfile"))
        if options.get("ssl_ca_certs") or options.get("ssl_ca_path"):
            context.load_verify_locations(options.get("ssl_ca_certs"), options.get("ssl_ca_path"))
        return context.wrap_socket(plain, server_hostname=options["host"])
    except BaseException:
        plain.close()
        raise


def _nothing_yet(*, tls: bool) -> tuple[type[OSError], ...]:
    """Returns the errors by which a socket says that there is no data yet."""
    if not tls:
        return (BlockingIOError,)
    import ssl

    return (BlockingIOError, ssl.SSLWantReadError)


def _place(options: Mapping[str, Any]) -> str:
    return f"{options['host']}:{options['port']}"


def _number(error: OSError) -> object:
    return error.args[0] if error.args else "UNKNOWN"


def _words(error: OSError) -> object:
    return error.args[1] if len(error.args) > 1 else error
