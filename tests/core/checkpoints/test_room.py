"""A copy is made only where memory is left for the training."""

from msgspec.structs import replace

from holdfast.core.checkpoints.room import Fit, Room, fit, limit_words, shortage

GIB = 1 << 30
ROOM = Room(
    limit_bytes=10 * GIB,
    shm_bytes=100 * GIB,
    shm_free_bytes=100 * GIB,
    memory_bytes=200 * GIB,
    available_bytes=100 * GIB,
)


def test_a_copy_that_fits_is_made():
    assert fit(5 * GIB, 5 * GIB, ROOM) == Fit()


def test_the_old_copy_goes_first_where_only_one_fits():
    assert fit(6 * GIB, 6 * GIB, ROOM) == Fit(drops_first=True)
    little = replace(ROOM, limit_bytes=100 * GIB, shm_free_bytes=15 * GIB)
    assert fit(6 * GIB, 6 * GIB, little) == Fit(drops_first=True)


def test_a_copy_that_is_larger_than_the_setting_is_refused():
    assert fit(11 * GIB, 0, ROOM) == Fit(limit="setting", most_bytes=10 * GIB)
    assert fit(11 * GIB, 10 * GIB, ROOM).limit == "setting"


def test_memory_is_left_for_the_training():
    large = replace(ROOM, limit_bytes=500 * GIB)
    assert fit(95 * GIB, 0, large) == Fit(limit="memory", most_bytes=80 * GIB)
    assert fit(85 * GIB, 0, replace(large, shm_free_bytes=90 * GIB, available_bytes=190 * GIB)).limit == "shm"
    limited = replace(large, cgroup_limit_bytes=64 * GIB, cgroup_free_bytes=20 * GIB)
    assert fit(14 * GIB, 0, limited) == Fit(limit="cgroup", most_bytes=20 * GIB - int(6.4 * GIB))
    assert "cgroup (20 GiB of 64 GiB free)" in limit_words("cgroup", limited)


def test_a_setting_larger_than_the_file_system_is_no_harm():
    assert fit(20 * GIB, 0, replace(ROOM, limit_bytes=1000 * GIB)) == Fit()


def test_the_copy_goes_when_memory_is_short():
    assert shortage(ROOM) == ""
    assert shortage(replace(ROOM, available_bytes=9 * GIB)) == "memory"
    assert shortage(replace(ROOM, shm_free_bytes=4 * GIB)) == "shm"
    assert shortage(replace(ROOM, cgroup_limit_bytes=64 * GIB, cgroup_free_bytes=GIB)) == "cgroup"
