"""Translates the server's errors into ours, each with its remedy.

`unknown outcome` errors (the connection was lost) are EngineUnavailableError, or MailboxConnectionError from a mailbox. All
others were answered by the server: the transaction was rolled back and nothing happened.
"""

from __future__ import annotations

import re

import psycopg

from tenure.engines import certificates
from tenure.errors import (
    ConfigurationError,
    EngineBusyError,
    EngineCorruptError,
    EngineError,
    EngineFullError,
    EngineReadOnlyError,
    EngineUnavailableError,
    TenureError,
)

# Errors after which trying the same transaction again is right: it was rolled back for a reason that passes.
TRANSIENT = {"40001", "40P01"}

_STATES: dict[str, tuple[type[TenureError], str | None]] = {
    "53100": (EngineFullError, None),
    "53200": (EngineFullError, "The server is out of memory: give it more, or lower its settings; nothing was changed"),
    "53300": (
        EngineBusyError,
        "The server has no connection left: lower ?pool=, raise max_connections, or use a pooler",
    ),
    "53400": (EngineBusyError, None),
    "25006": (EngineReadOnlyError, "This is a standby or a read-only database: connect to the primary"),
    "42501": (
        EngineReadOnlyError,
        "Grant this user its rights; `tenure doctor --engine URL` names those that it lacks",
    ),
    "55P03": (EngineBusyError, None),
    "57014": (EngineBusyError, "A statement_timeout or somebody cancelled it: raise the limit for this user"),
    "28P01": (ConfigurationError, "Check the password in the URL, in PGPASSWORD or in ~/.pgpass"),
    "28000": (ConfigurationError, "The server does not let this user in: check the user, the database and pg_hba.conf"),
    "3D000": (ConfigurationError, "Create the database, or name another one in the URL"),
    "XX001": (EngineCorruptError, "The server found damaged data: restore it"),
    "XX002": (EngineCorruptError, "The server found a damaged index: REINDEX it"),
    "3F000": (EngineCorruptError, "Tenure's schema is gone: open the engine again to make it anew, or restore it"),
    "42P01": (EngineCorruptError, "A table of Tenure's schema is gone: restore it"),
    "42883": (EngineCorruptError, "A function of Tenure's schema is gone: restore it"),
}
# libpq reports why a connection was refused as text only, without a state.
_REFUSED = (
    (re.compile(r"password"), "28P01"),
    (re.compile(r'database ".*" does not exist'), "3D000"),
    (re.compile(r'role ".*" does not exist|no pg_hba\.conf entry|authentication failed'), "28000"),
    (re.compile(r"too many clients|connection slots are reserved|too many connections"), "53300"),
)
_LOST = {"57P01", "57P02", "57P03", "57P05"}  # the server ends, restarts or is not up yet


def is_lost(error: psycopg.Error) -> bool:
    """Returns True when the connection went away, so that the outcome of the call is unknown."""
    state = error.sqlstate
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        state is None or state.startswith("08") or state in _LOST
    )


def translate(error: psycopg.Error, where: str, secret: str, lost: type[EngineUnavailableError]) -> TenureError:
    """The error that a caller gets. `secret` never appears in it."""
    text = (error.diag.message_primary or str(error)).strip().rstrip(".")
    text = " ".join(text.split())
    if secret:
        text = text.replace(secret, "***")
    fact = f"{where}: {text}"
    if certificates.is_refused(text):
        return ConfigurationError(fact, remedy=certificates.remedy("?sslrootcert="))
    state = error.sqlstate or next((state for pattern, state in _REFUSED if pattern.search(text)), None)
    if state in _STATES:
        kind, remedy = _STATES[state]
        return kind(fact, remedy=remedy)
    if is_lost(error):
        return lost(fact)
    return EngineError(fact)
