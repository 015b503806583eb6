"""Defines the recovery policy: which automatic actions are allowed, and all their limits. A missing value means
off.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

MaxRestarts = Annotated[int, Meta(ge=1, le=128)]
Seconds = Annotated[float, Meta(ge=0)]


class PolicyFields(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The policy settings that a platform may change while the job runs.

    UNSET: the value at the start of the job.
    """

    max_restarts: MaxRestarts | UnsetType = UNSET
    unconditional_restart: bool | UnsetType = UNSET
    hang_restart: bool | UnsetType = UNSET
    replace_workers: MaxRestarts | UnsetType = UNSET


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of the recovery ladder (docs/ladder.md). All times in seconds.

    `max_restarts`: maximum number of reschedules of the whole job, 1..128; None: none, and no restart in place
    either. `replace_workers`: maximum number of replacements of single workers; None means never.
    """

    max_restarts: MaxRestarts | None = None
    unconditional_restart: bool = False
    hang_restart: bool = False
    replace_workers: MaxRestarts | None = None
    hang_timeout_s: Annotated[float, Meta(gt=0)] | None = None  # None: learned ("auto")
    shadow: bool = False  # decide and record, never act
    keep_on_failure_s: Seconds = 0.0
    # The launcher restarts ranks by itself (torchrun --max-restarts): the end of a rank is then only logged,
    # and the end of the launcher is the job's failure.
    launcher_restarts: bool = False

    hangs_in_a_row_max: int = 3
    same_problem_in_a_row_max: int = 3
    # Even with unconditional_restart, the same exception at the same place and step fails the job.
    same_error_fails: bool = False
    device_repeats_max: int = 3  # the third time within the window steps up
    device_repeat_window_s: float = 86_400.0
    user_caused_codes: tuple[str, ...] = ("80C98002", "80CB8002")
    progress_steps: int = 10  # steps beyond the best earlier step that count as progress
    progress_s: float = 3_600.0  # running time that counts as progress without steps in the log
    settle_s: float = 60.0  # a job without steps that lives this long after a restart trains again

    boot_check: Literal["off", "quick", "full"] = (
        "off"  # before the first start and wherever workers are placed
    )
    checks_act: bool = True  # failed checks isolate nodes and stop the job; False: they are only reported
    # A node that passed less than this ago is checked again only if a machine may have caused the failure.
    boot_check_again_s: Seconds = 0.0
    boot_check_wait_s: Seconds = 20.0  # for the quick check's answer; then the run starts anyway
    full_check_wait_s: Seconds = 90.0  # for the full check's answer
    troubleshoot_wait_s: Seconds = 0.0  # maximum time for checks during a diagnosis; 0: no checks

    verdict_wait_s: float = 30.0
    isolate_wait_s: float = 30.0
    heal_wait_s: float = 1_800.0
    place_wait_s: float = 1_800.0
    stop_again_s: float = 30.0  # an unanswered or unfinished stop is ordered again this often
    stop_wait_s: float = 600.0  # processes that cannot be killed for this long: the job fails
    node_wait_s: float = 7 * 86_400.0  # no healthy node for this long: the job fails
    place_again_s: float = 60.0
    finish_s: float = 5.0  # on final failure, time for the launcher to end by itself, with its own exit code
