"""Errors room: the one error that a person who started a report should read.

In: one sentence. Out: `ReportError`, which `reports.cli` prints as a single line with exit code 2. Programming errors are left
to fail loudly with their own type.
"""


class ReportError(Exception):
    """The report cannot be made, for a reason that its user can mend. The text is one line."""
