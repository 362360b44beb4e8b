"""States the bounds of everything that a caller outside can set, each once, as a type.

A bound is written as JSON Schema (`minLength`, `pattern`, `maximum` …), so the OpenAPI document states it and generated clients know it.
Decoding does not enforce it: journals and snapshots of earlier releases hold values that a later release would not accept, and none of
those may keep a node from starting. `bound_checks.check` enforces it, and every entry point calls that.

How to choose a type: a field that *makes* something (a queue, a schedule, a worker) has the type of that thing. A field that *refers* to
something which may have been made by an earlier release has `AnyName`, so that an operator can still reach it. Decision 0190 has the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import Meta

# Patterns are anchored and use only what means the same in ECMA 262 and in Python: no \w, no \d, no dot.
TEXT = r"^[^\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]*$"
"""Allows neither control characters, which act on terminals and logs, nor the marks that reverse the order of shown text."""
NO_SLASH = r"^[^\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069/]*$"
NO_AT = r"^[^\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069@]*$"
NAME = r"^[A-Za-z0-9_][A-Za-z0-9._-]*$"
"""Allows characters that are safe in the name of a mailbox, a key, a URL, a file's name and on a command line without quotes."""
DATACENTER = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
DATACENTER_OR_NONE = r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$"
MAILBOX = r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"
"""Equals the pattern of `engines.checks.check_name`."""
MAILBOX_OR_NONE = r"^([A-Za-z0-9][A-Za-z0-9._/-]*)?$"
_LABEL = "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_IPV6 = r"[0-9A-Fa-f]{0,4}(:[0-9A-Fa-f]{0,4}){2,7}(:[0-9]{1,3}(\.[0-9]{1,3}){3})?(%[A-Za-z0-9_-]{1,32})?"
_NAMED = rf"{_LABEL}(\.{_LABEL})*\.?"
HOST = rf"^(https?://)?({_NAMED}|\[{_IPV6}\]|{_IPV6})$"
"""A name in ASCII, or an address. Connecting encodes the name (IDNA), and that raises for anything else."""
HOST_OR_NONE = rf"^((https?://)?({_NAMED}|\[{_IPV6}\]|{_IPV6}))?$"
WORKER_BOUND = r"^([A-Za-z0-9][A-Za-z0-9._-]*\*?)?$"
QUEUE_BOUND = r"^[A-Za-z0-9][A-Za-z0-9._/-]*\*?$"
SHA256 = r"^[0-9a-f]*$"
EVENT_CURSOR = r"^[0-9]{1,18}(\.[0-9]{1,9})?$"
PAGE = r"^([0-9]{1,12}(\.[0-9]{1,9})?(e[+-]?[0-9]{1,2})?:[^\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]*)?$"
KEY_EXPRESSION = r"^((args(\.[A-Za-z0-9_-]+)+|labels\.[A-Za-z0-9._/-]+))?$"
CRON = r"^[A-Za-z0-9*,/ @-]*$"
ZONE = r"^[A-Za-z0-9_+/-]+$"
OPERATION = r"^[a-z_]+$"
ANYTHING = ""

