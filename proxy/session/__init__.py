"""One client connection: state, in-flight queue, mute, merge. Sans-IO: callbacks in, calls on a small port out.

- `port`      what a session needs of the outside: where bytes go, a timer, and whom to tell
- `tally`     sums of traffic that sessions add to and observers read
- `requester` who sent a request, for logs
- `pending`   what the proxy does for a request outside of its connection
- `plans`     what is to be done with a request, and with its response: whole or while it streams
- `answers`   the in-flight queue: answers matched with their requests, in order
- `throttled` the answer to a request of a client that is throttled
- `client`    who is on the connection, and the sums that its traffic goes to
- `admission` whether a connection is let in: what brokers have shown so far
- `knock`     the question by which the proxy sees whether a broker serves a connection
- `budget`    the memory that all sessions may hold together, and how many connections there may be
- `presence`  how many connections users have at other proxies
- `dynamic_quotas`      where quotas are altered, as sessions see it
- `expected`  topics that clients had created by naming them and that are about to be there
- `topologies`  of Streams groups, whose internal topics brokers create
- `session`   the connection itself: cuts frames, judges requests, mutes, keeps to its limits
"""
