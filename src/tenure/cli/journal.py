"""`tenure journal`: shows the decisions of managers and gates, entry by entry, and mends a damaged journal."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
from rich.table import Table
from rich.text import Text

from tenure.cli.node_options import friendly
from tenure.cli.options import REFUSED, console, print_json, say, show
from tenure.engines.contracts import Engine, Entry, Journal, Snapshot, Store
from tenure.engines.urls import redact
from tenure.jobs.topics import decode_event, decode_gate_event
from tenure.jobs.why_answer import utc
from tenure.nodes.gate.leader import GateRules
from tenure.nodes.journal_checksum import OpenedSnapshot, entry_damage, is_checked, opened
from tenure.nodes.journal_repair import Damage, Examination, JournalKind, examine, mend, named, pages_of
from tenure.nodes.manager.ledger import DatacenterRules


def plain(data: bytes) -> Any:
    """Returns bytes as text where they are text; otherwise as base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def entry_record(entry: Entry) -> str:
    """Returns one entry as one line of JSON."""
    told: dict[str, Any] = {"seq": entry.seq, "epoch": entry.epoch, "append_id": entry.append_id, "at": entry.at}
    told["events"] = [plain(event) for event in entry.events]
    if damage := entry_damage(entry):
        told["damage"] = damage
    if entry.stored:
        told["stored"] = {"base64": b64encode(entry.stored).decode()}
    return msgspec.json.encode(told).decode()


def snapshot_record(snapshot: Snapshot, found: OpenedSnapshot) -> str:
    """Returns the snapshot as one line of JSON, with its state as it is stored."""
    told = {"snapshot_seq": snapshot.seq, "epoch": snapshot.epoch, "damage": found.damage}
    return msgspec.json.encode({**told, "state": {"base64": b64encode(snapshot.state).decode()}}).decode()


def entry_lines(entry: Entry) -> list[str]:
    """Returns one entry as lines for people: its head, its damage, and each event under a line that names it."""
    seal = "checksum right" if is_checked(entry) else "no checksum (written by the first release)"
    damage = entry_damage(entry)
    head = f"entry {entry.seq}, epoch {entry.epoch}, {utc(entry.at)}, id {entry.append_id or 'unknown'}"
    lines = [f"{head}: {f'DAMAGED: {damage}' if damage else seal}"]
    for number, event in enumerate(entry.events, 1):
        lines += [f"event {number}: {named(event)}", f"  {event.decode(errors='backslashreplace')}"]
    if entry.stored:
        lines.append(f"as it is stored: {entry.stored!r}")
    return lines


def keep_copies(file: str, journal: str, damages: Iterable[Damage]) -> Path:
    """Writes the damaged entries and snapshots to a new file, before the journal is mended. Returns its path."""
    path = Path(file) if file else new_path(journal)
    lines = []
    for one in damages:
        if one.entry is not None:
            lines.append(entry_record(one.entry))
        if one.snapshot is not None:
            lines.append(snapshot_record(one.snapshot, opened(one.snapshot)))
    try:
        path.touch(0o600, exist_ok=False)  # arguments and results may stand in it
        with path.open("w") as out:
            out.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error}. Nothing was changed.") from error
    return path


def new_path(journal: str) -> Path:
    """Returns a name in this folder that no file has."""
    return next(path for n in count(1) if not (path := Path(f"journal-{journal}-damaged-{n}.jsonl")).exists())


KINDS = {
    "manager": JournalKind.of(DatacenterRules(), decode_event),
    "gate": JournalKind.of(GateRules(), decode_gate_event),
}


class Opened(NamedTuple):
    """A journal of an engine that the command has opened."""

    engine: Engine
    journal: Journal
    kind: JournalKind
    url: str

    @property
    def pages(self) -> Store:
        return pages_of(self.engine, self.kind)


