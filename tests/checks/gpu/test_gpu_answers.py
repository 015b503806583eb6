"""What was read of GPUs, judged: by plain values, without a driver."""

from hypothesis import given, settings
from hypothesis import strategies as st

from core.diagnosis.candidate_kit import NO_SIGNATURES
from holdfast.core.checks.gpu import xids as gpu_xids
from holdfast.core.checks.gpu.links import (
    Fabric,
    NvLinks,
    Pair,
    PcieLink,
    Switches,
    judge_fabric,
    judge_nvlinks,
    judge_pcie,
    judge_peers,
    nvlink_facts,
    pcie_facts,
)
from holdfast.core.checks.gpu.memory import Errors, Repairs, judge_errors, judge_recovery, judge_repairs
from holdfast.core.checks.gpu.presence import Presence, judge_count, presence_facts, slow_driver
from holdfast.core.checks.gpu.readings import Gpu, Unread, answered, key_of, named
from holdfast.core.checks.gpu.speed import Clocks, Heat, clock_facts, judge_clocks, judge_heat
from holdfast.core.checks.gpu.use import Division, Holder, Use, judge_division, judge_use
from holdfast.core.checks.learning import learned
from holdfast.model.checks import DEVICE_FAULT, FAIL, PASS, SKIP, WARN, Baseline, Fact, Finding, Outcome
from holdfast.observe.search.code_store import package_tables

XIDS = package_tables(("xid",)).xid
NUMBER = st.one_of(st.none(), st.integers(0, 1 << 40))
SMALL = st.integers(0, 40)


def gpu(index: int, name: str = "H100") -> Gpu:
    return Gpu(
        index=index,
        address=f"0000:{index:02x}:00.0",
        name=name,
        serial=str(index + 1),
        key=f"gpu:{index + 1}",
    )


GPUS = st.builds(gpu, st.integers(0, 7), st.sampled_from(["H100", "A100"]))


def says_all(findings: list[Finding]) -> None:
    """Every answer is whole: there is one, a skip has its reason, a trouble all that people need."""
    assert findings
    for one in findings:
        if one.status == SKIP:
            assert one.why
        if one.status in (WARN, FAIL):
            assert (
                one.measured and one.expected and one.whence and one.why and one.advice.en and one.advice.zh
            )
        assert one.status == FAIL or one.fault == ""


@settings(deadline=None)
@given(
    st.lists(st.builds(Errors, gpu=GPUS, is_on=st.booleans(), will_be_on=st.booleans(), uncorrected=NUMBER,
                       corrected=NUMBER, uncorrected_lifetime=NUMBER, sram_uncorrected=NUMBER, sram_lifetime=NUMBER,
                       is_sram_worn=st.booleans(), recovery=NUMBER), max_size=4),
    st.lists(st.builds(Repairs, gpu=GPUS, remapped=NUMBER, is_pending=st.booleans(), has_failed=st.booleans(),
                       full_banks=SMALL, retired=NUMBER), max_size=4),
    st.lists(st.tuples(GPUS, st.integers(0, 300)), max_size=4),
    st.booleans(),
)  # fmt: skip
def test_whatever_memory_says_there_is_a_whole_answer(errors, repairs, actions, is_training):
    says_all(judge_errors(errors, [], Baseline()))
    says_all(judge_repairs(repairs, []))
    says_all(judge_recovery(actions, [Unread("NVML", "gone")], is_training))


