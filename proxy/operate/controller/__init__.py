"""`kafka-quota-proxy quotas controller`: KafkaQuota objects of Kubernetes become quotas of the proxy.

- definition   the CustomResourceDefinition, made of `quota.catalogue`
- objects      an object as it is read; conditions, status
- reconcile    what has to be done, and what then stands in the status: pure, the time is an argument
- strimzi      KafkaUsers of Strimzi as KafkaQuota objects
- lease        which of several controllers works
- api          the Kubernetes API
- run          one pass after another
- command      the options

A pass reads everything anew: it finds drift as it finds changes, and a restart has nothing to remember."""
