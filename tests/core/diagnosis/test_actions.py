"""What is advised where the log around the cause tells more than the cause's own line."""

import pytest

from core.diagnosis.candidate_kit import candidate, search, signature
from holdfast.core.diagnosis.actions import action_for
from holdfast.model.signatures import TRACEBACK_START
from holdfast.model.verdicts import Culprit


def advised(root, *others, blamed=(), **where):
    known = (root, *others)
    return action_for(root, blamed, known, search(*(one.match for one in known), **where))


def test_the_signatures_word_holds_then_the_categorys():
    assert advised(candidate(signature("oom", "gpu_oom", action="restart"))) == "restart"
    assert advised(candidate(signature("oom", "gpu_oom"))) == "reduce_memory"
    assert advised(candidate(signature("odd", "cuda_error"))) == "unknown"


def test_what_tells_only_that_something_failed_names_no_action():
    failed = signature("launcher-failed", "python_exception", role="symptom", weight=0.35)
    assert advised(candidate(failed)) == "unknown"
    assert advised(candidate(signature(TRACEBACK_START, "python_exception", role="context"))) == "unknown"
    told = signature("import-failed-there", "python_exception", role="symptom", weight=0.8)
    assert advised(candidate(told)) == "fix_code"
    killed = signature("rank-ended", "process_killed", role="symptom", weight=0.35)
    assert advised(candidate(killed)) == "restart"


def test_a_peer_that_left_as_its_work_was_done_is_a_mistake_of_the_code_and_no_broken_network():
    left = candidate(signature("gloo-peer-closed", "nccl_network_error", role="symptom"))
    done = candidate(signature("run-succeeded", "none", role="end-ok"))
    assert advised(left) == "fix_network"
    assert advised(left, done) == "fix_code"


def test_what_a_program_wrote_itself_and_cannot_read_is_its_codes_mistake():
    unfit = candidate(signature("state-dict-error", "checkpoint_load_error"), offset=500)
    assert advised(unfit) == "fix_config"
    assert advised(unfit, last_steps={0: 400}) == "fix_code"
    assert advised(unfit, last_steps={0: 900}) == "fix_config"


def test_a_model_that_is_given_a_whole_checkpoint_is_its_codes_mistake():
    unfit = signature("state-dict-error", "checkpoint_load_error")
    head = "RuntimeError: Error(s) in loading state_dict for Voice: Unexpected key(s) in state_dict: "
    assert advised(candidate(unfit, text=head + '"epoch", "voice_state_dict". ')) == "fix_code"
    assert advised(candidate(unfit, text=head + '"encoder.epoch_embedding.weight". ')) == "fix_config"


def test_what_stumbles_over_no_steps_at_all_is_about_the_data():
    divided = candidate(signature("exception", "python_exception"), offset=500)
    counted = candidate(signature("no-steps-to-train", "data_error", role="context"), offset=400)
    assert advised(divided) == "fix_code"
    assert advised(divided, counted) == "fix_data"


def test_a_gpu_that_has_no_memory_for_a_process_that_took_none_is_left_out():
    full = signature("cuda-error-out-of-memory", "gpu_oom")
    first = candidate(full, offset=500, innermost="/lib/torch/distributed/distributed_c10d.py:4156 barrier")
    assert advised(first) == "isolate_node"
    assert advised(first, last_steps={0: 400}) == "reduce_memory"
    later = candidate(full, offset=500, innermost="/lib/torch/cuda/graphs.py:84 capture_end")
    assert advised(later) == "reduce_memory"


def test_a_maths_library_that_never_worked_is_the_environments_and_one_that_did_the_codes():
    failed = candidate(signature("cublas-execution-failed", "cuda_error"), offset=500)
    assert advised(failed) == "fix_env"
    assert advised(failed, last_steps={0: 400}) == "fix_code"


@pytest.mark.parametrize(
    ("says", "action"),
    [
        ("RuntimeError: CUDA error: invalid resource handle", "fix_code"),
        ("RuntimeError: CUDA error: device kernel image is invalid", "fix_env"),
        ("Cuda failure 'unspecified launch failure'", "isolate_node"),
        ("RuntimeError: CUDA error: driver shutting down", "unknown"),
    ],
)
def test_a_failed_call_is_whose_it_says(says, action):
    assert advised(candidate(signature("cuda-error-other", "cuda_error"), text=says)) == action


