"""The load-test harness. It shares the wire with the proxy, and nothing else.

- `bench`  what the proxy costs: CPU per frame beside a pass-through of raw sockets, in one run (`make bench`)
"""
