"""What a deterministic run sets in real processes, and that the script's own settings win."""

import json

REPORT = """import json, random
import numpy.random
import torch
print(json.dumps({
    "numbers": [random.random(), float(numpy.random.rand()), float(torch.rand(1))],
    "algorithms": torch.are_deterministic_algorithms_enabled(),
    "warns": torch.is_deterministic_algorithms_warn_only_enabled(),
    "cudnn": [torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic],
}))
"""


def report(ranks, rank=0, program=REPORT, **env):
    code, out, err = ranks.run(program, rank=rank, HOLDFAST_DETERMINISTIC_SEED="0", **env)
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_run_repeats_and_ranks_differ(ranks):
    first, again, other = report(ranks), report(ranks), report(ranks, rank=1)
    assert first == again
    assert all(one != two for one, two in zip(first["numbers"], other["numbers"], strict=True))
    assert (first["algorithms"], first["warns"], first["cudnn"]) == (True, True, [False, True])
    note = ranks.read("deterministic.json")
    assert (len(note["set"]), note["not_set"], note["seed"]) == (4, {}, 0)


def test_a_process_that_is_no_rank_repeats_too(ranks):
    assert report(ranks, rank=None) == report(ranks, rank=None)


def test_seeds_of_the_script_win_and_without_the_variable_nothing_is_set(ranks):
    seeded = REPORT.replace(
        "import torch\n", "random.seed(5); numpy.random.seed(5)\nimport torch\ntorch.manual_seed(5)\n"
    )
    plain = json.loads(ranks.run(seeded, rank=0)[1])
    assert not plain["algorithms"]
    assert "deterministic.json" not in ranks.names()
    assert report(ranks, program=seeded)["numbers"] == plain["numbers"]


def test_an_old_torch_has_what_it_knows(ranks):
    ranks.module(
        "torch/__init__.py",
        "__version__ = '1.7'\nseeds = []\ndef manual_seed(seed):\n    seeds.append(seed)\n",
    )
    code, out, err = ranks.run("import torch; print(torch.seeds)", rank=2, HOLDFAST_DETERMINISTIC_SEED="0")
    assert (code, out, err) == (0, "[2]\n", "")
    note = ranks.read("deterministic.json")
    assert note["set"] == ["torch.manual_seed(seed + rank)"] and len(note["not_set"]) == 3
