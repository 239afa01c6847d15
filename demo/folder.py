"""Where a run leaves its results. In: a path. Out: an empty folder for a new run. Deletes only what a demo wrote: a folder
belongs to a demo if its settings file says so."""

import secrets
import shutil
from pathlib import Path

from demo import plan
from demo.errors import UsageError


class Folder:
    """The paths of one run: the proxy's settings file, the password of all users, the proxy's operations log (what it printed), the
    folder of its usage log, proposed quotas, and the folder of the capacity report."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings, self.proxy_log = path / "proxy.yaml", path / "proxy.log"
        self.password, self.proposed = path / "password", path / "proposed.yaml"
        self.usage, self.report = path / "logs", path / "report"


def prepare(path: Path) -> Folder:
    """Make the folder, or clear away what an earlier demo left in it. Errors: UsageError."""
    folder = Folder(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            _clear(folder)
        folder.settings.write_text(plan.settings_yaml(folder.password.absolute()), encoding="utf-8")
        folder.proposed.write_text(plan.what_if_yaml(), encoding="utf-8")
        folder.password.touch(mode=0o600)
        folder.password.write_text(secrets.token_hex(16), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror}") from None
    return folder


def _clear(folder: Folder) -> None:
    if not folder.settings.is_file() or not folder.settings.read_text(encoding="utf-8").startswith(plan.SETTINGS_HEADER):
        raise UsageError(f"--out {folder.path}: holds files that no demo wrote; name another folder")
    for made in (folder.usage, folder.report):
        if made.exists():
            shutil.rmtree(made)
    for file in (folder.proxy_log, folder.password, folder.proposed):
        file.unlink(missing_ok=True)
