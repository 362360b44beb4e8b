"""Servers whose clock a test may set: `server.set_clock(600)` is what an administrator, or NTP, does to the machine of a server.

PostgreSQL and Valkey ask the C library for the time. A small library in front of it (LD_PRELOAD, made with `cc`) adds what a file says, for that server
alone. The NATS server asks the kernel without a library: there a proxy changes the times in what the server says.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

from tools.servers.postgres import Postgres
from tools.servers.process import CannotStart, Server
from tools.servers.proxy import FaultProxy
from tools.servers.redis import Valkey

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static double none;
static volatile double *ahead = &none;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TENURE_SET_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *page = mmap(0, sizeof none, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) ahead = page;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *told) {
    long failed = syscall(SYS_clock_gettime, id, told);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) told->tv_sec += (time_t)*ahead;
    return (int)failed;
}

int gettimeofday(struct timeval *told, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    told->tv_sec = now.tv_sec;
    told->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}
"""


class SetClock(Server):
    """Beside a kind of server: its clock can be set."""

    def set_clock(self, seconds: float) -> None:
        """From now on its clock is so many seconds ahead of the machine's."""
        descriptor = os.open(self._ahead, os.O_WRONLY)
        try:
            os.pwrite(descriptor, struct.pack("d", seconds), 0)
        finally:
            os.close(descriptor)

    @property
    def _ahead(self) -> Path:
        return self.folder / "ahead"

    def _prepare(self) -> None:
        super()._prepare()  # type: ignore[safe-super]
        compiler = shutil.which("cc")
        if compiler is None:
            raise CannotStart(f"{self.name}: no C compiler, with which its clock could be set")
        (self.folder / "clock.c").write_text(SOURCE)
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", "clock.so", "clock.c"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotStart(f"{self.name}: {done.stderr[-400:].strip()}")
        self._ahead.write_bytes(struct.pack("d", 0.0))
        self._ahead.chmod(0o644)

    def _environment(self) -> dict[str, str]:
        library = str(self.folder / "clock.so")
        return {**os.environ, "LD_PRELOAD": library, "TENURE_SET_CLOCK": str(self._ahead)}


class SetPostgres(SetClock, Postgres):
    pass


class SetValkey(SetClock, Valkey):
    pass


_STAMP = re.compile(rb"(\$JS\.ACK\.(?:[^. \r\n]+\.){5}(?:[^. \r\n]+\.){0,2})(\d{19})(\.\d+[ \r])")
_TEXT = re.compile(rb'("ts": ?"|"time": ?"|Nats-Time-Stamp: )(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)')


class SetClockProxy(FaultProxy):
    """Between clients and a NATS server: times in what the server says are later, or earlier. They keep their length, and bytes their places."""

    ahead_s = 0

    def set_clock(self, seconds: int) -> None:
        self._run(lambda: setattr(self, "ahead_s", seconds))

    def changed(self, chunk: bytes) -> bytes:
        if not self.ahead_s:
            return chunk
        chunk = _STAMP.sub(lambda found: found[1] + self._later(found[2]) + found[3], chunk)
        return _TEXT.sub(lambda found: found[1] + self._later_text(found[2]), chunk)

    def _later(self, nanoseconds: bytes) -> bytes:
        return str(int(nanoseconds) + self.ahead_s * 1_000_000_000).encode()

    def _later_text(self, told: bytes) -> bytes:
        return (datetime.fromisoformat(told.decode()) + timedelta(seconds=self.ahead_s)).isoformat().encode()
