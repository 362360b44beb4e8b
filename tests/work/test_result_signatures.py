"""Signatures of results: they fit one attempt, one worker and one sequence of bytes, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure.errors import ConfigurationError
from tenure.work.delivery import Cause, WorkFailure, WorkResult
from tenure.work.result_signatures import (
    ClaimedAttempt,
    ResultKeys,
    ResultSigner,
    parse_result_keys,
    read_result_keys,
    why_unsigned,
)

OLD, NEW, OTHERS = "o" * 32, "n" * 32, "x" * 32
CLAIM = ClaimedAttempt("j-1", "encode", 2, (3, 1))


def result(**more: Any) -> WorkResult:
    given: dict[str, Any] = {
        "job_id": "j-1",
        "workflow_id": "encode",
        "workflow": "app.encode",
        "attempt": 2,
        "fence": (3, 1),
        "worker": "w-1",
        "result": msgspec.Raw(b'{"frames":1.0}'),
    }
    return WorkResult(**{**given, **more})


def keys(*lines: str) -> ResultKeys:
    return parse_result_keys("\n".join(lines))


def why(checked_with: ResultKeys, encoded: bytes) -> str:
    return why_unsigned(checked_with, encoded, msgspec.json.decode(encoded, type=WorkResult))


def test_a_signed_reply_is_read_as_before_and_its_signature_fits() -> None:
    plain = msgspec.json.encode(result())
    signed = ResultSigner(keys(NEW), "w-1").sign(plain, CLAIM)
    assert why(keys(NEW), signed) == ""
    read = msgspec.json.decode(signed, type=WorkResult)
    assert msgspec.structs.replace(read, signature=msgspec.UNSET) == msgspec.json.decode(plain, type=WorkResult)


def test_both_ways_to_sign_give_the_same_bytes() -> None:
    """Slots hand over bytes, and failures are made here: a leader sees no difference."""
    signer = ResultSigner(keys(NEW), "w-1")
    assert msgspec.json.encode(signer.signed(result(), CLAIM)) == signer.sign(msgspec.json.encode(result()), CLAIM)


def test_a_field_that_the_leader_does_not_know_is_signed_too() -> None:
    plain = msgspec.json.encode(result())[:-1] + b',"of_a_later_release":[1]}'
    signed = ResultSigner(keys(NEW), "w-1").sign(plain, CLAIM)
    assert why(keys(NEW), signed) == ""
    assert why(keys(NEW), signed.replace(b"[1]", b"[2]")) == "its signature is wrong"


@pytest.mark.parametrize(
    "changed",
    [
        {"job_id": "j-2"},
        {"workflow_id": "decode"},
        {"attempt": 3},
        {"fence": (4, 1)},
        {"fence": (3, 2)},
        {"worker": "w-2"},
    ],
)
def test_a_reply_that_names_another_attempt_than_was_claimed_is_not_believed(changed: dict[str, Any]) -> None:
    """A slot makes the bytes of its reply. The supervisor signs them for the attempt that it has claimed."""
    signed = ResultSigner(keys(NEW), "w-1").sign(msgspec.json.encode(result(**changed)), CLAIM)
    assert why(keys(NEW), signed) == "its signature is wrong"


def test_every_byte_of_a_signed_reply_counts() -> None:
    signed = ResultSigner(keys(NEW), "w-1").sign(msgspec.json.encode(result()), CLAIM)
    for place in range(len(signed)):
        damaged = signed[:place] + bytes([signed[place] ^ 1]) + signed[place + 1 :]
        try:
            read = msgspec.json.decode(damaged, type=WorkResult)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        assert why_unsigned(keys(NEW), damaged, read), place


def test_without_a_signature_or_with_another_key_it_is_not_believed() -> None:
    plain = msgspec.json.encode(result())
    assert why(keys(NEW), plain) == "it is not signed"
    assert why(keys(NEW), ResultSigner(keys(OTHERS), "w-1").sign(plain, CLAIM)) == "its signature is wrong"
    made_up = plain[:-1] + b',"signature":"' + b"0" * 64 + b'"}'
    assert why(keys(NEW), made_up) == "its signature is wrong"


def test_a_slot_cannot_sign_for_its_worker_by_a_field_of_its_own() -> None:
    plain = msgspec.json.encode(result(signature="0" * 64, signer="w-9"))
    signed = ResultSigner(keys(NEW), "w-1").sign(plain, CLAIM)
    assert "may say only that" in why(keys(NEW), signed)


def test_the_first_key_signs_and_all_of_them_are_accepted() -> None:
    plain = msgspec.json.encode(result())
    before, between, after = keys(OLD), keys(NEW, OLD), keys(NEW)
    old, new = (ResultSigner(one, "w-1").sign(plain, CLAIM) for one in (before, between))
    assert (why(between, old), why(between, new), why(after, new)) == ("", "", "")
    assert why(after, old) == "its signature is wrong"


def test_a_worker_with_a_key_of_its_own_is_believed_with_that_one_only() -> None:
    plain = msgspec.json.encode(result())
    managers = keys("# the fleet", OLD, "", f"w-1 {NEW}", f"w-2 {OTHERS}")
    assert why(managers, ResultSigner(keys(f"w-1 {NEW}"), "w-1").sign(plain, CLAIM)) == ""
    for stolen in (OLD, OTHERS):
        assert why(managers, ResultSigner(keys(stolen), "w-1").sign(plain, CLAIM)) == "its signature is wrong"
    other = msgspec.json.encode(result(worker="w-3"))
    assert why(managers, ResultSigner(keys(OLD), "w-3").sign(other, CLAIM)) == ""
    assert (
        why(keys(f"w-1 {NEW}"), ResultSigner(keys(OLD), "w-3").sign(other, CLAIM)) == "there is no key of worker 'w-3'"
    )


def test_who_clears_up_after_a_dead_worker_may_say_only_that_it_died() -> None:
    managers = keys(f"w-1 {OLD}", f"w-2 {NEW}")
    successor = ResultSigner(keys(f"w-2 {NEW}"), "w-2")
    died = WorkFailure(cause=Cause.WORKER_DIED, reason="its worker died while it ran")
    null = msgspec.Raw(b"null")
    said = result(failure=died, result=null)
    assert why(managers, msgspec.json.encode(successor.signed(said, CLAIM))) == ""
    for other in (
        result(),
        msgspec.structs.replace(said, failure=WorkFailure(cause=Cause.EXCEPTION, reason="it raised")),
        msgspec.structs.replace(said, failure=msgspec.structs.replace(died, final=True)),
        msgspec.structs.replace(said, exposed='{"paid":true}'),
    ):
        assert "may say only that 'w-1' died" in why(managers, msgspec.json.encode(successor.signed(other, CLAIM)))


def test_what_is_no_object_is_left_as_it_is() -> None:
    assert ResultSigner(keys(NEW), "w-1").sign(b"[1]", CLAIM) == b"[1]"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "there are no keys"),
        ("# only a comment", "there are no keys"),
        ("short", "line 1"),
        (f"{NEW}\nw-1 short", "line 2"),
        (f"a b {NEW}", "it has 3 words"),
        ("é" * 40, "ASCII"),
        ("k" * 1_025, "1,024"),
    ],
)
def test_a_file_that_is_wrong_is_refused_and_no_key_is_shown(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_result_keys(text)
    assert told in str(refused.value)
    assert "short" not in str(refused.value)
    assert NEW not in str(refused.value)


def test_keys_are_read_from_a_file_and_a_worker_without_one_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"w-1 {NEW}\n")
    read = read_result_keys(str(file))
    assert read is not None
    assert NEW not in repr(read)
    assert why(read, ResultSigner(read, "w-1").sign(msgspec.json.encode(result()), CLAIM)) == ""
    with pytest.raises(ConfigurationError, match="none for worker 'w-2'"):
        ResultSigner(read, "w-2")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_result_keys(str(tmp_path / "missing"))
    assert read_result_keys("") is None
