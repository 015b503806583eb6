"""Ranks and nodes side by side: who is missing, who parted, whose set-up differs."""

import re

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.diagnosis.compare.collectives import (
    compare,
    compare_collectives,
    compare_fingerprints,
    uneven_epochs,
)
from holdfast.core.diagnosis.compare.network_paths import (
    compare_gdr,
    compare_init,
    compare_settings,
    compare_versions,
    flapping_port,
    local_interface,
    started_apart,
)
from holdfast.model.matches import Match, Source, Writer
from known import KNOWN, PACKAGE

SIGNATURES = {one.id: one for one in PACKAGE}
LOGS = (Source(name="job.log"),)


def seen(text, *, id_, rank=None, host=None, worker=None, at_s=None, offset=0, source=0, count=1):
    """A match as the search makes it, from a line that the packaged signature must match."""
    match = re.search(SIGNATURES[id_].pattern, text)
    assert match is not None, text
    return Match(
        signature=id_,
        category=SIGNATURES[id_].category,
        source=source,
        offset=offset,
        line=1,
        text=text,
        captures={name: value for name, value in match.groupdict().items() if value is not None},
        writer=Writer(rank=rank, host=host, worker=worker, stamp_s=at_s),
        count=count,
        last_offset=offset,
    )


def timeout(rank, seq, op="ALLREDUCE", size=64, **where):
    text = (
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, "
        f"NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for 600007 milliseconds before timing out."
    )
    return seen(text, id_="torch-watchdog-timeout", rank=rank, offset=where.pop("offset", rank), **where)


def standing(rank, seq, group):
    text = (
        f"[PG ID 3 PG GUID {group} Rank 0]  failure detected by watchdog at work sequence id: {seq} "
        f"PG status: last enqueued work: {seq + 2}, last completed work: {seq - 1}"
    )
    return seen(text, id_="torch-watchdog-status", rank=rank, offset=100 + rank)


def listed(rank):
    return seen(f"  rank      : {rank} (local_rank: {rank})", id_="torchrun-table-rank", offset=500 + rank)


def ranks(comparison):
    return [one.rank for one in comparison.culprits]


def hosts(comparison):
    return [one.host for one in comparison.culprits]


def test_nothing_to_compare_gives_nothing():
    assert compare([], LOGS, KNOWN) == ()


def test_the_rank_that_does_not_wait_is_missing():
    found = compare_collectives([timeout(rank, 90) for rank in range(8) if rank != 5], LOGS, KNOWN)
    assert found.category == "collective_missing_rank"
    assert ranks(found) == [5]
    assert "rank 5" in found.title.en
    assert "rank 5" in found.title.zh
    assert found.first.offset == 0


def test_a_rank_that_is_only_in_the_launchers_table_is_known_too():
    found = compare_collectives([timeout(0, 90), timeout(1, 90), listed(2)], LOGS, KNOWN)
    assert ranks(found) == [2]


def test_nobody_is_named_where_most_are_silent():
    assert compare_collectives([timeout(3, 90)], LOGS, KNOWN) is None


def test_other_sequence_numbers_are_a_mismatch_of_those_behind():
    found = compare_collectives([timeout(rank, 40 if rank == 2 else 41) for rank in range(4)], LOGS, KNOWN)
    assert found.category == "collective_mismatch"
    assert ranks(found) == [2]


def test_other_operations_are_a_mismatch_of_the_few():
    found = compare_collectives(
        [timeout(rank, 40, "BROADCAST" if rank == 3 else "ALLREDUCE") for rank in range(4)], LOGS, KNOWN
    )
    assert found.category == "collective_mismatch"
    assert ranks(found) == [3]


def test_two_ranks_in_different_operations_blame_nobody():
    found = compare_collectives([timeout(0, 40, "BROADCAST"), timeout(1, 40, "ALLREDUCE")], LOGS, KNOWN)
    assert found.category == "collective_mismatch"
    assert ranks(found) == []


