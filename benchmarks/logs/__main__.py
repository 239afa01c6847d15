"""`python -m benchmarks.logs --out DIR --lines N`: usage logs of realistic shape, see `benchmarks.logs`."""

from pathlib import Path

import click

from benchmarks.logs.generate import Wanted, generate
from benchmarks.logs.plan import make_plan


@click.command()
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder for the files.")
@click.option("--lines", default=1_000_000, show_default=True, help="About how many lines.")
@click.option("--days", default=14, show_default=True)
@click.option("--tenants", default=100, show_default=True)
@click.option("--brokers", default=3, show_default=True, help="With two volumes each.")
@click.option("--proxies", default=2, show_default=True)
@click.option("--owned-interval", default=0, help="Seconds between lines about what each tenant has; 0: none.")
@click.option("--skew", default=1.1, show_default=True, help="Exponent of Zipf's law for topics and traffic of tenants.")
@click.option("--most-topics", default=40, show_default=True, help="Topics of the first tenant.")
@click.option("--duplicates", default=0, show_default=True, help="Of a thousand lines, how many are written twice.")
@click.option("--bad", default=0, show_default=True, help="Of a million lines, how many are cut.")
@click.option("--form", type=click.Choice(["plain", "gzip"]), default="plain", show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(out: Path, tenants: int, brokers: int, skew: float, most_topics: int, seed: int, **wanted: int) -> None:
    """Write usage logs of realistic shape."""
    plan = make_plan(tenants, brokers, seed, skew=skew, most_topics=most_topics)
    wrote = generate(plan, Wanted(seed=seed, **wanted), out)  # type: ignore[arg-type]
    click.echo(f"{wrote.lines:,} lines, {wrote.text_bytes:,} bytes of text")


if __name__ == "__main__":
    main()
