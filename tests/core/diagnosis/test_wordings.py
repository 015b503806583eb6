"""What exceptions that nobody knows are about, by their words."""

import pytest

from core.diagnosis.candidate_kit import NO_SIGNATURES, knowing, match, signature
from holdfast.core.diagnosis.words.wordings import of_code, of_likeness, of_words
from holdfast.model.matches import Likeness
from holdfast.model.signatures import SPOKEN

VAGUE = signature("python-exception", "python_exception", weight=0.6)


def ruled(text):
    kind = text.partition(":")[0]
    return of_words(match(VAGUE, text=text, error_type=kind), NO_SIGNATURES)


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("RuntimeError: cannot open shard /mnt/a/00012.tar", "data_error"),
        ("ValueError: sample 17 is truncated", "data_error"),
        ("RuntimeError: optimizer state not present in snapshot", "checkpoint_load_error"),
        ("OSError: saving the checkpoint failed", "checkpoint_save_error"),
        ("RuntimeError: Non-finite loss at step 12", "nan_loss"),
        ("RuntimeError: out of memory on device 3", "gpu_oom"),
        ("RuntimeError: Failed to allocate 512 bytes on device 'cuda:1'", "gpu_oom"),
        ("SafetensorError: Error while serializing: IoError", "checkpoint_save_error"),
        ("RuntimeError: Resource temporarily unavailable", "host_limit"),
        ("NotFoundError: build/libops.so: undefined symbol: _ZN3fooEv", "version_mismatch"),
        ("RuntimeError: unable to import my_kernels", "import_error"),
        ("RuntimeError: Unable to JIT load the fast_io op", "compile_error"),
        ("RuntimeError: access to /mnt/b was denied", "permission_error"),
        ("RuntimeError: no room left on /mnt/b", "disk_full"),
        ("ValueError: could not resume from /mnt/b", "checkpoint_load_error"),
        ("RuntimeError: Unsupported torch version 2.9.0", "version_mismatch"),
        ("RuntimeError: no fp8 here. Consider upgrading with `pip install torch>=2.1`", "version_mismatch"),
        ("RuntimeError: helper 1.4 has a version that does not match ours", "version_mismatch"),
        ("RuntimeError: lost device 3: uncorrectable ECC error", "ecc_uncorrectable"),
        ("RuntimeError: stream 7: illegal memory access", "cuda_illegal_access"),
        ("RuntimeError: no GPUs available here", "cuda_init_error"),
        ("OSError: port 4400 is occupied", "port_in_use"),
        ("RuntimeError: loader worker 3: bus error", "shm_oom"),
        ("RuntimeError: worker 3 ended by a segmentation fault", "segfault"),
        ("RuntimeError: worker 3, signal: Killed", "host_oom"),
        ("RuntimeError: prefetcher timed out after 60 s", "dataloader_stuck"),
        ("RuntimeError: rendezvous timed out", "rendezvous_timeout"),
        ("RuntimeError: all_reduce of group 4 timed out", "collective_timeout"),
        ("RuntimeError: connection reset by 10.0.0.3", "nccl_network_error"),
        ("ConnectionRefusedError: [Errno 111]", "nccl_network_error"),
        ("ValueError: 403 Forbidden: bucket-7", "permission_error"),
        ("OSError: read of block 7: Input/output error", "filesystem_error"),
        ("FileNotFoundError: part-7", "data_error"),
        ("ModuleNotFoundError: fastkernels", "import_error"),
    ],
)
def test_a_thing_and_what_is_wrong_with_it(text, category):
    assert ruled(text).category == category


