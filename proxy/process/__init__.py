"""The process: how a proxy is started, kept running, reloaded and stopped.

- `serve`                 puts the parts together, runs them, stops them
- `reload`                reads settings again when they change
- `producer_id_snapshot`  the file in which producer ids outlive the proxy
- `service_manager`       tells systemd how far the proxy is
- `tuning`                malloc and the garbage collector, for large buffers and many small objects
"""