def test_an_argument_that_cann_refuses_is_named_below_the_head_of_its_error():
    npu = signature("npu-inner-error", "npu_runtime")
    head = "RuntimeError: EZ9999: Inner Error!"
    assert advised(candidate(npu, text=head)) == "unknown"
    told = candidate(
        signature("detail", "npu_runtime"), text="EZ9999: numHeads is 8, MLA only support {32, 64}."
    )
    assert advised(candidate(npu, text=head), told) == "fix_config"
    refused = ("Ascend Error: AclNN_Parameter_Error(EZ1001): The tensor cannot have 9 dimensions.",)
    assert advised(candidate(npu, text=head, record=refused)) == "fix_code"
    unseen = "[ERROR] RUNTIME(7,train): GetVisibleDevices:[INIT]set ASCEND_RT_VISIBLE_DEVICES:[9] error, data rang[0-8)"
    assert advised(candidate(npu, text=unseen)) == "fix_config"
    mixed = ("E30006: Failed to verify the OPP", "Possible Cause: 1.The OPP is incorrect.")
    assert advised(candidate(npu, text=head, record=mixed)) == "fix_env"


LIBRARY = "/venv/lib/python3.12/site-packages/transformers/trainer.py:3100 _save"


@pytest.mark.parametrize(
    ("called", "argument", "raised_in", "action"),
    [
        ("TrainingArguments.__init__", "seed_of_data", "", "fix_env"),
        ("VoiceTrainer._save_checkpoint", "trial", "", "fix_env"),
        ("VoiceTrainer.__init__", "rate", "/w/train.py:9 main", "fix_code"),
        ("forward", "cache_position", "/venv/lib/python3.12/site-packages/torch/nn/modules/module.py:1 _call", "fix_env"),
        ("forward", "labels", "/venv/lib/python3.12/site-packages/torch/nn/modules/module.py:1 _call", "fix_code"),
        ("on_end", "state", LIBRARY, "fix_env"),
        ("map", "schema", "/venv/lib/python3.12/site-packages/fastmap/transform.py:7 _map", "fix_env"),
        ("clean", "rank", "/venv/lib/python3.12/site-packages/datasets/arrow_dataset.py:9 _map_single", "fix_code"),
        ("on_end", "state", "/w/train.py:9 main", "fix_code"),
    ],
)  # fmt: skip
def test_an_argument_that_a_library_gives_or_lost_is_a_matter_of_versions(
    called, argument, raised_in, action
):
    refused = signature("unexpected-keyword", "python_exception")
    captures = {"name": called, "argument": argument}
    assert advised(candidate(refused, captures=captures, innermost=raised_in)) == action


def test_a_name_that_an_installed_library_or_its_extension_lacks_was_not_installed():
    lacks = signature("name-not-defined", "python_exception")
    assert advised(candidate(lacks, captures={"name": "_C"})) == "fix_env"
    assert advised(candidate(lacks, captures={"name": "loss_fn"})) == "fix_code"
    assert advised(candidate(lacks, captures={"name": "torch"}, innermost=LIBRARY)) == "fix_env"
    assert advised(candidate(lacks, captures={"local": "loss"}, innermost=LIBRARY)) == "fix_code"


def test_an_attribute_that_a_librarys_class_or_module_lacks_is_a_matter_of_versions():
    lacks = signature("object-has-no-attribute", "python_exception")
    assert advised(candidate(lacks, captures={"type": "DynamicCache"})) == "fix_env"
    assert advised(candidate(lacks, captures={"type": "VoiceModel"})) == "fix_code"
    assert advised(candidate(lacks, captures={"type": "SpeedScheduler"}, innermost=LIBRARY)) == "fix_env"
    assert advised(candidate(lacks, captures={"type": "VoiceModel"}, innermost=LIBRARY)) == "fix_code"
    assert advised(candidate(lacks, captures={"type": "dict"}, innermost=LIBRARY)) == "fix_code"
    other = signature("python-exception", "python_exception")
    says = "AttributeError: module 'tensorlib.nn' has no attribute 'fuse'"
    assert advised(candidate(other, text=says, innermost=LIBRARY)) == "fix_env"
    assert advised(candidate(other, text=says, innermost="/w/train.py:9 main")) == "fix_code"


