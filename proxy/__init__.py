"""The data plane: bytes in, decisions applied, bytes out.

A client connects to a listener of `clients`; its bytes go to a `session`, which cuts frames with `wire`, asks `apis` what
to do with each, asks `quota` what a request may cost, and hands the same buffers on to the broker. The answer comes
back the same way. `observe` is told and changes nothing.

- `config/`    the settings file: models, loading; every error names the key, the line and what would be right
- `wire/`      bytes <-> meaning. No I/O, no clock, no quotas
- `apis/`      one file per Kafka API that the proxy touches, and a registry that refuses duplicates
- `session/`   one client connection: state, in-flight queue, mute, merge. Sans-IO: callbacks in, calls on a small port out
- `cluster/`   what is known of the cluster: brokers and their addresses, topic ids
- `identity/`  who is on this connection
- `clients/`   sockets towards clients and operators: listeners, connections, admin HTTP
- `upstream/`  what the proxy itself asks the brokers and keeps there: brokers, volumes, quotas, logs
- `fleet/`     what proxies of one cluster share
- `process/`   start, stop, reload
- `supervise`  sees that no work of the proxy ends in silence
- `tls`        TLS contexts for clients and brokers; why a connection failed, in words
- `observe/`   operations log, metrics, usage log. Sees everything, changes nothing
- `operate/`   commands for operators
- `cli`        the console command
- `hashing`    MurmurHash3 of ids, for the filters of `quota`
- `compiled`   where Python finds the hot path: compiled, if there is a build of these very sources, else as it is read
"""

from proxy import compiled

compiled.use()
