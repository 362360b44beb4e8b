"""Real Serf agents: Debian's binary, unpacked from its package into a folder of the work tree, never installed.

    found, why = find_serf()

Where the package cannot be had, the tests that need Serf say so and are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from functools import cache
from pathlib import Path

from tools.servers.process import free_port as server_port

from tools.servers import CannotStart, packages


@cache
def find_serf() -> tuple[Path | None, str]:
    """The binary, or why there is none. `TENURE_SERF` names one that is there already."""
    given = os.environ.get("TENURE_SERF") or shutil.which("serf")
    if given:
        return Path(given), ""
    try:
        return packages.debian("serf") / "usr" / "bin" / "serf", ""
    except CannotStart as why:
        return None, f"no Serf agent: {why}"


def free_port() -> int:
    """A port that is free for both protocols now. Serf cannot be told to choose one.

    It lies below the range from which outgoing connections get theirs, or another agent's join could take it before
    this one has bound it.
    """
    while True:
        port = server_port()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            try:
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class SerfAgent:
    """One agent, from its start to its end."""

    def __init__(
        self,
        binary: Path,
        name: str,
        *,
        tags: dict[str, str] | None = None,
        key: str = "",
        compression: bool = True,
        profile: str = "lan",
        join: tuple[str, int] | None = None,
        folder: Path,
    ) -> None:
        self._binary = binary
        self.name = name
        self.address = ("127.0.0.1", free_port())
        self._rpc = f"127.0.0.1:{free_port()}"
        self.log = folder / f"{name}-{self.address[1]}.log"
        config = folder / f"{name}-{self.address[1]}.json"
        config.write_text(json.dumps({"enable_compression": compression}))
        command = [str(binary), "agent", f"-node={name}", f"-bind=127.0.0.1:{self.address[1]}"]
        command += [f"-rpc-addr={self._rpc}", f"-profile={profile}", "-log-level=debug"]
        for tag, value in (tags or {}).items():
            command += ["-tag", f"{tag}={value}"]
        if key:
            command += [f"-encrypt={key}"]
        command += [f"-config-file={config}"]
        if join:
            command += [f"-retry-join={join[0]}:{join[1]}", "-retry-interval=1s"]
        with self.log.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        self._await_rpc()

    def _await_rpc(self) -> None:
        host, port = self._rpc.split(":")
        end = time.monotonic() + 180
        while time.monotonic() < end:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.02)
            else:
                return
        raise AssertionError(f"the Serf agent {self.name} did not start:\n{self.log.read_text()[-2000:]}")

    def run(self, *command: str, check: bool = True) -> str:
        """A command of the `serf` client against this agent."""
        verb, *rest = command
        done = subprocess.run(
            [str(self._binary), verb, f"-rpc-addr={self._rpc}", *rest],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"serf {' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def members(self) -> dict[str, tuple[str, dict[str, str]]]:
        """What this agent believes of each node: its status and its tags."""
        listed = json.loads(self.run("members", "-format=json"))["members"]
        return {member["name"]: (member["status"], member["tags"] or {}) for member in listed}

    def status(self, name: str) -> str:
        return self.members().get(name, ("unknown", {}))[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
