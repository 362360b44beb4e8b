"""Translates the server's errors into ours, each with its remedy.

`unknown outcome` errors (the connection was lost, too few replicas answered) are EngineUnavailableError, or
MailboxConnectionError from a mailbox. All others were answered by the server: nothing happened.
"""

from __future__ import annotations

import redis.exceptions as r

from tenure.engines import certificates
from tenure.errors import (
    ConfigurationError,
    EngineBusyError,
    EngineError,
    EngineFullError,
    EngineReadOnlyError,
    EngineRefusedError,
    EngineUnavailableError,
    EngineWentBackError,
    TenureError,
)

WENT_BACK = (
    "Work that it had accepted is lost. Stop, and find out what: a restart without persistence, or a failover to a replica "
    "that lagged behind. Processes that are started anew go on with what is there"
)
_AUTH = "Check user and password, in the URL or in REDIS_USERNAME and REDIS_PASSWORD"
_ACL = "Let this user run scripts on its keys and channels: ACL SETUSER name ~{namespace}:* &{namespace}:* +@all -@dangerous +info"

# By the first word of the server's error.
_WORDS: dict[str, tuple[type[TenureError], str | None]] = {
    "WENTBACK": (EngineWentBackError, WENT_BACK),
    "OOM": (EngineFullError, "The server reached maxmemory: raise it or remove data; nothing was changed"),
    "MISCONF": (EngineFullError, "The server cannot write to its disk: make room there; nothing was changed"),
    "NOREPLICAS": (EngineFullError, "min-replicas-to-write is not met: bring the replicas back; nothing was changed"),
    "BUSY": (EngineBusyError, "A script of somebody else holds the server: SCRIPT KILL ends it"),
    "NOAUTH": (ConfigurationError, _AUTH),
    "WRONGPASS": (ConfigurationError, _AUTH),
    "NOPERM": (EngineReadOnlyError, _ACL),
    # It was the primary when we opened it, and will be found behind the same name again, or its successor will.
    "READONLY": (EngineUnavailableError, "The server became a replica: point the name in the URL at the primary"),
    "MOVED": (EngineRefusedError, "In a cluster, name the primary that owns the namespace's slot in the URL"),
    "CLUSTERDOWN": (EngineUnavailableError, None),
    "LOADING": (EngineUnavailableError, "The server reads its data from disk: wait"),
    "MASTERDOWN": (EngineUnavailableError, None),
}
# redis-py takes the first word away where it has a class for it.
_CLASSES: tuple[tuple[type[r.RedisError], str], ...] = (
    (r.OutOfMemoryError, "OOM"),
    (r.NoPermissionError, "NOPERM"),
    (r.ReadOnlyError, "READONLY"),
    (r.BusyLoadingError, "LOADING"),
    (r.AuthenticationError, "WRONGPASS"),
    (r.MovedError, "MOVED"),
    (r.MasterDownError, "MASTERDOWN"),
    (r.ClusterDownError, "CLUSTERDOWN"),
)


def is_lost(error: r.RedisError) -> bool:
    """Returns True when the session can be used no more. One whose server became a replica must find the new primary."""
    return isinstance(error, r.ConnectionError | r.TimeoutError | r.ReadOnlyError | r.InvalidResponse)


def translate(
    error: r.RedisError, where: str, secret: str, lost: type[EngineUnavailableError], patience_s: float = 0.0
) -> TenureError:
    """The error that a caller gets. `secret` never appears in it."""
    text = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, r.TimeoutError):
        text = f"the server did not answer within {patience_s:g} s"
    if secret:
        text = text.replace(secret, "***")
    if certificates.is_refused(text) or (isinstance(error, r.ConnectionError) and "No such file" in text):
        return ConfigurationError(f"{where}: {text}", remedy=certificates.remedy("?ssl_ca_certs="))
    word = _word(error, text)
    if word in _WORDS:
        kind, remedy = _WORDS[word]
        fact = f"{where}: {text.removeprefix(word).strip() if word == 'WENTBACK' else text}"
        return (lost if kind is EngineUnavailableError else kind)(fact, remedy=remedy)
    if is_lost(error):
        return lost(f"{where}: {text}")
    return EngineError(f"{where}: {text}")


def _word(error: r.RedisError, text: str) -> str:
    for kind, word in _CLASSES:
        if isinstance(error, kind):
            return word
    first = text.partition(" ")[0]
    if first in _WORDS:
        return first
    # An error that a command met inside of a script is told in the middle of the script's own.
    if "No permissions" in text:
        return "NOPERM"
    return next((word for word in _WORDS if f"-{word} " in text or f" {word} " in text), "")
