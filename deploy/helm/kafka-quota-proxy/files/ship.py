"""What runs beside a proxy whose usage log goes to standard output. In: the folder of the log. Out: every whole line of it, once,
in the order of each file. A file is deleted when all of it is out and a newer one is there: so the folder stays small.

Ends at SIGTERM, when it has written what is there: Kubernetes ends it after the proxy, whose last lines are then in the folder."""

import os
import signal
import sys
import time

PAUSE = 1.0
"""Seconds between two looks."""
STEP = 1 << 20
"""Bytes that are read at once."""


def copy(path, start, out):
    """Write the whole lines that begin at `start`; where the next one begins."""
    with open(path, "rb") as file:
        while True:
            file.seek(start)
            data = file.read(STEP)
            whole = data.rfind(b"\n") + 1
            if not whole and len(data) == STEP:  # a line that is longer: no line of the log is, so it is passed on as it is
                whole = STEP
            if not whole:
                return start
            out.write(data[:whole])
            out.flush()
            start += whole


def look(folder, done, out):
    """Pass on what is new in all files. `done` is where each of them was left."""
    files = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.endswith(".jsonl"):
            files.setdefault(name.rpartition("-")[0], []).append(name)  # one proxy, from one start to the next
    newest = max(
        (names[-1] for names in files.values()), key=lambda name: os.stat(os.path.join(folder, name)).st_mtime, default=None
    )
    for names in files.values():
        for name in names:
            path = os.path.join(folder, name)
            done[name] = copy(path, done.get(name, 0), out)
            if name != newest:
                os.remove(path)
                del done[name]


def main(folder):
    ending = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
    done = {}
    while not ending:
        look(folder, done, sys.stdout.buffer)
        time.sleep(PAUSE)
    look(folder, done, sys.stdout.buffer)


main(sys.argv[1])
