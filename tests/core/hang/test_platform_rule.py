from holdfast.core.hang import platform_rule
from holdfast.model.samples import RankSample

SETTINGS = platform_rule.Settings(detect_min=2)


def ranks(at_s, *io_bytes, disk=0):
    return tuple(
        RankSample(at_s=at_s, rank=rank, pid=rank + 1, state="S", io_bytes=count, disk_bytes=disk)
        for rank, count in enumerate(io_bytes)
    )


def run(seconds, *, devices=None):
    """Each second's I/O counters, and a device's utilisation; every finding with its time."""
    state, found = platform_rule.Watch(), []
    for at_s, counters in enumerate(seconds):
        utilisation = ()
        if devices is not None:
            utilisation = (platform_rule.Utilisation(at_s=at_s, device="0", percent=devices(at_s)),)
        state, finding = platform_rule.observe(
            state, ranks(at_s, *counters), float(at_s), SETTINGS, utilisation=utilisation
        )
        found += [(at_s, finding)] if finding else []
    return found


def test_unchanged_counters_are_a_hang_after_the_time_and_reported_once():
    ((at_s, finding),) = run([(5, 7)] * 300)
    assert at_s == 120 and finding.since_s == 0
    assert finding.says == ("platform rule, all workers: no I/O counter of any process changed for 2 min")


def test_one_byte_in_one_process_is_life():
    assert run([(5, second // 100) for second in range(600)]) == []


def test_disk_counters_count_too():
    state = platform_rule.Watch()
    for at_s in range(600):
        state, finding = platform_rule.observe(
            state, ranks(at_s, 1, disk=at_s // 100), float(at_s), SETTINGS, form="worker"
        )
        assert finding is None


def test_a_device_that_stands_still_confirms_after_its_window():
    ((at_s, finding),) = run([(5,)] * 400, devices=lambda at_s: 100.0)
    assert at_s == 180 and "stood still for 60 s (median 100 %)" in finding.says


def test_a_device_at_work_denies_it():
    assert run([(5,)] * 600, devices=lambda at_s: at_s % 40) == []
    assert run([(5,)] * 600, devices=lambda at_s: at_s / 6) == []  # a drift, seen in the median


def test_counters_that_cannot_be_read_say_nothing():
    assert run([(None, None)] * 600) == []
    assert run([()] * 600) == []