WORDS = {
    TEXT: "characters, none of them a control character or a mark that reverses text",
    NO_SLASH: "characters, none of them a slash, a control character or a mark that reverses text",
    NO_AT: "characters, none of them an @, a control character or a mark that reverses text",
    NAME: "letters, digits, '.', '_' or '-', starting with a letter, a digit or '_'",
    DATACENTER: "letters, digits, '.', '_' or '-', starting with a letter or digit",
    DATACENTER_OR_NONE: "letters, digits, '.', '_' or '-', starting with a letter or digit",
    MAILBOX: "letters, digits, '.', '_', '-' or '/', starting with a letter or digit",
    MAILBOX_OR_NONE: "letters, digits, '.', '_', '-' or '/', starting with a letter or digit",
    HOST: "characters: the name of a host in ASCII (punycode), or an IP address",
    HOST_OR_NONE: "characters: the name of a host in ASCII (punycode), or an IP address",
    WORKER_BOUND: "characters: a worker's name, or the beginning of names and *",
    QUEUE_BOUND: "characters: a queue's name, or the beginning of names and *",
    SHA256: "lowercase hexadecimal digits",
    EVENT_CURSOR: "characters: the id of an event, 0 for the oldest, or nothing at all",
    PAGE: "characters: the `next` of the last page",
    KEY_EXPRESSION: "characters: where the key stands, as args.tenant or labels.customer",
    CRON: "characters: a cron expression, as 0 6 * * *",
    ZONE: "characters: a time zone, as Europe/Berlin",
    OPERATION: "characters: the name of an operation",
    ANYTHING: "characters",
}
"""Each pattern in words, for errors."""

MAILBOX_CHARS = 128
PRIORITY_MOST = 2**31 - 1
QUEUE_CHARS = MAILBOX_CHARS - len(f".p-{PRIORITY_MOST}")
"""The most characters of a queue's name: with any priority it must fit the name of a mailbox, `queue.pN`."""
YEAR_S = 31_536_000.0
LEAST_S = 0.001
MOST_UNIX_S = 253_402_300_799.0
"""The last second of the year 9999."""
MOST_COUNT = 2**53 - 1
"""The largest number that every reader of JSON holds exactly."""
LEAST_RATE = 1e-9
"""One attempt in thirty years. Its inverse is a time that a float still holds to the microsecond."""
MOST_RATE = 1e6


def as_name(text: str) -> str:
    """Returns a name made from any text: a character that no name may hold becomes `_`, and a long text is cut off."""
    return re.sub(r"^[^A-Za-z0-9_]|[^A-Za-z0-9._-]", "_", text[:100]) or "_"


def _text(least: int, most: int, pattern: str = TEXT, about: str | None = None) -> Meta:
    bounds: dict[str, Any] = {"minLength": least, "maxLength": most}
    return Meta(extra_json_schema=bounds | ({"pattern": pattern} if pattern else {}), description=about)


def _number(least: float, most: float, about: str | None = None) -> Meta:
    return Meta(extra_json_schema={"minimum": least, "maximum": most}, description=about)


def items(least: int, most: int) -> Meta:
    """Bounds the number of items of a list."""
    return Meta(extra_json_schema={"minItems": least, "maxItems": most})


def one_of(words: Iterable[str]) -> Meta:
    """Bounds a text to a closed list of words, for a field that is text because a document has it so."""
    return Meta(extra_json_schema={"enum": [str(word) for word in words]})


def each_alone(least: int, most: int) -> Meta:
    """Bounds the number of items, and leaves each item to the receiver to check: one that is out of bounds does not stop the others."""
    return Meta(extra_json_schema={"minItems": least, "maxItems": most}, extra={ALONE: True})


ALONE = "alone"
CHECKED_WHERE_DECIDED = Meta(extra={ALONE: True})
"""Leaves a submission to `jobs.submission.validate`, which every submission passes, whoever sends it: the door would check it a second time."""

# Names of things that a field makes.

QueueName = Annotated[str, _text(1, QUEUE_CHARS, MAILBOX, "The name of a queue; with a priority it names a mailbox")]
QueueOrNone = Annotated[str, _text(0, QUEUE_CHARS, MAILBOX_OR_NONE, "A queue; empty: the function's own, or default")]
WorkflowName = Annotated[str, _text(1, 100, NAME, "The name of a workflow within its job")]
ScheduleName = Annotated[str, _text(1, 100, NAME, "The name of a schedule")]
WorkerName = Annotated[str, _text(1, 100, NAME, "The name of a worker")]
DatacenterName = Annotated[str, _text(1, 100, DATACENTER, "The name of a datacenter")]
NodeName = Annotated[str, _text(1, 200, NO_AT, "The name of a manager or a gate")]
FunctionName = Annotated[str, _text(1, 200, TEXT, "The name under which a function is registered")]
CalledFunction = Annotated[
    str, _text(0, 200, TEXT, "The registered function; empty: the one with the workflow's own name")
]
VersionName = Annotated[str, _text(0, 100, TEXT, "A version; empty: any")]

