"""The errors that a user should read: `demo.cli` prints them without a traceback."""


class DemoError(RuntimeError):
    """Something failed while the demo ran: exit code 1. The text says what, and how its log ended."""


class UsageError(RuntimeError):
    """The demo cannot start with what it was given or with what is installed: exit code 2."""


class Interrupted(KeyboardInterrupt):
    """The user (Ctrl-C) or a supervisor (SIGTERM) wants an end; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
