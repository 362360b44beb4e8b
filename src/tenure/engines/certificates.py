"""Tells a server whose certificate is not to be trusted from one that is away: against the first, trying again does not help."""

from __future__ import annotations

import re

# libpq and Python's ssl report it as text only.
_REFUSED = re.compile(
    r"certificate.verify.failed|does not match host name|certificate is not valid for"
    r"|root certificate file|could not load (private key|certificate) file|certificate file .* does not exist"
    r"|server does not support SSL",
    re.IGNORECASE,
)


def is_refused(text: str) -> bool:
    """Returns True when a client's error text says that it did not accept the server, or found no certificate."""
    return _REFUSED.search(text) is not None


def remedy(option: str) -> str:
    return (
        f"Let {option} name the authority that signed the server's certificate, and write the host as the certificate "
        "does; nothing was sent to it"
    )
