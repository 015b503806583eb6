"""Defines all settings: name, type, range, description. Reads nothing itself."""

from msgspec import Struct

from holdfast.core.job.presets.systems import SYSTEMS

Value = int | float | bool | str | tuple[str, ...] | None

PREFIX = "HOLDFAST_"
_YEAR_S = 366 * 86_400.0


class Foreign(Struct, frozen=True):
    """An environment variable of a training platform that has the meaning of a setting. Its value is a number
    of units of `unit_s` seconds; the value `nothing` means none.
    """

    name: str
    unit_s: float
    nothing: float | None = None


class Setting(Struct, frozen=True, kw_only=True):
    """One setting: its name, type, range and description.

    `kind`: whole, yes, length, size, text, choice, path, texts, labels, address or url. `field`: of RunSettings, or
    policy.<field>. `low`, `high`: the range, in seconds for a length, in bytes for a size. `word`: stands for None ("auto",
    "none"). `scale`: seconds in one unit of the field. `choices`: the values of a choice. `also`: another
    name of the flag.
    """

    key: str
    kind: str
    field: str
    help: str
    low: float = 0.0
    high: float = _YEAR_S
    word: str = ""
    scale: float = 1.0
    choices: tuple[str, ...] = ()
    flag: bool = False
    also: str = ""
    foreign: Foreign | None = None

    @property
    def flag_name(self) -> str:
        return f"--{self.key}" if self.flag else ""

    @property
    def env_name(self) -> str:
        return PREFIX + self.key.upper().replace("-", "_")


def _limit(
    key: str, kind: str, field: str, help_: str, *, low: float = 0.0, high: float = _YEAR_S
) -> Setting:
    return Setting(key=key, kind=kind, field=f"policy.{field}", help=help_, low=low, high=high)


def _switch(key: str, help_: str) -> Setting:
    return Setting(key=key, kind="yes", field=key.replace("-", "_"), flag=True, help=help_)


