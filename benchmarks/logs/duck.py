"""Duck: the same sums without Spark and without the report, by DuckDB: what the bench measures against, and what tests compare
with.

In: a folder of logs. Out: rows. Copies are dropped by (proxy, boot, number), lines that are not whole JSON are left out; nothing
else is looked at, so that it is for logs whose other lines are good.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

_COLUMNS = {
    "type": "VARCHAR",
    "proxy": "VARCHAR",
    "boot": "VARCHAR",
    "seq": "BIGINT",
    "start": "VARCHAR",
    "end": "VARCHAR",
    "principal": "VARCHAR",
    "client_id": "VARCHAR",
    "topic": "VARCHAR",
    "api": "VARCHAR",
    "requests": "BIGINT",
    "request_bytes": "BIGINT",
    "response_bytes": "BIGINT",
    "record_bytes": "BIGINT",
    "records": "BIGINT",
    "mutations": "BIGINT",
    "throttle_ms": "BIGINT",
}
_HOUR = "to_timestamp(epoch(start::TIMESTAMP)::BIGINT // 3600 * 3600)"
HOURLY = {
    "traffic": f"""
        select epoch({_HOUR})::BIGINT as start, principal, client_id, api, sum(requests)::BIGINT, sum(request_bytes)::BIGINT,
            sum(response_bytes)::BIGINT, sum(mutations)::BIGINT, sum(throttle_ms)::BIGINT
        from once where type = 'usage' and topic is null group by all""",
    "topics": f"""
        select epoch({_HOUR})::BIGINT as start, topic, principal, client_id, api, sum(requests)::BIGINT, sum(record_bytes)::BIGINT,
            sum(records)::BIGINT
        from once where type = 'usage' and topic is not null group by all""",
}
"""Name of a table -> the same sums for each hour, from the lines."""


def open_logs(folder: Path, *, once: bool = True, threads: int = 2) -> duckdb.DuckDBPyConnection:
    """A connection with the view `lines`, and `once`: each of them once, or as they are where it is known that there are no
    copies."""
    connection = duckdb.connect(config={"threads": threads})
    connection.execute("set TimeZone = 'UTC'")
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in _COLUMNS.items())
    read = f"read_json('{folder}/**/*.jsonl*', format = 'newline_delimited', columns = {{{columns}}}, ignore_errors = true)"
    connection.execute(f"create view lines as select * from {read} where seq is not null")
    distinct = "select distinct on (proxy, boot, seq) * from lines" if once else "select * from lines"
    connection.execute(f"create view once as {distinct}")
    return connection


def sums(connection: duckdb.DuckDBPyConnection, table: str) -> set[tuple[Any, ...]]:
    """The rows of a table of HOURLY."""
    return set(connection.execute(HOURLY[table]).fetchall())
