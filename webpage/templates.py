"""Pages from Jinja2 templates, which are `.html` files of the packages that have pages.

In: a package, the name of a template in it, values. Out: the text of the page. Nothing gets into a page as it is, except the text
of templates and `Markup`, which only `webpage.drawing` makes: whatever a template shows is written without characters that cannot
be seen (`webpage.text.printable`), and escaped.
"""

import hashlib
from base64 import b64encode
from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from webpage import text

FILTERS = (
    text.clean,
    text.client,
    text.count,
    text.counted,
    text.day,
    text.decimal,
    text.duration,
    text.moment,
    text.or_dash,
    text.percent,
    text.rate,
    text.signed_percent,
    text.size,
    text.size_signed,
)
"""Functions of `webpage.text` that templates use as filters, by their names."""


def render(package: str, template: str, **values: object) -> str:
    """The page that a template of `package` makes of `values`."""
    return _environment(package).get_template(template).render(values)


def sha256(script: str) -> str:
    """What a Content-Security-Policy calls an inline script by."""
    return f"sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


@cache
def _environment(package: str) -> Environment:
    loader = ChoiceLoader([PackageLoader(package, "."), PackageLoader("webpage", ".")])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, finalize=_printable, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {function.__name__: function for function in (*FILTERS, sha256)}
    return environment


def _printable(value: object) -> object:
    return text.printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
