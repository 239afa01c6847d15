"""Page: the report as one HTML file that needs nothing else, from no network.

In: a `Report`. Out: the text of the file. Left to others: its sections (`sections`), its looks (`page.css`).
"""

from reports.render.sections.capacity import charges_section, quotas_section, volumes_section
from reports.render.sections.limits import limits_section
from reports.render.sections.log import log_section
from reports.render.sections.traffic import apis_section, principals_section, topics_section
from reports.render.sentences import sentences
from reports.summary.model import Report
from webpage.document import document
from webpage.html import Html, tag
from webpage.text import clean, count, counted, duration, moment, period, size

SOON = 30
"""Days within which a volume that fills is a warning."""
_TITLE = "Kafka quota proxy: capacity report"


def page(report: Report) -> str:
    """The whole page. Without a good line it says so, and shows what is in quarantine."""
    return document(_TITLE, _header(report), tag("main", *_sections(report)), _footer(report))


def _sections(report: Report) -> list[Html]:
    if report.first is None:
        return [log_section(report)]
    return [
        volumes_section(report.capacity, report.lines.volumes),
        quotas_section(report.capacity),
        limits_section(report.limits),
        principals_section(report.traffic),
        topics_section(report.traffic),
        apis_section(report.traffic),
        charges_section(report.capacity),
        log_section(report),
    ]


def _header(report: Report) -> Html:
    when = period(report.first, report.last) if report.first and report.last else "No time: no line could be used"
    short = tag("div", tag("ul", *(tag("li", text) for text in sentences(report))), class_="short")
    return tag("header", tag("h1", _TITLE), tag("p", when, class_="sub"), _tiles(report), short)


def _tiles(report: Report) -> Html:
    lines, traffic = report.lines, report.traffic
    lost = sum(writer.lost for writer in report.writers)
    missing = sum(writer.missing for writer in report.writers)
    return tag(
        "dl",
        _first_full(report),
        _tile("Produced", size(traffic.produced), f"{size(traffic.fetched)} fetched"),
        _tile("Refused", count(report.limits.refused), f"items; {count(report.limits.decisions)} decisions"),
        _tile("Proxies", count(len(report.proxies)), clean(", ".join(report.proxies), 60)),
        _tile("Lines read", count(lines.read), f"{count(lines.duplicates)} duplicates dropped"),
        _tile("Quarantined", count(lines.quarantined), "lines that could not be used", warn=lines.quarantined > 0),
        _tile("Lost", count(lost), f"lines in {counted(lines.gaps, 'gap')}; {count(missing)} missing", warn=lost > 0),
        class_="tiles",
    )


def _first_full(report: Report) -> Html:
    """When the first of all volumes reaches a level at which producing stops."""
    volumes = report.capacity.volumes
    told = [(level, row) for row in volumes for level in row.levels if level.day is not None and level.name != "soft"]
    if not told:
        text = (
            "no volume in the logs"
            if not volumes
            else "not foreseen within two years"
            if any(row.model for row in volumes)
            else "no forecast"
        )
        return _tile("First volume full", "–", text)
    level, row = min(told, key=lambda item: (item[0].day or report.made, item[1].name))
    days = ((level.day or report.made) - row.at).total_seconds() / 86_400
    when = "now" if level.already else f"in {days:.0f} days" if days >= 1.5 else "within two days"
    return _tile("First volume full", when, clean(f"{row.name}, its {level.name}", 60), warn=level.already or days < SOON)


def _tile(name: str, value: str, note: str, *, warn: bool = False) -> Html:
    return tag("div", tag("dt", name), tag("dd", value, tag("small", note)), class_="warn" if warn else None)


def _footer(report: Report) -> Html:
    return tag(
        "footer",
        f"Made {moment(report.made)} UTC from {clean(report.logs, 200)} by kafka-quota-proxy report. Sums go by the bucket of "
        f"{duration(report.seconds * 1000)} in which an interval starts. The Parquet tables beside this page have every row.",
    )
