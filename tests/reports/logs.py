"""Logs for tests: one proxy's lines, as docs/log-format.md has them, good until a test spoils them."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def text(time: datetime) -> str:
    """A time as the format writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z"


def after(seconds: float) -> str:
    """The time so many seconds after noon."""
    return text(NOON + timedelta(seconds=seconds))


class Log:
    """The lines of one start of a proxy, numbered as it would."""

    def __init__(self, proxy: str = "proxy-a", boot: str = "00000000000000a1") -> None:
        self.proxy = proxy
        self.boot = boot
        self.seq = 0
        self.lines: list[bytes] = []

    def usage(self, at: float = 0, seconds: float = 10, **changes: Any) -> Self:
        """A usage line of the interval that starts `at` seconds after noon."""
        fields = {
            "start": after(at),
            "end": after(at + seconds),
            "principal": "User:alice",
            "client_id": "app",
            "topic": None,
            "topic_id": None,
            "api": "Produce",
            "api_key": 0,
            "requests": 1,
            "request_bytes": 0,
            "response_bytes": 0,
            "record_bytes": 0,
            "records": None,
            "mutations": 0,
            "throttle_ms": 0,
            "refused": {},
        }
        return self.line("usage", fields, changes)

    def decision(self, at: float = 0, **changes: Any) -> Self:
        """A decision made `at` seconds after noon."""
        fields = {
            "at": after(at),
            "quota": "controller_mutations",
            "action": "refuse",
            "mode": "enforce",
            "entity": {"user": "alice", "client_id": None},
            "principal": "User:alice",
            "client_id": "app",
            "client_address": "10.0.0.1:40000",
            "api": "CreateTopics",
            "api_key": 19,
            "api_version": 7,
            "items": 1,
            "topics": ["orders"],
            "usage": 12.5,
            "limit": 5.0,
            "throttle_ms": 1500,
            "message": "controller_mutations of user alice: usage 12.5, limit 5",
            "left_out": 0,
        }
        return self.line("decision", fields, changes)

    def volume(self, at: float = 0, **changes: Any) -> Self:
        """A volume as it was seen `at` seconds after noon."""
        fields = {
            "at": after(at),
            "source": "cluster",
            "broker_id": 1,
            "log_dir": "/var/lib/kafka/data",
            "total_bytes": 1 << 40,
            "usable_bytes": 1 << 38,
            "limit_bytes": 1 << 36,
            "soft_limit_bytes": 1 << 37,
            "factor": 1.0,
            "replica_bytes": 3 << 38,
            "topic_bytes": {"orders": 1 << 38},
        }
        return self.line("volume", fields, changes)

    def producer_ids(self, at: float = 0, seconds: float = 10, **changes: Any) -> Self:
        """Producer ids at the end of the interval that starts `at` seconds after noon."""
        fields = {"user": "alice", "active": 7, "counted": 5, "window_ms": 3_600_000, "limit": None}
        return self.line("producer_ids", {"start": after(at), "end": after(at + seconds), **fields}, changes)

    def owned(self, at: float = 0, seconds: float = 10, **changes: Any) -> Self:
        """What a tenant had at the end of the interval that starts `at` seconds after noon."""
        whose = {"tenant": "payments", "user": None, "topic": None}
        fields = {**whose, "topic_count": 3, "partition_count": 12, "stored_bytes": None}
        return self.line("owned", {"start": after(at), "end": after(at + seconds), **fields}, changes)

    def latency(self, at: float = 0, seconds: float = 10, **changes: Any) -> Self:
        """How long Produce requests took in the interval that starts `at` seconds after noon."""
        times = {"p10_ms": 2.0, "p50_ms": 4.5, "p90_ms": 9.0, "p99_ms": 40.0, "max_ms": 56.0}
        fields = {"part": "broker", "broker_id": 1, "api": "Produce", "api_key": 0, "requests": 100, **times}
        return self.line("latency", {"start": after(at), "end": after(at + seconds), **fields}, changes)

    def gap(self, at: float = 0, lines: int = 1) -> Self:
        """A gap noticed `at` seconds after noon."""
        return self.line("gap", {"at": after(at), "lines": lines}, {})

    def line(self, kind: str, fields: dict[str, Any], changes: dict[str, Any]) -> Self:
        """Any line; a change to `...` takes the field away."""
        self.seq += 1
        given = {"v": 2, "type": kind, "proxy": self.proxy, "boot": self.boot, "seq": self.seq} | fields | changes
        kept = {name: value for name, value in given.items() if value is not ...}
        return self.raw(json.dumps(kept, separators=(",", ":"), ensure_ascii=False).encode())

    def raw(self, line: bytes) -> Self:
        """A line that is whatever it is."""
        self.lines.append(line)
        return self

    def write(self, folder: Path, number: int = 1, *, compress: bool = False, end: bytes = b"\n") -> Path:
        """Write the lines as one file of the proxy, and forget them, as it does when it rotates."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"usage-{self.proxy}-{self.boot}-{number:06d}.jsonl{'.gz' if compress else ''}"
        data = b"\n".join(self.lines) + end
        path.write_bytes(gzip.compress(data) if compress else data)
        self.lines.clear()
        return path
