"""Tokens and passwords on a command line: they are found, and other processes do not see them there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tenure.cli import secrets_in


@pytest.mark.parametrize(
    ("arguments", "secrets"),
    [
        (["tenure", "worker", "app.py", "--token", "t-1"], ["t-1"]),
        (["tenure", "ps", "--token=t=1"], ["t=1"]),
        (["tenure", "manager", "--engine", "postgresql://tenure:pass%40word@db/x"], ["pass%40word"]),
        (["tenure", "manager", "--engine=redis://:word@host:6379/0"], ["word"]),
        (["tenure", "doctor", "--engine", "nats://a:one@h:1,nats://b:two@h:2"], ["one", "two"]),
        (["tenure", "worker", "--engine", "postgresql://db/x", "--engine", "sqlite:///a/b@c.db"], []),
        (["tenure", "token", "create", "--token", ""], []),
        ([], []),
    ],
)
def test_tokens_and_passwords_are_found(arguments: list[str], secrets: list[str]) -> None:
    assert list(secrets_in(arguments)) == secrets


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process write over its arguments")
def test_other_processes_do_not_see_them_and_the_command_does() -> None:
    code = (
        "import pathlib, sys; from tenure.cli import hide_secrets; hide_secrets(sys.argv);"
        "print(pathlib.Path('/proc/self/cmdline').read_bytes()); print(sys.argv)"
    )
    given = ["--engine", "redis://u:hush-1@h/0", "--token", "hush-2", "hush-2", "--name", "w"]
    shown = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, check=True).stdout
    seen, known = shown.splitlines()
    assert "hush" not in seen
    assert "redis://u:******@h/0" in seen
    assert seen[:-1].endswith("--name\\x00w\\x00")
    assert all(one in known for one in given)
