"""Shows on this machine what quotas do for five tenants, each with a login of its own, in about two minutes (`make demo`).

In: a folder, the length of a phase. Out: tables on the terminal, the proxy's usage log, and the capacity report made of it.
The load is a scenario of the load test; the proxy and the report run as commands, like a user's own.

    scenario.yaml  who does what
    plan       who logs in, which quota holds for whom, the proxy's settings file, parameters of the scenario
    errors     the errors a user should read
    folder     the out folder: nothing in it is deleted that no demo wrote
    services   Kafka and the proxy, started and stopped
    phases     runs the scenario, and shows its phases; switches the overload quota on, sets the limit of the disk, and makes room
    throttling what the proxy's own log says about clients
    figures    results of the load test as the demo shows them
    verdict    figures into sentences; says so when a difference does not show
    screen     progress and lines on the terminal
    tables     figures into tables
    run        all of it, in order
    history    two weeks of generated logs, so that the report can forecast
    report     runs `kafka-quota-proxy report`
    cli        the command

The first three phases are the same but for the storm: orders are produced at a steady rate and read, and once a second a small
topic is created and written to. In phase 2 two clients of one tenant create topics as fast as they are answered; in phase 3 they
do so under a quota. In phase 4 a tenant writes more than its topic may take, in phase 5 it floods a broker, first without the
overload quota and then with it, and in phase 6 another one fills the disk.
"""
