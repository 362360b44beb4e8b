"""Names the contents of a submission, so that a retry is told from a conflict, also over an upgrade (RULINGS 13)."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import msgspec

from tenure.jobs.door import DEFAULT_QUEUE
from tenure.jobs.model import JobSubmission, WorkflowSpec, wall

_encode = msgspec.json.Encoder(order="sorted").encode
_EMPTIED: dict[str, Any] = {
    "job_id": "",
    "submitted_by": "",
    "gate_addr": None,
    "gate_addrs": (),
    "gate_epoch": 0,
    "global_submitted_at": 0.0,
}
"""The fields that may differ where the same job is submitted again. They stand in the digest with their defaults, as in the first release."""


_LATER = ("park", "grace", "retry_of", "unique", "among", "undo_of", "retry_from")
"""The fields that came after the first release. `park` and `among` say nothing about the work; the others count where they are set."""


_OF_SPEC_ALONE = ("max_attempts", "concurrency", "arguments_at")
"""The fields of a workflow that came later. The place of large arguments says nothing about them: the marks that stand for them have their hashes."""


def digest(submission: JobSubmission) -> str:
    """Returns a name of the contents. It is equal for a retry, also through another client or a gate's successor.

    It is that of the first release wherever the submission could have been made there: what was left out counts as the default of then, and a
    field that came later counts only where it is set.
    """
    # A retry may belong to another trace, and is still the same job.
    labels = {key: value for key, value in submission.labels.items() if key != "traceparent"}
    contents = {
        **{name: getattr(submission, name) for name in submission.__struct_fields__ if name not in _LATER},
        **_EMPTIED,
        "labels": labels,
        "timeout_seconds": None if wall(submission.timeout_seconds) == math.inf else submission.timeout_seconds,
        "queue": submission.queue or DEFAULT_QUEUE,
        "priority": submission.priority or 0,
        "workflows": [_spec_contents(spec) for spec in submission.workflows],
        **{name: value for name in ("grace", "unique") if (value := getattr(submission, name)) is not None},
        **{name: value for name in ("retry_of", "undo_of", "retry_from") if (value := getattr(submission, name))},
    }
    return hashlib.blake2b(_encode(contents), digest_size=16).hexdigest()


def _spec_contents(spec: WorkflowSpec) -> dict[str, Any]:
    contents = {name: getattr(spec, name) for name in spec.__struct_fields__ if name not in _OF_SPEC_ALONE}
    contents |= {} if spec.concurrency is None else {"concurrency": spec.concurrency}
    most = {} if spec.max_attempts is None else {"max_attempts": spec.max_attempts}
    return contents | {"retry": msgspec.structs.replace(spec.policy, **most)}
