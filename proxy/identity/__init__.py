"""Who is on this connection. In: the SASL tokens that pass between client and broker. Out: the user, once the broker
said yes. Secrets are not kept.

- `sasl`   one exchange, watched
"""
