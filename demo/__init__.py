"""demo: what the controller mutation quota (seed s1) is good for, shown on this machine in about a minute and a half.

In: a folder, the length of a phase. Out: tables on the terminal, the proxy's usage log, and the capacity report made of it.
Leaves to others: Kafka (localkafka); the proxy and the report, which run as commands, like a user's own.

    plan       what is shown: who sends what, which quota holds for whom, the proxy's settings file
    errors     the errors a user should read
    clock      the one clock that all processes of this machine share
    events     JSON lines from the load's processes
    load/      the load, one program each: orders' producer and reader, a newcomer, and the storm's old and new client
    folder     the out folder: nothing in it is deleted that no demo wrote
    processes  runs programs and reads what they said
    stage      Kafka and the proxy, started and stopped
    topics     topics made and deleted behind the proxy's back, between the phases
    play       the phases, one after the other
    usage      what the proxy's own log says about the storm's clients
    figures    percentiles and waits: arithmetic
    verdict    figures into sentences; says so when a difference does not show
    screen     progress and lines on the terminal
    tables     figures into tables
    run        all of it, in order
    report     runs `kafka-quota-proxy report`
    cli        the command

The three phases are the same but for the storm: orders are produced at a steady rate and read, and once a second a newcomer
creates a small topic and writes to it. In phase 2 two clients create topics as fast as they are answered; in phase 3 the same two
do, under a quota.
"""