def journal_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--engine` and `--journal`. The command gets the opened journal as `opened_`."""

    @wraps(function)
    def called(*args: Any, engine: str, journal: str, **options: Any) -> Any:
        with opening(engine, journal) as found:
            return function(*args, opened_=found, **options)

    which = click.option(
        "--journal",
        type=click.Choice(list(KINDS)),
        default="manager",
        show_default=True,
        help="Whose: a datacenter's managers, or gates.",
    )
    where = click.option("--engine", required=True, envvar="TENURE_ENGINE", help="The engine's URL; or TENURE_ENGINE.")
    return where(which(called))


@contextmanager
def opening(url: str, journal: str) -> Iterator[Opened]:
    kind = KINDS[journal]
    with friendly(), Engine.open(url) as engine:
        yield Opened(engine, engine.journal(kind.name), kind, redact(url))


@click.group("journal")
def journal() -> None:
    """Look at a journal and mend it. It speaks to the engine itself: no manager needs to run, and none is in the way.

    A manager or gate that says "this node refuses to lead: entry 812 of journal 'jobs' is damaged" waits for this:

    \b
      tenure journal check  --engine URL        what is damaged, and what a repair would do; changes nothing
      tenure journal show 812 --engine URL      that entry, event by event
      tenure journal export --engine URL > all.jsonl      a copy of everything, first
      tenure journal repair --engine URL        the same as check: a dry run
      tenure journal repair --engine URL --write          do it; nodes notice within ten seconds

    Gates have a journal of their own, on their own engine: --journal gate. docs/journal.md explains the rest.
    """


@journal.command("check")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@journal_options
def check(opened_: Opened, as_json: bool) -> None:
    """Read a journal from its snapshot to its end, and say what is damaged and what a repair would do about it.

    Changes nothing, and may run beside a leader. The exit code is 1 when something is damaged.
    """
    found = examine(opened_.journal, opened_.kind, opened_.pages)
    tell(found, opened_, as_json)
    raise SystemExit(REFUSED if found.damages else 0)


@journal.command("show")
@click.argument("seq", required=False, type=int)
@click.option("--last", default=10, show_default=True, help="Without SEQ: how many of the newest entries.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@journal_options
def show_entries(seq: int | None, last: int, as_json: bool, opened_: Opened) -> None:
    """Show entry SEQ with all its events, or the newest entries in a line each."""
    head = opened_.journal.head()
    after = max(0, (head.seq - last) if seq is None else seq - 1)
    snapshot = opened_.journal.latest_snapshot()
    if snapshot is not None and seq is None:
        after = max(after, snapshot.seq)
    found = opened_.journal.read(after, limit=last if seq is None else 1)
    if seq is not None and (not found or found[0].seq != seq):
        raise click.ClickException(f"there is no entry {seq}; the journal ends at {head.seq}")
    if as_json:
        print_json([msgspec.Raw(entry_record(one).encode()) for one in found])
    elif seq is not None:
        say("\n".join(entry_lines(found[0])))
    else:
        show(listed(found, f"journal {opened_.kind.name!r} of {opened_.url} ends at {head.seq}, epoch {head.epoch}"))


def listed(entries: list[Entry], title: str) -> Table:
    table = Table("entry", "written", "epoch", "checksum", "events", title=title)
    for one in entries:
        damage = entry_damage(one)
        seal = Text("damaged", style="bold red") if damage else Text("right" if is_checked(one) else "none")
        events = Text(damage or ", ".join(map(named, one.events)))
        table.add_row(str(one.seq), utc(one.at), str(one.epoch), seal, events)
    return table


@journal.command("export")
@journal_options
def export(opened_: Opened) -> None:
    """Print a whole journal as lines of JSON: the snapshot first, then every entry, also what is damaged, byte for byte."""
    snapshot = opened_.journal.latest_snapshot()
    if snapshot is not None:
        say(snapshot_record(snapshot, opened(snapshot)))
    after = snapshot.seq if snapshot is not None else 0
    while page := opened_.journal.read(after):
        for one in page:
            say(entry_record(one))
        after = page[-1].seq


@journal.command("repair")
@click.option("--write", is_flag=True, help="Do it. Without: only say what would be done.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done: the default.")
@click.option(
    "--keep", default="", metavar="FILE", help="Where to copy what is damaged, first. Default: a new file here."
)
@click.option(
    "--without-snapshot", is_flag=True, help="Go on without a snapshot of which nothing can be read. Loses it."
)
@click.option("--force", is_flag=True, help="Although somebody leads.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@journal_options
def repair(
    write: bool, dry_run: bool, keep: str, without_snapshot: bool, force: bool, as_json: bool, opened_: Opened
) -> None:
    """Mend a damaged journal. Without --write it says what it would do, and changes nothing.

    One wrong byte is found and put right by the checksum: then nothing is lost. Otherwise whatever of an entry still reads is kept, and each
    event that is not is named. The result is a new snapshot at the end of the journal; what was damaged is first copied to a file.

    It refuses while somebody leads: a leader has the whole state in its memory and writes a sound snapshot of it by itself, every 500 entries.
    """
    found = examine(opened_.journal, opened_.kind, opened_.pages, without_snapshot=without_snapshot)
    tell(found, opened_, as_json)
    if not found.damages:
        return
    if found.newer:
        raise click.ClickException("a newer Tenure wrote this journal: start that version again. Nothing was changed.")
    if found.state is None:
        raise click.ClickException("it cannot be mended without losing the snapshot, see above. Nothing was changed.")
    if dry_run or not write:
        say("Nothing was changed: this was a dry run. To do it: --write", err=True)
        return
    refuse_beside_a_leader(opened_, force)
    kept = keep_copies(keep, opened_.kind.name, found.damages)
    mend(opened_.journal, found, opened_.pages)
    say(f"Mended: a snapshot at {found.seq}. What was damaged is kept in {kept}.", err=True)
    say("Managers and gates that wait for it look every ten seconds; none needs a restart.", err=True)


def refuse_beside_a_leader(opened_: Opened, force: bool) -> None:
    leader = opened_.engine.election(opened_.kind.election).current()
    if leader is not None and not force:
        raise click.ClickException(
            f"{leader.candidate} leads, and has the state in its memory: it keeps a sound snapshot by itself every 500 entries, and stopping it "
            "before would lose what only it knows. To mend the journal beside it nevertheless: --force. Nothing was changed."
        )


def tell(found: Examination, opened_: Opened, as_json: bool) -> None:
    if as_json:
        print_json(as_data(found, opened_))
        return
    screen = console()
    begins = f"a snapshot at {found.snapshot.seq} and " if found.snapshot is not None else ""
    read = f"journal {opened_.kind.name!r} of {opened_.url}: {begins}{found.entries:,} entries, up to {found.head.seq}"
    screen.print(Text(f"{read}; {found.unchecked:,} of them without a checksum (of the first release)"))
    if not found.head.seq:
        screen.print(Text("nothing was ever written there: is this the engine, and the journal, that you mean?"))
    for one in found.damages:
        screen.print(Text(f"{one.title}: {one.why}", style="bold red"))
        screen.print(Text(f"  repair: {one.mend}"))
        for lost in one.lost:
            screen.print(Text(f"  lost: {lost}", style="yellow"))
    gone = sum(len(one.lost) for one in found.damages)
    screen.print(Text(f"{len(found.damages)} damaged, {gone} lost" if found.damages else "nothing is damaged"))


def as_data(found: Examination, opened_: Opened) -> dict[str, Any]:
    return {
        "journal": opened_.kind.name,
        "head": found.head._asdict(),
        "snapshot_seq": found.snapshot.seq if found.snapshot is not None else None,
        "entries": found.entries,
        "unchecked": found.unchecked,
        "can_be_mended": found.state is not None,
        "damages": [damage_data(one) for one in found.damages],
    }


def damage_data(one: Damage) -> dict[str, Any]:
    told = {"part": one.part, "seq": one.seq, "why": one.why, "repair": one.mend, "lost": one.lost}
    return {**told, "newer": one.newer}
