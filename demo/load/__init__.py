"""Room demo, load: one program per client, each in a process of its own, so that none waits for another's interpreter lock.

In: arguments. Out: JSON lines (demo.events) on standard output; whoever starts a program may kill it at any time.
Leaves to others: when they run (demo.play), and what the figures say (demo.figures).

    producer   writes orders at a steady rate and says how long each took
    reader     reads them and says which
    newcomer   creates a small topic every second and says when it could be written to
    storm      creates topics as fast as it is answered, through one of:
    new_admin    kafka-python, which knows error 89
    old_admin    librdkafka, which does not
"""
