"""Formats the folders of a new node, as `kafka-storage.sh format` does.

In: jars, folders, users. Out: folders that a node starts from. Leaves to others: what is written into them later.

Kafka's StorageTool writes two things: a meta.properties in each folder (cluster id, node id, folder id), and a checkpoint with the
features of that release and the SCRAM credentials, which is the same for every node. The tool runs for the checkpoint, once per
version when there are no credentials; the rest is written here, which takes no JVM per node.
"""

import base64
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import javaproperties

from localkafka.guard import Guard
from localkafka.settings import Listeners, PropertyValue, cluster_properties, node_properties, render
from localkafka.versions import FIRST_SNAPSHOT_SINCE, LOG_DIRS_SINCE, Release

_CHECKPOINT = "bootstrap.checkpoint"
_FORMAT_LIMIT = 120.0  # seconds


class FormatError(RuntimeError):
    """Kafka's StorageTool refused. The message holds what it printed."""


def new_id() -> str:
    """A random id as Kafka writes them: 22 characters of base64, none of them a leading dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def checkpoint(guard: Guard, java_command: Sequence[str], jars: Path, users: Mapping[str, str] | None, release: Release) -> Path:
    """The checkpoint for new clusters of the version in `jars`; it lives as long as the guard. Errors: FormatError."""
    if users:
        return _run_storage_tool(guard, java_command, users, release)
    cached = jars / _CHECKPOINT
    if not cached.exists():
        made = _run_storage_tool(guard, java_command, {}, release)
        with tempfile.NamedTemporaryFile(dir=jars, delete=False) as partial:
            partial.write(made.read_bytes())
        os.replace(partial.name, cached)
    return cached


def format_node(node_id: int, cluster_id: str, folders: Sequence[Path], bootstrap: Path, release: Release) -> None:
    """Make the folders of a node, of which the first is for metadata, ready for its first start."""
    ids = release >= LOG_DIRS_SINCE  # of their own; a broker that is older wants all folders alike
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        meta: dict[str, PropertyValue] = {"version": 1, "cluster.id": cluster_id, "node.id": node_id}
        (folder / "meta.properties").write_text(render(meta | ({"directory.id": new_id()} if ids else {})))
    place = folders[0] / _place(release)
    place.parent.mkdir(exist_ok=True)
    shutil.copyfile(bootstrap, place)


def cluster_id_of(metadata_dir: Path) -> str | None:
    """The cluster that a folder was formatted for; None when it was not."""
    try:
        return javaproperties.loads((metadata_dir / "meta.properties").read_text()).get("cluster.id")
    except FileNotFoundError:
        return None


def _place(release: Release) -> Path:
    """Where the tool writes the checkpoint, and brokers look for it, in the folder for metadata."""
    return Path("__cluster_metadata-0", f"{0:020}-{0:010}.checkpoint") if release >= FIRST_SNAPSHOT_SINCE else Path(_CHECKPOINT)


def _run_storage_tool(guard: Guard, java_command: Sequence[str], users: Mapping[str, str], release: Release) -> Path:
    scratch = Path(tempfile.mkdtemp(dir=guard.folder))
    node = node_properties(0, Listeners(1, 2, 3), [scratch / "log"], scratch / "metadata")
    (scratch / "server.properties").write_text(render(cluster_properties({0: 3}, None) | node))
    command = [*java_command, "kafka.tools.StorageTool", "format"]
    command += ["--cluster-id", new_id(), "--config", str(scratch / "server.properties")]
    for user, password in users.items():
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            command += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
    run = guard.run(command, merge=True, timeout=_FORMAT_LIMIT)
    if run.returncode != 0:
        raise FormatError(f"kafka-storage format failed:\n{run.stdout}")
    place = _place(release)
    made = scratch / "metadata" / place
    if not made.exists():
        raise FormatError(f"kafka-storage format of this version makes no {place}:\n{run.stdout}")
    return made
