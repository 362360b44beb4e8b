"""Encrypted connections to real servers, with an authority of the test's own: who is trusted, and what is told of secrets."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.engines.waiting import Poll
from tests.patience import wait_until
from tools.servers.tls import Authority, Certificate

from tenure.engines import Engine
from tenure.engines.contracts import Level
from tenure.errors import ConfigurationError, TenureError
from tools.servers import CannotStart, Nats, Postgres, TlsRedis

PASSWORD = "correct-horse"
WRONG = "battery-staple"


@dataclass(frozen=True)
class Encrypted:
    """One kind of server with TLS, and how its URLs are written."""

    name: str
    start: Callable[[Certificate], Any]
    url: str
    user: str
    variable: str
    port: Callable[[Any], int] = lambda server: int(server.port)


KINDS = [
    Encrypted(
        "postgres",
        lambda tls: Postgres(password=PASSWORD, tls=tls, version=15).start(),
        "postgresql://{login}{host}:{port}/postgres?sslmode=verify-full&timeout=20&sslrootcert={ca}",
        "tenure",
        "PGPASSWORD",
    ),
    Encrypted(
        "redis",
        lambda tls: TlsRedis(tls, password=PASSWORD).start(),
        "rediss://{login}{host}:{port}/0?timeout=20&ssl_ca_certs={ca}",
        "",
        "REDIS_PASSWORD",
        lambda server: int(server.tls_port),
    ),
    Encrypted(
        "nats",
        lambda tls: Nats(password=PASSWORD, tls=tls).start(),
        "tls://{login}{host}:{port}?timeout=20&ca={ca}",
        "tenure",
        "NATS_PASSWORD",
    ),
]


class Place:
    """A running server, and URLs to it: its certificate is for `localhost`."""

    def __init__(self, kind: Encrypted, server: Any, trusted: Authority, strange: Authority) -> None:
        self.kind, self.server, self._trusted, self._strange = kind, server, trusted, strange

    def url(self, password: str | None = PASSWORD, *, host: str = "localhost", strange: bool = False) -> str:
        login = f"{self.kind.user}:{password}@" if password else (f"{self.kind.user}@" if self.kind.user else "")
        if password is None and self.kind.name == "nats":
            login = ""  # there a word before the @ is a token
        ca = (self._strange if strange else self._trusted).ca
        return self.kind.url.format(login=login, host=host, port=self.kind.port(self.server), ca=ca)


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    kind: Encrypted = request.param
    folder: Path = tmp_path_factory.mktemp("certificates")
    trusted, strange = Authority(folder), Authority(folder, "stranger")
    try:
        server = kind.start(trusted.issue("localhost"))
    except CannotStart as reason:
        pytest.skip(f"no {kind.name} with TLS here: {reason}")
    yield Place(kind, server, trusted, strange)
    server.stop()


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What a library or the engine may write at its most talkative has no password in it."""
    caplog.set_level(logging.DEBUG)
    yield
    assert PASSWORD not in caplog.text
    assert WRONG not in caplog.text


def refused(url: str) -> TenureError:
    with pytest.raises(ConfigurationError) as caught:
        Engine.open(url)
    for text in (str(caught.value), repr(caught.value), str(caught.value.__cause__)):
        assert PASSWORD not in text
        assert WRONG not in text
    return caught.value


def test_a_server_that_our_authority_signed_is_used_and_so_is_the_connection_that_listens(place: Place) -> None:
    with Engine.open(place.url()) as engine, Engine.open(place.url()) as other:
        assert PASSWORD not in repr(engine.settings)  # type: ignore[attr-defined]
        assert PASSWORD not in engine.url
        mailbox = engine.mailbox("work")
        poll = Poll(lambda: mailbox.receive(1, 60, 60))
        topic = getattr(getattr(mailbox, "polls", None), "topic", None)
        if topic is not None:  # NATS has one connection for everything
            wait_until(lambda: topic.listening)
        other.mailbox("work").send("y" * 100_000)
        (message,) = poll.result()
        message.acknowledge()
        assert engine.journal("log").append([b"a"], epoch=1, expect=0, append_id="1") == 1
        assert "the connection is encrypted" in [f.what for f in engine.check() if f.level is Level.OK]


def test_a_server_that_a_stranger_signed_is_refused_with_the_option_to_set(place: Place) -> None:
    error = refused(place.url(strange=True))
    assert "certificate verify failed" in str(error).lower().replace("_", " ")
    assert "authority that signed" in str(error)


def test_a_server_under_another_name_than_its_certificate_has_is_refused(place: Place) -> None:
    assert "127.0.0.1" in str(refused(place.url(host="127.0.0.1")))


def test_a_file_of_authorities_that_is_not_there_is_named(place: Place) -> None:
    assert "/not/there.pem" in str(refused(place.url().rpartition("=")[0] + "=/not/there.pem"))


def test_a_password_comes_from_the_environment_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_USER", "tenure")
    monkeypatch.setenv(place.kind.variable, PASSWORD)
    with Engine.open(place.url(None)) as engine:
        assert engine.now() > 0
        assert PASSWORD not in repr(engine.settings)  # type: ignore[attr-defined]
    monkeypatch.setenv(place.kind.variable, WRONG)
    refused(place.url(None))


def test_a_wrong_password_is_told_without_saying_it(place: Place) -> None:
    assert place.kind.variable not in os.environ
    refused(place.url(WRONG))
