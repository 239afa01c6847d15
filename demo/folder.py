"""Where a run leaves its results. In: a path. Out: an empty folder for a new run. Deletes only what a demo wrote: a folder
belongs to a demo if its settings file says so."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from demo import plan
from demo.errors import UsageError


@dataclass(frozen=True)
class Folder:
    """The paths of one run."""

    path: Path

    @property
    def settings(self) -> Path:
        """The proxy's settings file."""
        return self.path / "proxy.yaml"

    @property
    def proxy_log(self) -> Path:
        """The proxy's operations log: what it printed."""
        return self.path / "proxy.log"

    @property
    def usage(self) -> Path:
        """The folder of the proxy's usage log."""
        return self.path / "logs"

    @property
    def report(self) -> Path:
        """The folder of the capacity report."""
        return self.path / "report"


def prepare(path: Path) -> Folder:
    """Make the folder, or clear away what an earlier demo left in it. Errors: UsageError."""
    folder = Folder(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            _clear(folder)
        folder.settings.write_text(plan.settings_yaml(), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror}") from None
    return folder


def _clear(folder: Folder) -> None:
    if not folder.settings.is_file() or not folder.settings.read_text(encoding="utf-8").startswith(plan.SETTINGS_HEADER):
        raise UsageError(f"--out {folder.path}: holds files that no demo wrote; name another folder")
    for made in (folder.usage, folder.report):
        if made.exists():
            shutil.rmtree(made)
    folder.proxy_log.unlink(missing_ok=True)
