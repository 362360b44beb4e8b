"""`tenure doctor`: checks that this machine, this engine and these timeouts can keep Tenure's promises, and says what to change."""

from __future__ import annotations

import os
import platform
import resource
import shutil
from itertools import pairwise
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from tenure.beat.board import board_folder
from tenure.cli.options import console, print_json, show
from tenure.client.client import Client
from tenure.clock import SystemClock
from tenure.control.messages.nodes import GateNode, ListNodes, ManagerNode, NodeList, WorkerNode
from tenure.engines import Engine
from tenure.engines.contracts import Finding, Level
from tenure.engines.urls import redact
from tenure.errors import TenureError
from tenure.jobs.settings import STUCK_THRESHOLD_S
from tenure.machine import here
from tenure.service_manager import ServiceManager
from tenure.work.slots.settings import SlotSettings

SKEW_S = 1.0
FILES = 1_024
ROOM_BYTES = 64 << 20


def machine() -> list[Finding]:
    """Checks that slot processes can run on this machine."""
    found = [Finding(Level.OK, f"Python {platform.python_version()}"), _system(), _shared_memory(), _files(), _disk()]
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    words = f"{cores} cores, load {load:.1f}"
    busy = Finding(Level.WARNING, words, "More runs than the machine can: beats and leases have less room for delays")
    return [*found, busy if load > 4 * cores else Finding(Level.OK, words)]


def _system() -> Finding:
    words = f"{platform.system()} {platform.release()}"
    if platform.system() == "Linux":
        return Finding(Level.OK, words)
    return Finding(
        Level.ERROR, words, "Slots that can be killed one by one need Linux; embedded(mode='threads') runs anywhere"
    )


def _shared_memory() -> Finding:
    try:
        folder = board_folder()
    except TenureError as error:
        return Finding(Level.ERROR, error.fact, error.remedy)
    room = shutil.disk_usage(folder).free
    if not folder.is_relative_to(here.shared_memory):
        return Finding(Level.WARNING, f"beats go through {folder}", "Mount /dev/shm, or let this user write to it")
    if room < ROOM_BYTES:
        return Finding(
            Level.WARNING, f"{folder} has {room >> 20} MB left", "Give it more: a slot needs 8 KB, others share it"
        )
    return Finding(Level.OK, f"shared memory for beats in {folder}, {room >> 20} MB left")


def _files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    words = f"{soft} open files for each process"
    if soft >= FILES:
        return Finding(Level.OK, words)
    return Finding(Level.WARNING, words, f"Raise it for managers: ulimit -n {FILES} or more")


def _disk() -> Finding:
    room = shutil.disk_usage(Path.cwd()).free
    words = f"{room >> 30} GB left on the disk of this folder"
    return Finding(Level.WARNING if room < 1 << 30 else Level.OK, words, "Make room" if room < 1 << 30 else "")


CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")
SLOT_BYTES = 64 << 20
"""The memory that a slot needs before it runs anything of yours."""


def deployment(url: str, slots: int, limit: Path = CGROUP_MEMORY) -> list[Finding]:
    """Checks this process's surroundings as a service or a container: its user, its memory, its secrets and who watches it."""
    root = os.geteuid() == 0
    user = Finding(
        Level.WARNING, "this runs as root", "Use a user of its own: DynamicUser= of systemd, runAsNonRoot of Kubernetes"
    )
    found = [
        user if root else Finding(Level.OK, f"this runs as user {os.geteuid()}"),
        _memory(slots, limit),
        *_secrets(),
    ]
    if url.startswith("sqlite:"):
        remedy = (
            "Take PostgreSQL, Redis or NATS as soon as a second machine joins; a container needs a volume for the file"
        )
        found.append(Finding(Level.WARNING, "SQLite serves one machine", remedy))
    watched = ServiceManager().watchdog_s
    words = f"its service manager ends it after {watched:g} s without a sign of life" if watched else ""
    unwatched = "no service manager watches this process: under systemd, Type=notify and WatchdogSec= do"
    return [*found, Finding(Level.OK, words or unwatched)]


def _memory(slots: int, limit: Path) -> Finding:
    text = limit.read_text().strip() if limit.is_file() else "max"
    if not text.isdigit():
        return Finding(Level.OK, "no limit of memory for this container")
    most = int(text)
    words = f"{most >> 20} MB of memory for this container, with {slots} slots"
    if most < slots * SLOT_BYTES + SLOT_BYTES:
        return Finding(Level.ERROR, words, f"Give it more than {(slots + 1) * SLOT_BYTES >> 20} MB, or fewer slots")
    return Finding(Level.OK, words)


