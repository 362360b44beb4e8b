from __future__ import annotations

import pytest

from tenure.engines.nats.address import read_url
from tenure.engines.nats.streams import token
from tenure.errors import ConfigurationError


def test_several_servers_and_options_stand_in_one_url() -> None:
    for url in (
        "nats://u:p%40@a:1,b,[::1]:3?replicas=3&timeout=7",
        "nats://u:p%40@a:1,nats://b,nats://[::1]:3?replicas=3&timeout=7",
    ):
        settings = read_url(url, {})
        assert settings.servers == ["nats://a:1", "nats://b:4222", "nats://[::1]:3"]
        assert (settings.replicas, settings.timeout_s, settings.namespace) == (3, 7, "tenure")
        assert settings.login == {"user": "u", "password": "p@"}
        assert "p%40" not in settings.shown
        assert "p@" not in settings.shown


def test_credentials_come_from_the_url_before_the_environment() -> None:
    environment = {"NATS_USER": "u", "NATS_PASSWORD": "p", "NATS_TOKEN": "t"}
    assert read_url("nats://h", environment).login == {"user": "u", "password": "p"}
    assert read_url("nats://h", {"NATS_TOKEN": "t"}).login == {"token": "t"}
    assert read_url("nats://word@h", environment).login == {"token": "word"}
    assert read_url("nats://h?creds=/a.creds", environment).login == {"user_credentials": "/a.creds"}
    assert read_url("nats://h", {"NATS_CREDS": "/b.creds"}).login == {"user_credentials": "/b.creds"}
    assert "word" not in read_url("nats://word@h", {}).shown


def test_tls_is_asked_for_by_the_scheme_or_a_file() -> None:
    assert read_url("nats://h", {}).tls is None
    assert read_url("tls://h", {}).tls == {"ca": "", "cert": "", "key": ""}
    assert read_url("nats://h?ca=/ca.pem", {}).tls == {"ca": "/ca.pem", "cert": "", "key": ""}


@pytest.mark.parametrize("url", ["nats://h?replicas=0", "nats://h?namespace=a.b", "nats://h?replica=3", "nats://"])
def test_what_nobody_could_mean_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        read_url(url, {})


def test_names_become_tokens_and_never_the_same_one() -> None:
    names = ["a", "a/b", "a.b", "a_b", "a_2fb", "A", "n" * 128, "n" * 127 + "m", "/" * 128]
    tokens = [token(name) for name in names]
    assert len(set(tokens)) == len(names)
    assert all(len(one) <= 120 and not set(one) & set(". */>\\") for one in tokens)
