"""One client connection: state, in-flight queue, mute, merge. Sans-IO: callbacks in, calls on a small port out.

- `port`      what a session needs of the outside: where bytes go, a timer, and whom to tell
- `tally`     sums of traffic that sessions add to and observers read
- `plans`     what is to be done with the response of a request: whole or while it streams
- `session`   the connection itself: cuts frames, keeps the order of answers, mutes
"""