def _secrets() -> list[Finding]:
    """Checks that the files of tokens and of keys for results are not readable by everybody. Tokens are digests there, which still tell who there is."""
    unsigned = Finding(
        Level.WARNING,
        "results are not signed (TENURE_RESULT_KEYS is not set): whoever can write to the engine can forge one",
        "Give managers and workers --result-key-file, workers first; docs/security.md says what it promises",
    )
    keys = _file_mode("TENURE_RESULT_KEYS", 0o077, "600") or [unsigned]
    return [*_file_mode("TENURE_TOKENS", 0o007, "640"), *keys]


def _file_mode(variable: str, others: int, wanted: str) -> list[Finding]:
    name = os.environ.get(variable, "")
    if not name:
        return []
    try:
        mode = Path(name).stat().st_mode
    except OSError as error:
        return [Finding(Level.ERROR, f"{variable}: {error}", "Mount the file, or correct the path")]
    words = f"{name} has the mode {mode & 0o777:04o}"
    return [Finding(Level.WARNING, words, f"chmod {wanted} {name}") if mode & others else Finding(Level.OK, words)]


def engine(url: str) -> tuple[list[Finding], list[Finding]]:
    """Returns the findings on an engine, and the guarantees that it never gives. An engine that cannot be opened is a finding."""
    try:
        with Engine.open(url) as opened:
            refusals = [Finding(Level.WARNING, one.guarantee, one.reason) for one in opened.refusals]
            return [Finding(Level.OK, "it opens, and answers"), *opened.check(), _clock(opened)], refusals
    except TenureError as error:
        return [Finding(Level.ERROR, error.fact, error.remedy)], []


def _clock(opened: Engine) -> Finding:
    """Compares this machine's clock with the engine's. Skew moves no deadline (they are in the engine's time), but makes logs hard to compare."""
    clock = SystemClock()
    before = clock.wall()
    theirs = opened.now()
    after = clock.wall()
    skew = theirs - (before + after) / 2
    words = f"this machine's clock is {abs(skew):.3f} s {'behind' if skew > 0 else 'ahead of'} the engine's"
    if abs(skew) < SKEW_S + (after - before):
        return Finding(Level.OK, words)
    return Finding(Level.WARNING, words, "Deadlines do not care; set the clock (NTP) so that logs can be compared")


def ladder(lease: float, stall: float, grace: float, timeout: float | None = None) -> list[Finding]:
    """Checks the timeouts from the shortest to the longest: each must act before the one that relies on it."""
    try:
        settings = SlotSettings(lease_s=lease, stall_s=stall, grace_s=grace, claim_s=min(10.0, lease / 2))
    except TenureError as error:
        return [Finding(Level.ERROR, error.fact, error.remedy)]
    stuck = max(STUCK_THRESHOLD_S, 2 * stall)
    rungs = [
        ("a lease is renewed every", settings.extend_every_s, ""),
        ("a dead worker is noticed after (lease)", lease, ""),
        ("a silent workflow is stopped after (stall)", stall, "give such a workflow its own @workflow(stall=...)"),
        (
            "a job without progress is given up after (stuck)",
            stuck,
            "raise --stuck of the managers, or lower the stall",
        ),
    ]
    if timeout is not None:
        rungs.append(("a job may take (timeout)", timeout, "give the job a longer timeout="))
    found = [Finding(Level.OK, f"{name}: {seconds:g} s") for name, seconds, _ in rungs]
    for place, ((low_name, low, _), (high_name, high, remedy)) in enumerate(pairwise(rungs)):
        if low >= high and place != 1:  # lease and stall are two knobs, in any order (decision 0160)
            words = f"{high_name}: {high:g} s, and that is not longer than: {low_name}: {low:g} s"
            found[place + 1] = Finding(Level.ERROR, words, remedy)
    return found


def nodes(client: Client) -> list[Finding]:
    """Returns findings on the managers and workers, from the leader's list of nodes."""
    try:
        view = client.ask(ListNodes())
    except TenureError as error:
        return [Finding(Level.ERROR, error.fact, error.remedy)]
    if not isinstance(view, NodeList):
        return [Finding(Level.ERROR, f"the managers answered with {type(view).__name__}", "Use one version everywhere")]
    found = [
        Finding(Level.ERROR, f"datacenter {one.datacenter} is out of reach: {one.reason}", "Look after its managers")
        for one in view.missing
    ]
    found += [
        Finding(Level.OK, f"gate {one.address} answers") if one.answers else _silent_gate(one) for one in view.gates
    ]
    names = [*(one.datacenter for one in view.managers), *(one.datacenter for one in view.workers)]
    for name in dict.fromkeys(names or [""]):
        found += _crew(view, name)
    managers = [(_full_name(one), one.heard_s_ago, one.skew_s) for one in view.managers]
    workers = [(_full_name(one), one.heard_s_ago, one.skew_s) for one in view.workers]
    for name, heard, skew in (*managers, *workers):
        words = f"{name}: heard {heard:.0f} s ago, its clock is off by {skew:+.3f} s"
        late = abs(skew) > SKEW_S
        found.append(Finding(Level.WARNING, words, "Set its clock (NTP)") if late else Finding(Level.OK, words))
    found += [
        Finding(Level.WARNING, f"{_full_name(one)}: {one.verdict}: {one.reason}", "See `tenure nodes`")
        for one in view.workers
        if one.verdict != "route"
    ]
    return found


