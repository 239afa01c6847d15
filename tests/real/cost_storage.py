"""What a volume in trouble costs those who do not write to it: `python -m tests.real.cost_storage [ROUNDS] [MB/s]`.

A producer writes 100 MB to brokers 1 and 2: directly, through a proxy without quotas, and through one with `scope: volume` while
the volume of broker 0 is full and two other producers are refused all the time. In turn, so that noise hits all alike. Prints MB/s
and the CPU seconds of the proxy. Needs a machine that has nothing else to do, and permission to mount."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Producer

from tests.real.proxies import ProxyProcess
from tests.real.tenancy import access, upstream
from tests.real.test_storage import Partitions, create, delete, storage
from tests.real.volumes import MIB, small_cluster

RECORD, RECORDS = 10_000, 10_000


def produce(bootstrap: str, topic: str, pace: float) -> float:
    """MB/s; `pace` is how many are tried at most."""
    producer = Producer(access(bootstrap, **{"enable.idempotence": True, "linger.ms": 5, "batch.size": 200_000}))
    failed: list[object] = []
    start = time.perf_counter()
    for number in range(RECORDS):
        while number * RECORD / 1e6 > pace * (time.perf_counter() - start):
            producer.poll(0.005)
        while True:
            try:
                producer.produce(topic, bytes(RECORD), partition=number % 4, on_delivery=lambda error, _: failed.append(error))
                break
            except BufferError:
                producer.poll(0.05)
    while len(producer):
        producer.poll(0.05)
    assert not any(failed)
    return RECORDS * RECORD / 1e6 / (time.perf_counter() - start)


def cpu_seconds(proxy: ProxyProcess) -> float:
    fields = Path(f"/proc/{proxy.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(rounds: int, pace: float) -> None:
    folder = Path(tempfile.mkdtemp())
    with small_cluster(folder / "kafka", 1 << 30) as (cluster, volumes):
        direct = cluster.bootstrap_servers
        create(direct, "sick", [[0, 1], [1, 0], [2, 0], [0, 2]])
        settings = storage(min_available_bytes=64 * MIB, scope="volume")
        with (
            ProxyProcess(folder / "plain", direct, {"upstream": upstream()}) as plain,
            ProxyProcess(folder / "volume", direct, settings) as by_volume,
        ):
            volumes.fill(0, 32 * MIB)
            by_volume.wait_for("volume at its limit", broker=0)
            sick = [Partitions(by_volume.bootstrap, "sick") for _ in range(2)]
            for each in sick:
                each.send(200, 5000)
            stop = threading.Event()
            threading.Thread(target=lambda: [each.done(0) for each in sick * 10**6 if not stop.wait(0.05)], daemon=True).start()
            ways = {"direct": None, "proxy": plain, "volume in trouble": by_volume}
            speeds: dict[str, list[float]] = {way: [] for way in ways}
            spent: dict[str, list[float]] = {way: [] for way in ways}
            for number in range(rounds):
                for way, proxy in ways.items():
                    topic = f"well-{number}-{way.replace(' ', '-')}"
                    create(direct, topic, [[1], [2], [1], [2]])
                    before = cpu_seconds(proxy) if proxy else 0.0
                    speeds[way].append(produce(proxy.bootstrap if proxy else direct, topic, pace))
                    spent[way].append(cpu_seconds(proxy) - before if proxy else 0.0)
                    delete(direct, topic)
            for way in ways:
                print(f"{way}: {statistics.median(speeds[way]):.1f} MB/s, {statistics.median(spent[way]):.2f} CPU s of the proxy")
            stop.set()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, float(sys.argv[2]) if len(sys.argv) > 2 else float("inf"))
