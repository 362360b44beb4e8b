"""Every parser of bytes that others can send: damaged input is read or refused with the errors that its callers expect, and memory stays flat.

`make test` damages 200,000 inputs, `make soak` ten million. `FILES` names each file of the source that decodes something, and who fuzzes it: a new one fails
here until it has a line.
"""

from __future__ import annotations

import gc
import re
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import psutil
import pytest
from examples.encrypted import codec

import tenure
from tenure.agent import ModelSaid, Session, ToolCall
from tenure.agent.events import StateSet
from tenure.agent.session import decode_session
from tenure.codec import opened_bytes, opened_value, sealed_bytes, sealed_value
from tenure.control.caller import parse_address, read_answer
from tenure.control.messages.events import parse_cursor
from tenure.control.messages.jobs import Done
from tenure.control.messages.operations import OPERATIONS
from tenure.control.messages.tokens import CallerBounds, CreateToken, Role, Token
from tenure.control.messages.wire import Problem, ProblemKind, Redirect
from tenure.control.request_decoding import read_body, read_query
from tenure.control.streams import format_for
from tenure.control.tokens import TokenBook, TokenFile
from tenure.engines.checked_mailbox import UNDECODABLE, decode_failure
from tenure.engines.checks import BodyCodec
from tenure.engines.contracts import Failure, FailureCause
from tenure.engines.ended_keys import EndedKeys, Shelf
from tenure.engines.nats import commands as nats_commands
from tenure.engines.redis import handover
from tenure.engines.redis import journal_election_store as redis_journal
from tenure.engines.sqlite import engine as sqlite_engine
from tenure.errors import CodecError, ConfigurationError, PiggybackError, SessionError, TenureError
from tenure.health.node_states import HealthPiggyback
from tenure.jobs import JobBook
from tenure.jobs.cron import Cron
from tenure.jobs.decisions import Outcome
from tenure.jobs.formats import FormatRaised
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.job_kinds import KindTable
from tenure.jobs.page_heads import head_of, read_head
from tenure.jobs.paged_book import PagedRestore, cut_pages
from tenure.jobs.stored_pages import read_page, unpacked
from tenure.jobs.topics import EVENT_DECODER, GATE_EVENT_DECODER, decode_any_event
from tenure.nodes.job_listing import parse_place
from tenure.nodes.journal_checksum import found_events, kind_of, parse_id
from tenure.nodes.journal_repair import named
from tenure.nodes.manager.log_pages import log_page
from tenure.nodes.token_keeper import CreatedToken
from tenure.served_workflow import ServedWorkflow
from tenure.work.delivery import WorkHead, WorkItem, WorkResult
from tenure.work.result_signatures import ClaimedAttempt, ResultKeys, ResultSigner, parse_result_keys, why_unsigned
from tenure.work.slots import frames
from tests.fuzz.grammar import SEED, Grammar
from tests.gossip.damage import mutate
from tests.jobs.desk import Desk, GateDesk
from tests.soak import SOAK, sized

