"""Which versions fit together, and when a port is this node's to hold."""

import socket

import pytest

from holdfast.checks.env.port import bind_error
from holdfast.core.checks.asked import Meeting
from holdfast.core.checks.env.nvcc import nvcc_version, of_tools
from holdfast.core.checks.env.port import Holder, not_here, of_address, of_port
from holdfast.core.checks.env.python import NCCL_BAD, of_environment, of_versions, version_of
from holdfast.model.checks import ENVIRONMENT_FAULT, FAIL, PASS, SKIP, WARN


def torch(version="2.6.0", cuda="12.4", nccl="2.21.5", **more):
    return {"found": True, "version": version, "cuda": cuda, "nccl": nccl, "has_native": True, **more}


def judged(of, driver="550.54.15", env=None, machine="x86_64", gpus=8, has_compat=False, is_run=True):
    found = of_versions(of, driver, env or {}, machine, gpus=gpus, has_compat=has_compat, is_run=is_run)
    return [(one.status, one.fault) for one in found]


@pytest.mark.parametrize(
    ("of", "more", "expected"),
    [
        (torch(), {}, [(PASS, "")]),
        (torch(cuda="12.8"), {"driver": "525.60.13"}, [(PASS, "")]),  # minor version compatibility
        (torch(cuda="12.8"), {"driver": "525.60.12"}, [(FAIL, ENVIRONMENT_FAULT)]),
        (torch(cuda="11.8"), {"driver": "450.80.02"}, [(PASS, "")]),
        (torch(cuda="13.0"), {"driver": "570.86.10"}, [(FAIL, ENVIRONMENT_FAULT)]),
        (torch(cuda="13.0"), {"driver": "570.86.10", "has_compat": True}, [(WARN, "")]),
        (torch(cuda="99.0"), {"driver": "570.86.10"}, [(PASS, "")]),  # a CUDA to come: not known
        (torch(cuda="", version="2.6.0+cpu", nccl=""), {}, [(WARN, "")]),
        (torch(cuda="", version="2.6.0+cpu", nccl=""), {"is_run": False}, [(PASS, "")]),
        (torch(cuda="", version="2.6.0+cpu", nccl=""), {"gpus": 0, "driver": ""}, [(PASS, "")]),
        (torch(cuda="", hip="6.2", nccl=""), {}, [(PASS, "")]),
        (torch(nccl="2.20.5"), {}, [(WARN, "")]),
        (torch(nccl="2.20.5"), {"gpus": 0, "driver": ""}, [(PASS, "")]),
        (torch(nccl="2.29.2"), {}, [(WARN, "")]),
        (torch(nccl="2.29.3"), {}, [(PASS, "")]),
        (torch(nccl="2.28.9"), {}, [(PASS, "")]),
        (torch(nccl="2.28.9"), {"machine": "aarch64"}, [(WARN, "")]),
        (torch(nccl="2.14.3"), {}, [(PASS, "")]),
        (torch(nccl="2.14.3"), {"env": {"CUDA_LAUNCH_BLOCKING": "1"}}, [(WARN, "")]),
        (torch(version="", cuda="", nccl="", has_native=False), {}, [(PASS, "")]),
        ({"found": False}, {}, [(SKIP, "")]),
    ],
)
def test_versions_against_driver_and_known_defects(of, more, expected):
    assert judged(of, **more) == expected


def test_every_known_defect_has_a_source_and_both_languages():
    assert all(bad.source and bad.says.en and bad.says.zh and bad.first < bad.fixed_in for bad in NCCL_BAD)


@pytest.mark.parametrize(
    ("text", "version"),
    [("535.104.05", (535, 104, 5)), ("2.6.0+cu124", (2, 6, 0)), ("", ()), ("git-1", ())],
)
def test_versions_are_numbers(text, version):
    assert version_of(text) == version


