"""The report as one HTML file that needs nothing else, from no network.

In: a `Report`. Out: the text of the file, from the template `report.html`. Left to others: texts of cells (`words`), plots
(`plots`), escaping and looks (`webpage`).
"""

from reports.render import words
from reports.render.plots import page_plots
from reports.render.sentences import sentences
from reports.summary.model import Report
from webpage.templates import render
from webpage.text import period

_TITLE = "Kafka quota proxy: capacity report"


def page(report: Report) -> str:
    """The whole page. Without a valid line it says so, and shows what is in quarantine."""
    return render(
        "reports.render",
        "report.html",
        title=_TITLE,
        report=report,
        period=period(report.first, report.last) if report.first and report.last else "No time: no line could be used",
        sentences=sentences(report),
        plots=page_plots(report),
        words=words,
    )