SETTINGS = (
    Setting(
        key="job",
        kind="text",
        field="job",
        flag=True,
        word="auto",
        help="Name of the job; auto: derived from the time.",
    ),
    Setting(
        key="labels",
        kind="labels",
        field="labels",
        flag=True,
        help="Labels for lists, filters and notices, such as team=vision,model=llama.",
    ),
    Setting(key="state-dir", kind="path", field="state_dir", flag=True, help="Folder of all jobs."),
    Setting(
        key="policy",
        kind="text",
        field="",
        flag=True,
        word="none",
        help=(
            "Policy that translates another system's settings, NAME or NAME:key=value,key=value: "
            f"{', '.join(SYSTEMS)}."
        ),
    ),
    Setting(
        key="max-restarts",
        kind="whole",
        field="policy.max_restarts",
        flag=True,
        low=1,
        high=128,
        word="none",
        help="Maximum number of automatic restarts of the whole job after faults of the environment.",
    ),
    Setting(
        key="unconditional-restart",
        kind="yes",
        field="policy.unconditional_restart",
        flag=True,
        help="Restart on every non-zero exit, whatever the cause.",
    ),
    Setting(
        key="hang-restart",
        kind="yes",
        field="policy.hang_restart",
        flag=True,
        help="Restart in the same workers when a hang is confirmed.",
    ),
    Setting(
        key="replace-workers",
        kind="whole",
        field="policy.replace_workers",
        flag=True,
        low=1,
        high=128,
        word="none",
        help="Maximum number of replacements of single workers, instead of restarting the whole job.",
    ),
    Setting(
        key="hang-timeout",
        kind="length",
        field="policy.hang_timeout_s",
        flag=True,
        low=1,
        word="auto",
        help="Time without any activity that counts as a hang; auto: learned from the run.",
    ),
    Setting(
        key="grace",
        kind="length",
        field="grace_s",
        flag=True,
        high=86_400,
        help="Time between SIGTERM and SIGKILL.",
    ),
    Setting(
        key="keep-on-failure",
        kind="length",
        field="policy.keep_on_failure_s",
        flag=True,
        help="How long to keep the workers running for inspection after a final failure.",
    ),
    Setting(
        key="shadow",
        kind="yes",
        field="policy.shadow",
        flag=True,
        help="Dry run: detect, diagnose and decide, but only record what would have been done.",
    ),
    _switch("quiet", "Do not print the training's output on this terminal."),
    _switch("detach", "Keep the training running when Holdfast exits."),
    _switch(
        "shim", "Load a small module into the ranks, for stacks, collective counters and uncaught exceptions."
    ),
    _switch("standby", "Keep the next attempt's processes ready, so that a restart is faster."),
    _switch(
        "zygote",
        "Fork the next attempt's processes from one that has made their imports; else each makes them.",
    ),
    Setting(
        key="signatures",
        kind="path",
        field="",
        flag=True,
        word="none",
        help="Folder with signatures of your site (TOML), for diagnose and signatures.",
    ),
    Setting(
        key="slowdown-rule",
        kind="choice",
        field="slowdown_rule",
        flag=True,
        choices=("auto", "aistudio", "off"),
        help="Also apply AIStudio's rule for slow steps; auto: to logs of Megatron-LM and LLaMA-Factory; aistudio: to all logs.",
    ),
    Setting(
        key="step-pattern",
        kind="text",
        field="step_pattern",
        flag=True,
        word="none",
        help="Step lines of your log: a regular expression with groups step and time, or a TOML file.",
    ),
    Setting(
        key="boot-check",
        kind="choice",
        field="policy.boot_check",
        flag=True,
        choices=("off", "quick", "full"),
        help="Check nodes before the first start and after a reschedule (see boot-check-again); `quick` takes at most 5 s.",
    ),
    Setting(
        key="checks-act",
        kind="yes",
        field="policy.checks_act",
        flag=True,
        help="A failed check isolates the node or stops the job; false: it is only reported.",
    ),
    Setting(
        key="nnodes",
        kind="whole",
        field="nnodes",
        flag=True,
        also="--nodes",
        low=1,
        high=4096,
        help="Number of nodes; the command runs once on each of them.",
    ),
    Setting(
        key="spares",
        kind="whole",
        field="spares",
        flag=True,
        high=1024,
        help="Number of spare nodes, which replace lost nodes.",
    ),
    Setting(
        key="engine",
        kind="choice",
        field="engine",
        flag=True,
        choices=("local", "slurm", "kubernetes"),
        help="Where nodes come from; local: all nodes are simulated on this machine.",
    ),
    Setting(
        key="hosts",
        kind="choice",
        field="hosts",
        flag=True,
        choices=("processes", "netns"),
        help="How engine local simulates a node: as processes, or in network namespaces (netns, root only).",
    ),
    _switch(
        "link-tls", "Encrypt the traffic between the nodes and the controller; both authenticate in any case."
    ),
    Setting(
        key="node-silence",
        kind="length",
        field="node_silence_s",
        flag=True,
        low=3,
        high=86_400,
        help="Time without messages after which a node is lost, even if its scheduler reports it as up.",
    ),
    Setting(
        key="fleet-dir",
        kind="path",
        field="fleet_dir",
        flag=True,
        word="none",
        help="Folder of the node book, which all jobs of a fleet share; none: `fleet` in the state folder.",
    ),
    Setting(
        key="page",
        kind="address",
        field="page",
        flag=True,
        word="none",
        help="Serve the job's page at HOST:PORT while it runs; without a value at 127.0.0.1, any free port.",
    ),
    Setting(
        key="server",
        kind="text",
        field="server",
        flag=True,
        word="none",
        help="Stream the job to the Holdfast server at this URL, with the token in HOLDFAST_SERVER_TOKEN.",
    ),
    Setting(
        key="notify",
        kind="path",
        field="notify",
        flag=True,
        word="none",
        help=(
            "File of channels and rules for notifications; default: ~/.config/holdfast/notify.toml if it "
            "exists; none: no notifications."
        ),
    ),
    Setting(
        key="isolation-share",
        kind="whole",
        field="isolation_share_percent",
        flag=True,
        high=100,
        help="Maximum share of the fleet's nodes, in percent, that all jobs together may isolate within an hour; at least one node.",
    ),
    Setting(
        key="metrics-address",
        kind="address",
        field="metrics_address",
        flag=True,
        word="none",
        help="Serve metrics for Prometheus at HOST:PORT/metrics; the agents of a job on many nodes use the next free port.",
    ),
    Setting(
        key="metrics-textfile",
        kind="path",
        field="metrics_textfile",
        flag=True,
        word="none",
        help="Write metrics to this file, NAME.prom, for the textfile collector of node-exporter.",
    ),
    Setting(
        key="prometheus",
        kind="url",
        field="prometheus",
        flag=True,
        word="none",
        help="URL of the Prometheus server whose metrics of the nodes' devices become evidence.",
    ),
    _switch(
        "deterministic",
        "Set what makes a PyTorch run repeatable: seeds, deterministic algorithms, cuBLAS, cuDNN, NCCL.",
    ),
    _switch(
        "checkpoint-advice",
        "Pass the advised checkpoint interval to each attempt, in seconds, as HOLDFAST_CHECKPOINT_EVERY_S.",
    ),
    Setting(
        key="ram-checkpoints",
        kind="size",
        field="ram_checkpoints_bytes",
        flag=True,
        low=1 << 20,
        high=1 << 50,
        word="none",
        help=(
            "Keep a copy of the newest checkpoint in /dev/shm, of at most this size, and restore it if the disk's is "
            "damaged or gone before a restart."
        ),
    ),
    Setting(
        key="check-options",
        kind="texts",
        field="check_options",
        help="Options of single checks: CHECK.KEY=VALUE, separated by commas.",
    ),
    Setting(
        key="quick-check",
        kind="length",
        field="quick_check_s",
        low=1,
        high=600,
        help="Time limit of a quick boot check; remaining checks are skipped.",
    ),
    Setting(
        key="check-every",
        kind="length",
        field="check_every_s",
        high=86_400,
        help="Interval of passive checks of the node during training; 0s: never.",
    ),
    Setting(
        key="platform-hang",
        kind="length",
        field="platform_hang_min",
        low=60,
        high=604_800,
        scale=60.0,
        foreign=Foreign("MA_HANG_DETECT_TIME", 60.0),
        help="Hang rule of training platforms: time without process I/O after which a job counts as hung.",
    ),
    Setting(
        key="termination-wait",
        kind="length",
        field="termination_wait_s",
        high=86_400,
        word="none",
        foreign=Foreign("MA_FAILOVER_TERMINATION_GRACE_PERIOD_SECONDS", 1.0, nothing=-1.0),
        help="Maximum wait for a worker to end before a reschedule; none: no limit.",
    ),
    _limit(
        "hangs-in-a-row-max",
        "whole",
        "hangs_in_a_row_max",
        "Hang restarts in a row before the job fails.",
        high=128,
    ),
    _limit(
        "same-problem-in-a-row-max",
        "whole",
        "same_problem_in_a_row_max",
        "Number of restarts in a row for the same problem, after which the job fails as a code error.",
        low=1,
        high=128,
    ),
    _limit(
        "device-repeats-max",
        "whole",
        "device_repeats_max",
        "Faults within device-repeat-window after which a device is no longer recovered in place.",
        low=1,
        high=128,
    ),
    _limit(
        "device-repeat-window",
        "length",
        "device_repeat_window_s",
        "Time window of device-repeats-max.",
        low=1,
    ),
    Setting(
        key="user-caused-codes",
        kind="texts",
        field="policy.user_caused_codes",
        help="Device codes caused by the user's input, separated by commas; no node is isolated for them.",
    ),
    _limit(
        "progress-steps",
        "whole",
        "progress_steps",
        "Steps beyond the best step so far that count as progress and reset the in-a-row counters.",
        low=1,
        high=10**9,
    ),
    _limit(
        "progress",
        "length",
        "progress_s",
        "Running time that counts as progress for a job that logs no steps.",
    ),
    _limit(
        "settle",
        "length",
        "settle_s",
        "Running time after which a job that logs no steps counts as recovered.",
    ),
    _limit(
        "boot-check-again",
        "length",
        "boot_check_again_s",
        "A node that passed its boot check within this time is not checked again, unless a machine may be at fault; 0s: always check.",
        high=86_400,
    ),
    _limit(
        "boot-check-wait",
        "length",
        "boot_check_wait_s",
        "Maximum wait for a quick boot check; then the run starts anyway.",
        low=1,
        high=3_600,
    ),
    _limit(
        "full-check-wait",
        "length",
        "full_check_wait_s",
        "Maximum wait for a full boot check.",
        low=1,
        high=3_600,
    ),
    _limit(
        "troubleshoot-wait",
        "length",
        "troubleshoot_wait_s",
        "Maximum time for node checks after a failure; 0s: no checks.",
        high=600,
    ),
    _limit(
        "verdict-wait", "length", "verdict_wait_s", "Maximum wait for a diagnosis before acting.", high=3_600
    ),
    _limit("isolate-wait", "length", "isolate_wait_s", "Maximum wait for a node to be isolated.", high=3_600),
    _limit("heal-wait", "length", "heal_wait_s", "Maximum wait for a device to recover."),
    _limit("place-wait", "length", "place_wait_s", "Maximum wait for the placement of workers."),
    _limit("place-again", "length", "place_again_s", "Retry interval while no node is free.", low=1),
    _limit(
        "node-wait", "length", "node_wait_s", "The job fails when no healthy node is available for this long."
    ),
    _limit("stop-again", "length", "stop_again_s", "Retry interval of a stop that has not finished.", low=1),
    _limit(
        "stop-wait", "length", "stop_wait_s", "The job fails if its processes have not ended by then.", low=1
    ),
    _limit(
        "finish", "length", "finish_s", "Time for the launcher to end after a rank has failed.", high=3_600
    ),
)
BY_KEY = {setting.key: setting for setting in SETTINGS}
BY_ENV = {setting.env_name: setting for setting in SETTINGS}
