"""localkafka.storage: Kafka's own tool makes the logins of a new cluster, once for the same users."""

from pathlib import Path

import pytest

from localkafka import jvm, storage
from localkafka.guard import Guard
from localkafka.jars import DEFAULT_VERSION, fetch
from localkafka.java import find_java

pytestmark = pytest.mark.kafka


def test_the_tool_runs_once_for_the_same_users(tmp_path: Path) -> None:
    java = find_java()
    jars = fetch(DEFAULT_VERSION, java)
    with Guard() as guard:
        tool = jvm.tool_command(java, jars, guard.folder)
        made = storage.checkpoint(guard, tool, tmp_path, {"alice": "a", "bob": "b"})
        assert storage.checkpoint(guard, ["no-such-program"], tmp_path, {"bob": "b", "alice": "a"}) == made
        assert b"alice" in made.read_bytes()
        assert made.stat().st_mode & 0o077 == 0, "others cannot read it"
        with pytest.raises(storage.FormatError, match="no-such-program"):
            storage.checkpoint(guard, ["no-such-program"], tmp_path, {"alice": "another", "bob": "b"})
