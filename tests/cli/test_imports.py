"""`holdfast imports`: the costs by package, and what is said where the job's start is not recorded."""

from cli.journals import submitted, write_job
from holdfast.agent.standby.imports_known import Known, LeftOut
from holdfast.cli.job.imports import lines, report_of


def test_costs_are_summed_by_package_and_sorted():
    left_out = {"wandb": LeftOut("0.19", "it starts threads")}
    known = Known(cost_s={"json": 0.01, "torch": 1.0, "torch._dynamo": 1.5}, left_out=left_out)
    assert lines(report_of("llama", known)) == [
        "imports of llama: 2.51 s, made once by its zygote, in the order of the script",
        "    2.500 s  torch",
        "    0.010 s  json",
        "not preloaded: wandb 0.19: it starts threads",
    ]


def test_a_job_whose_start_is_not_recorded_is_named(holdfast, state):
    write_job(state, "llama", [submitted()])
    code, out, err = holdfast("imports", "llama")
    assert (code, out) == (1, "")
    assert err.startswith("holdfast: how llama was started cannot be read from its journal")
