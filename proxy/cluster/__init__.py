"""What is known of the cluster. In: what brokers say, to clients or to the proxy itself. Out: where a broker is, and
under which address clients see it.

- `brokers`  node ids, real addresses, and the ports of the proxy that stand for them
- `topics`   topic ids and their names
"""