MOST_PAGE_BYTES = 1_000_000
INPUTS = sized("damaged inputs of parsers", short=200_000, long=10_000_000)
FLAT_BYTES = 24 << 20
"""What the process may grow by while one parser reads its share: allocators keep some, a leak of 100 bytes an input would show in the long run."""
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What those catch who read what a node or a worker wrote."""


class Parser(NamedTuple):
    """A parser, inputs that it reads, and the errors by which its callers know what it cannot read."""

    parse: Callable[[bytes], Any]
    examples: list[bytes]
    refuses: tuple[type[Exception], ...]


def _text(parse: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda data: parse(data.decode("utf-8", "surrogateescape"))


def _operations() -> dict[str, Parser]:
    grammar = Grammar(Random(SEED))
    token = Token(name="ci", role=Role.CLIENT, sha256="a" * 64)
    bodies = {one.name: [grammar.body(one) for _ in range(30)] for one in OPERATIONS}
    bodies["create_token"].append(msgspec.json.encode(CreateToken(token=token)))  # the grammar knows no dates
    return {
        f"request {one.name}": Parser(
            lambda data, one=one: read_body(one, data),  # type: ignore[misc]
            [body for body in bodies[one.name] if len(body) < 3_000] or [b"{}"],
            (ConfigurationError,),
        )
        for one in OPERATIONS
    }


def _query(data: bytes) -> Any:
    pairs = [part.partition("=") for part in data.decode("latin-1").split("&")]
    operation = next(one for one in OPERATIONS if one.name == "jobs")
    return read_query(operation, [(key, value) for key, _, value in pairs])


def _journal() -> tuple[list[bytes], bytes]:
    desk = Desk()
    for number in range(3):
        desk.submit(f"j-{number}", labels={"a": "b"})
        desk.run(f"j-{number}")
    desk.result("j-0", result={"a": [1, 2]})
    desk.fail("j-1", error="no")
    return desk.journal, desk.book.snapshot()


def _shelf() -> bytes:
    keys = EndedKeys()
    for number in range(40):
        keys.put(f"job-{number}/w", number, float(number), float(number))
    return keys.keep()[0][0]


def _head() -> bytes:
    desk = Desk()
    for number in range(3):
        desk.submit(f"j-{number}", labels={"a": "b"}, idempotency_key=f"key {number}")
    return head_of(desk.book.jobs.values(), KindTable())


SLOT_FRAMES: list[list[frames.SlotFrame]] = [
    [frames.WorkFinished(7, 0.5, True, b'{"a":1}'), frames.WorkDeclined(8)],
    [frames.SlotRequest(1, 7, "keep", b"x"), frames.SlotTrouble("no")],
    [frames.SlotReady([ServedWorkflow(name="w", version="1")])],
]


def _sent(*some: frames.SlotFrame) -> bytes:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.FrameChannel(ours).send(*some)
        return theirs.recv(1 << 16)


def _heard(data: bytes) -> Any:
    """Reads bytes as a supervisor reads what a slot sent. Nothing is refused: bytes that are no frame are said, and skipped."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.close()
        ours.setblocking(False)
        return frames.FrameChannel(ours).read(to_the_end=True)


def _page_of_jobs(stored: bytes) -> Any:
    return read_page("jobs", unpacked("jobs", stored, MOST_PAGE_BYTES).encoded)


def _tokens(data: bytes, decode: Callable[..., Any]) -> Any:
    found = decode(data, type=TokenFile)
    return TokenBook(found.tokens, found.certificates)


def _session() -> bytes:
    session = Session("s")
    session.append(ModelSaid("I read", (ToolCall("c", "read", '{"a":1}'),)))
    session.append(StateSet("k", {"n": [1, None]}))
    return session.encode()


