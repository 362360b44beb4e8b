"""The streams of one engine: their names, how they are made, and that nothing in their settings drops data in silence."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from tenure.engines.nats import faults
from tenure.engines.nats.faults import ApiError
from tenure.engines.nats.link import Link
from tenure.errors import EngineRefusedError

_PLAIN = re.compile(r"[A-Za-z0-9\-]")
_LONGEST = 120  # a stream's name is also the name of a folder

DEDUPE_S = 120
"""For how long the server recognises a repeated sending; a call gives up far earlier."""

# Every limit that would drop or refuse something in silence, and the value that does not.
UNLIMITED: dict[str, Any] = {
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msg_size": -1,
    "storage": "file",
}


class Names:
    """The names of streams and subjects in one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.log_stream, self.log_subject = f"{namespace}_log", f"{namespace}.log"
        self.blob_stream = f"{namespace}_blobs"

    def journal_stream(self, journal: str) -> str:
        return f"{self.namespace}_j_{token(journal)}"

    def journal_subject(self, journal: str) -> str:
        return f"{self.namespace}.journal.{token(journal)}"

    def blob(self, name: str, chunk: int | str) -> str:
        return f"{self.namespace}.blob.{name}.{chunk}"

    def pointer(self, name: str) -> str:
        return f"{self.namespace}.pointer.{name}"


def token(name: str) -> str:
    """A name as one token of a subject and as a part of a stream's name: no dots, no slashes, and never two alike."""
    plain = "".join(char if _PLAIN.match(char) else f"_{ord(char):02x}" for char in name)
    if len(plain) <= _LONGEST:
        return plain
    return f"{plain[:60]}__{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def wanted(stream: str, subjects: list[str], replicas: int, **more: Any) -> dict[str, Any]:
    return {
        "name": stream,
        "subjects": subjects,
        "num_replicas": replicas or 1,
        "discard": "new",  # a full stream refuses; it does not drop what is oldest
        "allow_direct": True,
        "duplicate_window": DEDUPE_S * 10**9,
        "max_msgs_per_subject": -1,
        **UNLIMITED,
        **more,
    }


async def ensure(link: Link, config: dict[str, Any]) -> dict[str, Any]:
    """Make the stream, or check the one that is there; what the server says of it."""
    stream, replicas = config["name"], link.settings.replicas
    try:
        info = await link.ask(f"STREAM.INFO.{stream}")
    except ApiError as error:
        if error.number not in faults.NOT_FOUND:
            raise
        try:
            return await link.ask(f"STREAM.CREATE.{stream}", config)
        except ApiError as refused:
            if refused.number != 10058:  # somebody made it meanwhile, with other replicas perhaps
                raise
            info = await link.ask(f"STREAM.INFO.{stream}")
    found = info["config"]
    if wrong := [f"{name}={found.get(name)}" for name in silent_limits(found, config)]:
        raise EngineRefusedError(
            f"the stream {stream} has settings that lose or refuse data: {', '.join(wrong)}",
            remedy=f"nats stream edit {stream}, or remove it if it is not Tenure's",
        )
    if replicas and found["num_replicas"] != replicas:
        info = await link.ask(f"STREAM.UPDATE.{stream}", {**found, "num_replicas": replicas})
    return info


def silent_limits(found: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """The settings that differ from what we need to keep what we promise."""
    checked = (*UNLIMITED, "discard", "subjects", "max_msgs_per_subject")
    wrong = [name for name in checked if found.get(name, config[name]) != config[name]]
    if found.get("duplicate_window", 0) < config["duplicate_window"]:
        wrong.append("duplicate_window")
    return wrong + [name for name in ("sealed", "deny_purge", "republish", "mirror", "sources") if found.get(name)]