def test_a_missing_argument_of_a_launcher_is_a_setting():
    missing = signature("none-has-no-attribute", "python_exception")
    launcher = "/venv/lib/python3.12/site-packages/accelerate/commands/launch.py:9 simple"
    assert advised(candidate(missing, innermost=launcher)) == "fix_config"
    assert advised(candidate(missing, innermost="/w/train.py:9 main")) == "fix_code"


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("/path/to/speech", "fix_config"),
        ("your_corpus/val", "fix_config"),
        ("val_list_path", "fix_config"),
        ("speech/data/path", "fix_config"),
        ("/mnt/speech/val/0007.json", "fix_data"),
        ("/mnt/flight_path/0007.json", "fix_data"),
        ("data/path.json", "fix_data"),
    ],
)
def test_a_path_that_nobody_filled_in_is_a_setting(path, action):
    says = f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
    assert advised(candidate(signature("file-not-found", "data_error"), text=says)) == action


@pytest.mark.parametrize(
    ("says", "action"),
    [
        ("AssertionError: The index is of another kind. Make sure that --index-kind is right.", "fix_config"),
        ("AssertionError: The index is of another kind", "fix_data"),
        ("AssertionError: The index made with --index-kind is broken", "fix_data"),
    ],
)
def test_an_option_that_the_message_asks_to_look_at_is_a_setting(says, action):
    assert advised(candidate(signature("data-invalid", "data_error"), text=says)) == action


def test_what_crashes_before_its_first_step_has_libraries_that_do_not_fit():
    crashed = candidate(signature("rank-segfault-exit", "segfault"), offset=500)
    assert advised(crashed) == "fix_env"
    assert advised(crashed, last_steps={0: 400}) == "fix_code"


def test_what_is_built_from_a_config_does_not_take_what_stands_there():
    says = "TypeError: VoiceHead: __init__() got an unexpected keyword argument 'heads'"
    assert advised(candidate(signature("python-exception", "python_exception"), text=says)) == "fix_config"
    shown = candidate(
        signature("exception-shown-by-hydra", "python_exception"),
        text="TypeError(\"VoiceHead.__init__() missing 1 required positional argument: 'heads'\")",
    )
    assert advised(shown) == "fix_config"


def test_what_a_check_of_settings_raises_is_a_setting_whatever_is_known_of_its_words():
    unfit = signature("dtypes-do-not-fit", "python_exception")
    checked = {"error_type": "ValueError", "innermost": "/lib/trainer/options.py:88 __post_init__"}
    assert advised(candidate(unfit, **checked)) == "fix_config"
    computed = {"error_type": "ValueError", "innermost": "/lib/trainer/layers.py:88 forward"}
    assert advised(candidate(unfit, **computed)) == "fix_code"
    assert advised(candidate(signature("oom", "gpu_oom"), **checked)) == "reduce_memory"


def test_two_gpus_in_a_process_of_no_rank_are_too_many():
    apart = signature("tensors-on-different-devices", "python_exception")
    says = "Expected all tensors to be on the same device, but found at least two devices, {} and cuda:0!"
    assert advised(candidate(apart, text=says.format("cuda:3"))) == "fix_config"
    assert advised(candidate(apart, text=says.format("cuda:3"), rank=3)) == "fix_code"
    assert advised(candidate(apart, text=says.format("cpu"))) == "fix_code"


def test_where_only_one_came_no_other_was_started():
    missing = signature("torch-store-clients-missing", "rendezvous_timeout")
    assert advised(candidate(missing, captures={"joined": "1", "expected": "4"})) == "fix_config"
    assert advised(candidate(missing, captures={"joined": "3", "expected": "4"})) == "restart"
    barrier = signature("torch-store-barrier-timeout", "rendezvous_timeout")
    assert advised(candidate(barrier, captures={"joined": "1", "world": "8"})) == "fix_config"
    assert advised(candidate(barrier, captures={"joined": "7", "world": "8"})) == "restart"
    assert advised(candidate(barrier, captures={"joined": "1", "world": "2"})) == "restart"


