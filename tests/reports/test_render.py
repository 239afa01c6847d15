"""What people see: text of logs is harmless, numbers are readable, the page needs nothing else."""

import hashlib
import re
import warnings
from base64 import b64encode
from dataclasses import replace
from datetime import timedelta
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from advice.limits import HeldBack
from advice.use import Use
from reports.render import words
from reports.render.sentences import sentences
from reports.render.terminal import summary
from reports.summary.model import (
    Api,
    Budget,
    Capacity,
    Charge,
    Charges,
    Compared,
    Decision,
    DrivingTopic,
    Latency,
    Level,
    Limits,
    Lines,
    Party,
    Path,
    Quarantined,
    QuotaRow,
    ReasonRow,
    Refusal,
    Report,
    Series,
    Silence,
    TenantRow,
    Tenants,
    Topic,
    Traffic,
    VolumeRow,
    Writer,
)
from reports.tables import NAMES
from tests.reports.logs import NOON
from webpage import text

NEEDS_MATPLOTLIB = pytest.mark.skipif(find_spec("matplotlib") is None, reason="there is no matplotlib")
pytestmark = NEEDS_MATPLOTLIB
EVIL = '<script>alert("1")</script>&amp;$x_{$\x1b[31m\u202e[bold]\n'
SHOWN = "&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;&amp;amp;$x_{$\\x1b[31m\\u202e[bold]\\n"


def series(*keys: str | None, values: float = 1) -> Series:
    """Three buckets with the same values."""
    return Series(round(NOON.timestamp()), 10, keys, tuple((values, 0.0, values * 2) for _ in keys))


def capacity_of(name: str) -> Capacity:
    """Two volumes, one without a forecast; a limit; a charge; a silence."""
    seconds = round(NOON.timestamp())
    levels = (Level("limit", 90, NOON + timedelta(days=9), NOON + timedelta(days=8), None), Level("full", 100, NOON, already=True))
    volume = VolumeRow(
        1,
        name,
        NOON,
        100,
        50,
        levels,
        days=20,
        drivers=(DrivingTopic(name, 20, 10, ((name, 0.5),)),),
        path=Path(((seconds, 40), (seconds + 60, 50)), ((seconds + 60, 50.0, 49.0, 51.0), (seconds + 90, 60.0, 50.0, 70.0))),
        model="robust line",
        per_day=1.0,
        per_day_low=0.5,
        per_day_high=1.5,
        tested_days=7,
        tested_error=2.0,
        tested_inside=6,
        proposed=levels,
        factor=0.5,
    )
    unknown = VolumeRow(None, name, NOON, 100, 50, (), (), Path(((seconds, 40),)), days=1, reason="too little history")
    held_back = HeldBack(throttled=40, throttled_seconds=32.0, refused=523, intervals=30, limit=10.0)
    hit = QuotaRow(name, name, 10.0, "hit", suggested=12.0, used=Use(40, 9.5, 10.0), held_back=held_back)
    over = QuotaRow(name, name, 10.0, "over", suggested=12.0)
    compared = Compared(name, (hit, over), 2, 1, 1, 0, (name,))
    charges = Charges((Charge(name, 1, 2, 3, 4.0),), 1, 4.0, name, priced=True)
    levels = (Level("soft", 60, NOON, NOON, NOON, already=True), Level("hard", 100, NOON + timedelta(days=9)))
    growth: dict[str, Any] = {"days": 20, "model": "line", "per_day": 1.0}
    budget = Budget(name, NOON, 70, 100, levels, volume.path, levels[1:], 0.5, **growth)
    tenant = TenantRow(name, NOON, 3, 12, 70, 0.5, 4, 5, 6, 7, 8, name, 9)
    tenants = Tenants((tenant,), 1, told=True, members=True, budgets=(budget,), budget_count=1)
    return Capacity((volume, unknown), compared, compared, charges, (Silence(name, NOON, 7200),), tenants)


