"""What proxies of one cluster share.

- `fleet`        what this proxy shares with others, if anything
- `ledger`       sums that all proxies add to
- `events`       what the others have to know at once
- `members`      which processes there are, for people
- `store`        what a store has to do
- `redis_store`  Redis or Valkey as this store
- `shared_state` what a store keeps of sums and of who is present, without a clock
- `memory_store` this store in the memory of one process
- `shared_log`   what a log has to do that proxies share
- `log_records`  what stands in it
- `replica`      the state that its records make
- `log_follower` a process's copy of the state that such a log makes
- `log_store`    this store on such a log
- `channel`      questions and answers between two processes of one machine
- `channel_store` the store of the supervisor, as its workers reach it
"""
