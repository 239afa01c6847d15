"""The logs folder as the user names it: its files, its path for Spark, names relative to it.

In: the text of `--logs`, a local folder or a URI that Spark can read. Out: a clear error for a folder that holds no logs, the
path in the form that Spark wants, and file names relative to it. Left to others: what is in the files (`reports.read`).
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, unquote

from reports.errors import ReportError

LOG_FILES = "*.{jsonl,jsonl.gz,jsonl.zst}"
"""Glob of the files that count as logs, by name alone."""

FILES = "files"
"""Under this name a report keeps for the next one the log files that it read: URI -> size, and time in milliseconds."""

_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_COMPRESSION = 15  # times that gzip makes a log smaller, roughly
_QUOTED = re.compile(r"[^A-Za-z0-9_.!~*'()/,;:$&+=@\u00a1-\U0010ffff-]")
"""Characters of a path that are not as they are in a URI, by Spark's own."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_PASSWORD = re.compile(r"[^/]+://[^/@]*:[^/]*@")


def is_local(logs: str) -> bool:
    """Whether `logs` is a path of this machine rather than a URI for Spark's file systems."""
    return not _SCHEME.match(logs)


def check_logs(logs: str) -> None:
    """Refuse at once, before Spark starts, a local folder that cannot give a report.

    Raises:
        ReportError: the folder does not exist, is no folder, has no log file in it, or one that may not be read (Spark would take
            that one for a file that was rotated away); or a URI has a password in it.
    """
    if not is_local(logs):
        if _PASSWORD.match(logs):  # it would stand in lists of processes, on the page and in the summary
            raise ReportError("the address of the logs has a password in it: give credentials in the environment (docs/report.md)")
        return
    folder = Path(logs)
    if not folder.exists():
        raise ReportError(f"the logs folder {logs} does not exist")
    if not folder.is_dir():
        raise ReportError(f"{logs} is not a folder")
    files = list(log_files(folder))
    if not files:
        raise no_logs(logs)
    for file in files:
        if file.exists() and not os.access(file, os.R_OK):
            raise ReportError(f"{file} cannot be read: permission denied")


def check_out(out: Path) -> None:
    """Refuse an out folder that is a URI: a report is moved into place by renaming, which object storage does not have.

    Raises:
        ReportError: it is one.
    """
    if not is_local(str(out)):
        raise ReportError(
            f"the report cannot be written to {re.sub(':/+', '://', str(out), count=1)}: "
            "--out has to be a folder of a mounted file system; copy the report from there"
        )


def log_size(logs: str) -> int | None:
    """Bytes of text in a local folder, roughly, as compressed files are guessed at; None for what is not local."""
    if not is_local(logs):
        return None
    return sum(
        file.stat().st_size * (1 if file.suffix == ".jsonl" else _COMPRESSION) for file in log_files(Path(logs)) if file.exists()
    )


def no_logs(logs: str) -> ReportError:
    """The error for a folder without log files."""
    return ReportError(
        f"no *.jsonl, *.jsonl.gz or *.jsonl.zst file in {logs}: set logs.usage.path, or serve --logs DIR, on the proxy"
    )


def spark_path(logs: str) -> str:
    """`logs` as Spark reads it: absolute, and with the characters that Spark would glob taken literally."""
    path = "file:" + os.path.abspath(logs) if is_local(logs) else logs
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def relative_names(files: Sequence[str], logs: str) -> list[str]:
    """The names of files, from their URIs as Spark gives them, relative to `logs`; absolute where one does not lie below."""
    return [re.sub("^file:/+", "/", unquote(file)).removeprefix(root(logs)) for file in files]


def root(logs: str) -> str:
    """What the names of all files below `logs` begin with, a slash at its end."""
    return (os.path.abspath(logs) if is_local(logs) else logs).rstrip("/") + "/"


def local_files(logs: str) -> dict[str, list[int]]:
    """The log files of a local folder: URI -> size in bytes, and when it was written to, in milliseconds."""
    found = {}
    for file in log_files(Path(os.path.abspath(logs))):
        try:
            state = file.stat()
        except FileNotFoundError:  # rotated away
            continue
        found[f"file:{_QUOTED.sub(_quote, str(file))}"] = [state.st_size, state.st_mtime_ns // 1_000_000]
    return found


def _quote(found: re.Match[str]) -> str:
    return quote(found[0])


def log_files(folder: Path) -> Iterator[Path]:
    """The files that Spark will take for logs, also behind links: neither it nor this reads hidden ones."""
    seen = set()
    for path, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(path)
        if real in seen:  # a link to a folder around it
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield from (Path(path, name) for name in names if name.endswith(_SUFFIXES) and not name.startswith((".", "_")))
