"""A pool of real processes, of ours or of Serf agents, that is told what to do line by line.

    python -m bench.gossip_pools ours 20
    {"do": "start"}  {"do": "idle", "seconds": 10}  {"do": "kill", "index": 3}  {"do": "restart", "index": 3}
    {"do": "stop", "index": 4, "seconds": 4}  {"do": "end"}

Each line gets one line of JSON as its answer. It is run in a network namespace of its own where that is allowed, so that
the bytes on the loopback are those of this pool alone. Times are those at which an agent's line reached us.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from tests.process.gossip.serf import free_port

SERF_EVENT = re.compile(rb"serf: EventMember(Join|Failed|Leave): (\S+)")
SETTLE_S = 90.0
REJOIN_S = 10.0
SERF_NAMES = {b"Join": "joined", b"Failed": "failed", b"Leave": "left"}


class Agents:
    """N processes in one pool, and every event that each of them printed."""

    def __init__(self, kind: str, count: int) -> None:
        self.kind, self.count = kind, count
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        ports = distinct_ports(2 * count if kind == "serf" else count)
        self.ports, self.rpc_ports = ports[:count], ports[count:]
        self.seen: list[tuple[float, int, str, str]] = []
        self.known: dict[int, set[str]] = {}
        self._changed = threading.Condition()

    def name(self, index: int) -> str:
        return f"node-{index:02d}"

    def launch(self, index: int) -> None:
        bind, seed = f"127.0.0.1:{self.ports[index]}", f"127.0.0.1:{self.ports[0 if index else 1]}"
        if self.kind == "serf":
            command = [os.environ["TENURE_SERF"], "agent", f"-node={self.name(index)}", f"-bind={bind}"]
            command += [f"-rpc-addr=127.0.0.1:{self.rpc_ports[index]}", f"-retry-join={seed}", "-retry-interval=1s"]
        else:
            command = [sys.executable, "-m", "bench.gossip_member", self.name(index), bind]
            command += [seed] if index or self.known else []
        self.known[index] = {self.name(index)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.processes[index] = process
        threading.Thread(target=self._read, args=(index, process), daemon=True).start()

    def _read(self, index: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            at = time.monotonic()
            found = self._parse(line)
            if found is None:
                continue
            what, node = found
            with self._changed:
                self.seen.append((at, index, what, node))
                if what == "joined":
                    self.known[index].add(node)
                elif what in ("failed", "left"):
                    self.known[index].discard(node)
                self._changed.notify_all()

    def _parse(self, line: bytes) -> tuple[str, str] | None:
        if self.kind == "serf":
            match = SERF_EVENT.search(line)
            return (SERF_NAMES[match[1]], match[2].decode()) if match else None
        try:
            event = json.loads(line)
        except ValueError:
            sys.stderr.write(line.decode(errors="replace"))
            return None
        return event["event"], event["node"]

    def wait(self, condition: Callable[[], bool], seconds: float) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, seconds):
                views = {index: len(known) for index, known in self.known.items()}
                raise TimeoutError(f"{self.kind}: not within {seconds} s; each knows {views}")

    def all_know_all(self) -> bool:
        living = {self.name(index) for index in self.processes}
        return all(self.known[index] == living for index in self.processes)

    # -- what it is told ------------------------------------------------------------------------------------------

    def start(self) -> dict[str, Any]:
        for index in range(self.count):
            self.launch(index)
            if index == 0:
                time.sleep(0.7)
        return self.settle()

    def settle(self) -> dict[str, Any]:
        """Until all know all. A Serf agent that gave up on its seed is told to join again, by Serf's own command."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            try:
                self.wait(self.all_know_all, REJOIN_S)
                return {}
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise
            if self.kind == "serf":
                for index in self.processes:
                    self.join_again(index)

    def join_again(self, index: int) -> None:
        if len(self.known[index]) > 1:
            return
        if self.processes[index].poll() is not None:
            self.launch(index)
            return
        rpc, seed = f"-rpc-addr=127.0.0.1:{self.rpc_ports[index]}", f"127.0.0.1:{self.ports[0 if index else 1]}"
        command = [os.environ["TENURE_SERF"], "join", rpc, seed]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, capture_output=True, timeout=REJOIN_S, check=False)

    def idle(self, seconds: float) -> dict[str, Any]:
        """CPU, bytes and memory of one node, while nothing happens."""
        before, bytes_before, begun = self._cpu(), loopback_bytes(), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - begun
        bytes_after = loopback_bytes()
        return {
            "cpu_share": (self._cpu() - before) / took / self.count,
            "bytes_per_s": None if bytes_after is None else (bytes_after - bytes_before) / took / self.count,
            "rss_mib": statistics.median(self._memory()),
            "complaints": [event for event in self.seen if event[0] >= begun],
        }

    def _cpu(self) -> float:
        times = [psutil.Process(process.pid).cpu_times() for process in self.processes.values()]
        return sum(spent.user + spent.system for spent in times)

    def _memory(self) -> list[float]:
        return [psutil.Process(process.pid).memory_info().rss / 2**20 for process in self.processes.values()]

    def kill(self, index: int) -> dict[str, Any]:
        """When the first, and when the last of the others knew."""
        process = self.processes.pop(index)
        name = self.name(index)
        begun = time.monotonic()
        process.kill()
        process.wait()
        self.wait(lambda: all(name not in self.known[other] for other in self.processes), 60)
        told = [at - begun for at, _, what, node in self.seen if what == "failed" and node == name and at >= begun]
        wrong = [e for e in self.seen if e[2] == "failed" and e[3] != name and e[0] >= begun]
        return {"first_s": min(told), "last_s": max(told), "false_positives": len(wrong)}

    def restart(self, index: int) -> dict[str, Any]:
        self.launch(index)
        return self.settle()

    def stop(self, index: int, seconds: float) -> dict[str, Any]:
        """SIGSTOP for a while: who was suspected, who was declared dead, and how long it really was."""
        begun = time.monotonic()
        self.processes[index].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.processes[index].send_signal(signal.SIGCONT)
        lasted = time.monotonic() - begun
        time.sleep(5.0)  # whoever suspected it at the start would have declared it dead by now
        since = [what for at, _, what, _ in self.seen if at >= begun]
        return {
            "suspected": since.count("suspected"),
            "refuted": since.count("refuted"),
            "failed": since.count("failed"),
            "lasted_s": lasted,
        }

    def end(self) -> dict[str, Any]:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
        for process in self.processes.values():
            process.wait()
        return {}


