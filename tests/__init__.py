"""Tests mirror the packages. `support` plays client and broker, `messages` makes any message of the protocol;
`python -m tests.fuzz` mutates them by the million."""