@pytest.mark.parametrize(
    ("prefix", "env", "program", "status"),
    [
        ("/venv", {"VIRTUAL_ENV": "/venv"}, "python", PASS),
        ("/venv", {"VIRTUAL_ENV": "/venv/"}, "torchrun", PASS),
        ("/venv", {"VIRTUAL_ENV": "/venv", "CONDA_PREFIX": "/conda"}, "python", PASS),
        ("/conda", {"VIRTUAL_ENV": "/venv", "CONDA_PREFIX": "/conda"}, "python", PASS),
        ("/mnt/home/me/venv", {"VIRTUAL_ENV": "/home/me/venv"}, "python", PASS),
        ("/usr", {}, "python", PASS),
        ("/usr", {"VIRTUAL_ENV": "/venv"}, "/usr/bin/python", PASS),
        ("/usr", {"VIRTUAL_ENV": "/venv"}, "python", WARN),
        ("/usr", {"CONDA_PREFIX": "/conda/envs/llm"}, "torchrun", WARN),
    ],
)
def test_the_python_of_the_active_environment(prefix, env, program, status):
    said = {"python": {"prefix": prefix, "executable": f"{prefix}/bin/python", "version": "3.11.7"}}
    assert of_environment(said, env, program).status == status


def meeting(**more):
    return Meeting(**({"backend": "static", "host": "h1", "port": 29500, "rank": 0} | more))


@pytest.mark.parametrize(
    ("of", "nodes", "is_host", "why"),
    [
        (meeting(), 1, None, ""),
        (meeting(rank=None), 2, True, ""),
        (meeting(rank=None), 2, False, "h1 listens on the rendezvous port, not this node"),
        (meeting(rank=None), 2, None, "it is unknown whether"),
        (meeting(rank=1), 2, None, "node 1"),
        (meeting(port=0), 1, None, "chosen at run time"),
        (meeting(backend="etcd-v2"), 2, True, "a separate server"),
        (None, 1, None, "names no rendezvous address"),
    ],
)
def test_when_a_port_is_this_nodes_to_hold(of, nodes, is_host, why):
    said = not_here(of, nodes, is_host)
    assert (why in said) if why else said == ""


IN_USE = "address already in use"


@pytest.mark.parametrize(
    ("of", "nodes", "error", "holders", "status", "fault"),
    [
        (meeting(), 1, "", [], PASS, ""),
        (meeting(), 1, IN_USE, [Holder(pid=7, command="nginx")], FAIL, ENVIRONMENT_FAULT),
        (meeting(), 1, IN_USE, [], FAIL, ENVIRONMENT_FAULT),
        (meeting(), 1, IN_USE, [Holder(pid=7, is_ours=True)], PASS, ""),
        (meeting(), 1, IN_USE, [Holder(pid=7, command="python torchrun old.py")], FAIL, ENVIRONMENT_FAULT),
        (meeting(), 2, IN_USE, [Holder(pid=7, command="python torchrun t.py")], SKIP, ""),
        (meeting(usual=True), 1, IN_USE, [], WARN, ""),
        (meeting(port=80), 1, "permission denied", [], FAIL, ENVIRONMENT_FAULT),
    ],
)
def test_who_holds_a_port_says_what_it_means(of, nodes, error, holders, status, fault):
    finding = of_port(of, nodes, error, holders)
    assert (finding.status, finding.fault) == (status, fault)


def test_a_real_port_is_free_until_somebody_listens():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        server.listen()
        assert bind_error(port) == IN_USE
    assert bind_error(port) == ""
    assert bind_error(70000) == "70000 is not a valid port number"


def test_a_loopback_address_is_a_warning_on_several_nodes():
    assert of_address(meeting(host="localhost", backend="c10d", rank=None), 2) is not None
    assert of_address(meeting(host="localhost", backend="c10d", rank=None), 1) is None
    assert of_address(meeting(host="127.0.0.1"), 2) is None  # the first node may name itself
    assert of_address(meeting(host="127.0.0.1", rank=1), 2) is not None


def test_nvcc_tells_its_release():
    assert nvcc_version("Cuda compilation tools, release 12.4, V12.4.131\n") == "12.4"
    assert nvcc_version("no") == ""


@pytest.mark.parametrize(
    ("nvcc", "version", "cuda", "tools", "statuses"),
    [
        ("/n", "12.6", "12.4", {"c++": True, "ninja": True}, [PASS]),
        ("/n", "12.6", "12.4", {"c++": False, "ninja": True}, [WARN]),
        ("/n", "11.8", "12.4", {"c++": False, "ninja": False}, [WARN, WARN]),
        ("/n", "", "12.4", {}, [WARN]),
        ("", "", "12.4", {}, [WARN]),
    ],
)
def test_what_deepspeed_needs_to_compile(nvcc, version, cuda, tools, statuses):
    assert [one.status for one in of_tools(nvcc, version, cuda, tools, "it fails")] == statuses
