from __future__ import annotations

import re
from pathlib import Path

import pytest

from tenure.engines.sqlite import SqliteEngine, statements

# Read whole tables on purpose: once per boot, or tables with a row or a handful.
WHOLE = {"FREE_ALL_LEASES", "END_ALL_TERMS", "LATEST_TIMES"}


EACH = {name: text for name, text in vars(statements).items() if name.isupper() and name not in WHOLE}


@pytest.mark.parametrize("name", EACH)
def test_no_statement_scans_a_table_that_can_grow(engine: SqliteEngine, name: str) -> None:
    text = EACH[name]
    with engine.database.writer as tx:
        plan = [row[3] for row in tx.execute(f"EXPLAIN QUERY PLAN {text}", [None] * text.count("?"))]
    assert not [step for step in plan if re.match(r"SCAN (?!CONSTANT|json_each)", step)], (name, plan)
    assert not [step for step in plan if "TEMP B-TREE FOR ORDER" in step], (name, plan)


def test_the_claim_walks_the_index_in_order(engine: SqliteEngine) -> None:
    with engine.database.reader as tx:
        (plan,) = tx.execute(f"EXPLAIN QUERY PLAN {statements.SELECT_CLAIMABLE}", [None] * 3).fetchall()
    assert plan[3] == "SEARCH message USING INDEX message_next (mailbox=? AND visible_at<?)"


def test_every_statement_is_used() -> None:
    sources = "".join(
        path.read_text()
        for path in sorted(Path(statements.__file__).parent.glob("*.py"))
        if path.name != "statements.py"
    )
    unused = [name for name in vars(statements) if name.isupper() and f"sql.{name}" not in sources]
    assert unused == []