# Names of things that an earlier release may have made.

AnyName = Annotated[str, _text(1, 200, TEXT, "The name of something that exists")]
AnyNameOrNone = Annotated[str, _text(0, 200, TEXT, "The name of something that exists, or nothing")]
AnyPath = Annotated[str, _text(0, 401, TEXT, "The name of a workflow; at a gate it may be DATACENTER/WORKFLOW")]
DatacenterOrNone = Annotated[str, _text(0, 100, DATACENTER_OR_NONE, "The name of a datacenter, or nothing")]
MailboxName = Annotated[str, _text(1, MAILBOX_CHARS, MAILBOX, "The name of a mailbox")]
MailboxOrNone = Annotated[str, _text(0, MAILBOX_CHARS, MAILBOX_OR_NONE, "The name of a mailbox, or nothing")]

# Ids and words.

JobId = Annotated[str, _text(1, 200, TEXT, "The id of a job")]
JobIdOrNone = Annotated[str, _text(0, 200, TEXT, "The id of a job, or nothing")]
IncarnationId = Annotated[str, _text(0, 200, TEXT, "Names one start of a worker")]
MessageId = Annotated[str, _text(1, 512, TEXT, "The id of a message")]
MessageIdOrNone = Annotated[str, _text(0, 512, TEXT, "The id of a message, or nothing")]
StoreKey = Annotated[str, _text(0, 512, TEXT, "The key of a value in the engine's store, or nothing")]
IdempotencyKey = Annotated[str, _text(0, 200, TEXT, "One key, one job")]
DisplayName = Annotated[str, _text(0, 200, TEXT, "What lists show")]
Person = Annotated[str, _text(0, 250, TEXT, "Who asks, in words for people")]
Reason = Annotated[str, _text(0, 2_000, TEXT, "Why, in words for people")]
GivenReason = Annotated[str, _text(1, 2_000, TEXT, "Why, in words for people; it must be given")]
LabelKey = Annotated[str, _text(1, 200, TEXT, "The key of a label")]
LabelValue = Annotated[str, _text(0, 2_000, TEXT, "The value of a label")]
Labels = Annotated[dict[LabelKey, LabelValue], Meta(extra_json_schema={"maxProperties": 1_000})]
LabelFilter = Annotated[str, _text(0, 2_201, TEXT, "KEY or KEY=VALUE")]
EventKind = Annotated[str, _text(1, 100, NAME, "The type of an event")]
EventCursor = Annotated[str, _text(1, 28, EVENT_CURSOR, "How far somebody has read")]
PageCursor = Annotated[str, _text(0, 240, PAGE, "The `next` of the last page")]
KeyExpression = Annotated[str, _text(0, 200, KEY_EXPRESSION, "args.NAME or labels.NAME; empty: none")]
KeyValue = Annotated[str, _text(0, 200, TEXT, "The value of a key, such as a tenant")]
CronText = Annotated[str, _text(0, 200, CRON, "A cron expression")]
ZoneName = Annotated[str, _text(1, 64, ZONE, "A time zone")]
TokenOrNone = Annotated[str, _text(0, 4_096, TEXT, "A token, or nothing")]
TokenName = Annotated[str, _text(1, 64, DATACENTER, "The name of a token")]
Sha256 = Annotated[str, _text(64, 64, SHA256, "The SHA-256 of a token")]
TokenId = Annotated[str, _text(1, 280, TEXT, "The id of a token or a certificate")]
WorkerBound = Annotated[str, _text(0, 101, WORKER_BOUND, "A worker, or the beginning of names and *")]
QueueBound = Annotated[str, _text(1, QUEUE_CHARS + 1, QUEUE_BOUND, "A queue, or the beginning of names and *")]
OperationName = Annotated[str, _text(1, 64, OPERATION, "The name of an operation")]