@pytest.mark.parametrize(
    ("message", "category", "action"),
    [
        ("manifest lists 412 shards but 3 are missing", "data_error", ""),
        ("path /mnt/plan does not exist", "data_error", ""),
        ("unknown model preset tiny-x", "python_exception", "fix_config"),
    ],
)
def test_what_a_program_says_of_its_own_error_is_weak(message, category, action):
    spoken = signature(SPOKEN, "python_exception", severity="warning")
    ruling = of_words(match(spoken, captures={"message": message}), NO_SIGNATURES)
    assert (ruling.category, ruling.action, ruling.severity) == (category, action, "warning")
    assert of_words(match(spoken, captures={"said": message}), NO_SIGNATURES) == ruling
    assert of_words(match(spoken, captures={"message": "that went wrong"}), NO_SIGNATURES) is None


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: num_heads must be divisible by tensor_parallel_size",
        "ValueError: NUM_RANKS=3 must divide 8",
        "ValueError: Unknown warmup scheduler: cubic",
        "ValueError: Unknown codec: opus7",
        "ValueError: Norm 'None' not found in NORM_TABLE. Available norms: ['rms', 'layer']",
        "ValueError: Cannot use paged state without fused steps",
        "ValueError: `fuse_steps` requires `compile=True`.",
        "AssertionError: ring attention does not work with cp_size = 1",
        "ValueError: Only adam and lion are supported with offloading",
        "ValueError: ema_decay is outside of the range [0, 1]",
        "RuntimeError: the loader needs whole batches; set `drop_tail=True`",
        "ValueError: attention_mask cannot be used: pass --no-packing",
        "ValueError: a fraction of the dataset is not supported with streaming",
        "ValueError: `fold_shards` cannot be combined with tensor parallelism",
        "ValueError: no reader of that name. Supported: flac, opus",
        "RuntimeError: offloading only works with one shard on each node",
    ],
)
def test_a_setting_that_is_asked_for_is_no_fault_of_the_code(text):
    ruling = ruled(text)
    assert (ruling.category, ruling.action) == ("python_exception", "fix_config")


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: Either `input_ids` or `inputs_embeds` must be provided.",
        "ValueError: You cannot specify both pixel_values and image_embeds",
        "ValueError: Make sure that all rows have the same sequence length",
        "ValueError: Unknown label: 31",
        "ValueError: reader opus has already been registered: opus or flac",
        "RuntimeError: kernel of block 4 gave up",
    ],
)
def test_what_a_model_is_given_at_each_step_was_set_by_nobody(text):
    assert ruled(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "MisconfigurationException: You called `self.note(loss, ...)` twice in `train_step`",
        "MisconfigurationException: `val_loader` must be implemented to be used with this trainer",
        "RuntimeError: the closure has not run. HINT: did you call `closure()` in your `step` hook?",
    ],
)
def test_what_a_framework_asks_of_the_users_methods_is_the_codes(text):
    assert ruled(text).action == "fix_code"


@pytest.mark.parametrize(
    ("message", "action"),
    [
        ("fp8 is not supported with offloading", "fix_config"),
        ("must be implemented by the derived class", None),
        ("Cannot copy out of meta tensor; no data!", None),
        ("", None),
    ],
)
def test_what_is_not_implemented_for_what_was_chosen_asks_for_another_choice(message, action):
    missing = signature("not-implemented", "python_exception")
    ruling = of_words(
        match(missing, captures={"message": message}, error_type="NotImplementedError"), NO_SIGNATURES
    )
    assert (ruling and ruling.action) == action


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: TrackerCallback requires `tracker` to be installed. Run `pip install tracker`.",
        "ValueError: the fused kernel is not available. Please install fastkernels.",
    ],
)
def test_what_is_to_be_installed_is_no_setting(text):
    assert ruled(text).category == "import_error"


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: the shard was read",  # a mention
        "NameError: name 'dataset' is not defined",  # the code's own names
        "AttributeError: 'NoneType' object has no attribute 'checkpoint'",
        "RuntimeError: something odd",
    ],
)
def test_a_mere_mention_decides_nothing(text):
    assert ruled(text) is None


@pytest.mark.parametrize(
    ("code", "category"),
    [
        ("-9", "process_killed"),
        ("137", "process_killed"),
        ("-11", "segfault"),
        ("135", "shm_oom"),
        ("143", "terminated"),
    ],
)
def test_a_bare_code_says_what_ended_the_process(code, category):
    ended = signature("ended-with-a-code", "unknown", role="symptom")
    ruling = of_code(match(ended, captures={"code": code}), NO_SIGNATURES)
    assert (ruling.category, ruling.role) == (category, "symptom")


@pytest.mark.parametrize(("name", "category"), [("KILL", "process_killed"), ("11", "segfault")])
def test_a_signal_says_what_ended_the_process(name, category):
    ended = signature("ended-with-a-code", "unknown", role="symptom")
    assert of_code(match(ended, captures={"name": name}), NO_SIGNATURES).category == category


def test_a_code_that_only_says_that_it_failed_tells_nothing():
    assert (
        of_code(match(signature("ended-with-a-code", "unknown"), captures={"code": "1"}), NO_SIGNATURES)
        is None
    )
    assert (
        of_code(
            match(signature("shapes-do-not-fit", "python_exception"), captures={"code": "137"}), NO_SIGNATURES
        )
        is None
    )


def test_windows_has_codes_of_its_own():
    called = signature("called-process-failed", "python_exception")
    assert of_code(match(called, captures={"code": "3221225477"}), NO_SIGNATURES).category == "segfault"
    assert of_code(match(called, captures={"code": "3221225786"}), NO_SIGNATURES).category == "terminated"


