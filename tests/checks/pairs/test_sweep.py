"""The sweep of all-reduce sizes: what times come to, the table, and one with real ranks."""

import sys

import pytest

from holdfast.checks.comm.sweep import CHECKS, sizes
from holdfast.core.checks.comm.sweep import of_sweep, rows, table
from holdfast.model.checks import FAIL, PASS, Fact, Finding, Scene


def of_ranks(count, sums):
    return [{"rank": rank, "sums": [dict(one) for one in sums]} for rank in range(count)]


def test_bus_bandwidth_does_not_depend_on_the_ranks_but_for_2_n_minus_1_by_n():
    ranks = of_ranks(4, [{"bytes": 8 << 20, "best_s": 0.002, "wrong": 0}])
    ranks[3]["sums"][0]["best_s"] = 0.004
    (row,) = rows(ranks)
    assert row.time_s == 0.004
    assert row.algbw == pytest.approx((8 << 20) / 0.004 / 1e9)
    assert row.busbw == pytest.approx(row.algbw * 2 * 3 / 4)


def test_the_table_has_the_columns_of_nccl_tests():
    swept = rows(
        of_ranks(
            2,
            [
                {"bytes": 8, "best_s": 31.5e-6, "wrong": 0},
                {"bytes": 1 << 20, "best_s": 412.33e-6, "wrong": 0},
                {"bytes": 1 << 26, "best_s": 76.7e-3, "wrong": 0},
            ],
        )
    )
    assert table(swept) == [
        "#                                                                  in-place",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)",
        "           8             2     float     sum      -1    31.50    0.00    0.00      0",
        "     1048576        262144     float     sum      -1    412.3    2.54    2.54      0",
        "    67108864      16777216     float     sum      -1    76700    0.87    0.87      0",
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 1.13942",
    ]


def test_wrong_sums_fail_whatever_the_speed():
    swept = rows(of_ranks(2, [{"bytes": 1 << 20, "best_s": 1e-4, "wrong": 3}]))
    (finding,) = of_sweep(swept, 2, "gloo", "x")
    assert isinstance(finding, Finding) and finding.status == FAIL
    assert "6 wrong numbers" in finding.measured and finding.advice.zh


def test_only_the_bandwidth_of_gpus_is_compared_with_other_nodes():
    swept = rows(of_ranks(2, [{"bytes": size, "best_s": 1e-4, "wrong": 0} for size in (8, 8 << 20)]))
    for backend, compared in (("gloo", []), ("nccl", ["all-reduce 8 MiB"])):
        facts = [one for one in of_sweep(swept, 2, backend, "x") if isinstance(one, Fact)]
        assert len(facts) == 2
        assert [fact.name for fact in facts if fact.peers] == compared


def test_sizes_grow_by_four_up_to_the_largest():
    assert sizes(64) == (8, 32, 64)
    assert sizes(1 << 10)[-1] == 1 << 10
    assert sizes(8) == (8,)


@pytest.mark.torch
@pytest.mark.timeout(400)
def test_real_ranks_sweep_and_their_sums_are_right():
    scene = Scene(
        command=(sys.executable, "train.py"),
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        options={"comm-sweep.max-bytes": "65536"},
    )
    seen = list(CHECKS[0].look(scene))
    (finding,) = [one for one in seen if isinstance(one, Finding)]
    assert finding.status == PASS, finding
    assert "# Out of bounds values : 0 OK" in finding.measured
