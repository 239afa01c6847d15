"""How drivers start and end."""

import psutil
import pytest

from loadtest.drive.drivers import DriversEnded, drivers


def test_a_driver_ends_with_who_wants_it_and_is_not_had_from_a_process_that_has_ended(capfd: pytest.CaptureFixture[str]) -> None:
    with drivers() as forks:
        one, other = forks.fork(), forks.fork()
        one.orders.close()
        assert one.answers.read() == ""
        forking = psutil.Process(other.pid).parent()
        assert forking is not None
        forking.kill()
        forking.wait(90)
        with pytest.raises(DriversEnded):
            forks.fork()
        assert psutil.pid_exists(other.pid), "what it does goes on"
        other.kill()
        assert other.answers.read() == ""
    for each in (one, other):
        each.answers.close()
    other.orders.close()
    assert capfd.readouterr() == ("", "")


def test_who_wanted_drivers_goes_on_when_all_of_them_have_ended() -> None:
    with drivers() as forks:
        made = [forks.fork() for _ in range(5)]
        for one in made:
            one.orders.close()
    assert not any(psutil.pid_exists(one.pid) for one in made)
    for one in made:
        one.answers.close()
