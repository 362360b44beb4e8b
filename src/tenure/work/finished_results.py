"""`ctx.results`: the results of the workflows that this one comes after, by their names.

Small results came with the message of the work. Large ones are read from the engine's store when they are asked for, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from tenure.codec import opened_value
from tenure.errors import NoResultError

if TYPE_CHECKING:
    from tenure.work.attempt_handle import AttemptHandle
    from tenure.work.registry import Workflow

R = TypeVar("R")


class FinishedResults(Mapping[str, Any]):
    """Maps the name of a finished workflow to its result, as plain JSON types. A workflow that failed is not in it.

    The function itself is a key, too, where one workflow of the job runs it: `ctx.results[fetch]` has the type that `fetch` returns.
    """

    def __init__(self, handle: AttemptHandle) -> None:
        self._handle, self._handed = handle, handle.delivery.item.results
        self._read: dict[str, Any] = {}

    @overload
    def __getitem__(self, name: str) -> Any: ...

    @overload
    def __getitem__(self, name: Workflow[..., R]) -> R: ...

    def __getitem__(self, name: str | Workflow[..., Any]) -> Any:
        if isinstance(name, str):
            return self._of(name)
        return name.decode_result(self._of(self._named(name)))

    def __iter__(self) -> Iterator[str]:
        return (name for name, one in self._handed.items() if not one.error)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._handed and not self._handed[name].error

    def _named(self, function: Workflow[..., Any]) -> str:
        """Returns the name of the one workflow that runs this function."""
        names = [name for name, one in self._handed.items() if (one.function or name) == function.name]
        if len(names) > 1:
            raise NoResultError(
                function.name, "several workflows run it", remedy=f"Ask by name: {', '.join(sorted(names))}"
            )
        return names[0] if names else function.name

    def _of(self, name: str) -> Any:
        if name not in self._handed:
            known = ", ".join(sorted(self._handed)) or "none"
            raise NoResultError(
                name, "this workflow does not come after it", remedy=f"Name it in `after`; these are named: {known}"
            )
        if name not in self._read:
            self._read[name] = self._opened(name)
        return self._read[name]

    def _opened(self, name: str) -> Any:
        handed = self._handed[name]
        if handed.error:
            raise NoResultError(name, handed.error, remedy=f"Ask first whether it has one: {name!r} in ctx.results")
        value = handed.result
        if handed.key:
            stored = self._handle.delivery.stored_result(name)
            if stored is None:
                raise NoResultError(name, "the store has it no more", remedy="Run the job again from its beginning")
            value = msgspec.json.decode(stored)
        return opened_value(self._handle.codec, value, f"result {handed.job_id}/{name}")
