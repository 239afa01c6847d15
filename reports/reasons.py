"""The names of what can be wrong with a line, and what they mean.

In: nothing. Out: `Reason`, as it is in the table `quarantine`, and a sentence for each. Left to others: the rules
(`reports.validation`).
"""

from enum import StrEnum

QUARANTINED = "bad"
"""The type under which quarantined lines are stored."""


class Reason(StrEnum):
    """Why a line is in quarantine."""

    EMPTY = "empty"
    NOT_UTF8 = "not_utf8"
    CUT = "cut"
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    MISSING = "missing"
    WRONG_TYPE = "wrong_type"
    UNKNOWN_VERSION = "unknown_version"
    UNKNOWN_TYPE = "unknown_type"
    BAD_TIME = "bad_time"
    WRONG_CLOCK = "wrong_clock"
    NEGATIVE = "negative"
    TOO_LARGE = "too_large"
    BAD_INTERVAL = "bad_interval"
    DAMAGED_FILE = "damaged_file"


MEANINGS: dict[Reason, str] = {
    Reason.EMPTY: "the line is empty",
    Reason.NOT_UTF8: "bytes that are not UTF-8, as a write cut within a character leaves them",
    Reason.CUT: "the line ends before its object does: the proxy was killed, or is still writing it",
    Reason.NOT_JSON: "not one JSON value",
    Reason.NOT_AN_OBJECT: "JSON, but no object",
    Reason.MISSING: "a field that must be there is missing or null",
    Reason.WRONG_TYPE: "a value of another type than the format says",
    Reason.UNKNOWN_VERSION: "a version of the format that this report does not know",
    Reason.UNKNOWN_TYPE: "a type of line that this report does not know",
    Reason.BAD_TIME: "a time that is not ISO 8601 in UTC",
    Reason.WRONG_CLOCK: "a time before 2020, or more than two days from now: the clock of that proxy is wrong",
    Reason.NEGATIVE: "a count below zero",
    Reason.TOO_LARGE: "a count too large to be true",
    Reason.BAD_INTERVAL: "an interval that does not end after it starts",
    Reason.DAMAGED_FILE: "a file that cannot be read to its end, as a cut .gz; its lines before that were read",
}
