"""Encodes the whole record of an ended job for the store: what the leader knew, and why the job ended so.

The shell writes it under the job's id before `ArchiveJob` lets the job leave memory.
"""

from __future__ import annotations

import msgspec

from tenure.errors import EngineCorruptError
from tenure.jobs.book import JobBook
from tenure.jobs.model import JobInfo
from tenure.jobs.why import Why, why


class ArchiveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Holds everything that is kept of an archived job."""

    info: JobInfo
    why: Why


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(ArchiveRecord)


def archive_record(book: JobBook, job_id: str) -> bytes:
    """Returns the record of a job that is in memory; raises `UnknownJobError`. The history is in `why`, in words and as data."""
    return _encode(ArchiveRecord(info=msgspec.structs.replace(book.job(job_id), history=[]), why=why(book, job_id)))


def read_record(record: bytes) -> ArchiveRecord:
    """Returns the record as it was written; raises `EngineCorruptError` for anything else."""
    try:
        return _decoder.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EngineCorruptError(f"the record of an archived job cannot be read: {error}") from error
