"""`python -m localkafka` runs a cluster until Ctrl-C or SIGTERM.

In: arguments. Out: the bootstrap servers on standard output, progress on standard error, exit code 0 after a stop by signal.
Leaves to others: everything else.
"""

import argparse
import signal
import sys
from types import FrameType

from localkafka.archive import prepare
from localkafka.cluster import LocalCluster
from localkafka.jars import DEFAULT_VERSION
from localkafka.java import JavaMissing
from localkafka.node import NodeError
from localkafka.resolver import FetchError
from localkafka.storage import FormatError
from localkafka.versions import full_version


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit code is 0 for a stop by signal, 1 with the reason on standard error for a failure."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if options.fetch_only:
            prepare(options.version, _say)
        else:
            _serve(options)
    except KeyboardInterrupt:
        return 0
    except (JavaMissing, FetchError, FormatError, NodeError, ValueError) as error:
        _say(str(error))
        return 1
    return 0


def _serve(options: argparse.Namespace) -> None:
    with LocalCluster(
        options.brokers,
        version=options.version,
        log_dirs=options.log_dirs,
        properties=dict(options.property),
        sasl=dict(options.sasl) or None,
        progress=_say,
    ) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        _say("running; Ctrl-C stops it")
        while True:
            signal.pause()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m localkafka", description="Run a real Apache Kafka on loopback until Ctrl-C.")
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 2, 3))
    parser.add_argument("--log-dirs", type=int, metavar="N", help="log dirs per broker (2, before Kafka 3.7 1)")
    parser.add_argument("--version", type=full_version, default=DEFAULT_VERSION, help=f"of Kafka, such as 3.9 ({DEFAULT_VERSION})")
    parser.add_argument(
        "--sasl", type=_pair(":"), nargs="+", default=[], metavar="USER:PASSWORD", help="clients must log in as one of these"
    )
    parser.add_argument(
        "--property", type=_pair("="), action="append", default=[], metavar="NAME=VALUE", help="for server.properties"
    )
    parser.add_argument("--fetch-only", action="store_true", help="only fill the cache, if Kafka is not in it")
    return parser


class _pair:  # noqa: N801 - argparse names the type in its messages
    """Splits `a<mark>b` in two."""

    def __init__(self, mark: str) -> None:
        self._mark = mark

    def __call__(self, text: str) -> tuple[str, str]:
        name, mark, value = text.partition(self._mark)
        if not (name and mark and value):
            raise argparse.ArgumentTypeError(f"{text!r} has no {self._mark!r} with something on both sides")
        return name, value


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
