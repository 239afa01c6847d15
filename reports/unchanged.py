"""A report of logs that have nothing new: that of the last run, as of now. No Spark is needed for it.

In: what an incremental run is asked. Out: the last run's `Report`, with its tables left where they are, or None where they may say
something else by now. Logs in a local folder alone: what a topic or a remote folder holds, only Spark can ask.
"""

import json
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from reports.log_files import FILES, is_local, local_files
from reports.period_tables import Inputs
from reports.publish import Staging
from reports.summary.build import Asked
from reports.summary.model import Report
from reports.summary.stored import read_report

_ASKED = "asked"


def keep_asked(staging: Staging, inputs: Inputs) -> None:
    """Keep for the next report what this one was asked."""
    staging.kept[_ASKED] = _digest(inputs)


def report_of_last_run(asked: Asked, bucket: int | None, inputs: Inputs, staging: Staging, summary: Path) -> Report | None:
    """The report in `summary` as of now, where the same bucket (seconds), quotas and prices are asked for and no log file is new
    or has changed; else None."""
    kept = staging.kept
    lengths = kept.get("lengths")
    same_bucket = lengths and bucket in (None, lengths[0])
    if not (is_local(asked.logs) and same_bucket and kept.get(_ASKED) == _digest(inputs)):
        return None
    listed, known = local_files(asked.logs), kept.get(FILES, {})
    if any(known.get(uri) != state for uri, state in listed.items()):
        return None
    try:
        report = read_report(summary.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    if report is None:
        return None
    kept[FILES] = listed
    return replace(report, logs=asked.logs, made=asked.made, note=asked.note)


def _digest(inputs: Inputs) -> str:
    """Of what is asked, and of the program that answers. Names of users and topics are in it, which the manifest need not tell."""
    return sha256(json.dumps([version("kafka-quota-proxy"), repr(inputs)]).encode()).hexdigest()
