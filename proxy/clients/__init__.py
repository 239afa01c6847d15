"""Sockets towards clients and operators.

- `listeners`   the bootstrap port and one port per broker
- `handover`    spreads connections evenly over the workers of one machine
- `connection`  one client's two sockets, as the `Port` of its session
- `turns`       turns of connections, so that one with much to do does not keep the others waiting
- `overdue`     closes connections that are overdue, and shares memory among the others
- `admin`       the HTTP server for operators: /metrics, /healthz, /readyz, /throttles, the console
- `admin_logins`  who may read there
"""