def test_other_sizes_are_a_mismatch_only_where_sizes_must_be_equal():
    reduced = [timeout(rank, 40, size=32 if rank == 1 else 64) for rank in range(4)]
    assert ranks(compare_collectives(reduced, LOGS, KNOWN)) == [1]
    exchanged = [timeout(rank, 40, "ALLTOALL_BASE", size=rank) for rank in range(4)]
    assert compare_collectives(exchanged, LOGS, KNOWN).category == "collective_timeout"


def test_all_ranks_in_one_call_means_that_nobody_is_missing():
    found = compare_collectives([timeout(rank, 90) for rank in range(4)], LOGS, KNOWN)
    assert found.category == "collective_timeout"
    assert ranks(found) == []


def test_one_rank_cut_out_of_its_log_does_not_show_that_the_job_had_just_begun():
    cut = timeout(3, 1)
    assert compare_collectives([cut], LOGS, KNOWN) is None
    assert compare_collectives([replace(cut, line=400)], LOGS, KNOWN).category == "nccl_init_failure"


def test_the_first_collectives_of_a_job_hang_in_the_set_up():
    found = compare_collectives([timeout(rank, 2) for rank in range(16) if rank != 11], LOGS, KNOWN)
    assert found.category == "nccl_init_failure"
    assert ranks(found) == []


def test_a_small_job_that_misses_a_rank_at_its_first_barrier_names_it():
    found = compare_collectives([timeout(rank, 1) for rank in range(4) if rank != 2], LOGS, KNOWN)
    assert found.category == "collective_missing_rank"
    assert ranks(found) == [2]


def test_copies_by_memcpy_are_held_against_the_hang_at_the_start():
    setting = seen(
        "n1:1:2 [0] NCCL INFO NCCL_P2P_USE_CUDA_MEMCPY set by environment to 1", id_="nccl-setting"
    )
    found = compare_collectives([setting, *(timeout(rank, 3) for rank in range(4))], LOGS, KNOWN)
    assert found.category == "p2p_failure"


def test_ranks_that_all_wait_in_several_groups_wait_for_one_another():
    waits = [timeout(0, 7, "ALLTOALL"), timeout(1, 7, "ALLTOALL"), timeout(2, 9), timeout(3, 9)]
    groups = [standing(0, 7, "4(EXPERT)"), standing(1, 7, "4(EXPERT)"), standing(2, 9, "5(TENSOR)")]
    found = compare_collectives([*waits, *groups, standing(3, 9, "5(TENSOR)")], LOGS, KNOWN)
    assert found.category == "collective_mismatch"
    assert "4(EXPERT)" in found.title.en


def test_a_rank_that_waits_in_no_group_is_missing_from_all():
    waits = [timeout(0, 7, "ALLTOALL"), timeout(1, 9), timeout(2, 9)]
    groups = [standing(0, 7, "4(EXPERT)"), standing(1, 9, "5(TENSOR)"), standing(2, 9, "5(TENSOR)")]
    found = compare_collectives([*waits, *groups, listed(3)], LOGS, KNOWN)
    assert found.category == "collective_missing_rank"
    assert ranks(found) == [3]


def test_numbers_far_apart_without_a_named_group_are_not_one_group():
    found = compare_collectives([timeout(0, 50), timeout(1, 4000, "_ALLGATHER_BASE")], LOGS, KNOWN)
    assert found.weight < 0.7


def test_a_summary_that_repeats_a_timeout_adds_nothing():
    again = timeout(0, 90, offset=900)
    found = compare_collectives([timeout(0, 90), timeout(1, 90), again], LOGS, KNOWN)
    assert len(found.seen) == 2


def test_a_timeout_of_an_earlier_attempt_is_not_compared():
    old = timeout(0, 3000, at_s=1000.0)
    assert (
        compare_collectives([old, timeout(1, 40, at_s=9000.0)], LOGS, KNOWN).category != "collective_mismatch"
    )


def test_point_to_point_calls_are_not_compared():
    assert compare_collectives([timeout(0, 40, "SEND"), timeout(1, 90, "RECV")], LOGS, KNOWN) is None


def test_what_pytorch_compared_itself_goes_first():
    report = seen(
        "    [1] finished collective #2, but didn't join collective #3 (count from 1)",
        id_="torch-desync-not-joined",
        offset=50,
    )
    found = compare_collectives([timeout(0, 2), report], LOGS, KNOWN)
    assert (found.category, ranks(found)) == ("collective_missing_rank", [1])
    assert found.first.offset == 0
    assert found.explained == (report,)


