"""`ReportError`, which `reports.cli` prints as one line with exit code 2. Programming errors keep their own types."""


class ReportError(Exception):
    """The report cannot be made, for a reason that the user can fix. The text is one line."""