def report_of(name: str) -> Report:
    """A report in which every text that a log can hold is `name`."""
    party = Party(name, name, 10, 20, 3, 4, 5, 6, 7.0)
    reason = ReasonRow(name, "enforce", "throttle", name, name, 9, 8, 7000, 6.5, 5.0, NOON, name)
    decision = Decision(NOON, name, name, "enforce", name, name, name, name, name, name, 1, (name, name), 2.0, 1.0, 3, name)
    return Report(
        logs=name,
        made=NOON,
        first=NOON,
        last=NOON + timedelta(seconds=30),
        seconds=10,
        lines=Lines(9, 5, 2, 1, 0, 1),
        writers=(Writer(name, name, 1, 9, 8, 0, 1, 1, NOON, NOON),),
        quarantine=(Quarantined("cut", name, 1, name, name),),
        traffic=Traffic(
            principals=(party,),
            principal_count=21,
            clients=(party, replace(party, client_id=None)),
            client_count=2,
            topics=(Topic(name, 10, 20, 5, 1.0, name),),
            topic_count=1,
            apis=(Api(name, 3, 10, 20, 4, 5),),
            produced=10,
            fetched=20,
            requests=3,
            topic_produced=10,
            produced_by_principal=series(name, None),
            fetched_by_principal=series(name),
            produced_by_topic=series(name),
            fetched_by_topic=series(),
            latencies=(Latency(name, 1, name, 3, 1.0, 2.0, 3.0, 4.0),),
            latency_count=1,
        ),
        limits=Limits(
            refusals=(Refusal(name, name, 6),),
            refused=6,
            reasons=(reason,),
            latest=(decision,),
            decisions=9,
            watching=(name,),
            refused_by_quota=series(name),
            decisions_by_entity=series(name),
            throttle_by_principal=series(name, values=0),
        ),
        capacity=capacity_of(name),
    )


def page(report: Report) -> str:
    """It needs matplotlib, which only the worker that runs these tests is to import."""
    from reports.render.page import page as made

    return made(report)


@cache
def page_of(name: str) -> str:
    """The page of this report, once: its plots take long."""
    return page(report_of(name))


class Page(HTMLParser):
    """Elements with their attributes, as a browser would find them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep it."""
        self.elements.append((tag, dict(attrs)))


def test_text_of_logs_is_escaped_wherever_it_is_shown() -> None:
    html = page_of(EVIL)
    assert html.count("<script") == 1, "the page's own"
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert html.count(SHOWN) > 40
    assert {tag for tag, _ in Page(html).elements} == {tag for tag, _ in Page(page_of("alice")).elements}


def printed(report: Report) -> str:
    """What the terminal shows."""
    out = StringIO()
    Console(file=out, width=400, force_terminal=True, color_system=None).print(summary(report))
    return out.getvalue()


def test_text_of_logs_is_no_markup_for_the_terminal() -> None:
    shown = printed(report_of(EVIL))
    assert "\\x1b[31m\\u202e[bold]\\n" in shown
    assert "\x1b[31m" not in shown
    assert "\u202e" not in shown


def test_the_page_needs_no_other_file_and_may_load_none() -> None:
    html = page_of("alice")
    for tag, attributes in Page(html).elements:
        assert tag not in {"link", "img", "iframe", "base", "object"}
        assert not attributes.get("src")
        target = attributes.get("href") or attributes.get("xlink:href") or "#"
        assert target.startswith("#") or target.rstrip("/") in NAMES, "a place in the page, or a table beside it"
    assert not re.search(r"url\((?!#)|@import", html)


def test_no_script_but_the_pages_own_may_run() -> None:
    html = page_of("alice")
    (script,) = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    allowed = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'" in html
    assert not [name for _, attributes in Page(html).elements for name in attributes if name.startswith("on")]


def test_every_section_is_in_the_table_of_contents() -> None:
    report = report_of("alice")
    for one in (report, replace(report, capacity=Capacity()), replace(report, first=None, last=None)):
        html = page(one)
        listed = re.findall(r'<li><a href="#([a-z-]+)">', html)
        assert listed == re.findall(r'<section id="([a-z-]+)">', html)
        assert listed[-1] == "log"


def test_weeks_are_compared_those_that_changed_most_first() -> None:
    report = report_of("alice")
    (party,), (topic,) = report.traffic.principals, report.traffic.topics
    assert "Week over week" not in page_of("alice")
    principals = (party, replace(party, principal="bob", last_week=3 * 2**20, week_before=2**20, growth=2.0))
    topics = (replace(topic, last_week=0, week_before=9 * 2**20, growth=-1.0),)
    compared = replace(report, traffic=replace(report.traffic, principals=principals, topics=topics))
    assert [row.name for row in words.changed_most(compared.traffic)] == ["topic alice", "principal bob"]
    html = page(compared)
    assert "3.0 MiB" in html
    assert "+200%" in html