def test_a_crash_inside_of_mpi_is_a_matter_of_settings():
    crashed = signature("native-crash-report", "segfault")
    inside = candidate(crashed, record=(" 0 0x45 __sigaction()  ???:0", " 1 0x4d ompi_comm_init()  ???:0"))
    assert advised(inside) == "fix_config"
    assert advised(candidate(crashed, record=(" 1 0x4d at::native::add()  ???:0",))) == "fix_code"


def test_a_wait_that_nobody_explains_is_tried_again_and_a_rank_that_lives_elsewhere_is_the_codes():
    late = candidate(signature("late", "collective_timeout", role="symptom"))
    assert advised(late) == "restart"
    elsewhere = candidate(signature("torch-desync-not-joined", "collective_missing_rank"), offset=9)
    assert advised(late, elsewhere) == "fix_code"


def test_a_device_of_which_only_the_job_tells_costs_its_node():
    broken = candidate(signature("ecc", "ecc_uncorrectable", area="worker"))
    assert advised(broken) == "isolate_node"
    counted = candidate(signature("smi", "ecc_uncorrectable", area="tool", role="context"), offset=9)
    assert advised(broken, counted) == "reset_gpu"  # it is known which one
    assert advised(candidate(signature("ecc", "ecc_uncorrectable", area="kernel"))) == "reset_gpu"
    assert advised(candidate(signature("old", "driver_mismatch", area="worker"))) == "reboot_node"


def test_one_node_whose_network_fails_is_taken_out():
    cut = signature("cut", "nccl_network_error")

    def from_(host, peer, offset):
        return candidate(cut, offset=offset, host=host, captures={"peer": peer} if peer else {})

    one, other = from_("a", "10.0.0.7", 1), from_("b", "10.0.0.7", 2)
    assert advised(one, other) == "isolate_node"  # two lost the same one
    assert advised(one, from_("a", "10.0.0.7", 2)) == "fix_network"
    assert advised(one, from_("b", "10.0.0.8", 2)) == "fix_network"
    blamed = (Culprit(rank=0, host="a"), Culprit(rank=1, host="a"))
    assert advised(from_("a", None, 1), from_("b", None, 2), blamed=blamed) == "isolate_node"


@pytest.mark.parametrize(
    ("says", "action"),
    [
        ("OSError: [Errno 30] Read-only file system: 'results.txt'", "fix_config"),
        ("OSError: [Errno 95] Operation not supported: '/lake/run.lock'", "fix_config"),
        ("mount.nfs: access denied by server while mounting 10.0.0.9:/lake", "fix_config"),
        ("mount.lustre: mount 10.0.0.9@o2ib:/lake at /lake failed: Invalid argument", "fix_config"),
        ("mount.nfs: Connection timed out", "fix_network"),
        ("mount error(113): could not connect to 10.0.0.9", "fix_network"),
        ("OSError: [Errno 116] Stale file handle: '/lake/run.lock'", "fix_env"),
        ("beegfs-client[7]: mount: /mnt/lake: mount(2) system call failed: Operation canceled.", "fix_env"),
    ],
)
def test_a_place_that_is_refused_is_a_setting_and_a_server_that_is_silent_the_networks(says, action):
    assert advised(candidate(signature("file", "filesystem_error"), text=says)) == action


def test_what_mount_said_below_tells_what_to_do_about_a_volume():
    files = signature("k8s-mount-failed", "filesystem_error")
    head = candidate(
        files, text='Warning  FailedMount  kubelet  MountVolume.SetUp failed for volume "lake"', offset=10
    )
    said = "Output: mount.nfs: access denied by server while mounting 10.0.0.9:/lake"
    assert advised(head) == "fix_env"
    assert (
        advised(head, candidate(signature("mount-failed", "filesystem_error"), text=said, offset=16))
        == "fix_config"
    )
    assert (
        advised(head, candidate(signature("mount-failed", "filesystem_error"), text=said, offset=99))
        == "fix_env"
    )
