"""The command. In: options. Out: exit code 0, 1 when something failed, 2 when it cannot start here, 130 after Ctrl-C (143
after SIGTERM).

Imports little before it is called: `--help` needs no Kafka client."""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click
from rich.console import Console

from demo.errors import DemoError, UsageError
from loadtest.interrupt import interruptible

_NEEDED = {"confluent-kafka": 2, "kafka-python": 3, "pyspark": 4, "matplotlib": 3}
"""Distribution to the lowest major version that will do."""


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-out"),
    show_default=True,
    help="Folder for settings, logs and report; what an earlier demo left there is replaced.",
)
@click.option(
    "--seconds", type=click.IntRange(5, 300), default=10, show_default=True, help="Length of each of the first three phases."
)
@click.option("--brokers", type=click.IntRange(1, 3), default=1, show_default=True, help="How many brokers Kafka has.")
@click.option("--keep", is_flag=True, help="At the end leave Kafka and the proxy running until Ctrl-C.")
def demo(out: Path, seconds: int, brokers: int, keep: bool) -> None:
    """Real Kafka, proxy, load and report on this machine.

    Ordinary clients alone, then beside a storm of topic creations without a quota, then with one. Needs Java 17, no Kafka: that is
    fetched once (45 MB).
    """
    console = Console()
    with interruptible(lambda: console.print("stopped; nothing is left running", highlight=False)):
        sys.exit(_run(out, seconds, brokers, keep, console))


def _run(out: Path, seconds: int, brokers: int, keep: bool, console: Console) -> int:
    """The exit code; errors are printed."""
    from benchmarks.local_proxy import ProxyError
    from localkafka import FetchError, FormatError, JavaMissing, NodeError

    try:
        _check_packages()
        from demo.run import Options, run
        from demo.screen import Screen

        return run(Options(out, seconds, brokers, keep), Screen(console))
    except (UsageError, JavaMissing) as error:
        click.echo(f"kafka-quota-proxy demo: {error}", err=True)
        return 2
    except (DemoError, FetchError, FormatError, NodeError, ProxyError, OSError) as error:
        click.echo(f"kafka-quota-proxy demo: {error}", err=True)
        return 1


def _check_packages() -> None:
    """Errors: UsageError when a package is not there, or too old."""
    for name, lowest in _NEEDED.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "none"
        if found == "none" or int(found.split(".")[0]) < lowest:
            raise UsageError(f"needs {name} {lowest} or newer, found {found}: install kafka-quota-proxy[demo]")
