"""Bytes <-> meaning. No I/O, no clock, no quotas.

In come the bytes of frames as they were received, out come facts about them or bytes to put in their place. Every
length that came over the wire is checked against what is there before anything is read or allocated; what does not fit
is `BadBytes`. What is not understood is passed on untouched.

- `primitives`     bounds-checked varints, strings and array lengths; encoders of the same
- `headers`        request and response headers; which API versions are flexible
- `layout`         the shape of any message, compiled from kio's schema: check, skip, rewrite addresses. The gate before kio
- `kio_bridge`     kio's decoder behind that gate, and its encoder
- `addresses`      patch of the broker addresses in responses
- `api_versions`   clamp of the ranges in ApiVersions responses
- `produce`        skim of Produce requests: topics, partitions, batches; records are never decoded
- `refusals`       Produce requests without what is refused of them, and answers that tell of it
- `throttle`       the throttle time in any response
- `fetch`          the same for Fetch responses, while they stream through
- `share_fetch`    the same for ShareFetch
- `walk`           reading a frame that comes in pieces, without joining them
- `frames`         cutting a stream of bytes into whole requests, without joining them
- `items`          requests about a list of topics of which some may be refused: read, trim, merge
- `create_topics`, `create_partitions`, `delete_topics`  these requests
- `metadata`       what a Metadata response tells of brokers and topics, what a request would have created, the proxy's own question
- `init_producer_id` which producer id a client has already that wants another epoch
- `proxy_protocol` who the client is behind a load balancer, before its first byte
"""
