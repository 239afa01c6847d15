"""Where the throttle time stands in answers, as far as that is known."""

import pytest

from proxy.wire.throttle import NOWHERE, throttle_place


@pytest.mark.parametrize(("key", "version"), [(18, 99), (3, 40), (999, 1)])
def test_an_api_or_a_version_that_nobody_knows_has_no_such_place(key, version):
    assert throttle_place(key, version) == NOWHERE
