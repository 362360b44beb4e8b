"""Tokens: who they let in, what they may do, and whose name stands under what was asked."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.control.claims import passed_on, showing, sign, why_not_a_gates, why_not_forwarded
from tenure.control.messages.gates import Forward
from tenure.control.messages.jobs import Cancel, Submit, SubmitMany
from tenure.control.messages.operations import OPERATIONS, Operation, Role
from tenure.control.messages.queues import SetSchedule
from tenure.control.messages.tokens import CallerBounds, Certificate, Token
from tenure.control.messages.wire import AskLeader
from tenure.control.port_security import Front
from tenure.control.tls import ServerTls
from tenure.control.tokens import ANYBODY, EVERYTHING, CallerIdentity, TokenBook, TokenFile, identity_of, read_tokens
from tenure.errors import ConfigurationError
from tenure.jobs import JobSubmission
from tenure.jobs.model import WorkflowSpec
from tenure.jobs.state_records import Schedule


def token(text: str, role: Role = Role.CLIENT, name: str = "") -> Token:
    return Token(name=name or text, role=role, sha256=hashlib.sha256(text.encode()).hexdigest())


def test_a_token_is_known_by_its_name_and_everything_else_is_nobodys() -> None:
    book = TokenBook([token("one"), token("two", Role.OPERATOR)])
    one, two = book.identify("one"), book.identify("two")
    assert one == CallerIdentity("one", frozenset({Role.CLIENT}), id=token("one").sha256[:16])
    assert two is not None
    assert (two.name, two.roles) == ("two", frozenset({Role.OPERATOR, Role.CLIENT}))
    for wrong in ("", "o", "one ", "ONE", hashlib.sha256(b"one").hexdigest(), "\x00", "ünö"):
        assert book.identify(wrong) is None
    assert TokenBook(shared="all").identify("all") == ANYBODY


@given(st.text(max_size=50))
def test_no_other_text_is_a_token(text: str) -> None:
    found = TokenBook([token("one")], shared="two").identify(text.encode(errors="replace").decode())
    assert (found is not None) == (text in ("one", "two"))


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        (
            Role.READER,
            {"jobs", "events", "nodes", "overview", "logs"},
            {"submit", "cancel", "retry", "pause", "dead_letters"},
        ),
        (Role.CLIENT, {"submit", "jobs", "events", "nodes"}, {"report", "pause", "drain", "replay", "tell_gate"}),
        (Role.WORKER, {"report", "extend"}, {"submit", "jobs", "pause", "tell_datacenter"}),
        (Role.OPERATOR, {"submit", "pause", "drain", "dead_letters"}, {"report", "tell_datacenter"}),
    ],
)
def test_a_role_may_do_what_the_table_says_and_no_more(role: Role, may: set[str], may_not: set[str]) -> None:
    roles = TokenBook([token("t", role)]).identify("t")
    assert roles is not None
    allowed = {operation.name for operation in OPERATIONS if operation.open_to(roles.roles)}
    assert may <= allowed
    assert not may_not & allowed


def test_one_token_alone_may_do_everything() -> None:
    assert frozenset(Role) == EVERYTHING
    assert Front(host="0.0.0.0", token="x").book().identify("x") == ANYBODY


def submission(by: str = "") -> JobSubmission:
    return JobSubmission(job_id="j", workflows=(WorkflowSpec(name="w"),), submitted_by=by)


def test_what_is_asked_is_signed_with_the_tokens_name_whatever_it_says() -> None:
    ann = CallerIdentity("ann", frozenset({Role.CLIENT}))
    assert sign(Cancel(job_id="j", by="root"), ann).by == "ann: root"
    assert sign(Cancel(job_id="j"), ann).by == "ann"
    assert sign(Submit(submission=submission("root")), ann).submission.submitted_by == "ann: root"
    many = sign(SubmitMany(submissions=(submission("a"), submission())), ann)
    assert [one.submitted_by for one in many.submissions] == ["ann: a", "ann"]
    assert sign(AskLeader(), ann) == AskLeader()
    assert sign(Cancel(job_id="j", by="root"), ANYBODY).by == "root"


@pytest.mark.parametrize(
    "fields",
    [
        {"gate_addr": ("10.0.0.9", 80)},
        {"gate_addrs": (("10.0.0.9", 80),)},
        {"gate_epoch": 7},
        {"global_submitted_at": 1.0},
    ],
)
@pytest.mark.parametrize("role", list(Role))
def test_only_a_node_sets_what_a_gate_sets_in_a_submission(fields: dict[str, Any], role: Role) -> None:
    identity = CallerIdentity("ann", frozenset({role}))
    forged = msgspec.structs.replace(submission(), **fields)
    for request in (
        Submit(submission=forged),
        SubmitMany(submissions=(submission(), forged)),
        SetSchedule(schedule=Schedule(name="s", job=forged, every_s=60)),
    ):
        refused = why_not_a_gates(request, identity)
        assert (refused is None) == (role is Role.NODE)
        assert refused is None or (next(iter(fields)) in refused.fact and "'ann'" in refused.fact)
    assert why_not_a_gates(Submit(submission=submission()), identity) is None
    assert why_not_a_gates(AskLeader(), identity) is None


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_a_node_forwards_what_it_or_the_caller_whose_token_it_shows_may_ask(operation: Operation) -> None:
    book = TokenBook([token("nick", Role.NODE), token("olga", Role.OPERATOR), token("carl", Role.CLIENT)])
    nick, olga, carl = (book.identify(name) for name in ("nick", "olga", "carl"))
    assert nick is not None
    assert olga is not None
    assert carl is not None
    may = {
        "": operation.open_to(nick.roles),
        "wrong": operation.open_to(nick.roles),
        "carl": operation.open_to(nick.roles) or operation.open_to(carl.roles),
        "olga": operation.open_to(nick.roles) or operation.open_to(olga.roles),
    }
    for proof, allowed in may.items():
        passed = Forward(name=operation.name, body=msgspec.Raw(b"{}"), by="g", proof=proof)
        assert (why_not_forwarded(passed, nick, book, 0.0) is None) == allowed


def test_a_token_that_expired_or_was_revoked_is_no_proof_for_what_a_node_forwards() -> None:
    olga = msgspec.structs.replace(token("olga", Role.OPERATOR), expires=datetime.fromtimestamp(60.0, UTC))
    book = TokenBook([token("nick", Role.NODE), olga])
    nick = book.identify("nick")
    assert nick is not None
    passed = Forward(name="pause", body=msgspec.Raw(b"{}"), by="g", proof="olga")
    assert why_not_forwarded(passed, nick, book, 59.0) is None
    assert why_not_forwarded(passed, nick, book, 61.0) is not None
    assert why_not_forwarded(passed, nick, book.joined((), {olga.id}), 59.0) is not None


def test_what_a_gate_passes_on_shows_the_token_of_the_caller_that_it_answers() -> None:
    assert passed_on(AskLeader(), "g").proof == ""
    with showing(AskLeader(), "olga"):
        passed = passed_on(AskLeader(), "g")
    assert passed.proof == "olga"
    with showing(passed, "nick"):  # the gate that leads was asked by one that does not
        assert passed_on(AskLeader(), "g-2").proof == "olga"
    assert passed_on(AskLeader(), "g").proof == ""


def written(folder: Path, text: str, name: str = "tokens.toml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


SHA = "a" * 64


def test_a_file_of_tokens_is_toml_or_json(tmp_path: Path) -> None:
    toml = f'[[tokens]]\nname = "ci"\nrole = "client"\nsha256 = "{SHA}"\n'
    json = f'{{"tokens": [{{"name": "ci", "role": "client", "sha256": "{SHA}"}}]}}'
    expected = TokenFile((Token(name="ci", role=Role.CLIENT, sha256=SHA),))
    assert read_tokens(written(tmp_path, toml)) == expected
    assert read_tokens(written(tmp_path, json, "t.json")) == expected
    more = 'worker = "gpu-*"\nexpires = 2030-01-02T03:04:05Z\n[[certificates]]\nname = "gate.example"\nrole = "node"\n'
    found = read_tokens(written(tmp_path, toml.replace("client", "worker") + more))
    bound = CallerBounds(worker="gpu-*")
    assert identity_of(found.tokens[0]) == CallerIdentity("ci", frozenset({Role.WORKER}), bound, 1893553445.0, SHA[:16])
    assert found.certificates == (Certificate(name="gate.example", role=Role.NODE),)
    assert TokenBook(*msgspec.structs.astuple(found)).certified("gate.example") is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "is no file of tokens"),
        ('[[tokens]]\nname = "a"\nrole = "king"\nsha256 = "x"', "role"),
        ('[[tokens]]\nname = "a"\nrole = "client"\nsecret = "x"', "tokens"),
        ('[[tokens]]\nname = "a b"\nrole = "client"\nsha256 = "x"', "name is 'a b'"),
        ('[[tokens]]\nname = "a"\nrole = "client"\nsha256 = "plaintext-token"', "64 lowercase hexadecimal"),
        (2 * f'[[tokens]]\nname = "a"\nrole = "client"\nsha256 = "{SHA}"\n', "two tokens are named 'a'"),
        ("tokens = []", "names no token"),
        (2 * '[[certificates]]\nname = "a"\nrole = "worker"\n', "stands twice"),
        ('[[certificates]]\nname = ""\nrole = "worker"\n', "is empty"),
        (f'[[tokens]]\nname = "a"\nrole = "client"\nsha256 = "{SHA}"\nworker = "w"\n', "Bind the role worker only"),
        (f'[[tokens]]\nname = "a"\nrole = "worker"\nsha256 = "{SHA}"\nworker = "*w"\n', "worker is '\\*w'"),
        (
            f'[[tokens]]\nname = "a"\nrole = "client"\nsha256 = "{SHA}"\nexpires = 2030-01-01T00:00:00\n',
            "in no time zone",
        ),
    ],
)
def test_a_file_that_cannot_be_used_says_what_is_wrong_and_quotes_no_secret(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        Front(tokens_file=written(tmp_path, text)).book()
    assert "plaintext-token" not in str(caught.value)


def test_a_file_that_is_not_there_is_said() -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_tokens("/nowhere/tokens.toml")


@pytest.mark.parametrize(
    "front",
    [
        {"token": "x"},
        {"tokens_file": "tokens.toml"},
        {"tls": ServerTls("c", "k", "ca"), "tokens_file": "tokens.toml"},
        {"host": "127.0.0.1"},
        {"host": "::1"},
    ],
)
def test_beyond_this_machine_only_tokens_let_in(front: dict[str, Any]) -> None:
    Front(**{"host": "0.0.0.0", **front})


@pytest.mark.parametrize("front", [{}, {"tls": ServerTls("c", "k")}])
def test_an_open_port_that_others_can_reach_is_refused_with_the_remedy(front: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"TENURE_TOKEN.*127\.0\.0\.1"):
        Front(host="0.0.0.0", **front)


def test_certificates_without_roles_are_refused_before_anybody_asks() -> None:
    with pytest.raises(ConfigurationError, match=r"none of them has a role.*\[\[certificates\]\]"):
        Front(tls=ServerTls("c", "k", "ca"))


def test_a_key_without_a_certificate_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--tls-cert"):
        ServerTls.from_options("", "key.pem", "")
    assert ServerTls.from_options("both.pem", "", "") == ServerTls("both.pem", "both.pem")
