"""The only asyncio: sockets, timers, start and stop.

- `connection`     one client's two sockets, as the `Port` of its session
- `turns`          turns of connections, so that one with much to do does not keep the others waiting
- `listeners`      the bootstrap port and one port per broker
- `directory`      brokers and topics, as sessions see the cluster
- `tls`            contexts for clients and brokers; why a connection failed, in words
- `upstream`       how brokers are reached: TLS, time, as whom
- `broker_client`  the proxy's own requests to a broker
- `follow`         asks the cluster for its brokers, again and again
- `volumes`        looks at the volumes of all brokers, or of this machine, again and again
- `desk`           where quotas are altered while the proxy runs
- `quota_topic`    the topic that keeps them
- `log_topic`      the topic that the usage log is sent to
- `own_topic`      what these topics have in common
- `fleet`          what this proxy shares with others, if anything
- `ledger`         carries sums to Redis and back
- `news`           carries what others have to know at once
- `redis_store`    how Redis is reached, and the script that keeps sums there
- `store`          what a store of sums says
- `admin`          /metrics, /healthz, /readyz
- `serve`          puts the parts together, runs them, stops them
- `supervise`      sees that no work of the proxy ends in silence
- `tuning`         malloc and the garbage collector, for large buffers and many small objects
"""
