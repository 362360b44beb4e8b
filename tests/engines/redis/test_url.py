"""What a URL may say, and what of it may be shown."""

from __future__ import annotations

import pytest

from tenure.engines.redis.url import read_url
from tenure.errors import ConfigurationError


def test_every_part_of_a_url_is_read() -> None:
    settings = read_url("redis://me:s%40fe@db.example:7000/3?namespace=jobs&wait=2&pool=4&timeout=5")
    assert (settings.namespace, settings.wait, settings.pool, settings.timeout_s) == ("jobs", 2, 4, 5.0)
    connection = settings.connection
    assert (connection["host"], connection["port"], connection["db"]) == ("db.example", 7000, 3)
    assert (connection["username"], connection["password"], settings.secret) == ("me", "s@fe", "s@fe")
    assert settings.prefix == "{jobs}:"  # the braces keep all keys in one slot


def test_what_is_left_out_has_a_default() -> None:
    settings = read_url("redis://")
    connection = settings.connection
    assert (connection["host"], connection["port"], connection["db"]) == ("localhost", 6379, 0)
    assert (settings.namespace, settings.wait, settings.tls, settings.secret) == ("tenure", 0, False, "")


def test_the_password_is_never_shown() -> None:
    settings = read_url("redis://me:hunter2@host/0")
    assert settings.shown == "redis://me:***@host/0"
    assert "hunter2" not in repr(settings)


def test_the_password_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "hunter2")
    settings = read_url("redis://host")
    assert (settings.connection["password"], settings.secret) == ("hunter2", "hunter2")
    assert read_url("redis://:other@host").connection["password"] == "other"


def test_tls_is_on_for_rediss_and_verifies_unless_told_otherwise() -> None:
    settings = read_url("rediss://host?ssl_ca_certs=/ca.pem")
    assert settings.tls
    assert settings.connection["ssl_cert_reqs"] == "required"
    assert settings.connection["ssl_check_hostname"] is True
    assert settings.connection["ssl_ca_certs"] == "/ca.pem"
    assert read_url("rediss://host?ssl_cert_reqs=none").connection["ssl_check_hostname"] is False


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://host/zero", "database 'zero'"),
        ("redis://host:port/0", "port"),
        ("redis://host?namespace=a%7Bb", "namespace=a{b"),
        ("redis://host?wait=-1", "wait=-1"),
        ("redis://host?wait=some", "wait=some"),
        ("redis://host?timeout=0", "timeout=0"),
        ("redis://host?pool=0", "pool=0"),
        ("redis://host?wiat=1", "wiat"),
        ("redis://host?ssl_ca_certs=/ca.pem", "ssl_ca_certs"),
        ("rediss://host?ssl_cert_reqs=perhaps", "ssl_cert_reqs=perhaps"),
    ],
)
def test_what_cannot_be_read_is_named(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_url(url.replace("redis://", "redis://:hunter2@", 1))
    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)
