"""What is known of the cluster. In: what brokers say, to clients or to the proxy itself. Out: where a broker is, and
under which address clients see it.

- `brokers`  node ids and real addresses
- `routes`   what clients of a listener are shown instead: ports, or names for SNI
- `topics`   topic ids and their names
- `quota_records`  quotas as records of a topic
"""
