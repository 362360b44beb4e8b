from __future__ import annotations

from typing import Any

import pytest

from tenure.engines.urls import Options, on_off, redact, seconds, whole
from tenure.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:s3cret@h:5/db?schema=a&sslpassword=x", "postgresql://u:***@h:5/db?schema=a&sslpassword=***"),
        ("redis://:s3cret@h/0", "redis://:***@h/0"),
        ("nats://s3cret@h:4222", "nats://***@h:4222"),
        ("nats://u:s3cret@a:1,nats://u:s3cret@b:2", "nats://u:***@a:1,nats://u:***@b:2"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("sqlite:///a/b.db", "sqlite:///a/b.db"),
        ("postgresql://u:p@ss:w@h/db", "postgresql://u:***@h/db"),
    ],
)
def test_what_is_shown_of_a_url_has_no_secret(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_an_option_that_nobody_reads_is_refused_with_those_that_are() -> None:
    options = Options("postgresql://u:s3cret@h/db?pool=4&pol=3")
    assert options.take("pool", 8, whole(1, 100), "a number from 1 to 100") == 4
    with pytest.raises(ConfigurationError, match=r"nobody reads: pol\. The options are: pool") as error:
        options.finish()
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "convert"), [("0", whole(1, 5)), ("x", whole(1, 5)), ("nan", seconds(0, 5)), ("perhaps", on_off)]
)
def test_a_value_that_does_not_fit_names_option_and_value(text: str, convert: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"pool={text} in redis://h.* is not a good one"):
        Options(f"redis://h?pool={text}").take("pool", None, convert, "a good one")


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="gives pool twice"):
        Options("redis://h?pool=1&pool=2")
