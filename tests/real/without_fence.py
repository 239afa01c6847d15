"""The proxy with its sequence fence taken out: `python -m tests.real.without_fence serve ...`. To show what the fence is for."""

from proxy.cli import main
from quota.fence import Fence

Fence.blocks = lambda *_: None  # type: ignore[method-assign]
if __name__ == "__main__":
    main()