@settings(deadline=None)
@given(
    st.lists(st.builds(NvLinks, gpu=GPUS, states=st.lists(st.booleans(), max_size=18).map(tuple),
                       errors=st.dictionaries(st.sampled_from(["replays", "recoveries", "else"]), SMALL),
                       new=st.dictionaries(st.sampled_from(["replays", "recoveries"]), SMALL)), max_size=5),
    st.lists(st.builds(PcieLink, gpu=GPUS, width=NUMBER, width_max=NUMBER, generation=NUMBER, generation_max=NUMBER,
                       performance_state=NUMBER, clock=st.one_of(st.none(), st.floats(0, 2)),
                       utilization=st.one_of(st.none(), st.floats(0, 1)), new_replays=SMALL,
                       during_s=st.floats(0, 3)), max_size=5),
    st.lists(st.builds(Fabric, gpu=GPUS, state=st.integers(0, 5), status=st.integers(0, 20),
                       health=st.integers(0, (1 << 16) - 1)), max_size=5),
    st.builds(Switches, count=SMALL, is_managed=st.one_of(st.none(), st.booleans())),
    st.lists(st.builds(Pair, st.integers(0, 3), st.integers(4, 7), st.booleans()), max_size=6),
)  # fmt: skip
def test_whatever_links_say_there_is_a_whole_answer(links, buses, fabrics, switches, pairs):
    base = Baseline(facts={"gpu:1": {"nvlinks": 18, "pcie width": 16, "pcie generation max": 5}})
    says_all(judge_nvlinks(links, [], base))
    says_all(judge_pcie(buses, [], base))
    says_all(judge_fabric(fabrics, [], switches))
    says_all(
        judge_peers(
            pairs, [gpu(index) for index in range(8)], [], Baseline(facts={"node": {"peer pairs": 9}})
        )
    )


@settings(deadline=None)
@given(
    st.lists(st.builds(Clocks, gpu=GPUS, reasons=st.lists(st.integers(0, 0x1FF), max_size=4).map(tuple),
                       limit_w=st.one_of(st.none(), st.floats(1, 1000)),
                       default_w=st.one_of(st.none(), st.floats(1, 1000))), max_size=5),
    st.lists(st.builds(Heat, gpu=GPUS, degrees=st.one_of(st.none(), SMALL), slowdown=st.one_of(st.none(), SMALL),
                       left=st.one_of(st.none(), SMALL), memory=NUMBER, memory_max=NUMBER), max_size=5),
    st.lists(st.builds(Use, gpu=GPUS, used=NUMBER, total=NUMBER, is_exact=st.booleans(), is_divided=st.booleans(),
                       holders=st.lists(st.builds(Holder, pid=SMALL, bytes=NUMBER, is_own=st.booleans(),
                                                  is_here=st.booleans()), max_size=5).map(tuple)), max_size=4),
    st.lists(st.builds(Division, gpu=GPUS, is_on=st.booleans(), will_be_on=st.booleans(),
                       parts=st.one_of(st.none(), SMALL)), max_size=5),
    st.one_of(st.none(), st.integers(1, 9)),
    st.booleans(),
)  # fmt: skip
def test_whatever_speed_and_use_say_there_is_a_whole_answer(
    clocks, heat, uses, divisions, ranks, is_training
):
    says_all(judge_clocks(clocks, [], Baseline()))
    says_all(judge_heat(heat, []))
    says_all(judge_use(uses, [], is_training))
    says_all(judge_division(divisions, [], ranks))


XID_TEXTS = st.sampled_from(
    [
        "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:1b:00): 13, pid=7, name=python3, Graphics SM Warp Exception",
        "NVRM: Xid (PCI:0000:1b:00): 999, something new",
        "NVRM: Xid (0000:07:00): 48, DBE",
        "NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07",
        "NVRM: Xid (PCI:): ,",
    ]
)


@settings(deadline=None)
@given(
    st.lists(
        st.builds(gpu_xids.Line, st.one_of(st.none(), st.floats(0, 1e4)), st.one_of(XID_TEXTS, st.text()))
    ),
    st.sampled_from([0.0, 5e3]),
)
def test_whatever_the_kernel_says_there_is_a_whole_answer(lines, good_s):
    says_all(gpu_xids.judge_xids(lines, XIDS, good_s, NO_SIGNATURES))