def test_a_file_of_settings_is_no_data_and_a_package_that_is_missing_is_an_import():
    missing = "Get path and read binary_info_config.json failed, please check if the opp_kernel package is installed!"
    assert ruled(f"RuntimeError: {missing}").category == "import_error"
    settings = ruled("RuntimeError: reading ds_config.json failed")
    assert settings is None or settings.category != "data_error"
    assert ruled("RuntimeError: reading train.json failed").category == "data_error"


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("Mar  3 03:03:07 n7 sshd[40]: error: connection closed by remote host", "context"),
        ("[  412.123456] ACPI Error: No handler for Region [SYSI]", "context"),
        ("ERROR: connection closed by remote host", "cause"),
    ],
)
def test_what_the_daemons_of_a_machine_complain_of_ends_no_job(text, role):
    spoken = match(signature(SPOKEN, "python_exception"), text=text, captures={"message": text})
    ruling = of_words(spoken, NO_SIGNATURES)
    assert ruling is not None
    assert ruling.role == role


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: tensor parallel size 3 does not fit 32 heads",
        "AssertionError: context parallelism requires setting the environment variable MAX_CONNECTIONS to 1",
        "RuntimeError: sleep mode cannot be combined with graphs",
        "ValueError: Processor was not found, please check it",
        "RuntimeError: packing is only supported with flash attention",
        "AssertionError: with experts and tensor parallelism, sequence parallelism must be on",
        "ValueError: Tokenizer class FooTokenizer does not exist or is not currently imported.",
        "ValueError: Template 'foo' not found.",
        "ValueError: Template foo7 does not exist.",
        "ValueError: Undefined dataset demo_set in sets.json.",
        "Exception: Invalid dataset id: x, must be of format owner/name",
        "ValueError: some ranks are on meta. Put all on one device or set fsdp['sync_states'] = True.",
        "RuntimeError: ahead-of-time scheduling is required for full graphs.",
        "AssertionError: the `num_classes` (9) of PointHead does not match the 12 of the set",
    ],
)
def test_a_message_that_asks_for_another_setting(message):
    assert ruled(message).action == "fix_config"


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: task 3 not found",
        "Exception: loss is unknown",
    ],
)
def test_what_has_no_name_was_not_chosen(message):
    assert ruled(message) is None


def test_what_pythons_own_functions_say_of_their_arguments_is_no_setting():
    assert ruled("ValueError: range() arg 3 must not be zero") is None


def test_how_a_function_is_called_or_a_tensor_made_is_no_setting():
    call = "ValueError: `sync` is not a valid argument of `Options`. It should be passed to `generate()` directly."
    assert ruled(call) is None
    assert ruled("RuntimeError: parameters should be moved off the meta device before training") is None


def test_an_exception_whose_traceback_is_cut_off_is_judged_by_its_words_too():
    cut = match(
        signature("assertion-without-words", "python_exception"),
        text="[rank0]: AssertionError: batch size must be divisible by 8",
    )
    assert of_words(cut, NO_SIGNATURES).action == "fix_config"


@pytest.mark.parametrize(
    ("message", "category"),
    [
        ("RuntimeError: /opt/cuda/bin/ptxas is too old", "version_mismatch"),
        ("RuntimeError: torch and pyg_lib were compiled with different CUDA releases", "version_mismatch"),
        ("RuntimeError: please reinstall the wheel that fits", "version_mismatch"),
    ],
)
def test_what_was_built_for_something_else(message, category):
    assert ruled(message).category == category


def test_what_a_function_is_given_is_no_setting():
    assert ruled("RuntimeError: mat2 must be a matrix") is None
    assert ruled("ValueError: warmup must be positive").action == "fix_config"


def test_a_complaint_about_data_that_names_the_setting_is_about_the_setting():
    asked = ruled("ValueError: the tokenizer does not have a padding token. Please set pad_token")
    assert (asked.category, asked.action) == ("python_exception", "fix_config")
    assert ruled("ValueError: the dataset is empty").category == "data_error"


def likened(text, known_as):
    module = signature("no-module", "import_error", action="fix_env")
    spoken = signature(SPOKEN, "python_exception", severity="warning")
    seen = match(spoken, text=text, known_as=known_as and Likeness(signature=known_as))
    return of_likeness(seen, knowing(module, spoken))


def test_a_message_whose_signature_is_known_is_that_failure_and_stays_hearsay():
    ruling = likened("ERROR: run failed: No module named 'a'", "no-module")
    assert (ruling.category, ruling.action, ruling.severity) == ("import_error", "fix_env", "warning")


@pytest.mark.parametrize(
    ("text", "known_as"),
    [
        ("ERROR: run failed: odd", None),
        ("ERROR: run failed: odd", "of-another-version"),
        ("ERROR: No module named 'a', falling back to b", "no-module"),
        ("WARNING: ERROR: No module named 'a'", "no-module"),
    ],
)
def test_a_message_that_is_not_known_or_ends_nothing_is_not_likened(text, known_as):
    assert likened(text, known_as) is None
