"""The questions of `tenure doctor` to a NATS server: version, rights, streams, replicas, room, and the failures that an acknowledged write survives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tenure.clock import Clock
from tenure.engines.contracts import MAX_BODY_BYTES, Finding, Level
from tenure.engines.nats.address import ApiError
from tenure.engines.nats.connection import NatsConnection
from tenure.engines.nats.streams import Names, silent_limits, unix, wanted
from tenure.errors import EngineRefusedError, EngineVersionError, TenureError

OLDEST = (2, 11)
LEAST_PAYLOAD = MAX_BODY_BYTES + 65_536


def version_of(text: str) -> tuple[int, int]:
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


async def must_be_usable(link: NatsConnection) -> None:
    """Refuse what cannot work."""
    info: dict[str, Any] = link.client._server_info
    version = str(info.get("version", ""))
    if version_of(version) < OLDEST:
        raise EngineVersionError(
            f"the server at {link.settings.shown} is NATS {version}, and reading a journal needs 2.11",
            remedy="Upgrade the server",
        )
    if not info.get("jetstream"):
        raise EngineRefusedError(
            f"the server at {link.settings.shown} has no JetStream", remedy="Start it with -js, or a jetstream block"
        )
    if link.max_payload < LEAST_PAYLOAD:
        raise EngineRefusedError(
            f"max_payload of {link.settings.shown} is {link.max_payload:,} bytes, and a message may have {LEAST_PAYLOAD:,}",
            remedy="Set max_payload to 1MB or more in the server's configuration",
        )


async def examine(link: NatsConnection, names: Names, clock: Clock) -> list[Finding]:
    try:
        return [
            *server(link),
            *transport(link),
            *await account(link),
            *await log_stream(link, names),
            *await clocks(link, names, clock),
            *durability(),
        ]
    except (TenureError, ApiError) as error:
        told = error if isinstance(error, TenureError) else link.told(error, f"checking {link.settings.shown}")
        return [Finding(Level.ERROR, told.fact, told.remedy)]


def server(link: NatsConnection) -> list[Finding]:
    info: dict[str, Any] = link.client._server_info
    return [
        Finding(Level.OK, f"NATS {info.get('version')}, server {info.get('server_name')}, JetStream is on"),
        Finding(Level.OK, f"max_payload is {link.max_payload:,} bytes; larger values are kept in chunks"),
    ]


def transport(link: NatsConnection) -> list[Finding]:
    url = link.client.connected_url
    host = url.hostname if url is not None else ""
    if link.settings.tls is not None:
        return [Finding(Level.OK, "the connection is encrypted")]
    if host in ("127.0.0.1", "::1", "localhost"):
        return [Finding(Level.OK, "the connection is not encrypted, and does not leave this machine")]
    remedy = "Write tls:// in the URL, with ?ca= where the servers have their own authority"
    return [Finding(Level.WARNING, "the connection is not encrypted: bodies can be read on the way", remedy)]


async def account(link: NatsConnection) -> list[Finding]:
    """JetStream's limits on this account: reaching one refuses writes."""
    info = await link.ask("INFO")
    limits, used = info.get("limits", {}), info.get("storage", 0)
    most = limits.get("max_storage", -1)
    findings = []
    if most >= 0:
        text = f"JetStream may keep {most:,} bytes for this account, {used:,} are used"
        full = used > 0.8 * most
        findings.append(Finding(Level.WARNING if full else Level.OK, text, "Raise max_storage" if full else ""))
    pending = limits.get("max_ack_pending", -1)
    text = "our consumers acknowledge nothing, so max_ack_pending stops none of them"
    findings.append(Finding(Level.OK, f"{text} (the account's is {pending})" if pending > 0 else text))
    if limits.get("max_streams", -1) >= 0:
        text = f"{info.get('streams', 0)} of {limits['max_streams']} streams are in use; each journal is one more"
        near = info.get("streams", 0) >= limits["max_streams"]
        findings.append(Finding(Level.ERROR if near else Level.OK, text, "Raise max_streams" if near else ""))
    return findings


async def log_stream(link: NatsConnection, names: Names) -> list[Finding]:
    info = await link.ask(f"STREAM.INFO.{names.log_stream}")
    config, state, cluster = info["config"], info["state"], info.get("cluster") or {}
    wrong = silent_limits(config, wanted(names.log_stream, [names.log_subject], 1))
    findings = [
        Finding(Level.OK, f"{names.log_stream} holds {state['messages']:,} commands, {state['bytes']:,} bytes"),
    ]
    if wrong:
        fact = f"{names.log_stream} has settings that lose or refuse data: {', '.join(wrong)}"
        findings.append(Finding(Level.ERROR, fact, f"nats stream edit {names.log_stream}"))
    replicas = config["num_replicas"]
    if replicas < 3:
        fact = f"{names.log_stream} has {replicas} replica{'s' if replicas > 1 else ''}: it is gone when its server is"
        findings.append(Finding(Level.WARNING, fact, "Run three servers, and add ?replicas=3 to the URL"))
    else:
        findings.append(replication(names.log_stream, replicas, cluster.get("replicas") or ()))
    return findings


def replication(stream: str, wanted_replicas: int, others: Sequence[Mapping[str, Any]]) -> Finding:
    """The stream's leader tells of the others: who is not current is behind or gone, and only how long it was silent tells which.

    A killed server stays "not current" for minutes before a cluster calls it offline.
    """
    text = f"{stream} has {wanted_replicas} replicas"
    late = [one for one in others if not one.get("current") or one.get("offline")]
    if not late:
        return Finding(Level.OK, f"{text}, all current")
    silent = (f"{one['name']} (heard of {one.get('active', 0) / 1e9:.0f} s ago)" for one in late)
    remedy = "Start again those that are gone; others catch up by themselves"
    return Finding(Level.WARNING, f"{text}; not current: {', '.join(silent)}", remedy)


async def clocks(link: NatsConnection, names: Names, clock: Clock) -> list[Finding]:
    """Skew is harmless to leases; people who compare log files want to know of it."""
    before = clock.wall()
    server_time = unix((await link.ask(f"STREAM.INFO.{names.log_stream}"))["ts"])
    skew = server_time - (before + clock.wall()) / 2
    text = f"the server's clock is {abs(skew):.3f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
    if abs(skew) > 5:
        return [Finding(Level.WARNING, text, "Nothing breaks; set both by NTP, so that times in logs agree")]
    return [Finding(Level.OK, text)]


def durability() -> list[Finding]:
    """The setting cannot be asked for over the client's connection."""
    fact = "NATS syncs to disk every sync_interval, two minutes by default: a power failure of all replicas loses what came since"
    return [Finding(Level.WARNING, fact, "Set sync_interval: always in the jetstream block where that matters")]
