"""Who is on this connection. In: the SASL tokens that pass between client and broker, certificates that TLS has verified.
Out: the user, once the broker said yes. Secrets are not kept.

- `sasl`          one exchange, watched
- `certificates`  the user of a client's certificate: its name as Java writes it, Kafka's mapping rules
- `login`         the proxy's own exchange with a broker
"""
