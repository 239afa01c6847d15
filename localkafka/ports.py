"""Picks ports of the loopback interface, and can reserve one while no broker listens on it.

In: nothing. Out: port numbers. Leaves to others: listening on them.
"""

import platform
import socket
from contextlib import ExitStack
from typing import Self

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Different ports on which nothing listens at the moment. Another process may take one before it is used."""
    with ExitStack() as stack:
        return [stack.enter_context(socket.create_server((HOST, 0))).getsockname()[1] for _ in range(count)]


def free_port() -> int:
    """One port on which nothing listens at the moment."""
    return free_ports(1)[0]


class HeldPort:
    """A free port of the loopback interface, bound but not listening: connecting to it is refused until a broker listens.

    Linux lets a second socket bind a port whose first owner does not listen when both set SO_REUSEADDR, as Java does for every
    server socket, and gives such a port to no one who asks for any port. Elsewhere the port is released at once, and a start that
    finds it taken is tried again with another.
    """

    def __init__(self, number: int = 0) -> None:
        """Take this port, or any (0). Errors: OSError when it is taken, or there is none."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((HOST, number))
        except OSError:
            self._socket.close()
            raise
        self.number: int = self._socket.getsockname()[1]
        if platform.system() != "Linux":
            self._socket.close()

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{HOST}:{self.number}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the port. Releasing twice is allowed."""
        self._socket.close()
