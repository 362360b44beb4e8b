"""The server that a URL names: reads the URL into settings, and examines the server behind it for an operator.

    rediss://user:password@host:6379/0?namespace=tenure&wait=1&pool=10&timeout=30&ssl_ca_certs=/etc/ca.pem

The password may also come from REDIS_PASSWORD (and the user from REDIS_USERNAME), so that it need not stand in a URL.

The examination looks at version, rights and settings, returns each finding with its remedy, and changes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from tenure.clock import Clock
from tenure.engines.contracts import Finding, Level
from tenure.engines.redis.session import RedisRefused
from tenure.engines.sessions import clock_finding
from tenure.engines.urls import Options, on_off, redact, seconds, whole
from tenure.errors import ConfigurationError, EngineReadOnlyError, EngineRefusedError, EngineVersionError

if TYPE_CHECKING:
    from tenure.engines.redis.session import RedisSession

_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,62}")
_TLS = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in a URL. `wait` is the number of replicas that must have a write before it is acknowledged."""

    shown: str
    """The URL without secrets."""
    secret: str
    """The password, to be taken out of whatever a server or a library says; empty when there is none."""
    connection: dict[str, Any]
    """The options of a session: where it connects, how it logs in and encrypts."""
    tls: bool = False
    namespace: str = "tenure"
    wait: int = 0
    pool: int = 10
    timeout_s: float = 30.0

    def __repr__(self) -> str:
        return f"RedisSettings({self.shown})"  # a settings object that is logged must not tell the password

    @property
    def prefix(self) -> str:
        """The prefix of every key; the braces keep them in one slot."""
        return f"{{{self.namespace}}}:"


def read_url(url: str) -> RedisSettings:
    options = Options(url)
    namespace = options.take("namespace", "tenure", _namespace, "letters, digits, '.', '_' and '-', at most 63")
    wait = options.take("wait", 0, whole(0, 100), "a number of replicas from 0 to 100")
    pool = options.take("pool", 10, whole(1, 1_000), "a number of connections from 1 to 1,000")
    timeout_s = options.take("timeout", 30.0, seconds(0.1, 3_600), "a number of seconds from 0.1 to 3,600")
    parts = urlsplit(url)
    tls: dict[str, Any] = {}
    if parts.scheme == "rediss":
        tls = {name: value for name in _TLS if (value := options.take(name, "", str, "a path"))}
        tls["ssl_cert_reqs"] = options.take("ssl_cert_reqs", "required", _requirement, "required, optional or none")
        tls["ssl_check_hostname"] = options.take(
            "ssl_check_hostname", tls["ssl_cert_reqs"] != "none", on_off, "on or off"
        )
    options.finish()
    password = unquote(parts.password) if parts.password else os.environ.get("REDIS_PASSWORD") or None
    username = unquote(parts.username) if parts.username else os.environ.get("REDIS_USERNAME") or None
    connection = {
        "host": parts.hostname or "localhost",
        "port": _port(url),
        "db": _database(url, parts.path),
        "username": username if password else None,
        "password": password,
        "socket_timeout": timeout_s,
        # Half of what a call may take: then an attempt to connect ends before the call that waits for it gives up.
        "socket_connect_timeout": max(0.1, timeout_s / 2),
        "client_name": "tenure",
        **tls,
    }
    return RedisSettings(
        shown=redact(url),
        secret=password or "",
        connection=connection,
        tls=parts.scheme == "rediss",
        namespace=namespace,
        wait=wait,
        pool=pool,
        timeout_s=timeout_s,
    )


