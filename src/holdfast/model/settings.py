"""Defines the settings of `holdfast run`, merged from flags, environment, file and defaults."""

from msgspec import Struct

from holdfast.model.policy import Policy


class RunSettings(Struct, frozen=True, kw_only=True):
    """The settings of one run. `state_dir`: the state folder, which contains the folders of all jobs."""

    command: tuple[str, ...]
    state_dir: str
    job: str | None = None  # None: a name is made up
    labels: tuple[str, ...] = ()  # KEY=VALUE each
    policy: Policy = Policy(boot_check="quick", boot_check_again_s=600.0, troubleshoot_wait_s=8.0)
    grace_s: float = 30.0  # between SIGTERM and SIGKILL
    # How long a reschedule waits for the old worker to end; None: until it has ended
    # (MA_FAILOVER_TERMINATION_GRACE_PERIOD_SECONDS, whose -1 is None here).
    termination_wait_s: float | None = None
    platform_hang_min: float = 30.0  # MA_HANG_DETECT_TIME, minutes
    quiet: bool = False  # no echo of the training's own output
    shim: bool = True  # load the shim in ranks, through sitecustomize
    standby: bool = True  # keep the next attempt's processes ready
    zygote: bool = True  # fork them from a process that has made their imports; False: each makes them itself
    detach: bool = False  # the training continues if Holdfast ends
    # The platforms' slowdown rule: auto: for the logs of Megatron-LM and LLaMA-Factory; aistudio: for every log; off.
    slowdown_rule: str = "auto"
    # How the log prints its steps, if the form is unknown: a regular expression, or a TOML file of forms.
    step_pattern: str | None = None
    # Options of single checks of nodes, "CHECK.KEY=VALUE" each.
    check_options: tuple[str, ...] = ()
    quick_check_s: float = 5.0  # time limit of a quick boot check; checks not made by then are left out
    check_every_s: float = 600.0  # interval of passive checks of the node while it trains; 0: none
    # Many nodes: number of workers, one per node, and of spare nodes.
    nnodes: int = 1
    spares: int = 0
    engine: str = "local"  # where nodes come from: local (this machine), slurm, kubernetes
    hosts: str = "processes"  # nodes of the engine `local`: processes; netns: processes in own namespaces
    link_tls: bool = False  # encrypt the connections between nodes and controller
    node_silence_s: float = 12.0  # a node that is silent for this long is lost, whatever its engine reports
    # The folder of the node book, which all jobs of a fleet share; None: `fleet` in the state folder.
    fleet_dir: str | None = None
    page: str | None = None  # HOST:PORT at which the job's page is served while it runs; None: not served
    server: str | None = None  # URL of a Holdfast server to which the job is reported
    notify: str | None = None  # the file of channels and rules for notices; None: no notices
    isolation_share_percent: int = (
        5  # of the fleet's nodes that all its jobs together may isolate within an hour; at least one
    )
    # HOST:PORT at which metrics are served; agents of many nodes use the next free port; None: not served.
    metrics_address: str | None = None
    metrics_textfile: str | None = None  # a file ending with .prom, for node-exporter; None: there is none
    deterministic: bool = False  # set what makes a PyTorch run repeatable
    checkpoint_advice: bool = False  # compute the best interval, and pass it to each attempt
    ram_checkpoints_bytes: int | None = (
        None  # memory for a copy of the newest checkpoint; None: no copy is made
    )
    prometheus: str | None = None  # URL of the Prometheus that has the metrics of the nodes' devices

    @property
    def is_one_machine(self) -> bool:
        """Returns whether agent and controller of the run are one process on this machine."""
        return (self.engine, self.nnodes, self.spares, self.hosts) == ("local", 1, 0, "processes")