def test_a_group_that_most_ranks_wait_in_is_the_group_of_all():
    waits = [timeout(rank, 90) for rank in range(7)]
    found = compare_collectives(
        [*waits, *(standing(rank, 90, "9") for rank in range(7)), listed(7)], LOGS, KNOWN
    )
    assert (found.category, ranks(found)) == ("collective_missing_rank", [7])


def test_a_small_group_does_not_wait_for_ranks_of_other_groups():
    waits = [timeout(rank, 90) for rank in range(2)]
    groups = [standing(rank, 90, "9(TENSOR)") for rank in range(2)]
    assert compare_collectives([*waits, *groups, *(listed(rank) for rank in range(8))], LOGS, KNOWN) is None


def fingerprint(rank, peer):
    text = (
        f"RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is running collective: "
        f"CollectiveFingerPrint(SequenceNumber={rank}, OpType=X{rank}), but Rank {peer} is running collective: "
        f"CollectiveFingerPrint(SequenceNumber={peer}, OpType=X{peer})."
    )
    return seen(text, id_="torch-collective-mismatch", rank=rank, offset=rank)


def test_the_rank_that_all_others_name_is_the_odd_one():
    found = compare_fingerprints(
        [fingerprint(0, 2), fingerprint(1, 2), fingerprint(2, 0), fingerprint(3, 2)], LOGS, KNOWN
    )
    assert ranks(found) == [2]
    assert "X2" in found.title.en


def test_two_ranks_that_name_each_other_prove_nothing():
    assert compare_fingerprints([fingerprint(0, 1), fingerprint(1, 0)], LOGS, KNOWN) is None


def epoch(rank, number):
    return seen(f"Epoch {number}: 10%", id_="training-epoch", rank=rank, offset=number)


def test_a_rank_in_the_next_epoch_had_fewer_batches():
    epochs = [epoch(rank, 4 if rank == 1 else 3) for rank in range(4)]
    found = uneven_epochs([*epochs, timeout(0, 90)], LOGS, KNOWN)
    assert found.category == "uneven_data"
    assert ranks(found) == [1]
    assert uneven_epochs(epochs, LOGS, KNOWN) is None
    assert uneven_epochs([epoch(rank, 3) for rank in range(4)] + [timeout(0, 90)], LOGS, KNOWN) is None


def path(host, tail, source=0):
    text = f"{host}:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 8[0] [send] via NET/{tail}"
    return seen(text, id_="nccl-net-path", host=host, source=source)


def test_gpudirect_on_some_nodes_only():
    found = compare_gdr(
        [path("n1", "IB/0/GDRDMA"), path("n2", "IB/0"), path("n3", "IB/1/GDRDMA")], LOGS, KNOWN
    )
    assert found.category == "gdr_mismatch"
    assert hosts(found) == ["n2"]
    assert found.severity == "warning"


def test_gpudirect_alike_everywhere_is_no_finding():
    assert compare_gdr([path("n1", "IB/0/GDRDMA"), path("n2", "IB/0(3)/GDRDMA/Shared")], LOGS, KNOWN) is None
    assert compare_gdr([path("n1", "IB/0"), path("n2", "IB/0")], LOGS, KNOWN) is None


def test_sockets_and_a_card_without_gpudirect_beside_one_with_it_are_no_mismatch():
    mixed = [path("n1", "IB/0/GDRDMA"), path("n1", "IB/1"), path("n2", "IB/0/GDRDMA"), path("n2", "Socket/0")]
    assert compare_gdr(mixed, LOGS, KNOWN) is None


def test_gpudirect_is_also_shown_by_other_lines():
    rings = [
        seen(
            f"{host}:1:2 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR {gdr}",
            id_="nccl-ring-gdr",
            host=host,
        )
        for host, gdr in (("n1", 1), ("n2", 0))
    ]
    assert hosts(compare_gdr(rings, LOGS, KNOWN)) == ["n2"]


