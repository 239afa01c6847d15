"""What the topic of quotas does where a real cluster cannot be made to show it; `tests/real/test_quota_topic.py` has the rest."""

from proxy.upstream.quota_topic import TopicIdentity
from proxy.wire.metadata import Topic

FIRST, SECOND = (Topic(b"quotas", bytes([number]) * 16, 1) for number in (1, 2))


def test_a_topic_that_was_deleted_and_made_again_is_another_one():
    identity = TopicIdentity()
    identity.begin(FIRST)
    assert [identity.is_another(topic) for topic in (FIRST, None, SECOND)] == [False, False, True]


def test_a_topic_that_its_broker_did_not_know_of_yet_is_no_other_one_once_it_does():
    """Else a topic that was just created would be taken to be away ten seconds later."""
    identity = TopicIdentity()
    identity.begin(None)
    assert [identity.is_another(topic) for topic in (None, FIRST, FIRST, SECOND)] == [False, False, False, True]
