"""What is sampled beside the ranks, put together."""

import os

import pytest

from holdfast.agent.watch.sample_ring import read_samples
from holdfast.agent.watch.signals import Signals
from holdfast.model.samples import RankSample
from holdfast.observe.host.devices import Devices, NoDevices
from holdfast.observe.processes.procs import RankReader


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def signals(tmp_path):
    made = []

    def make(**settings):
        made.append(Signals(tmp_path, {}, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_each_second_is_given_and_kept(signals, tmp_path):
    one = signals()
    with RankReader(os.getpid(), 0) as reader:
        taken = [one.take(float(at_s), (reader.sample(float(at_s)),)) for at_s in range(3)]
    one.ring.flush()
    assert list(read_samples(tmp_path)) == taken
    assert taken[0].node.available_bytes > 0 and taken[0].devices == () and taken[0].ras is None


def test_no_driver_is_woken_where_no_rank_has_a_gpu_open(signals):
    asked = []

    def note():
        asked.append(None)
        raise NoDevices("none")

    devices = Devices(open_nvml=note)
    one = signals(devices=devices)
    for at_s in range(25):
        one.take(float(at_s), (RankSample(at_s=float(at_s), rank=0, pid=os.getpid(), state="S"),))
    assert devices.wait(60) and asked == []


def test_nccl_is_not_asked_before_the_first_step(signals):
    one = signals()
    assert not one.suspect()
    one.step_seen()
    assert one.suspect() and one.ras() is None


def test_a_driver_that_does_not_answer_is_reported_once(signals, tmp_path):
    os.mkfifo(tmp_path / "driver")

    def never():
        (tmp_path / "driver").read_bytes()
        raise NoDevices("none")

    clock = Clock()
    devices = Devices(clock, open_nvml=never)
    one = signals(clock=clock, devices=devices)
    devices.ask()
    assert one.news() == ""
    clock.now_s += 11
    assert "has not answered for 11 s" in one.news()
    assert one.news() == ""
    (tmp_path / "driver").write_bytes(b"")
    assert devices.wait(60) and one.news() == ""
