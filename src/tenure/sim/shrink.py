"""Delta debugging: the search for a small part of a list that still fails.

After Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002): try halves, then smaller parts and
what is left without them, until no single element can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def shrink(items: Sequence[int], fails: Callable[[tuple[int, ...]], bool], *, budget: int = 400) -> tuple[int, ...]:
    """The smallest part found that still fails, within so many tries. `items` itself is known to fail."""
    left, parts, tries = tuple(items), 2, 0

    def attempt(candidate: tuple[int, ...]) -> bool:
        nonlocal tries
        tries += 1
        return fails(candidate)

    if left and attempt(()):
        return ()
    while len(left) >= 2 and tries < budget:
        size = -(-len(left) // parts)
        chunks = [left[start : start + size] for start in range(0, len(left), size)]
        smaller = next((chunk for chunk in chunks if len(chunk) < len(left) and attempt(chunk)), None)
        if smaller is not None:
            left, parts = smaller, 2
            continue
        rests = [tuple(item for item in left if item not in chunk) for chunk in chunks] if parts > 2 else []
        rest = next((rest for rest in rests if attempt(rest)), None)
        if rest is not None:
            left, parts = rest, max(parts - 1, 2)
        elif parts >= len(left):
            break
        else:
            parts = min(len(left), parts * 2)
    return left
