"""`python -m tests.chaos.begin SOCKET`: begins the faults of the process that listens there, and prints each when it is over."""

from __future__ import annotations

import socket
import sys


def main(path: str) -> int:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        with sock.makefile() as lines:
            last = ""
            for line in lines:
                print(line, end="", flush=True)
                last = line
    return 0 if last == "{}\n" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
