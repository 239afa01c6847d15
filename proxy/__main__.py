"""python -m proxy: the console command."""

import sys

# The codec imports Hypothesis where it is installed, as for developers; a third of a start's CPU time would be for that.
sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]

from proxy.cli import main  # noqa: E402

main()
