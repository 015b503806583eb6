"""What of a rank's imports a standby may make early."""

from holdfast.agent.standby.start import IMPORTS, imports_to_repeat, repeatable


def test_nothing_behind_a_change_of_the_environment_is_imported_early():
    assert repeatable(["torch", "torch.a", "env:HF_HOME", "transformers"]) == ["torch", "torch.a"]
    assert repeatable(["env:OMP_NUM_THREADS", "torch"]) == []


def test_only_torch_is_imported_where_a_library_opened_a_gpu():
    assert repeatable(["torch", "timm", "device", "torch.late"]) == ["torch", "torch.late"]


def test_the_list_is_used_as_it_is_or_written_anew(tmp_path):
    assert imports_to_repeat(tmp_path) is None
    (tmp_path / IMPORTS).write_text("torch\ntransformers\n")
    assert imports_to_repeat(tmp_path) == tmp_path / IMPORTS
    (tmp_path / IMPORTS).write_text("torch\nenv:X\ntransformers\n")
    listing = imports_to_repeat(tmp_path)
    assert listing is not None
    assert listing.read_text() == "torch\n"
    (tmp_path / IMPORTS).write_text("env:X\ntorch\n")
    assert imports_to_repeat(tmp_path) is None