def parsers() -> dict[str, Parser]:
    events, snapshot = _journal()
    book = JobBook.restore(snapshot)
    book.apply(FormatRaised(at=1.0, format=2))
    paged = cut_pages(book, 9, 1)
    pages = [blob[4:] for blob in paged.blobs.values()]
    plain_pages = [unpacked("jobs", page, MOST_PAGE_BYTES).encoded for page in pages]
    token = Token(name="ci", role=Role.CLIENT, sha256="a" * 64, queues=("a", "b/*"), labels={"t": "x"}, max_jobs=3)
    file = msgspec.json.encode(TokenFile(tokens=(token,)))
    item = WorkItem(workflow="w", args={"a": 1}, job_id="j", workflow_id="w", attempt=1)
    result = WorkResult(job_id="j", workflow_id="w", workflow="w", attempt=1, fence=(1, 1), worker="w")
    result_keys = parse_result_keys("k" * 32)
    signed = ResultSigner(result_keys, "w").sign(msgspec.json.encode(result), ClaimedAttempt.told_by(result))
    failure = Failure(message_id="1", mailbox="m", cause=FailureCause.REJECTED, reason="r")
    replies = [
        Done(job_id="j", outcome=Outcome.ACCEPTED, epoch=1),
        Problem(kind=ProblemKind.DENIED, fact="f"),
        Redirect(address="a:1", epoch=2),
    ]
    sealed = [msgspec.json.encode(sealed_value(codec, {"a": 1}, "result j/w"))]
    log = b'{"at":1.0,"level":"info","text":"a"}\n{"at":2.0,"level":"info","text":"b"}\n'
    codec_bytes = sealed_bytes(codec, b"saved", "c")
    assert codec_bytes is not None
    return {
        **_operations(),
        "query": Parser(_query, [b"state=running&limit=10&label=a=b&after=1.0:j"], (ConfigurationError,)),
        "reply": Parser(
            lambda data: read_answer(200, "1", data),
            [msgspec.json.encode(one) for one in replies],
            (msgspec.DecodeError,),
        ),
        "event": Parser(EVENT_DECODER.decode, events, UNREADABLE),
        "gate event": Parser(GATE_EVENT_DECODER.decode, GateDesk().journal, UNREADABLE),
        "any event": Parser(decode_any_event, events, UNREADABLE),
        "snapshot": Parser(JobBook.restore, [snapshot], (TenureError,)),
        "root of pages": Parser(PagedRestore, [paged.root], (TenureError,)),
        "shelf of ended keys": Parser(Shelf.decoded, [_shelf()], (ValueError,)),
        "head of a page": Parser(read_head, [_head()], ()),
        "page of jobs": Parser(_page_of_jobs, [*pages, *plain_pages], (TenureError,)),
        "gate snapshot": Parser(GateJobTracker.restore, [GateJobTracker().snapshot()], (TenureError,)),
        "work item": Parser(BodyCodec(WorkItem).decode, [msgspec.json.encode(item)], UNDECODABLE),
        "signed result": Parser(lambda data: opened_result(result_keys, data), [signed], UNREADABLE),
        "keys for results": Parser(
            lambda data: parse_result_keys(data.decode(errors="replace")),
            [b"# keys\n" + b"k" * 32 + b"\nw-1 " + b"l" * 64 + b"\n"],
            (ConfigurationError,),
        ),
        "work result": Parser(BodyCodec(WorkResult).decode, [msgspec.json.encode(result)], UNDECODABLE),
        "failure": Parser(decode_failure, [msgspec.json.encode(failure)], UNDECODABLE),
        "nats command": Parser(
            nats_commands.decode,
            [msgspec.msgpack.encode(nats_commands.Send("p.1", "m", [nats_commands.Item(b"x")]))],
            UNREADABLE,
        ),
        "redis journal": Parser(
            redis_journal.unpack_entry, [msgspec.msgpack.encode(("id", (events[0], events[1])))], UNREADABLE
        ),
        "redis hand-over": Parser(handover.read_handed, [b'["t","m","1","9.5","3","0",false,"k",false,7]'], UNREADABLE),
        "sqlite journal": Parser(sqlite_engine.unpack_events, [msgspec.msgpack.encode(tuple(events))], UNREADABLE),
        "piggyback": Parser(
            HealthPiggyback.decode,
            [HealthPiggyback("w-1", "worker", True, 4, 7, 9, "healthy").encode()],
            (PiggybackError,),
        ),
        "slot channel": Parser(_heard, [_sent(*some) for some in SLOT_FRAMES], ()),
        "work head": Parser(
            msgspec.json.Decoder(WorkHead).decode, [b'{"workflow":"w","args":{"a":[1]},"excluded":["x"]}'], UNREADABLE
        ),
        "token file": Parser(
            lambda data: _tokens(data, msgspec.json.decode), [file], (*UNREADABLE, ConfigurationError)
        ),
        "token file in toml": Parser(
            lambda data: _tokens(data, msgspec.toml.decode),
            [b'[[tokens]]\nname = "ci"\nrole = "client"\nsha256 = "' + b"a" * 64 + b'"\nlabels = { a = "b" }\n'],
            (*UNREADABLE, ConfigurationError),
        ),
        "created token": Parser(
            lambda data: msgspec.json.decode(data, type=CreatedToken),
            [msgspec.json.encode(CreatedToken(token=token))],
            UNREADABLE,
        ),
        "bounds": Parser(
            lambda data: msgspec.json.decode(data, type=CallerBounds).covers("q", {}),
            [msgspec.json.encode(token.bounds)],
            UNREADABLE,
        ),
        "encoded value": Parser(
            lambda data: opened_value(codec, msgspec.json.decode(data), "result j/w"), sealed, (*UNREADABLE, CodecError)
        ),
        "encoded checkpoint": Parser(lambda data: opened_bytes(codec, data, "c"), [codec_bytes], (CodecError,)),
        "session": Parser(lambda data: decode_session(data.splitlines()), [_session()], (SessionError,)),
        "log page": Parser(lambda data: log_page(data, 0, 100), [log], ()),
        "damaged journal": Parser(found_events, [events[0] + events[1]], ()),
        "kind of an event": Parser(kind_of, events, ()),
        "name of an event": Parser(named, events, ()),
        "append id": Parser(_text(parse_id), [b"0192:1:2:abcdef01"], ()),
        "cron": Parser(_text(Cron.parse), [b"*/5 0-6,8 * jan mon", b"0 3 * * 1-5"], (ConfigurationError,)),
        "cursor": Parser(_text(parse_cursor), [b"12.3", b"7"], (ConfigurationError,)),
        "page": Parser(_text(parse_place), [b"1.5:job"], (ConfigurationError,)),
        "address": Parser(_text(parse_address), [b"127.0.0.1:80", b"[::1]:80", b"https://a:1"], (ConfigurationError,)),
        "accept": Parser(_text(format_for), [b"text/event-stream;q=1, */*"], ()),
    }


