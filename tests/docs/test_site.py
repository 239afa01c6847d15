"""The documentation as a site: it builds without a warning, every link leads to something, and its pages need no other host."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
from markdown.extensions.toc import slugify
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[2]
BESIDE = ["README.md", "DESIGN.md", "CHANGELOG.md", "deploy/README.md"]
"""Files that are read in the repository alone."""
LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("object", "data")}


class Page(HTMLParser):
    """What a page links to and loads, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif (tag, name) in LOADS and value:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A warning of MkDocs ends the build."""
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_link_leads_to_a_page_and_an_anchor(pages: dict[Path, Page]) -> None:
    assert len(pages) > 30
    broken = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].ids if target in pages else {unquote(parts.fragment)}
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append(f"{path.name}: {link}")
    assert broken == []


def test_pages_load_nothing_from_other_hosts(site: Path, pages: dict[Path, Page]) -> None:
    loaded = {(path.name, what) for path, page in pages.items() for what in page.loaded}
    assert ("index.html", "assets/stylesheets/" + next(site.glob("assets/stylesheets/main.*.css")).name) in loaded, "it is found"
    assert [(name, what) for name, what in loaded if urlsplit(what).netloc] == []
    sheets = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert [found for sheet in sheets for found in re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)\"']*", sheet)] == []


def test_pictures_of_the_console_and_the_report_are_there_and_small(site: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in (site / "img").glob("*.png")}
    assert {"console.png", "console-dark.png", "console-phone.png", "report.png"} <= sizes.keys()
    assert all(1000 < size < 200_000 for size in sizes.values()), sizes


@pytest.mark.parametrize("name", BESIDE)
def test_links_of_files_beside_the_site_lead_somewhere(name: str) -> None:
    page = ROOT / name
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    broken = []
    for path, _, anchor in (link.partition("#") for link in links if "://" not in link):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(f"{path}#{anchor}")
    assert links
    assert broken == []


def anchors_of(page: Path) -> set[str]:
    """Anchors of the headings of a Markdown file."""
    return {slugify(re.sub(r"[`*]", "", line.lstrip("# ")), "-") for line in page.read_text().splitlines() if line.startswith("#")}