def test_plots_take_their_colours_from_the_page_and_share_no_ids() -> None:
    html = page_of("alice")
    drawings = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(drawings) == 7
    assert all("var(--s1)" in drawing and "#0a0b" not in drawing and "#0102" not in drawing for drawing in drawings)
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', html)) <= set(ids)


def test_plots_tell_their_values_where_a_pointer_rests() -> None:
    from reports.render.plots import page_plots  # takes matplotlib

    report = report_of("alice")
    traffic = replace(report.traffic, produced_by_principal=series("alice", EVIL, values=20480))
    drawings = page_plots(replace(report, traffic=traffic))
    titles = re.findall(r'<rect class="value" [^>]*><title>([^<]*)</title>', drawings.principals[0].svg or "")
    assert [title.splitlines()[0] for title in titles] == ["2026-03-01 12:00:00", "2026-03-01 12:00:10", "2026-03-01 12:00:20"]
    assert titles[1].splitlines()[1:] == ["nothing"]
    assert titles[2].splitlines()[1] == "alice: 4.0 KiB/s"
    assert titles[2].splitlines()[2].startswith("&lt;script&gt;")
    volume = re.findall(r"<title>([^<]*)</title></rect>", drawings.volumes[0].svg or "")
    assert [title.splitlines()[1] for title in volume] == ["40 B used", "50 B used", "60 B forecast"]


def test_what_is_not_there_is_said_in_words() -> None:
    html = page_of("alice")
    assert "Nobody was throttled." in html
    assert "No topic was fetched from." in html
    assert "The 1 largest of 21 principals." in html
    assert "(no client id)" in html


def test_a_quota_that_only_watches_refused_nobody() -> None:
    report = report_of("alice")
    assert "alice would have been refused most: 6 items by the quota alice." in sentences(report)
    enforced = replace(report, limits=replace(report.limits, watching=()))
    assert "alice was refused most: 6 items by the quota alice." in sentences(enforced)


def test_a_refusal_that_only_a_decision_tells_of_is_told() -> None:
    limits = report_of("bob").limits
    reason = replace(limits.reasons[0], action="refuse", mode="observe", quota="storage", entity="everybody")
    said = sentences(replace(report_of("bob"), limits=replace(limits, reasons=(reason,))))
    assert any(
        text.startswith(
            "The quota storage would have refused everybody: 9 times on bob, for 7 s at most, at the furthest with a usage of 6 B"
        )
        for text in said
    )


def test_missing_line_numbers_are_told_when_nothing_explains_them() -> None:
    report = report_of("alice")
    gone = replace(report, writers=(replace(report.writers[0], missing=12),))
    assert not any("missing" in sentence for sentence in sentences(report))
    assert (
        sentences(gone)[-1]
        == "12 line numbers are missing, more than lost and quarantined lines explain. A log file may be missing."
    )


def test_the_first_volume_to_fill_is_told() -> None:
    report = report_of("alice")
    volume = report.capacity.volumes[0]
    later = replace(report, capacity=replace(report.capacity, volumes=(replace(volume, levels=volume.levels[:1]),)))
    assert sentences(report)[0] == "Broker 1 alice has reached its size (100 B); it is 50% full."
    assert (
        sentences(later)[0]
        == "Broker 1 alice will be the first volume to reach its limit (90 B): on 2026-03-10, not before 2026-03-09."
    )
    assert sentences(later)[1] == "The topic that grew most on it is alice, produced mostly by alice."
    assert "There is no forecast for 1 volume: too little history." in sentences(report)


def test_old_logs_are_dated_and_what_has_passed_is_said() -> None:
    report = report_of("alice")
    volume = report.capacity.volumes[0]
    capacity = replace(report.capacity, volumes=(replace(volume, levels=volume.levels[:1]),))
    old = replace(report, capacity=capacity, made=NOON + timedelta(days=240))
    assert sentences(old)[:2] == [
        "The newest line is 239 days old (2026-03-01 12:00:30): forecasts begin there, not today.",
        "Broker 1 alice was the first volume expected to reach its limit (90 B): on 2026-03-10, not before 2026-03-09, "
        "as of 2026-03-01. That day has passed.",
    ]
    html = page(old)
    assert "date passed" in html
    assert '<span class="tag near">passed</span>' in html
    assert "as of 2026-03-01" in html
    assert "2026-03-10 (passed)" in printed(old)
    assert "(passed)" not in printed(replace(old, made=NOON))
    fresh = page(replace(old, made=NOON))
    assert "in 9 days" in fresh
    assert "passed</span>" not in fresh
    assert "as of 2026" not in fresh


