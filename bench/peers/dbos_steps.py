"""Runs a workflow of DBOS with so many steps, in its own environment, and prints the seconds that each took. `bench_steps` starts it."""

import sqlite3
import sys
import time

if sqlite3.sqlite_version_info < (3, 42):  # DBOS asks for unixepoch('subsec')
    import pysqlite3

    sys.modules["sqlite3"] = sys.modules["sqlite3.dbapi2"] = pysqlite3

from dbos import DBOS

ADDRESS, COUNT = sys.argv[1], int(sys.argv[2])


@DBOS.step()
def nothing(number):
    return number


@DBOS.workflow()
def steps(count):
    begun = time.perf_counter()
    for number in range(count):
        nothing(number)
    return (time.perf_counter() - begun) / count


DBOS(config={"name": "steps", "system_database_url": ADDRESS, "log_level": "WARNING"})
DBOS.launch()
steps(20)  # warm
print(steps(COUNT))
DBOS.destroy()
