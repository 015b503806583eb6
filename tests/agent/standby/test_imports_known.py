"""What is stored of a job's imports: for which command, in which order, and that a damaged file is none."""

from holdfast.agent.standby.imports_known import (
    Known,
    LeftOut,
    file_of,
    learned,
    learned_by_import,
    load,
    merged,
    store,
)


def test_options_make_no_other_job_and_another_script_does(tmp_path):
    for name in ("train.py", "other.py"):
        (tmp_path / name).write_text("")
    command = ("torchrun", "--nproc-per-node", "4", "train.py", "--lr", "1")
    here = file_of(tmp_path, command, str(tmp_path))
    assert here == file_of(tmp_path, ("torchrun", "--nproc-per-node", "8", "train.py"), str(tmp_path))
    assert here != file_of(tmp_path, ("torchrun", "other.py"), str(tmp_path))
    assert here != file_of(tmp_path, ("torchrun", "-m", "train"), str(tmp_path))


def test_a_stored_list_is_read_again(tmp_path):
    known = Known(
        argv=("python", "train.py"),
        own_env={"A": "b"},
        lines=("torch",),
        launcher=("argparse",),
        left_out={"wandb": LeftOut("1", "threads")},
        cost_s={"torch": 1.0},
    )
    path = tmp_path / "imports" / "x.json"
    store(path, known)
    assert load(path) == known
    path.write_text("{")
    assert load(path) == Known()


def test_what_a_launcher_sets_is_no_change_of_the_script(tmp_path):
    (tmp_path / "imports.learned").write_text("torch\nenv:MODE\nnumpy\n")
    (tmp_path / "imports.launcher").write_text("env:OMP_NUM_THREADS\ntorch\ntorch.distributed.run\n")
    assert learned(tmp_path) == ("torch", "env:MODE", "numpy", "torch.distributed.run")
    assert merged(("a", "b"), ("b", "c")) == ("a", "b", "c")


def test_a_variable_that_an_import_adds_is_no_module(tmp_path):
    (tmp_path / "imports.learned").write_text("torch\nset:CACHE\nnumpy\n")
    (tmp_path / "imports.launcher").write_text("deepspeed\nset:CHECK\nset:CACHE\nenv:PORT\n")
    assert learned(tmp_path) == ("torch", "numpy", "deepspeed")
    assert learned_by_import(tmp_path) == ("CACHE", "CHECK")
