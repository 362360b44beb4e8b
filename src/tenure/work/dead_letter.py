"""Decides when to give up on a message: after so many deliveries, at once for errors that no retry helps, never for others.

Pure: it takes the delivery count and the error, and returns the reason to give up, or None. The
loop gives up, with `Message.dead_letter(reason)`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure.errors import LimitError

Errors = tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class DeadLetterPolicy:
    """Which failed messages become dead letters.

    Attributes:
        max_delivery_count: A message that failed in this many deliveries is given up.
        include_errors: Errors that are given up at the first time: a retry cannot help.
        exclude_errors: Errors that say nothing about the message (the database is down): they never make it a dead letter,
            whatever the count. Where an error is in both, this wins: giving up cannot be taken back, waiting can.
    """

    max_delivery_count: int = 5
    include_errors: Errors = ()
    exclude_errors: Errors = ()

    def __post_init__(self) -> None:
        if self.max_delivery_count < 1:
            raise LimitError("max_delivery_count", self.max_delivery_count, "1 or more")
        for field in ("include_errors", "exclude_errors"):
            for kind in getattr(self, field):
                if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                    raise LimitError(field, repr(kind), "exception classes")

    def verdict(self, delivery_count: int, error: BaseException) -> str | None:
        """Why a message whose work raised this in this delivery is to be given up; None to let it come back.

        Pass `Message.attempt`, which leaves out deliveries that were handed over through no fault of the work.
        """
        if isinstance(error, self.exclude_errors):
            return None
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if isinstance(error, self.include_errors):
            return f"{what} (not worth a retry)"
        if delivery_count >= self.max_delivery_count:
            return f"failed in delivery {delivery_count} of {self.max_delivery_count}: {what}"
        return None