def _crew(view: NodeList, datacenter: str) -> list[Finding]:
    """Checks the nodes of one datacenter. A manager answers with one datacenter that has no name."""
    found, where = [], f"{datacenter}: " if datacenter else ""
    if sum(one.datacenter == datacenter for one in view.managers) < 2:
        remedy = "Start a second `tenure manager` on the same engine"
        found.append(Finding(Level.WARNING, f"{where}one manager, no standby", remedy))
    if not any(one.datacenter == datacenter for one in view.workers):
        remedy = "Start one: tenure worker MODULE --engine URL --managed"
        found.append(Finding(Level.WARNING, f"{where}no worker reports", remedy))
    return found


def _silent_gate(gate: GateNode) -> Finding:
    return Finding(
        Level.WARNING, f"gate {gate.address} does not answer its peer: {gate.reason}", "Start it, or see why"
    )


def _full_name(node: ManagerNode | WorkerNode) -> str:
    return f"{node.datacenter}/{node.name}" if node.datacenter else node.name


_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}


@click.command("doctor")
@click.option("--engine", "url", default="", envvar="TENURE_ENGINE", help="The engine's URL; or set TENURE_ENGINE.")
@click.option("--address", default="", envvar="TENURE_ADDRESS", help="host:port of managers, to look at the nodes too.")
@click.option("--token", default="", envvar="TENURE_TOKEN", help="The datacenter's token; or TENURE_TOKEN.")
@click.option("--lease", default=60.0, show_default=True, help="As you give it to workers.")
@click.option(
    "--stall", default=300.0, show_default=True, help="As you give it to workers, or the longest of your workflows'."
)
@click.option("--grace", default=5.0, show_default=True, help="As you give it to workers.")
@click.option("--timeout", type=float, help="As you give it to jobs, if you do.")
@click.option("--deploy", is_flag=True, help="Check this container or service too: user, memory, secrets, watchdog.")
@click.option("--slots", default=os.cpu_count() or 2, help="With --deploy: as you give it to workers.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(
    url: str,
    address: str,
    token: str,
    lease: float,
    stall: float,
    grace: float,
    timeout: float | None,
    deploy: bool,
    slots: int,
    as_json: bool,
) -> None:
    """Check this machine, an engine, the clocks, the ladder of timeouts and the nodes; each finding says what to do.

    \b
    Examples:
      tenure doctor
      tenure doctor --engine sqlite:///tenure.db
      tenure doctor --deploy --slots 8                              # in the container, or by the unit's user
      tenure doctor --engine "$TENURE_ENGINE" --address 127.0.0.1:8470 --stall 600

    The exit code is 1 when an error was found, 0 otherwise; warnings do not change it.
    """
    parts: dict[str, list[Finding]] = {"this machine": machine()}
    refusals: list[Finding] = []
    if deploy:
        parts["this deployment"] = deployment(url, slots)
    if url:
        parts[redact(url)], refusals = engine(url)
    parts["the ladder of timeouts"] = ladder(lease, stall, grace, timeout)
    if address:
        with Client(address, token=token, patience_s=5.0) as client:
            parts["nodes"] = nodes(client)
    errors = sum(one.level is Level.ERROR for found in parts.values() for one in found)
    warnings = sum(one.level is Level.WARNING for found in parts.values() for one in found)
    if as_json:
        listed = {title: [one._asdict() for one in found] for title, found in parts.items()}
        print_json({"parts": listed, "not_promised": [one._asdict() for one in refusals], "errors": errors})
    else:
        _show(parts, refusals, f"{sum(map(len, parts.values()))} findings: {errors} errors, {warnings} warnings")
    raise SystemExit(1 if errors else 0)


def _show(parts: dict[str, list[Finding]], refusals: list[Finding], summary: str) -> None:
    screen = console()
    for title, found in parts.items():
        table = Table(title=title, title_justify="left", show_lines=False)
        for column in ("", "finding", "what to do"):
            table.add_column(column, overflow="fold")
        for level, what, remedy in found:
            table.add_row(Text(level.value, style=_STYLES[level]), Text(what), Text(remedy))
        show(table)
    for _, guarantee, reason in refusals:
        screen.print(Text(f"not promised: {guarantee}: {reason}"))
    screen.print(Text(summary))