def distinct_ports(count: int) -> list[int]:
    """A port is free until somebody binds it: the same one must not be given out twice before that."""
    ports: dict[int, None] = {}
    while len(ports) < count:
        ports[free_port()] = None
    return list(ports)


def loopback_bytes() -> int | None:
    """What the loopback of our own namespace carried; None where the namespace is everybody's."""
    if not os.environ.get("TENURE_OWN_NETWORK"):
        return None
    for line in Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[0])
    return None


def raise_loopback() -> None:
    """A new network namespace has its loopback down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(control, 0x8914, request)


def can_isolate() -> bool:
    """Whether a network namespace of our own can be had without being root."""
    unshare = shutil.which("unshare")
    return bool(unshare) and subprocess.run([unshare, "-rn", "true"], capture_output=True, check=False).returncode == 0


class Remote:
    """A pool in a process of its own, in its own network where that can be had."""

    def __init__(self, kind: str, count: int, serf: Path, *, isolated: bool) -> None:
        command = [sys.executable, "-m", "bench.gossip_pools", kind, str(count)]
        env = {**os.environ, "TENURE_SERF": str(serf), "PYTHONUNBUFFERED": "1"}
        if isolated:
            command, env = ["unshare", "-rn", *command], {**env, "TENURE_OWN_NETWORK": "1"}
        root = Path(__file__).resolve().parent.parent
        env["PYTHONPATH"] = f"{root / 'src'}:{root}"
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=root
        )

    def ask(self, do: str, **more: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()

    def answer(self, seconds: float = 120.0) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise RuntimeError("the pool's process gave no answer")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def end(self) -> None:
        with contextlib.suppress(OSError, RuntimeError, subprocess.TimeoutExpired):
            self.ask("end")
            self.answer(20)
            self._process.wait(10)
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait(30)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def main() -> None:
    kind, count = sys.argv[1], int(sys.argv[2])
    if os.environ.get("TENURE_OWN_NETWORK"):
        raise_loopback()
    agents = Agents(kind, count)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for line in sys.stdin:
            order = json.loads(line)
            do = order.pop("do")
            try:
                answer = getattr(agents, do)(**order)
            except Exception as error:  # the parent decides what to make of it
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)
            if do == "end":
                return
    finally:
        agents.end()


if __name__ == "__main__":
    main()
