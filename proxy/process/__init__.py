"""The process: how a proxy is started, kept running, reloaded and stopped.

- `serve`                 runs a proxy until it is told to stop
- `supervised`            a proxy of several workers, as `serve` runs one
- `workers`               these workers, as their supervisor sees them
- `worker`                one worker, a process of its own
- `worker_role`           what a proxy knows that is a worker
- `alone`                 whether it enforces quotas by itself beside others
- `admin`                 its admin listener
- `proxy`                 one running proxy: its parts, how it starts and stops
- `ledger_topic`          who follows the ledger topic, where the ledger is in one
- `logs`                  its logs and who writes to them
- `start_error`           why it cannot start
- `starting`              starts it, unless it is told to stop before
- `reload`                reads settings again when they change
- `producer_id_snapshot`  the file in which producer ids outlive the proxy
- `service_manager`       tells systemd how far the proxy is
- `tuning`                malloc and the garbage collector, for large buffers and many small objects
"""
