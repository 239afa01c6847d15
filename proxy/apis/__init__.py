"""One file per Kafka API that the proxy touches. What is not here passes through untouched, whatever its version.

A handler gets one whole request and says what becomes of it and of its response (`session.plans`); one that has to wait first is a
generator, which yields what it waits for. It sends nothing itself.

- `registry`           all handlers by key; refuses two for one
- `api_versions`       18: clamps ranges to what is understood
- `addresses`          10, 52-55, 59, 60, 79, 82: addresses of brokers and controllers replaced
- `metadata`           3: the same; the proxy learns its cluster from it; topics that come by being named are charged
- `produce`            0: counted per topic; judged batch by batch where a quota has something to say; node endpoints replaced
- `produced`           what was counted of Produce requests, settled with the broker's answer
- `init_producer_id`   22: held, by setting, while its user has too many ids
- `fetch`              1: counted per topic as it streams, charged to the consumer byte rate; node endpoints replaced
- `share_fetch`        78: the same
- `streams`            what these two have in common
- `sasl`               17, 36: watched, to learn the principal
- `mutations`          what the next three have in common: charged, refused, throttled, settled with the broker's answer
- `create_topics`      19
- `create_partitions`  37
- `delete_topics`      20
- `streams_group_heartbeat` 88: internal topics that brokers create for Streams groups are charged
- `client_quotas`      48, 49: the proxy's own quotas beside those of the brokers
- `asking`             a question of the proxy's own to the client's broker: which topics there are, and how large
"""