def _namespace(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise ValueError(text)
    return text


def _requirement(text: str) -> str:
    if text not in ("required", "optional", "none"):
        raise ValueError(text)
    return text


def _port(url: str) -> int:
    try:
        return urlsplit(url).port or 6379
    except ValueError:
        raise ConfigurationError(f"{redact(url)} has a port that is not one", remedy="Use 1 to 65535") from None


def _database(url: str, path: str) -> int:
    text = path.strip("/")
    if not text:
        return 0
    if not text.isdecimal():
        raise ConfigurationError(
            f"{redact(url)} names a database {text!r} that is not a number", remedy="Write redis://host:6379/0"
        )
    return int(text)


OLDEST = (6, 2)
_YOUNG_S = 3_600
Facts = Mapping[str, str]
"""The fields of INFO."""


def must_be_usable(session: RedisSession, settings: RedisSettings) -> Facts:
    """Refuse a server on which nothing would work, or on which a promise would be broken in silence."""
    facts = info(session)
    if version(facts) < OLDEST:
        raise EngineVersionError(
            f"the server is {shown_version(facts)}, and Tenure needs Redis 6.2 or newer, or Valkey",
            remedy="Upgrade the server",
        )
    if facts.get("role") != "master":
        raise EngineReadOnlyError("the server is a replica, which takes no writes", remedy="Connect to the primary")
    if facts.get("maxmemory", "0") != "0" and facts.get("maxmemory_policy") != "noeviction":
        raise EngineRefusedError(
            f"maxmemory-policy is {facts.get('maxmemory_policy')}: a full server would remove work and tombstones in silence",
            remedy="Set maxmemory-policy noeviction (then a full server refuses, loudly), or use another server",
        )
    if len(synced(facts)) < settings.wait:
        raise EngineRefusedError(
            f"wait={settings.wait} in the URL, and {len(synced(facts))} replica(s) are connected: no write would be acknowledged",
            remedy="Start the replicas, or lower ?wait=",
        )
    return facts


def possible_loss(facts: Facts) -> str | None:
    """Returns the warning for a new namespace: on a server that has just come up empty, it may have been there before."""
    age = int(facts.get("uptime_in_seconds", "0"))
    keys = any(name.startswith("db") and text.startswith("keys=") for name, text in facts.items())
    if age > _YOUNG_S or facts.get("aof_enabled") == "1" or keys:
        return None
    return (
        f"the namespace is empty, on a server that started {age} s ago and holds nothing else: if there was work on it "
        "before, that is lost"
    )


def examine(session: RedisSession, settings: RedisSettings, clock: Clock) -> list[Finding]:
    """Everything that `tenure doctor` shows."""
    facts = info(session)
    findings = [Finding(Level.OK, f"{shown_version(facts)}, namespace {settings.namespace!r}")]
    findings += role(facts)
    findings += memory(facts)
    findings += durability(session, facts, settings)
    findings += capacity(session, facts, settings)
    findings += transport(settings)
    findings += clocks(session, clock)
    findings += notifications(session, settings)
    return findings


def role(facts: Facts) -> list[Finding]:
    if facts.get("role") != "master":
        return [Finding(Level.ERROR, "the server is a replica, which takes no writes", "Connect to the primary")]
    if facts.get("cluster_enabled") == "1":
        fact = (
            "the server is part of a cluster: only the slot of this namespace is used, and redirects are not followed"
        )
        return [Finding(Level.WARNING, fact, "Name the primary that owns the slot; a failover moves it")]
    return [Finding(Level.OK, "the server is a primary")]


def memory(facts: Facts) -> list[Finding]:
    policy, most = facts.get("maxmemory_policy", "unknown"), int(facts.get("maxmemory", "0"))
    if policy != "noeviction":
        fact = f"maxmemory-policy is {policy}: a full server removes work and tombstones in silence"
        level = Level.ERROR if most else Level.WARNING
        return [Finding(level, fact, "Set maxmemory-policy noeviction")]
    used = int(facts.get("used_memory", "0"))
    if most and used > most * 0.8:
        fact = f"{used / most:.0%} of maxmemory is used: at 100 % every write is refused"
        return [Finding(Level.WARNING, fact, "Raise maxmemory, or find out what fills it")]
    return [Finding(Level.OK, "a full server refuses writes, and removes nothing (noeviction)")]


def durability(session: RedisSession, facts: Facts, settings: RedisSettings) -> list[Finding]:
    """Can a write that was acknowledged be lost?"""
    return [*persistence(session, facts), *replication(facts, settings)]


def persistence(session: RedisSession, facts: Facts) -> list[Finding]:
    found = []
    if facts.get("aof_last_write_status") == "err" or facts.get("rdb_last_bgsave_status") == "err":
        fact = "the server could not write to its disk the last time it tried"
        found.append(Finding(Level.ERROR, fact, "Look into its log; make room"))
    sync = setting(session, "appendfsync")
    if facts.get("aof_enabled") == "1":
        if sync == "always":
            found.append(Finding(Level.OK, "an acknowledged write is on disk (appendonly, appendfsync always)"))
        elif sync is None:
            fact = "appendonly is on, and this user may not read appendfsync"
            found.append(
                Finding(Level.WARNING, fact, "Make sure that it is `always`, or accept to lose the last second")
            )
        else:
            fact = (
                f"appendfsync is {sync}: a crash of the server's machine loses what it acknowledged in its last moments"
            )
            found.append(Finding(Level.WARNING, fact, "Set appendfsync always, or accept it knowingly"))
    elif setting(session, "save") == "":
        fact = "nothing is kept on disk: a restart loses everything (it is noticed, and reported)"
        found.append(Finding(Level.ERROR, fact, "Set appendonly yes and appendfsync always"))
    else:
        fact = "only snapshots are kept on disk: a crash loses everything since the last one"
        found.append(Finding(Level.ERROR, fact, "Set appendonly yes and appendfsync always"))
    return found


def replication(facts: Facts, settings: RedisSettings) -> list[Finding]:
    replicas = synced(facts)
    if settings.wait > len(replicas):
        fact = f"wait={settings.wait}, and {len(replicas)} replica(s) are connected: no write is acknowledged"
        return [Finding(Level.ERROR, fact, "Start the replicas, or lower ?wait=")]
    if settings.wait:
        fact = f"a write is acknowledged when {settings.wait} of {len(replicas)} replicas have it"
        if settings.wait < len(replicas):
            remedy = "Promote the replica with the highest offset, or raise ?wait= to the number of replicas"
            return [Finding(Level.WARNING, f"{fact}: a failover to another one loses some", remedy)]
        return [Finding(Level.OK, fact)]
    if replicas:
        fact = (
            f"{len(replicas)} replica(s), and no write waits for them: a failover loses what they had not yet received"
        )
        return [Finding(Level.WARNING, fact, f"Add ?wait={len(replicas)} to the URL, or accept it knowingly")]
    return []


def capacity(session: RedisSession, facts: Facts, settings: RedisSettings) -> list[Finding]:
    most, used = int(setting(session, "maxclients") or 0), int(facts.get("connected_clients", "0"))
    need = settings.pool + 2
    if not most:
        return []
    text = f"{used} of {most} connections are in use, and each process of Tenure takes up to {need}"
    if used + need > most:
        return [Finding(Level.WARNING, text, "Lower ?pool=, or raise maxclients")]
    return [Finding(Level.OK, text)]


def transport(settings: RedisSettings) -> list[Finding]:
    if settings.tls:
        return [Finding(Level.OK, "the connection is encrypted")]
    if settings.connection["host"] in ("localhost", "127.0.0.1", "::1"):
        return [Finding(Level.OK, "the connection is not encrypted, and does not leave this machine")]
    fact = "the connection is not encrypted: bodies and the password can be read on the way"
    return [Finding(Level.WARNING, fact, "Use rediss://, with ssl_ca_certs= for an authority of your own")]


def clocks(session: RedisSession, clock: Clock) -> list[Finding]:
    before = clock.wall()
    whole, part = session.ask("TIME")
    return [clock_finding(int(whole) + int(part) / 1e6 - (before + clock.wall()) / 2)]


def notifications(session: RedisSession, settings: RedisSettings) -> list[Finding]:
    """May this user publish and subscribe? Since Redis 7 a new user may not."""
    channel = f"{settings.prefix}bell:check"
    try:
        session.ask("SUBSCRIBE", channel)
        session.ask("UNSUBSCRIBE", channel)
        session.ask("PUBLISH", channel, "")
    except RedisRefused as error:
        if error.word != "NOPERM":
            raise
        remedy = f"ACL SETUSER name &{settings.prefix}*"
        return [Finding(Level.ERROR, "this user may not use the channels that wake waiting consumers", remedy)]
    return [Finding(Level.OK, "waiting consumers are woken at once (publish and subscribe are allowed)")]


def info(session: RedisSession) -> dict[str, str]:
    text: str = session.ask("INFO").decode(errors="replace")
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))


def setting(session: RedisSession, name: str) -> str | None:
    """None when this user may not read settings, as on many hosted servers."""
    try:
        answer = session.ask("CONFIG", "GET", name)
    except RedisRefused:
        return None
    return answer[1].decode() if answer else None


def synced(facts: Facts) -> list[str]:
    """The replicas that are connected and have caught up once."""
    return [text for name, text in facts.items() if name.startswith("slave") and "state=online" in text]


def version(facts: Facts) -> tuple[int, ...]:
    """Returns the version of the protocol: Valkey says which Redis it stands for."""
    return tuple(int(part) for part in facts.get("redis_version", "0").split(".")[:2])


def shown_version(facts: Facts) -> str:
    if "valkey_version" in facts:
        return f"Valkey {facts['valkey_version']}"
    return f"Redis {facts.get('redis_version', 'of an unknown version')}"
