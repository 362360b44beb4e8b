"""A process of a worker gets one end of a socket, the standard output and error, and nothing else of who starts it."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from tenure.work.slots import interpreters

PROGRAM = """
import os, socket, sys
def main():
    secrets = [name for name in os.environ if name in ("TENURE_ENGINE", "TENURE_TOKEN")]
    others = [number for number in map(int, os.listdir("/proc/self/fd")) if number > 2 and number != int(sys.argv[1])]
    named = [number for number in others if os.path.exists(f"/proc/self/fd/{number}")]
    socket.socket(fileno=int(sys.argv[1])).send(repr((secrets, named, os.getsid(0) == os.getpid(), os.readlink("/proc/self/fd/0"))).encode())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_started_process_has_its_end_and_no_other_descriptor_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tenure_says.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setenv("TENURE_ENGINE", "sqlite:///secret.db")
    monkeypatch.setattr(interpreters, "PACKAGE", "")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    inherited = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(inherited, True)  # as a shell leaves one open: `tenure worker 9</some/file`
    try:
        with ours, theirs:
            ours.settimeout(60)
            pid = interpreters.start_interpreter("tenure_says", theirs.fileno(), "incarnation")
            assert ours.recv(1_000).decode() == repr(([], [], True, "/dev/null"))
            os.waitpid(pid, 0)
            assert not theirs.get_inheritable()
    finally:
        os.close(inherited)


def test_a_server_that_is_dropped_is_gone_at_once() -> None:
    begun = interpreters.begin_early()
    assert begun is not None
    begun.drop()
    with pytest.raises(ProcessLookupError):
        os.kill(begun.pid, 0)