# Texts that nodes send about each other and about work. Programs write them, so they may hold any character.

Told = Annotated[str, _text(0, 16_384, ANYTHING, "What a node tells in words")]
EXPOSED_BYTES = 2_048
Exposed = Annotated[str, _text(0, EXPOSED_BYTES, ANYTHING, "The values that an attempt shows, as JSON")]
Note = Annotated[str, _text(0, 1_000, ANYTHING, "What an attempt says of itself")]
ShortWord = Annotated[str, _text(0, 64, TEXT, "One of few words")]

# Places.

Host = Annotated[
    str, _text(1, 261, HOST, "A host: a name in ASCII or an IP address, http:// or https:// may stand before it")
]
HostOrNone = Annotated[str, _text(0, 261, HOST_OR_NONE, "A host, or nothing where it is not known")]
Port = Annotated[int, _number(1, 65_535, "A port")]
PortOrNone = Annotated[int, _number(0, 65_535, "A port, or 0 where it is not known")]
Address = tuple[Host, Port]

# Times.

Seconds = Annotated[float, _number(0, YEAR_S, "Seconds, at most a year")]
PositiveSeconds = Annotated[float, _number(LEAST_S, YEAR_S, "Seconds: a millisecond to a year")]
WaitSeconds = Annotated[float, _number(0, 30, "How long an answer may be held back, in seconds")]
EverySeconds = Annotated[float, _number(0, YEAR_S, "Seconds between two runs, 1 or more; 0: not by seconds")]
ElapsedSeconds = Annotated[float, _number(0, MOST_UNIX_S, "Seconds that have passed")]
UnixTime = Annotated[float, _number(0, MOST_UNIX_S, "Unix time in seconds")]

# Numbers.

Count = Annotated[int, _number(0, MOST_COUNT, "How many")]
PositiveCount = Annotated[int, _number(1, MOST_COUNT, "How many, one or more")]
StepCount = Annotated[int, _number(0, MOST_COUNT, "Steps of progress: it only grows")]
Epoch = Annotated[int, _number(0, MOST_COUNT, "The number of a term")]
FenceToken = Annotated[int, _number(0, MOST_COUNT, "Fences those who were replaced")]
Attempt = Annotated[int, _number(0, 1_000_000, "The number of an attempt; 0: the newest")]
Attempts = Annotated[int, _number(1, 100, "How often something is tried")]
Restarts = Annotated[int, _number(0, 10_000, "How often something is begun again")]
Priority = Annotated[int, _number(-PRIORITY_MOST, PRIORITY_MOST, "Higher goes first")]
Fraction = Annotated[float, _number(0, 1, "From 0 to 1")]
Factor = Annotated[float, _number(1, 100, "From 1 to 100")]
Rate = Annotated[float, _number(LEAST_RATE, MOST_RATE, "So many a second")]
Burst = Annotated[int, _number(1, 1_000_000, "So many at once")]
Weight = Annotated[int, _number(1, 1_000, "So many turns where others have one")]
Weights = Annotated[dict[KeyValue, Weight], Meta(extra_json_schema={"maxProperties": 1_000})]
MaxRunning = Annotated[int, _number(1, 1_000_000_000, "At most so many at once")]
DatacenterCount = Annotated[int, _number(1, 1_000, "In how many datacenters")]
Listed = Annotated[int, _number(1, 1_000, "How many lines of a list")]
ListedLetters = Annotated[int, _number(1, 500, "How many dead letters of each mailbox")]
LogBytes = Annotated[int, _number(1, 262_144, "How many bytes of a log")]
