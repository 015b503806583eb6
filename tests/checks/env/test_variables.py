"""Variables of a run: what is listed, what is masked, and what is judged by the node they meet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checks.env.variables import without_secrets
from holdfast.core.checks.asked import Asked, Meeting
from holdfast.core.checks.env.variable_rules import RULES, SAME_ON_ALL
from holdfast.core.checks.env.variables import Place, facts, is_spared, listing, of_variables
from holdfast.model.checks import ENVIRONMENT_FAULT, FAIL, PASS, WARN

GPUS = Place(
    gpus=8, gpu_models=("NVIDIA H100",), cores=64.0, interfaces=("eth0", "ib0", "lo"), rdma=("mlx5_0",)
)
RANKS = Asked(ranks=8)


def told(env, asked=RANKS, place=GPUS):
    return [(one.status, one.device) for one in of_variables(env, asked, place) if one.status != PASS]


def test_secrets_are_masked_wherever_they_are_shown():
    env = {
        "http_proxy": "http://me:pa55word@proxy:1",
        "TORCH_ACCESS_TOKEN": "abc",
        "NCCL_DEBUG": "INFO",
        "NCCL_TOKEN_FILE": "x",
        "CUDA_URL": "https://me:" + "s" * 100 + "@host/x",
        "HF_TOKEN": "hf_" + "a" * 30,
    }
    text = listing(without_secrets(env))
    assert "pa55word" not in text and "abc" not in text and "hf_" not in text and "sss" not in text
    assert "NCCL_DEBUG=INFO" in text


def test_a_long_environment_is_listed_in_short():
    text = listing({f"NCCL_X{number}": "v" * 500 for number in range(40)})
    assert "and 28 more" in text and len(text) < 1200


def test_what_must_be_equal_is_a_fact_even_where_it_is_not_set():
    known = {fact.name: fact.value for fact in facts({"NCCL_ALGO": "Ring"})}
    assert known["NCCL_ALGO"] == "Ring" and known["NCCL_PROTO"] == "not set"
    assert set(known) == set(SAME_ON_ALL)


@pytest.mark.parametrize(
    ("value", "ranks", "count", "expected"),
    [
        ("0,1,2,3,4,5,6,7", 8, 8, []),
        ("GPU-a,GPU-b", 2, 8, []),
        ("0", 1, 8, []),
        ("", 8, 8, []),
        ("-1", 8, 8, []),
        ("0,1", 2, 0, []),
        ("0, 1", None, 8, []),
        ("0,1", 8, 8, [(FAIL, "")]),
        ("0,9,1", 3, 8, [(FAIL, "")]),
        ("0,9", 1, 8, [(WARN, "")]),
        ("1,1", 2, 8, [(FAIL, ENVIRONMENT_FAULT)]),
        ("1,1", 1, 8, [(WARN, "")]),
    ],
)
def test_devices_that_are_left_to_the_ranks(value, ranks, count, expected):
    place = Place(gpus=count)
    found = of_variables({"CUDA_VISIBLE_DEVICES": value}, Asked(ranks=ranks), place)
    assert [(one.status, one.fault) for one in found if one.status != PASS] == expected


@pytest.mark.parametrize(
    ("value", "is_right"),
    [
        ("eth", True),
        ("=eth0", True),
        ("=eth", False),
        ("ib0,ib1", True),
        ("^docker,lo", True),
        ("^eth,ib", False),
        ("ens", False),
        ("eth0:1", True),
    ],
)
def test_interfaces_as_nccl_chooses_them(value, is_right):
    assert (told({"NCCL_SOCKET_IFNAME": value}) == []) is is_right


def test_interfaces_that_cannot_be_seen_are_not_judged():
    assert told({"NCCL_SOCKET_IFNAME": "ens"}, place=Place(gpus=8)) == []


def test_gloo_takes_whole_names():
    assert told({"GLOO_SOCKET_IFNAME": "eth"}) == [(WARN, "GLOO_SOCKET_IFNAME")]
    assert told({"GLOO_SOCKET_IFNAME": "eth0"}) == []


@pytest.mark.parametrize(
    ("name", "value", "asked", "place", "is_told"),
    [
        ("NCCL_IB_DISABLE", "1", Asked(nodes=2), Place(rdma=("mlx5_0",), rdma_up=True), True),
        ("NCCL_IB_DISABLE", "1", Asked(nodes=1), Place(rdma=("mlx5_0",), rdma_up=True), False),
        ("NCCL_IB_DISABLE", "1", Asked(nodes=2), Place(), False),
        ("NCCL_IB_DISABLE", "0", Asked(nodes=2), Place(rdma=("mlx5_0",), rdma_up=True), False),
        ("NCCL_P2P_DISABLE", "1", Asked(ranks=1), GPUS, False),
        ("NCCL_PROTO", "^LL128", RANKS, GPUS, False),
        ("NCCL_PROTO", "Simple", RANKS, GPUS, False),
        ("NCCL_PROTO", "LL,LL128,Simple", RANKS, GPUS, True),
        ("NCCL_NET", "IB", RANKS, Place(gpus=8, rdma=()), True),
        ("NCCL_NET", "IB", RANKS, Place(gpus=8, rdma=None), False),
        ("NCCL_IB_HCA", "mlx5", RANKS, Place(gpus=8, rdma=()), False),
        ("NCCL_IB_HCA", "=mlx5_0:1", RANKS, GPUS, False),
        ("NCCL_DEBUG", "INFO", RANKS, GPUS, False),
        ("CUDA_LAUNCH_BLOCKING", "0", RANKS, GPUS, False),
        ("CUDA_LAUNCH_BLOCKING", "1", RANKS, Place(), False),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100", RANKS, GPUS, False),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50", RANKS, GPUS, True),
        ("OMP_NUM_THREADS", "8", RANKS, GPUS, False),
        ("OMP_NUM_THREADS", "12", RANKS, GPUS, False),
        ("OMP_NUM_THREADS", "16", RANKS, GPUS, True),
        ("OMP_NUM_THREADS", "4,2", RANKS, GPUS, False),
        ("OMP_NUM_THREADS", "0", RANKS, GPUS, True),
        ("OMP_NUM_THREADS", "1", RANKS, GPUS, False),
        ("OMP_NUM_THREADS", "1", Asked(ranks=2), Place(cores=4.0), False),
        ("OMP_PROC_BIND", "false", RANKS, GPUS, False),
        ("OMP_PROC_BIND", "close", Asked(ranks=1), GPUS, False),
        ("OMP_PROC_BIND", "close", RANKS, Place(gpus=8, binds=True), False),
    ],
)
def test_a_value_is_judged_by_what_it_meets(name, value, asked, place, is_told):
    assert bool(told({name: value}, asked, place)) is is_told


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_says_what_to_do_in_both_languages(rule):
    assert rule.does.en and rule.does.zh and rule.advice.en and rule.advice.zh


@pytest.mark.parametrize(
    ("host", "no_proxy", "is_in"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.*", True),
        ("gpu-1.corp", ".corp", True),
        ("gpu-1.corp", "corp", True),
        ("gpu-1.corp", "orp", False),
        ("gpu-1", "*", True),
        ("gpu-1", "", False),
        ("gpu-1", "10.0.0.0/99,a/b/c,/", False),
    ],
)
def test_which_hosts_go_around_a_proxy(host, no_proxy, is_in):
    assert is_spared(host, no_proxy) is is_in


def test_a_proxy_matters_only_to_what_heeds_it():
    env = {"http_proxy": "http://p:1"}

    def at(backend, host="10.0.0.1"):
        return Asked(ranks=8, nodes=2, meeting=Meeting(backend=backend, host=host, port=2379))

    assert told(env, at("etcd-v2")) == [(WARN, "http_proxy")]
    assert told(env, at("c10d")) == [] and told(env, at("etcd-v2", "localhost")) == []
    assert told({"LD_PRELOAD": "libproxychains.so.4"}, at("c10d")) == [(WARN, "LD_PRELOAD")]


NAMES = st.sampled_from(
    [
        "CUDA_VISIBLE_DEVICES",
        "NCCL_SOCKET_IFNAME",
        "OMP_NUM_THREADS",
        "NCCL_IB_HCA",
        "UCX_NET_DEVICES",
        "LD_PRELOAD",
    ]
    + [rule.name for rule in RULES]
)


@given(st.dictionaries(NAMES, st.text(max_size=20)), st.none() | st.integers(1, 9), st.integers(0, 9))
def test_any_values_have_an_answer_with_advice(env, ranks, gpus):
    found = of_variables(
        env, Asked(ranks=ranks), Place(gpus=gpus, interfaces=("lo",), rdma=("m",), cores=2.0)
    )
    assert found
    assert all(one.status == PASS or (one.advice.en and one.advice.zh and one.why) for one in found)
