"""The console command, and python -m proxy: what has to be before the first import of the rest."""

import signal
import sys

# The codec imports Hypothesis where it is installed, as for developers; a third of a start's CPU time would be for that.
sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]

if sys.argv[1:2] == ["serve"]:  # a SIGHUP that comes before the proxy knows what to do with it waits until then
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # structlog would import it, to show errors that nobody sees

from proxy.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
