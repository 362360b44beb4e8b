"""Decides, from the exception that work raised, whether another attempt may follow and after which rest.

The process that ran the work decides, because only there the exception is an object with a class. What travels on is the verdict as plain
data: two fields and a sentence. Exceptions are never sent, so a class that nobody else can import, or that cannot be pickled, does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tenure.backoff import MOST_NACK_S
from tenure.errors import ConfigurationError, Permanent, ProviderError, ProviderRefusedError, RetryAfter

Errors = tuple[type[BaseException], ...]
_DEPTH = 20
"""Exception groups are looked into so deep."""


class RetryVerdict(NamedTuple):
    """Says whether an exception allows another attempt, after which rest, and why. `why` prints the sentence."""

    final: bool = False
    rest_s: float | None = None
    """The seconds to wait for; None leaves it to the retry policy."""
    said: str = ""


NOTHING_SAID = RetryVerdict()


class RetryRules:
    """The exceptions that a workflow gives up on, and those that alone are worth another attempt."""

    def __init__(self, give_up_on: Errors = (), retry_on: Errors | None = None) -> None:
        self.give_up_on, self.retry_on = give_up_on, retry_on

    @classmethod
    def of(
        cls,
        owner: str,
        give_up_on: Iterable[type[BaseException]],
        retry_on: Iterable[type[BaseException]] | None,
    ) -> RetryRules:
        """Returns the rules that a function declares. Raises `ConfigurationError` for what is no class of exceptions."""
        checked = {}
        for field, given in (("give_up_on", give_up_on), ("retry_on", retry_on)):
            kinds = () if given is None else tuple(given) if isinstance(given, Iterable) else (given,)
            for kind in kinds:
                if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                    raise ConfigurationError(
                        f"{field} of workflow {owner} has {kind!r}, which is no class of exceptions",
                        remedy=f"Write a list of classes: {field}=[ValueError]",
                    )
            checked[field] = kinds
        return cls(checked["give_up_on"], None if retry_on is None else checked["retry_on"])

    def verdict(self, error: BaseException) -> RetryVerdict:
        """Returns what the exception means.

        What the code says when it raises (`Permanent`, `RetryAfter`) beats what the function declares, and `give_up_on` beats `retry_on`.
        A group is given up when one of its exceptions is, and worth a retry when all of them are.
        """
        found = [self._of_one(one) for one in _leaves(error)]
        if final := next((one for one in found if one.final), None):
            return final
        return max(found, key=lambda one: -1.0 if one.rest_s is None else one.rest_s, default=NOTHING_SAID)

    def _of_one(self, error: BaseException) -> RetryVerdict:
        name = type(error).__name__
        if isinstance(error, Permanent):
            return RetryVerdict(final=True, said=f"it raised {name}, which says that another attempt cannot help")
        if isinstance(error, RetryAfter):
            return RetryVerdict(rest_s=error.seconds, said=f"it raised {name} and asked for this rest")
        if isinstance(error, self.give_up_on):
            return RetryVerdict(final=True, said=f"give_up_on of the workflow names {_named(error, self.give_up_on)}")
        if self.retry_on is not None and not isinstance(error, self.retry_on):
            return RetryVerdict(final=True, said=f"retry_on of the workflow does not name {name}")
        return _of_provider(error)


ANY_ERROR = RetryRules()
"""The rules of work that declares none, such as a loop's."""


def rest_after(error: BaseException, plain_s: float) -> float:
    """Returns the seconds for which a mailbox keeps the message of failed work back: those that the work asked for, or else `plain_s`."""
    asked_s = ANY_ERROR.verdict(error).rest_s
    return plain_s if asked_s is None else min(asked_s, MOST_NACK_S)  # no engine keeps a message back for longer


def _of_provider(error: BaseException) -> RetryVerdict:
    """Returns what a provider of models said about trying again, where it said anything."""
    if isinstance(error, ProviderRefusedError):
        return RetryVerdict(final=True, said="the provider refused the request, and would refuse the same one again")
    rest_s = getattr(error, "retry_after_s", None) if isinstance(error, ProviderError) else None
    if rest_s is None:
        return NOTHING_SAID
    return RetryVerdict(rest_s=min(max(0.0, float(rest_s)), RetryAfter.MOST_S), said="the provider asked for this rest")


def _named(error: BaseException, kinds: Errors) -> str:
    return next(kind.__name__ for kind in kinds if isinstance(error, kind))


def _leaves(error: BaseException, depth: int = 0) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup) and depth < _DEPTH:
        for inner in error.exceptions:
            yield from _leaves(inner, depth + 1)
    else:
        yield error
