"""Decides in which format the state of a datacenter is saved (RULINGS.md, 13).

A datacenter of an earlier release keeps format 1, one snapshot of everything, until an operator raises it: until then that release can be started
again. In format 2 the state is saved in pages (`state_pages.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.jobs.decisions import Command, Decides, Decision, Event, Folds, Outcome, Rule, Rules
from tenure.jobs.state_pages import PAGED_VERSION, StatePages

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook


class RaiseFormat(Command, frozen=True, kw_only=True):
    """Asks to save the state in pages from now on."""


class FormatRaised(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The state is saved in this format from here on. Releases that do not know it can no longer read the journal."""

    format: int


def raise_format(book: JobBook, command: RaiseFormat, now: float, rules: Rules) -> Decision:
    if book.pages is not None:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, f"it has format {PAGED_VERSION}")
    raised = FormatRaised(at=now, by=command.by, rule=Rule.ASKED, format=PAGED_VERSION)
    return Decision([raised], Outcome.ACCEPTED, Rule.ASKED)


def format_raised(book: JobBook, event: FormatRaised) -> None:
    if book.pages is None:
        book.pages = StatePages.of(book.state, book.position)


DECIDE: Decides = {RaiseFormat: raise_format}
FOLD: Folds = {FormatRaised: format_raised}
