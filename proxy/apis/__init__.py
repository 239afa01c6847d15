"""One file per Kafka API that the proxy touches. What is not here passes through untouched, whatever its version.

A handler gets one whole request and says what to do with it and with its response (`session.plans`). It does nothing itself.

- `registry`           all handlers by key; refuses two for one
- `api_versions`       18: clamps ranges to what is understood
- `addresses`          3, 10, 55, 60, 78, 79: broker addresses replaced; Metadata teaches the proxy its cluster
- `produce`            0: counted per topic; node endpoints replaced
- `fetch`              1: counted per topic as it streams; node endpoints replaced
- `sasl`               17, 36: watched, to learn the principal
- `create_topics`      19: controller mutations are charged, refused, throttled
"""
