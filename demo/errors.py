"""The errors that a user should read: `demo.cli` prints them without a traceback."""


class DemoError(RuntimeError):
    """Something failed while the demo ran: exit code 1. The text says what, and how its log ended."""


class UsageError(RuntimeError):
    """The demo cannot start with what it was given or with what is installed: exit code 2."""
