"""Gradient norm, learning rate and data in the lines of frameworks."""

import pytest

from holdfast.observe.search.step_form_store import all_forms
from holdfast.parsers.run_facts import run_facts
from holdfast.parsers.steps.details import details
from holdfast.parsers.steps.lines import StepLines

MEGATRON = (
    b" [2024-05-21 10:00:01] iteration       12/     100 | consumed samples:          384 | elapsed time per iteration (ms): "
    b"512.3 | learning rate: 3.000000E-04 | global batch size:    32 | lm loss: 9.123456E+00 | loss scale: 1.0 | grad norm: 1.234 |"
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (MEGATRON, {"grad_norm": 1.234, "learning_rate": 3e-4, "data": "384"}),
        (
            b"{'loss': 2.3, 'grad_norm': 1.04, 'learning_rate': 5e-05, 'epoch': 0.1}",
            {"grad_norm": 1.04, "learning_rate": 5e-5},
        ),
        (b'{"loss": "2.3", "gnorm": "0.5", "lr": "0.0003"}', {"grad_norm": 0.5, "learning_rate": 3e-4}),
        (b"step: 3  loss: 8.1  grad_norm:  nan  lr=[0.001, 0.001]", {"learning_rate": 1e-3}),
        (b"step 7 loss 1.0 batch_hash=9f31aa sample_ids: [1, 5, 9]", {"data": "9f31aa"}),
        (b"step 7 loss 1.0 color 3 norm", {}),
        (b"step 7 batch 4 data 0.3 s", {}),
    ],
)
def test_labelled_values(line, expected):
    found = details(line)
    for key, value in expected.items():
        assert found[key] == value
    assert set(found) - {"grad_norm"} == set(expected) - {"grad_norm"}


def test_records_have_them_on_request_only():
    lines = [MEGATRON.replace(b"       12/", b"%9d/" % step) for step in range(1, 20)]
    block = b"\n".join(lines) + b"\n"
    plain, detailed = StepLines(all_forms(None)), StepLines(all_forms(None), details=True)
    assert all(item.grad_norm is None for item in plain.feed_block(block) + plain.finish())
    found = detailed.feed_block(block) + detailed.finish()
    assert len(found) == 19
    assert {(item.grad_norm, item.learning_rate, item.data) for item in found} == {(1.234, 3e-4, "384")}


def test_what_a_training_says_of_itself():
    facts = run_facts(
        [
            "  seed ............................................ 1234",
            "NCCL version 2.21.5+cuda12.4",
            "PyTorch: 2.13.0",
            "Namespace(lr=0.0003, batch_size=32, wandb_key='abcdef0123456789abcdef0123456789')",
            "export NCCL_ALGO=Ring",
            "step 1 loss: 2.0 mem=3.1",
            "late=1",
        ]
    )
    found = {fact.name: fact.value for fact in facts}
    assert found["seed"] == "1234" and found["nccl"] == "2.21.5+cuda12.4" and found["pytorch"] == "2.13.0"
    assert found["lr"] == "0.0003" and found["NCCL_ALGO"] == "Ring"
    assert "late" not in found and "mem" not in found
    assert "abcdef" not in found.get("wandb_key", "")
