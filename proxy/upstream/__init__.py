"""What the proxy itself asks the brokers, and keeps there.

- `connector`        how brokers are reached: TLS, time, as whom
- `broker_client`    the proxy's own requests to a broker
- `cluster_client`   what the proxy asks of the cluster for itself: brokers, topics, log dirs
- `cluster_relay`    the same for workers, asked once by their supervisor
- `moments`          when workers look at the same time
- `metadata_poller`  asks the cluster for its brokers, again and again
- `directory`        brokers and topics, as sessions see the cluster
- `volumes`          looks at the volumes of all brokers, or of this machine, again and again
- `internal_topic`   what the topics that the proxy itself uses have in common
- `quota_store`      where quotas are kept that are altered while the proxy runs: what others need of it
- `quota_topic`      the topic that keeps them
- `quota_relay`      that topic for workers, read once by their supervisor
- `dynamic_quotas`   these quotas: how they are altered, and when they hold
- `quota_client`     reads and alters quotas, for commands
- `ledger_topic`     the topic by which proxies share quotas
- `log_topic`        the topic that the usage log is sent to
"""
