"""Public names that are imported when they are first asked for, so that `import tenure` and a slot's start cost little."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in the package itself: importing typing is what would cost most
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy_names(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """A module-level `__getattr__` for a package: `where` maps a module below it to the names that it brings."""
    homes = {name: module for module, names in where.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find