def opened_result(keys: ResultKeys, data: bytes) -> str:
    """Opens a result as a leader with keys does. No damage may leave it believed with other contents."""
    read = msgspec.json.decode(data, type=WorkResult)
    why = why_unsigned(keys, data, read)
    assert why or (read.job_id, read.attempt, read.worker) == ("j", 1, "w")
    return why


PARSERS = parsers()
EACH = INPUTS // len(PARSERS) + 1


def hurt(random: Random, data: bytes) -> bytes:
    """Small damages, and now and then what breaks readers of numbers and of nested values."""
    match random.randrange(8):
        case 0:
            return re.sub(rb"\d+", lambda found: random.choice(_NUMBERS), data, count=random.randint(1, 3))
        case 1:
            return random.choice((b"[", b'{"a":')) * random.choice((10, 200, 3_000)) + data
        case _:
            return mutate(random, data)


_NUMBERS = (b"-1", b"1e308", b"1e999", b"NaN", b"18446744073709551616", b"0.1e-400", b"null", b'"x"', b"9" * 400)


@pytest.mark.timeout(900 if not SOAK else 14_400)
@pytest.mark.parametrize("name", PARSERS)
def test_damaged_input_is_read_or_refused_and_memory_stays_flat(name: str) -> None:
    parser, random, seen = PARSERS[name], Random(f"{SEED} {name}"), Counter[str]()
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    for _ in range(EACH):
        data = hurt(random, random.choice(parser.examples))
        try:
            parser.parse(data)
            seen["read"] += 1
        except parser.refuses:
            seen["refused"] += 1
        except Exception as error:
            pytest.fail(f"seed {SEED}: {name} raises {type(error).__name__}: {error} on {data[:500]!r}")
    gc.collect()
    grown = process.memory_info().rss - before
    assert seen.total() == EACH
    assert grown < FLAT_BYTES, f"{grown:,} bytes more after {EACH:,} inputs"


def test_the_counts_are_what_the_run_promises() -> None:
    assert len(PARSERS) * EACH >= INPUTS >= 200_000


