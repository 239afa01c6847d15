"""python -m proxy.process: a worker (`worker.py`), with what its supervisor gives it as argument."""

import sys

for name in ("hypothesis", "rich"):
    sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # see proxy/__main__.py

from proxy.process.worker import main  # noqa: E402

sys.exit(main())
