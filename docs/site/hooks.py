"""What `mkdocs.yml` calls while the site is built: it makes the page of CHANGELOG.md, which stands outside of the pages' folder."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add `changelog.md`. Its links begin with `docs/`, as the file is read in the repository too; on the site they do not."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "changelog.md", content=text))
    return files
