"""When a failed model call is made again, and when not. Pure: chance, and what is left of the deadline, are given."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tenure.backoff import Retry
from tenure.errors import LimitError, ProviderError, ProviderRateLimitedError, ProviderUnavailableError


@dataclass(frozen=True, slots=True)
class ModelRetry:
    """How patient a loop is with its provider.

    Attributes:
        attempts: Calls in all, the first included.
        backoff: How long to wait where the provider does not say. Its own `max_attempts` does not count.
        most_wait_s: A provider that asks for more than this is taken as unavailable.
    """

    attempts: int = 5
    backoff: Retry = field(default_factory=lambda: Retry(delay=0.5, max_delay=30.0))
    most_wait_s: float = 300.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise LimitError("ModelRetry.attempts", self.attempts, "1 or more")
        self.backoff.checked("ModelRetry")

    def wait_s(self, error: ProviderError, failures: int, remaining_s: float, random: Random) -> float | None:
        """Returns the seconds to wait before the next call, or None to give up."""
        if not error.retryable or failures >= self.attempts:
            return None
        wait = self.backoff.delay_s(failures, random.random())
        if isinstance(error, ProviderRateLimitedError | ProviderUnavailableError) and error.retry_after_s is not None:
            wait = max(wait, error.retry_after_s)
        return wait if wait <= self.most_wait_s and wait < remaining_s else None