OTHERS = "the client of a server that we chose and authenticate; what it says is checked by tests/contract"
MODEL = "what a model or its provider says; tests/agent has chosen damages of it, and no fuzzer"
FILES = {
    "agent/evals.py": MODEL,
    "agent/progress.py": MODEL,
    "agent/prompt.py": MODEL,
    "agent/provider_formats.py": MODEL,
    "agent/session.py": "session",
    "agent/tools.py": MODEL,
    "beat/board.py": "shared memory of this user; tests/beat damages it",
    "beat/record.py": "shared memory of this user; tests/beat damages it",
    "cli/write_jobs.py": "the command line of this user",
    "client/job_messages.py": "any event",
    "codec.py": "encoded value",
    "control/event_feed.py": "event",
    "control/messages/operations.py": "request submit",
    "control/request_decoding.py": "query",
    "engines/checked_mailbox.py": "failure",
    "engines/checks.py": "work item",
    "engines/ended_keys.py": "shelf of ended keys",
    "engines/nats/command_log.py": OTHERS,
    "engines/nats/commands.py": "nats command",
    "engines/nats/connection.py": OTHERS,
    "engines/nats/entry_parts.py": OTHERS,
    "engines/nats/journal_records.py": OTHERS,
    "engines/nats/ledger.py": OTHERS,
    "engines/nats/pending_commands.py": OTHERS,
    "engines/nats/streams.py": OTHERS,
    "engines/nats/write_errors.py": OTHERS,
    "engines/redis/handover.py": "redis hand-over",
    "engines/redis/journal_election_store.py": "redis journal",
    "engines/sqlite/engine.py": "sqlite journal",
    "gossip/encodings.py": "tests/gossip/test_fuzz.py",
    "health/node_states.py": "piggyback",
    "jobs/why_answer.py": "evidence that a worker wrote; a text that cannot be read shows nothing",
    "jobs/book.py": "snapshot",
    "jobs/event_text.py": "any event",
    "jobs/gate_tracker.py": "gate snapshot",
    "jobs/job_records.py": "page of jobs; and what this process itself has packed",
    "jobs/paged_book.py": "root of pages",
    "jobs/page_heads.py": "head of a page",
    "jobs/state_pages.py": "root of pages",
    "jobs/stored_pages.py": "page of jobs",
    "jobs/arguments.py": "an event that was read before, to mask secrets in it",
    "jobs/topics.py": "event",
    "nodes/engine_time.py": "how far an engine's clock was set, as nodes wrote it into the store",
    "nodes/gate/job_handlers.py": "a copy of what was in memory",
    "nodes/gossip_pool.py": "what managers wrote into the engine about themselves; a bad entry is passed over",
    "nodes/stored_values.py": "read_record wraps its errors; what cannot be read of an idempotency key names no job",
    "nodes/journal_checksum.py": "kind of an event",
    "nodes/journal_repair.py": "name of an event",
    "nodes/manager/job_handlers.py": "an item that a worker emitted as JSON, under its receipt",
    "nodes/manager/ended_work.py": "steps that a worker kept of an ended job, in the store",
    "nodes/manager/log_pages.py": "log page",
    "nodes/manager/result_commands.py": "work result",
    "nodes/manager/signed_results.py": "signed result",
    "nodes/manager/operator_handlers.py": "what managers wrote into the engine about themselves, and dead letters, shown as text where they are no JSON",
    "nodes/journal_reading.py": "event",
    "nodes/token_keeper.py": "created token",
    "testing/model_server.py": "a server for tests",
    "work/base_context.py": "a checkpoint of the user's own",
    "work/step_calls.py": "a step's result, as the function's types say; refused as BAD_RESULT",
    "cli/steer_jobs.py": "the payload of a signal, from the person's own command line; refused as a bad parameter",
    "work/wait_calls.py": "the outcome of a wait, as an attempt of the same work recorded it",
    "attempt_data.py": "values that an attempt shows; a text that is no object shows nothing",
    "work/output_stream.py": "chunks that attempts of the same work wrote; read_chunk wraps its errors",
    "work/compensations.py": "what attempts of the same work kept under their receipts; the job that takes it back fails on what it cannot read",
    "work/kept_steps.py": "what a worker kept of the same work",
    "work/step_log.py": "records that attempts of the same work appended under their receipts",
    "work/attempt.py": "large arguments that a leader stored as JSON; what it raises fails the attempt as bad arguments",
    "work/delivery.py": "work result",
    "work/line_channel.py": "lines between a program and its host, both ours; one that cannot be read is said",
    "work/slots/claim_page.py": "what a worker of this user wrote; an entry with a wrong checksum is passed over",
    "work/slots/delivery_calls.py": "work result",
    "work/slots/delivery_desk.py": "work head",
    "work/slots/slot_deliveries.py": "work head, which the supervisor has read before",
    "work/slots/frames.py": "slot channel",
    "work/slots/fork_messages.py": "fork server's answers; what is none is passed over (tests/work/slots/test_fork_messages.py)",
    "work/slots/fork_server.py": "the first message of its own supervisor",
    "work/finished_results.py": "a result that a worker wrote as JSON, through its own supervisor",
    "work/slots/slot_channel.py": "work item; what else its own supervisor sent",
    "work/slots/slot_main.py": "work head, which the supervisor has read before",
    "work/registry.py": "arguments, as the function's types say; refused as BAD_ARGUMENTS",
    "work/signatures.py": "nothing: it only tries whether the types of a function can be decoded",
}
_DECODES = re.compile(
    r"Decoder\(|(json|msgpack|toml)\.decode\(|json\.loads\(|\.unpack(_from)?\(|fromisoformat\(|decode_any_event\("
)


def test_every_file_that_decodes_something_says_who_fuzzes_it() -> None:
    source = Path(tenure.__file__).parent
    decoding = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if "sim/" not in str(path) and _DECODES.search(path.read_text())
    }
    missing, gone = decoding - set(FILES), set(FILES) - decoding
    assert not missing, f"decodes, and has no line: {sorted(missing)}"
    assert not gone, f"has a line, and decodes nothing: {sorted(gone)}"


def test_inputs_of_tests_reach_what_is_behind_the_parsers() -> None:
    """A fuzzer whose examples are refused from the start tests little."""
    unread = []
    for name, parser in PARSERS.items():
        try:
            for one in parser.examples[:12]:
                parser.parse(one)
        except parser.refuses:
            if not any(_reads(parser, one) for one in parser.examples):
                unread.append(name)
    assert not unread, unread


def _reads(parser: Parser, data: bytes) -> bool:
    try:
        parser.parse(data)
        return True
    except parser.refuses:
        return False