def test_a_volume_at_its_limit_is_not_called_full() -> None:
    report = report_of("alice")
    volume = replace(report.capacity.volumes[0], used=94, levels=(Level("limit", 90, NOON, already=True), Level("full", 100)))
    at_limit = replace(report, capacity=replace(report.capacity, volumes=(volume,)))
    assert words.first_full(at_limit)[:2] == ("at its limit", "broker 1 alice, its limit; 94% full")
    assert sentences(at_limit)[0] == "Broker 1 alice has reached its limit (90 B); it is 94% full."


def tenants_of(**changes: Any) -> Report:
    report = report_of("alice")
    return replace(report, capacity=replace(report.capacity, tenants=replace(report.capacity.tenants, **changes)))


def test_the_tenant_whose_budget_ends_first_is_told() -> None:
    (budget,) = tenants_of().capacity.tenants.budgets
    soft, hard = budget.levels
    ends = replace(budget, levels=(soft, replace(hard, early=NOON + timedelta(days=7))))
    what = "reach its limit of stored bytes (100 B): on 2026-03-10, not before 2026-03-08."
    assert f"Tenant alice will be the first tenant to {what}" in sentences(tenants_of(budgets=(ends,)))
    full = replace(budget, tenant="bob", levels=(soft, replace(soft, name="hard", at_bytes=100)))
    both = sentences(tenants_of(budgets=(full, ends), full=1))
    assert "Tenant bob has reached its limit of stored bytes (100 B)." in both
    assert f"Tenant alice will be the next tenant to {what}" in both
    many = sentences(tenants_of(budgets=(full, full), full=41))
    assert "41 tenants have reached their limits of stored bytes, bob among them (100 B)." in many
    never = replace(budget, levels=(soft, Level("hard", 100)))
    assert "enant" not in " ".join(sentences(tenants_of(budgets=(never,))))


def test_the_budgets_to_act_on_are_drawn_those_not_reached_yet_first() -> None:
    from reports.render.plots import MAX_BUDGETS, page_plots

    (budget,) = tenants_of().capacity.tenants.budgets
    full = replace(budget, levels=tuple(replace(level, already=True) for level in budget.levels))
    many = [*(replace(full, tenant=f"full-{n}") for n in range(20)), *(replace(budget, tenant=f"ends-{n}") for n in range(4))]
    drawn = page_plots(tenants_of(budgets=(*many, replace(budget, tenant="new", path=Path())))).budgets
    names = [*(f"ends-{n}" for n in range(4)), "full-0", "full-1"]
    assert [one.title for one in drawn] == [f"tenant {name}" for name in names]
    assert len(drawn) == MAX_BUDGETS
    assert all(one.svg and "60 B forecast" in one.svg for one in drawn)


def test_a_budget_that_only_proposed_quotas_have_says_when_it_would_end() -> None:
    (budget,) = tenants_of().capacity.tenants.budgets
    proposed = replace(budget, limit=None, levels=())
    html = page(tenants_of(budgets=(proposed,)))
    assert "hard: 100 B; 50% of the growth is left" in html
    assert "enant alice" not in " ".join(sentences(tenants_of(budgets=(proposed,)))), "no limit that is in force"
    assert words.days_left(proposed, tenants_of()) == "–"
    assert "With proposed quotas" not in page(replace(tenants_of(budgets=()), capacity=Capacity()))


def test_without_lines_or_limits_of_tenants_the_page_says_what_is_needed() -> None:
    nothing = page(replace(tenants_of(), capacity=Capacity()))
    assert "The logs have no lines of type owned" in nothing
    assert "there are no budgets" not in nothing
    no_limits = page(tenants_of(budgets=(), members=False))
    assert "No settings file says which limits tenants have (--quotas)" in no_limits
    assert '<th scope="col">Days left</th>' not in no_limits
    assert "Largest topic" not in no_limits, "nobody knows whose users and topics they are"