def test_an_xid_whose_time_is_not_known_never_isolates():
    lines = [gpu_xids.Line(None, "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")]
    finding = gpu_xids.judge_xids(lines, XIDS, 50.0, NO_SIGNATURES)[0]
    assert (finding.status, finding.fault) == (WARN, "")


def test_a_gpu_with_fewer_links_or_a_narrow_bus_teaches_nothing():
    links = [NvLinks(gpu=gpu(index), states=(True,) * (16 if index == 2 else 18)) for index in range(4)]
    assert {fact.device for fact in nvlink_facts(links)} == {"gpu:1", "gpu:2", "gpu:4"}
    buses = [PcieLink(gpu=gpu(index), width=8 if index == 2 else 16, width_max=16) for index in range(4)]
    assert {fact.device for fact in pcie_facts(buses) if fact.name == "pcie width"} == {
        "gpu:1",
        "gpu:2",
        "gpu:4",
    }
    limits = [Clocks(gpu=gpu(index), limit_w=350 if index == 2 else 700) for index in range(4)]
    assert {fact.device for fact in clock_facts(limits) if fact.learn} == {"gpu:1", "gpu:2", "gpu:4"}


def test_what_the_first_boot_teaches_finds_a_gpu_that_is_gone():
    seen = Presence(gpus=tuple(gpu(index) for index in range(8)), memory={"gpu:1": 80 << 30})
    facts: list[Fact] = presence_facts(seen)
    known = learned(
        Baseline(), [Outcome(check="gpu-count", area="gpu", status=PASS, facts=tuple(facts))], 1.0
    )
    assert len(known.devices("gpu")) == 8 and known.of("gpu:1", "memory") == 80 << 30
    later = Presence(gpus=seen.gpus[:7])
    finding = judge_count(later, known)[0]
    assert finding.status == WARN and "8 (was 0000:07:00.0)" in finding.why
    later = Presence(gpus=seen.gpus[:7], pci=())
    assert judge_count(later, learned(known, [], 2.0))[0].status == WARN


def test_a_driver_that_is_slow_is_a_fault_only_where_attaching_cannot_take_so_long():
    assert slow_driver("why", 3.5, 8, is_kept_loaded=False).fault == ""
    assert slow_driver("why", 3.5, 8, is_kept_loaded=True).fault == DEVICE_FAULT
    assert slow_driver("why", 25.0, 8, is_kept_loaded=False).fault == DEVICE_FAULT
    assert slow_driver("why", 25.0, 16, is_kept_loaded=False).status == WARN


def test_devices_without_a_serial_number_are_known_by_their_uuid():
    assert key_of("0", "GPU-1", "0000:01:00.0") == "gpu:GPU-1"
    assert key_of("", "", "0000:01:00.0") == "gpu:0000:01:00.0"
    assert key_of("165", "GPU-1", "") == "gpu:165"


def test_what_is_the_same_of_all_gpus_is_said_once():
    seen = [Fabric(gpu=gpu(index), state=1) for index in range(8)]
    found = judge_fabric(seen, [], Switches(count=4, is_managed=False))
    assert [(one.status, one.device) for one in found] == [(FAIL, "")]
    assert "0000:00:00.0" in found[0].measured and "and 4 more" in found[0].measured
    hot = judge_clocks([Clocks(gpu=gpu(index), reasons=(0x40, 0x40)) for index in range(2)], [], Baseline())
    assert [one.device for one in hot] == ["0000:00:00.0", "0000:01:00.0"]


def test_an_unread_value_is_never_a_pass():
    found = answered([], [Unread("a", "lost"), Unread("b", "lost"), Unread("c", "late")], 0, measured="x")
    assert [one.status for one in found] == [SKIP, SKIP] and found[0].why == "a, b: lost"
    assert [one.status for one in answered([], [], 0, measured="x")] == [SKIP]
    assert named(list("abcdef")) == "a, b, c, d and 2 more"
