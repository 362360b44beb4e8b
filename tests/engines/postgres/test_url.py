from __future__ import annotations

import pytest

from tenure.engines.postgres.url import read_url
from tenure.errors import ConfigurationError


def test_options_of_ours_and_of_libpq_are_told_apart() -> None:
    settings = read_url(
        "postgresql://u:s%2Fx@h:5433/db?schema=mine&pool=3&notify=off&poll=0.5&timeout=8&sslmode=require"
    )
    assert (settings.schema, settings.pool, settings.notify, settings.poll_s, settings.timeout_s) == (
        "mine",
        3,
        False,
        0.5,
        8,
    )
    info = settings.conninfo
    assert (info["user"], info["password"], info["host"], info["port"], info["dbname"]) == (
        "u",
        "s/x",
        "h",
        "5433",
        "db",
    )
    assert (info["sslmode"], info["application_name"], info["connect_timeout"]) == ("require", "tenure", "4")
    assert "schema" not in info


def test_defaults_are_a_schema_named_tenure_and_notifications() -> None:
    settings = read_url("postgresql://h/db")
    assert (settings.schema, settings.pool, settings.notify) == ("tenure", 10, True)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("postgresql://h/db?schema=Upper", "schema=Upper"),
        ("postgresql://h/db?schema=pg_own", "schema=pg_own"),
        ('postgresql://h/db?schema=a"b', "schema="),
        ("postgresql://h/db?pool=0", "pool=0"),
        ("postgresql://h/db?notify=maybe", "notify=maybe"),
        ("postgresql://h/db?timeout=nan", "timeout=nan"),
        ("postgresql://h/db?shema=x", "nobody reads: shema"),
        ("postgresql://u:s3cret%zz@h/db", "special characters percent-encoded"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name_and_without_the_password(url: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error) as caught:
        read_url(url)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(caught.value.__cause__)


def test_several_hosts_go_to_the_client_as_they_are() -> None:
    info = read_url("postgresql://a:1,b:2/db?target_session_attrs=read-write").conninfo
    assert (info["host"], info["port"], info["target_session_attrs"]) == ("a,b", "1,2", "read-write")


def test_settings_that_are_printed_do_not_tell_the_password() -> None:
    assert "s3cret" not in repr(read_url("postgresql://u:s3cret@h/db"))
