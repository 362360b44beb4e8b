"""Words an event of the journal as a line for people."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.jobs.events import JobSubmitted
from tenure.jobs.gate_events import GateJobAccepted, decode_any_event
from tenure.jobs.model import JobSubmission
from tenure.jobs.words import tell


def words_of(event: Any) -> str:
    """Returns an event in words; for an event of a newer version, its name."""
    try:
        known = decode_any_event(msgspec.json.encode(event))
    except msgspec.ValidationError:
        return f"{event.get('type', 'something')} (of a newer version)"
    if isinstance(known, GateJobAccepted):
        return f"submitted to {', '.join(known.target_datacenters)}: {call_of(known.submission)}"
    return f"submitted: {call_of(known.submission)}" if isinstance(known, JobSubmitted) else tell(known)


def call_of(submission: JobSubmission) -> str:
    """Returns a submission as the calls that one would write in code; at most three of them."""
    words = []
    for spec in submission.workflows[:3]:
        given = ", ".join(f"{key}={value!r}" for key, value in spec.arguments.items())
        words.append(f"{spec.called}({given[:80]})")
    more = len(submission.workflows) - 3
    return ", ".join(words) + (f" and {more} more" if more > 0 else "")
