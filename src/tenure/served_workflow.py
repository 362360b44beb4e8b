"""Describes one workflow as its worker serves it. Slots, nodes and the core pass this on, so it stands beside them all and imports next to nothing."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, TypeVar

import msgspec

from tenure import bounds as b
from tenure.backoff import Retry

T = TypeVar("T")
CompatibleVersions = Annotated[tuple[Annotated[b.VersionName, msgspec.Meta(min_length=1)], ...], b.items(0, 20)]
Secret = Annotated[T, msgspec.Meta(extra_json_schema={"writeOnly": True})]
"""Annotates an argument that nobody shall be shown: `def charge(ctx, card: Secret[str])`. Workers get it as it is."""


class OnDuplicate(StrEnum):
    """Sets what becomes of a submission while an equal job is there."""

    KEEP = "keep"  # the equal job is the answer
    REJECT = "reject"  # the submission is refused
    REPLACE = "replace"  # the equal job ends if it has not started, and the new one is accepted in any case


class Unique(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Makes equal jobs one: those of the same queue, functions and arguments, or of the same queue and key."""

    for_s: b.PositiveSeconds
    """An equal job counts that was accepted within so many seconds, and has not failed, timed out or been cancelled."""
    on_duplicate: OnDuplicate = OnDuplicate.KEEP
    key: b.IdempotencyKey = ""


class KeyLimit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sorts work by a key, such as its tenant. Keys take turns, and each may have a limit."""

    key: b.KeyExpression = ""
    """Where the key stands: `args.tenant`, `args.user.id` or `labels.customer`. Empty: the queue's."""
    most: b.MaxRunning | None = None
    """The most attempts of one key in its queue that may be in the engine or running. None: the queue's."""


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
    learn: bool = False
    """True when a learned stall threshold may hold for it (`stall="learn"`)."""
    job_timeout: b.PositiveSeconds | None = None
    queue: b.QueueOrNone = ""
    priority: b.Priority | None = None
    concurrency: KeyLimit | None = None
    unique: Unique | None = None
    description: b.DisplayName = ""
    source: b.DisplayName = ""
    """Where its code is, as `app.py:12`."""
    compatible_with: CompatibleVersions = ()
    """Earlier versions whose work it goes on with."""
    signals: dict[str, Any] | None = None
    """A JSON Schema with a property for each signal whose type its author declared. In the journal, `signals_schema` stands for it."""
    signals_schema: b.ShortWord = ""

    @property
    def takes_over(self) -> list[tuple[str, str]]:
        """Returns (name, version) of the earlier work that it goes on with."""
        return [(self.name, version) for version in self.compatible_with]

    @property
    def does(self) -> list[tuple[str, str]]:
        """Returns (name, version) of all work that it does: its own, and that of the versions which it is compatible with."""
        return [(self.name, self.version), *self.takes_over]


def version_order(version: str) -> tuple[tuple[int, int | str], ...]:
    """Orders versions: 1.10 is newer than 1.9, and numbers are newer than words."""
    return tuple((1, int(part)) if part.isdigit() else (0, part) for part in version.split("."))
