"""A wire between network namespaces, in one process: each has a TUN device here, and every packet passes through `Rules`.

Run as `python wire.py NAMESPACE=ADDRESS …`. It reads one JSON command a line and answers each with a line:
`{"do": "cut" | "mute" | "block" | "weather" | "heal", "one": NAME, "other": NAME, "delay_s": …, "loss": …, "port": …}`.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000
TCP = 6
LIBC = ctypes.CDLL(None, use_errno=True)


def enter(namespace: str) -> None:
    """The calling thread's sockets and devices belong to this namespace from now on."""
    with open(f"/run/netns/{namespace}") as there:
        if LIBC.setns(there.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


def open_tun(namespace: str, address: str) -> int:
    enter(namespace)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"wire0", IFF_TUN | IFF_NO_PI))
    for arguments in (
        ["link", "set", "lo", "up"],
        ["addr", "add", f"{address}/24", "dev", "wire0"],
        ["link", "set", "wire0", "up"],
    ):
        subprocess.run(["ip", "-n", namespace, *arguments], check=True)
    return device


class Rules:
    """What becomes of a packet from one namespace to another."""

    def __init__(self) -> None:
        self.dropped: set[tuple[str, str]] = set()
        self.weather: dict[tuple[str, str], tuple[float, float]] = {}
        self.blocked: set[tuple[str, str, int]] = set()
        """From, to, and the TCP port there: connections to it get nowhere, and answers of other connections pass."""

    def drops(self, source: str, target: str, packet: bytes) -> bool:
        if (source, target) in self.dropped:
            return True
        header = (packet[0] & 15) * 4
        port = int.from_bytes(packet[header + 2 : header + 4], "big") if packet[9] == TCP else 0
        return (source, target, port) in self.blocked

    def obey(self, command: dict[str, object]) -> None:
        one, other = str(command["one"]), str(command["other"])
        if command["do"] in ("cut", "mute"):
            self.dropped.add((one, other))
            if command["do"] == "cut":
                self.dropped.add((other, one))
        elif command["do"] == "block":
            self.blocked.add((one, other, int(str(command["port"]))))
        elif command["do"] == "weather":
            fate = (float(str(command["delay_s"])), float(str(command["loss"])))
            self.weather[one, other] = self.weather[other, one] = fate
        else:
            self.dropped -= {(one, other), (other, one)}
            self.blocked = {rule for rule in self.blocked if rule[:2] not in {(one, other), (other, one)}}
            self.weather.pop((one, other), None)
            self.weather.pop((other, one), None)


def main() -> None:
    places = dict(argument.split("=") for argument in sys.argv[1:])
    devices = {name: open_tun(name, address) for name, address in places.items()}
    by_device = {device: name for name, device in devices.items()}
    by_address = {bytes(map(int, address.split("."))): name for name, address in places.items()}
    rules, chance, later, ticket = Rules(), random.Random(7), [], 0
    poller = select.poll()
    for device in (*devices.values(), 0):
        poller.register(device, select.POLLIN)
    print("ready", flush=True)
    while True:
        wait = max(0.0, later[0][0] - time.monotonic()) * 1000 if later else 1000
        for device, _ in poller.poll(wait):
            if device == 0:
                line = sys.stdin.readline()
                if not line:
                    return
                rules.obey(json.loads(line))
                print("done", flush=True)
                continue
            try:
                packet = os.read(device, 65_536)
            except BlockingIOError:
                continue
            source, target = by_device[device], by_address.get(packet[16:20])
            if target is None or packet[0] >> 4 != 4 or rules.drops(source, target, packet):
                continue
            delay_s, loss = rules.weather.get((source, target), (0.0, 0.0))
            if loss and chance.random() < loss:
                continue
            ticket += 1
            heapq.heappush(later, (time.monotonic() + delay_s, ticket, devices[target], packet))
        while later and later[0][0] <= time.monotonic():
            _, _, device, packet = heapq.heappop(later)
            try:
                os.write(device, packet)
            except OSError:
                continue  # its queue is full: lost, as on any wire


if __name__ == "__main__":
    main()