def test_settings_that_the_report_does_not_look_at_are_named() -> None:
    report = report_of("alice")
    quotas = replace(report.capacity.quotas, not_looked_at=("quotas.storage.max_used",))
    told = replace(report, capacity=replace(report.capacity, quotas=quotas))
    assert "The report does not look at these settings of alice: quotas.storage.max_used." in sentences(told)
    assert "Not looked at: quotas.storage.max_used." in page(told)
    assert "not look at" not in " ".join(sentences(report))


@pytest.mark.parametrize(
    ("quota", "action", "shown"),
    [
        ("storage", "throttle", "2.0 KiB/s"),
        ("storage", "refuse", "2.0 KiB"),
        ("storage", "hold", "2.0 KiB"),
        ("tenant_stored_bytes", "throttle", "2.0 KiB/s"),
        ("topic_stored_bytes", "refuse", "2.0 KiB"),
        ("producer_byte_rate", "throttle", "2.0 KiB/s"),
        ("controller_mutations", "refuse", "2,048"),
    ],
)
def test_what_is_full_is_told_in_bytes_and_what_slows_in_bytes_a_second(quota: str, action: str, shown: str) -> None:
    assert words.decided(quota, action, 2048) == shown


def test_an_empty_log_is_told_from_one_without_a_good_line() -> None:
    empty = replace(report_of("alice"), first=None, last=None, writers=())
    assert sentences(replace(empty, lines=Lines(0, 0, 0, 0, 0, 0)))[0] == "The log files are empty."
    assert sentences(replace(empty, lines=Lines(1, 0, 0, 0, 0, 1)))[0].startswith("None of 1 line could be used")


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0 B"), (1023, "1,023 B"), (1024, "1.0 KiB"), (1.5 * 2**30, "1.5 GiB"), (2**62, "4,096.0 PiB")]
)
def test_sizes(value: float, shown: str) -> None:
    assert text.size(value) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "0 s"),
        (850, "850 ms"),
        (12_500, "12.5 s"),
        (59_999, "60 s"),
        (200_000, "3 min 20 s"),
        (3_600_000, "1 h"),
        (187_200_000, "2 d 4 h"),
        (86_400_000 * 4000, "4,000 d"),
    ],
)
def test_durations(milliseconds: float, shown: str) -> None:
    assert text.duration(milliseconds) == shown


@pytest.mark.parametrize(
    ("part", "whole", "shown"), [(0, 0, "0%"), (1, 1000, "<1%"), (1, 2, "50%"), (2, 2, "100%"), (36, 2, "1,800%")]
)
def test_shares(part: float, whole: float, shown: str) -> None:
    assert text.percent(part, whole) == shown


@pytest.mark.parametrize(("number", "shown"), [(5.0, "5"), (1234.567, "1,234.57"), (0.1, "0.1"), (1e300, "1e+300")])
def test_numbers(number: float, shown: str) -> None:
    assert text.decimal(number) == shown


def test_long_names_are_cut() -> None:
    assert text.clean("x" * 1000, 10) == "x" * 9 + "…"


def test_names_in_any_script_are_drawn_without_complaints():
    from webpage.drawing import drawing

    names = ["日本語のトピック", "emoji 🚀"]
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        drawn = drawing(lambda axes: axes.set_yticks([0, 1], names), "f1", "title", "caption")
    assert not complaints
    assert all(name in str(drawn.svg) for name in names)


def test_who_hit_a_limit_is_said_to_have_hit_it_with_the_numbers() -> None:
    said = " ".join(sentences(report_of("alice")))
    assert "Of 2 owners of limits in force, 1 hit them, 1 more went over and 0 came near" in said
    assert "alice was throttled 40 times, for at least 32 s and refused 523 times by alice." in said
    why = "p99 of 40 intervals 9.5/s; hit its limit of 10/s in 30: throttled 40 times, for at least 32 s and refused 523 times"
    assert why in page_of("alice")


def test_what_its_maker_says_about_the_logs_stands_at_the_top_as_text() -> None:
    html = page(replace(report_of("alice"), note="The first week is <b>generated</b>."))
    assert "The first week is &lt;b&gt;generated&lt;/b&gt;." in html
    assert html.index("The first week is") < html.index('class="tiles"')
    assert "The first week" not in page_of("alice")