def interface(host, name):
    text = f"{host}:1:2 [0] NCCL INFO Bootstrap : Using {name}:172.17.0.1<0>"
    return seen(text, id_="nccl-bootstrap-interface", host=host)


def test_a_bridge_of_containers_leads_to_no_other_node():
    found = local_interface([interface("n1", "eth0"), interface("n2", "docker0")], LOGS, KNOWN)
    assert found.category == "nccl_wrong_interface"
    assert hosts(found) == ["n2"]
    assert "docker0" in found.title.en


def test_one_node_alone_may_use_loopback():
    assert local_interface([interface("n1", "lo")], LOGS, KNOWN) is None
    assert local_interface([interface("n1", "eth0"), interface("n2", "bond0")], LOGS, KNOWN) is None


def setting(host, name, value):
    text = f"{host}:1:2 [0] NCCL INFO {name} set by environment to {value}."
    return seen(text, id_="nccl-setting", host=host)


def test_settings_that_must_agree_and_do_not():
    told = [
        setting("n1", "NCCL_PROTO", "Simple"),
        setting("n2", "NCCL_PROTO", "LL"),
        setting("n3", "NCCL_PROTO", "Simple"),
    ]
    found = compare_settings(told, LOGS, KNOWN)
    assert (found.category, hosts(found)) == ("nccl_config_error", ["n2"])
    assert "n2=LL" in found.title.en
    assert compare_settings([told[0], told[2]], LOGS, KNOWN) is None
    own = [setting("n1", "NCCL_IB_HCA", "mlx5_0"), setting("n2", "NCCL_IB_HCA", "mlx5_1")]
    assert compare_settings(own, LOGS, KNOWN) is None


def test_versions_of_nccl_are_compared_between_nodes_only():
    def version(host, number):
        return seen(f"NCCL version {number}+cuda12.4", id_="nccl-version", host=host)

    found = compare_versions([version("n1", "2.21.5"), version("n2", "2.18.1")], LOGS, KNOWN)
    assert found.category == "version_mismatch"
    assert compare_versions([version("n1", "2.21.5"), version("n1", "2.18.1")], LOGS, KNOWN) is None


def port(event, offset):
    id_ = {"error": "ib-port-error", "active": "ib-port-active"}[event]
    text = f"n4:1:2 [0] NCCL WARN NET/IB : mlx5_3:1 Got async event : port {event}"
    return seen(text, id_=id_, host="n4", offset=offset)


def test_a_port_that_comes_back_flaps_and_one_that_does_not_is_down():
    flap = flapping_port([port("error", 5), port("active", 9)], LOGS, KNOWN)
    assert (flap.category, hosts(flap), flap.culprits[0].device) == ("nic_link_flap", ["n4"], "mlx5_3")
    assert flapping_port([port("active", 1), port("error", 5)], LOGS, KNOWN).category == "nic_down"
    assert flapping_port([port("active", 1)], LOGS, KNOWN) is None


def init(rank, state, world=4, count=1):
    text = (
        f"n:1:2 [0] NCCL INFO ncclCommInitRank comm 0x5 rank {rank} nranks {world} cudaDev 0 - Init {state}"
    )
    return seen(text, id_="nccl-init-state", rank=rank, offset=rank, count=count)


def test_a_set_up_that_never_ends_names_who_never_began():
    found = compare_init([init(rank, "START") for rank in (0, 1, 3)], LOGS, KNOWN)
    assert found.category == "nccl_init_failure"
    assert ranks(found) == [2]


def test_a_set_up_that_ends_is_no_finding():
    both = [init(rank, state) for rank in range(4) for state in ("START", "COMPLETE")]
    assert compare_init(both, LOGS, KNOWN) is None
    assert compare_init([*both, init(0, "START")], LOGS, KNOWN) is None  # the log of one rank is cut off


def test_a_second_set_up_that_hangs_is_found_among_repeats():
    again = [init(rank, "START", count=2) for rank in range(4)] + [
        init(rank, "COMPLETE") for rank in range(4)
    ]
    assert compare_init(again, LOGS, KNOWN).category == "nccl_init_failure"


def test_a_rank_that_is_alone_waits_for_nobody():
    alone = init(0, "START")
    assert compare_init([replace(alone, captures={**alone.captures, "world": "1"})], LOGS, KNOWN) is None


