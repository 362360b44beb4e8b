"""Names the mailboxes of work. It imports nothing of what a leader decides with: each worker imports it when it starts."""

from __future__ import annotations

import hashlib
import re

from tenure.bounds import MAILBOX_CHARS

_PART = re.compile(r"(?!.*\.p-?[0-9]+\Z)[A-Za-z0-9_-][A-Za-z0-9._-]*")


def mailbox_name(queue: str, priority: int) -> str:
    """Returns the mailbox of one priority of a queue, as earlier releases used it for all workflows. Workers still drain it."""
    return f"{queue}.p{priority}"


def work_mailbox(queue: str, priority: int, function: str, version: str) -> str:
    """Returns the mailbox of one workflow in one version, as `queue.pN/function/version`. Different parts never share a name.

    Version "" is that of work which any version may do. A name cannot hold every part, so a digest of all parts stands in for those that do
    not fit. The digest begins with a dot, as no version does. A version that ends like `.p0` would make the name that of a queue with slashes.
    """
    plain = f"{queue}.p{priority}/{function}/{version}"
    if len(plain) <= MAILBOX_CHARS and _PART.fullmatch(function) and (not version or _PART.fullmatch(version)):
        return plain
    tail = f".p{priority}/.{_digest(queue, priority, function, version)}"
    return queue[: MAILBOX_CHARS - len(tail)] + tail


def mailbox_for(queue: str, workflow: str, version: str = "") -> str:
    """Returns the mailbox of one workflow without managers, as `queue/workflow/version`: only workers that serve it look there.

    Version "" is that of work which any version may do.
    """
    plain = f"{queue}/{workflow}/{version}"
    if len(plain) <= MAILBOX_CHARS and _PART.fullmatch(workflow) and (not version or _PART.fullmatch(version)):
        return plain
    tail = f"/.{_digest(queue, workflow, version)}"
    return queue[: MAILBOX_CHARS - len(tail)] + tail


def _digest(*parts: str | int) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=10).hexdigest()
