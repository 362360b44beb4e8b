"""Describes one workflow as its worker serves it. Slots, nodes and the core pass this on, so it stands beside them all and imports next to nothing."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from tenure import bounds as b
from tenure.backoff import Retry

T = TypeVar("T")
Secret = Annotated[T, msgspec.Meta(extra_json_schema={"writeOnly": True})]
"""Annotates an argument that nobody shall be shown: `def charge(ctx, card: Secret[str])`. Workers get it as it is."""


class ServedWorkflow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One workflow in one version: what it takes and gives, and what its author set. What is left out has no value of its own."""

    name: b.FunctionName
    version: b.VersionName
    arguments: dict[str, Any] | None = None
    """The JSON Schema of its arguments; None where it is not known. In the journal, `schema` stands for it."""
    schema: b.ShortWord = ""
    """The hash of the schema."""
    result: b.DisplayName = ""
    """The type of its result, in the words of its code."""
    retry: Retry | None = None
    timeout: b.PositiveSeconds | None = None
    """The seconds of one attempt. The worker holds it; here it is for people."""
    stall: b.PositiveSeconds | None = None
    job_timeout: b.PositiveSeconds | None = None
    queue: b.QueueOrNone = ""
    priority: b.Priority | None = None
    description: b.DisplayName = ""
    source: b.DisplayName = ""
    """Where its code is, as `app.py:12`."""


def version_order(version: str) -> tuple[tuple[int, int | str], ...]:
    """Orders versions: 1.10 is newer than 1.9, and numbers are newer than words."""
    return tuple((1, int(part)) if part.isdigit() else (0, part) for part in version.split("."))
