"""Buckets: time cut into pieces of equal length, counted from the epoch, so that buckets of all proxies and runs align.

In: a timestamp column, lengths in seconds. Out: the start of its bucket, in SQL; lengths that suit a plot. Left to others: what is
summed.
"""

MAX_POINTS = 200
"""Buckets in a plot, at most: more than that is finer than the page shows."""

_DAY = 86_400
_NICE = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, _DAY)


def bucket_start(time: str, seconds: int) -> str:
    """SQL: start of the bucket of `seconds` that the timestamp column `time` falls into, as a timestamp."""
    return f"timestamp_seconds(unix_seconds({time}) - pmod(unix_seconds({time}), {seconds}))"


def interval_bucket(seconds: int) -> str:
    """SQL: start of the bucket that a line's interval ended in, in seconds since the epoch.

    Intervals end at multiples of their length. One may begin a moment before such a multiple, when a proxy starts: by its start it
    would be in the bucket before that in which it was nearly all the time.
    """
    last = "unix_seconds(`end` - interval 1 millisecond)"
    return f"{last} - pmod({last}, {seconds})"


def dated(table: str, seconds: int) -> str:
    """SQL: `table`, which is SQL and has `start`, led by `date` (UTC, of the start), with `seconds`, the length of its buckets."""
    return f"select to_date(start) as date, start, {seconds} as seconds, * except (start) from ({table})"


def plot_seconds(first: int, last: int, seconds: int) -> int:
    """Length of a plot's buckets, in seconds, for the time from `first` to `last` (seconds since the epoch).

    A multiple of the table's `seconds`, and round where it can be; at most MAX_POINTS buckets.
    """
    least = (last - first) // (MAX_POINTS - 1) + 1
    for nice in _NICE:
        if nice >= least and nice % seconds == 0:
            return nice
    unit = _DAY if _DAY % seconds == 0 else seconds
    return -(-least // unit) * unit