def test_a_log_that_ends_in_the_midst_of_a_list_was_cut_off_and_hangs_nowhere():
    begun = [init(rank, "START") for rank in (0, 1)]
    listed = tuple(f"n1:7:9 [0] NCCL INFO Channel 0{n}/08 : 0 1" for n in range(8))

    def ending(*tail):
        return compare_init(begun, [replace(log, tail=tail) for log in LOGS], KNOWN)

    assert ending(*listed[:5]) is None
    assert ending(*listed[:5], "n1:7:9 [1] NCCL INFO Ring 04 : 0 -> 1 -> 0") is None
    assert ending("n1:7:9 [1] NCCL INFO === System : maxBw 240.0 totalBw 240.0 ===") is None
    assert ending("n1:7:9 [1] NCCL INFO               + NVL[240.0] - GPU/1000") is None
    assert ending(*listed).category == "nccl_init_failure"
    assert (
        ending(*listed[:5], "n1:7:9 [1] NCCL INFO Channel 04/0 : 0[0] -> 1[0] [send] via NET/IB/1")
        is not None
    )


def began(host, at_s):
    return seen("[default] Rendezvous'ing worker group", id_="torchrun-starts", host=host, at_s=at_s)


NOT_MET = seen(
    "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
    id_="torch-store-clients-missing",
    at_s=5000.0,
)


def test_workers_that_started_minutes_apart_did_not_meet():
    found = started_apart([began("n1", 1000.0), began("n2", 1720.0), NOT_MET], LOGS, KNOWN)
    assert found.category == "rendezvous_timeout"
    assert hosts(found) == ["n2"]
    assert "12 min" in found.title.en
    assert found.first is NOT_MET


def test_logs_that_do_not_say_whose_they_are_began_apart_too():
    logs = (Source(name="a.log"), Source(name="b.log"))
    early, late = began(None, 1000.0), replace(began(None, 1720.0), source=1)
    failed = replace(NOT_MET, writer=Writer(stamp_s=2000.0))
    found = started_apart([early, late, failed], logs, KNOWN)
    assert "12 min" in found.title.en
    assert found.culprits == ()
    of_another_run = replace(late, writer=Writer(stamp_s=2500.0))
    assert started_apart([early, of_another_run, failed], logs, KNOWN) is None


def test_workers_that_started_together_failed_for_another_reason():
    assert started_apart([began("n1", 1000.0), began("n2", 1030.0), NOT_MET], LOGS, KNOWN) is None
    assert started_apart([began("n1", 1000.0), began("n2", 1720.0)], LOGS, KNOWN) is None


def test_each_match_gets_one_comparison_the_surest_first():
    epochs = [epoch(rank, 4 if rank == 1 else 3) for rank in range(4)]
    found = compare(
        [*epochs, *(timeout(rank, 90) for rank in range(4) if rank != 1), port("error", 1)], LOGS, KNOWN
    )
    assert [one.category for one in found] == ["nic_down", "uneven_data"]


CALLS = st.builds(
    timeout,
    st.integers(0, 20),
    st.integers(0, 5000),
    st.sampled_from(["ALLREDUCE", "BROADCAST", "ALLTOALL", "SEND", "_ALLGATHER_BASE"]),
    st.integers(0, 3),
    at_s=st.none() | st.floats(0, 1e9),
)
PLACES = st.builds(
    standing, st.integers(0, 20), st.integers(0, 5000), st.sampled_from(["0(default_pg)", "7", "8(DP)"])
)


@given(st.lists(CALLS | PLACES | st.builds(listed, st.integers(0, 40)), max_size=12))
def test_whatever_is_seen_culprits_are_ranks_that_are_known_and_never_all_of_them(matches):
    found = compare_collectives(matches, LOGS, KNOWN)
    if found is not None:
        assert found.first in matches
        known = {one.writer.rank for one in matches if one.writer.rank is not None}
        known |= {int(one.captures["rank"]) for one in matches if one.signature == "torchrun-table-rank"}
        assert set(ranks(found)) < set(range(max(known) + 1)) or not found.culprits
