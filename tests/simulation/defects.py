"""Defects that the simulation has to find: each is a change of one place of the product. In: none. Out: for each, whether it was
found, and in how many CPU seconds.

`python -m tests.simulation.defects` applies one after the other to a copy of the sources and simulates each until it fails, for
two minutes at most; `--only NAME`, `--jobs 2`. It fails where more than one of twenty is not found."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 120.0
"""CPU seconds in which a defect has to be found."""
CHANGED: Final = ("proxy", "quota")


class Defect(NamedTuple):
    """`old` stands once in the file, and is replaced."""

    name: str
    file: str
    old: str
    new: str


DEFECTS: Final = (
    Defect(
        "the fence lets pass what is behind a refused batch",
        "quota/fence.py",
        "not 0 < (sequence - fenced.sequence) % _WRAP < _HALF:\n            return None",
        "fenced.epoch >= epoch:\n            return None",
    ),
    Defect(
        "the fence stays though its batch was admitted",
        "quota/fence.py",
        "        self._drop(key)\n        if self.tell is not None:\n",
        "        if self.tell is not None:\n",
    ),
    Defect(
        "fences are never forgotten",
        "quota/fence.py",
        "            if now < fenced.until:\n                return",
        "            return",
    ),
    Defect(
        "a throttled client is not muted",
        "proxy/session/session.py",
        "        self._muted_until = max(self._muted_until, until)\n        self._block",
        "        self._muted_until = self.client.now\n        self._block",
    ),
    Defect(
        "a mute lasts longer than the client was told",
        "proxy/session/session.py",
        "        self._muted_until = max(self._muted_until, until)\n        self._block",
        "        self._muted_until = until + 20\n        self._block",
    ),
    Defect("the client is not told of its throttle", "proxy/session/throttled.py", "return ceil(self.mute * 1000)", "return 0"),
    Defect("a hold lasts longer than documented", "quota/engine.py", "MAX_HOLD: Final = 10.0", "MAX_HOLD: Final = 100.0"),
    Defect(
        "memory is not given back at the end of a connection",
        "proxy/session/session.py",
        "        self.services.budget.charge(self._payer, -self._charged)\n",
        "",
    ),
    Defect(
        "a session does not hear that its client is gone",
        "proxy/clients/connection.py",
        "        self.session.client_lost()\n        self._read_broker_or_not()\n        self._leave()",
        "        self._leave()",
    ),
    Defect(
        "a connection that ended is still counted",
        "proxy/clients/listeners.py",
        "            self.listener.shared.services.census.leave(guest)\n",
        "",
    ),
    Defect(
        "a user's connection that ended is still counted",
        "proxy/session/client.py",
        "        self.services.census.forget(self.user)\n",
        "",
    ),
    Defect(
        "sums of a connection that ended stay in use",
        "proxy/session/client.py",
        "        self._retire()\n        for s in self._retired:",
        "        for s in self._retired:",
    ),
    Defect(
        "proxies do not hear what others have charged",
        "quota/ledger.py",
        "            self._hear(shard, item, total, answer.levels.get(i), now)\n",
        "",
    ),
    Defect(
        "another limit does not hold before a restart",
        "quota/kinds/rates.py",
        "            self.change(self._rates.limit_of(self.owner), now)",
        "            pass",
    ),
    Defect(
        "all users have one window",
        "quota/kinds/rates.py",
        "meter = self._meters.get(owner)\n        if meter is None:\n            meter = self._make(self._placed",
        "meter = next(iter(self._meters.values()), None)\n        if meter is None:\n            meter = self._make(self._placed",
    ),
    Defect(
        "a debt is paid four times as fast",
        "quota/windows/rate.py",
        "            paid = self.limit * max(now - self._at, 0.0)",
        "            paid = 4 * self.limit * max(now - self._at, 0.0)",
    ),
    Defect(
        "a login makes nobody known",
        "proxy/session/client.py",
        "            self.user = user\n",
        "            self.user = ANONYMOUS\n",
    ),
    Defect(
        "the rate of a topic counts nothing",
        "proxy/apis/produce.py",
        "    if rate is None or rate.take(size, now):",
        "    if True:",
    ),
    Defect(
        "an answer of the proxy overtakes those before it",
        "proxy/session/answers.py",
        "        if self._last is None:\n            self._first = due\n        else:\n            self._last.behind = due\n"
        "        self._last = due\n",
        "        if due.own is not None:\n            due.behind, self._first = self._first, due\n"
        "            self._last = self._last or due\n        elif self._last is None:\n"
        "            self._first = self._last = due\n        else:\n            self._last.behind = self._last = due\n",
    ),
    Defect(
        "what is refused is told to be written",
        "proxy/apis/produce.py",
        "Refusal(why.code, why.message)",
        "Refusal(0, why.message)",
    ),
    Defect(
        "bytes that are no request are an internal error",
        "proxy/session/session.py",
        "        except BadBytes as e:\n            self._fail(e)\n        else:",
        "        except KeyError as e:\n            self._fail(e)\n        else:",
    ),
    Defect(
        "a connection does not get its next turn",
        "proxy/session/session.py",
        "            self.port.stop_reading()\n            self.port.next_turn()\n",
        "            self.port.stop_reading()\n",
    ),
    Defect(
        "a volume that has space again stays full",
        "quota/kinds/storage.py",
        "        self.factor = min(max(self.factor, least), line(available, hard, soft))",
        "        self.factor = min(self.factor, line(available, hard, soft))",
    ),
    Defect(
        "clients are led to another broker than they want",
        "proxy/cluster/routes.py",
        "self._port_of.get(node_id)",
        "self._port_of.get(max(self._port_of, default=0))",
    ),
    Defect(
        "a request that came in pieces goes on twice",
        "proxy/session/session.py",
        "                self._out.add(chunks)\n",
        "                self._out.add([*chunks, *chunks])\n",
    ),
    Defect(
        "users of a tenant do not share its rate",
        "quota/rules.py",
        "for kind in (engine.tenant_rates[name], rates):",
        "for kind in (rates,):",
    ),
    Defect(
        "a topic costs one mutation, whatever its partitions",
        "proxy/apis/create_topics.py",
        "else max(topic.amount, 0)",
        "else 1",
    ),
    Defect(
        "topics that are refused are created all the same",
        "proxy/apis/mutations.py",
        "return Forward(_Amend(told), request.with_body(kept))",
        "return Forward(_Amend(told))",
    ),
    Defect(
        "whoever cannot be refused topics is not told to wait",
        "proxy/apis/mutations.py",
        "        if decision.action is Action.THROTTLE:\n            return Forward(_Amend(told))",
        "        if decision.action is Action.THROTTLE:\n            return FORWARD",
    ),
    Defect(
        "what a consumer reads counts nothing",
        "proxy/apis/streams.py",
        "rate = client.rules(now).answers.get(self._key)",
        "rate = None",
    ),
    Defect(
        "of an answer that comes in pieces, one is left out",
        "proxy/session/answers.py",
        "        if pieces is None:\n            self._out.part(data, start, stop)\n",
        "        if pieces is None:\n            pass\n",
    ),
)


class Found(NamedTuple):
    """`why` is empty where nothing was found; `seconds` of CPU."""

    defect: Defect
    why: str
    seconds: float


def stale(defect: Defect) -> bool:
    """True if the sources have changed where this defect would be."""
    return (ROOT / defect.file).read_text().count(defect.old) != 1


def copy(place: Path) -> None:
    """The sources, of which those that defects change are real copies."""
    for entry in sorted(ROOT.iterdir()):
        if entry.name in CHANGED:
            shutil.copytree(entry, place / entry.name, ignore=shutil.ignore_patterns("__pycache__", "_hot"))
        elif not entry.name.startswith(".") and entry.name != "tests":
            (place / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "tests" / "simulation", place / "tests" / "simulation", ignore=shutil.ignore_patterns("__pycache__"))
    for entry in (ROOT / "tests").iterdir():
        if entry.name not in ("simulation", "__pycache__"):
            (place / "tests" / entry.name).symlink_to(entry)


def find(defect: Defect, seconds: float, first: int) -> Found:
    """Simulate the product with this defect until something is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        copy(place)
        file = place / defect.file
        file.write_text(file.read_text().replace(defect.old, defect.new))
        command = [sys.executable, "-m", "tests.simulation", "--first", str(first), "--seconds", str(seconds), "--no-shrink"]
        process = subprocess.Popen(
            command,
            cwd=place,
            env={**os.environ, "PYTHONPATH": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        said = process.stdout.read()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    why = next((line for line in said.splitlines() if " fails: " in line), "")
    if not why and "simulated hours" not in said:
        why = f"it does not run: {said.splitlines()[-1] if said else 'nothing was said'}"
    return Found(defect, why, _cpu(used))


def _cpu(used: resource.struct_rusage) -> float:
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.defects", description=__doc__)
    parser.add_argument("--only", default="", help="those whose names have this in them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=PATIENCE)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    options = parser.parse_args()
    chosen = [defect for defect in DEFECTS if options.only in defect.name]
    found = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(lambda it: find(it, options.seconds, options.first), chosen):
            found += bool(outcome.why)
            print(
                f"{outcome.seconds:6.1f} s  {'found' if outcome.why else 'MISSED'}  {outcome.defect.name}\n          {outcome.why}",
                flush=True,
            )
    print(f"{found} of {len(chosen)} found")
    return 0 if found * 20 >= len(chosen) * 19 else 1


if __name__ == "__main__":
    sys.exit(main())
