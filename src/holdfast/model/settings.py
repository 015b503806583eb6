"""The settings of `holdfast run`, merged from flags, environment, file and defaults."""

from msgspec import Struct

from holdfast.model.policy import Policy


class RunSettings(Struct, frozen=True, kw_only=True):
    """Settings of one run. `state_dir` is the root of all jobs' folders."""

    command: tuple[str, ...]
    state_dir: str
    job: str | None = None  # None: a name is made up
    labels: tuple[str, ...] = ()  # KEY=VALUE each
    policy: Policy = Policy(boot_check="quick", boot_check_again_s=600.0, troubleshoot_wait_s=8.0)
    grace_s: float = 30.0  # between SIGTERM and SIGKILL
    # After this long of a worker's ending a reschedule no longer waits for it; None: it waits
    # (MA_FAILOVER_TERMINATION_GRACE_PERIOD_SECONDS, whose -1 is None here).
    termination_wait_s: float | None = None
    platform_hang_min: float = 30.0  # MA_HANG_DETECT_TIME, minutes
    quiet: bool = False  # no echo of the training's own output
    shim: bool = True  # reach into ranks through sitecustomize
    standby: bool = True  # keep the next attempt's processes ready
    detach: bool = False  # training outlives Holdfast
    # The platforms' slowdown rule: auto: for the logs of Megatron-LM and LLaMA-Factory; aistudio: for every log; off.
    slowdown_rule: str = "auto"
    # How the log prints its steps, where Holdfast does not know it: a regular expression, or a TOML file of forms.
    step_pattern: str | None = None
    # Of single checks of nodes, "CHECK.KEY=VALUE" each.
    check_options: tuple[str, ...] = ()
    quick_check_s: float = 5.0  # what a quick boot check has not looked at by then is left out
    check_every_s: float = 600.0  # a passive look at the node while it trains; 0: none
    # Many nodes: so many workers, one to a node, and nodes kept beside them for when one is lost.
    nnodes: int = 1
    spares: int = 0
    engine: str = "local"  # who gives the nodes: local, this machine; slurm; kubernetes
    hosts: str = "processes"  # what a node of the engine `local` is: processes; netns: a network and namespaces of its own
    link_tls: bool = False  # encrypt what nodes and controller say to each other
    node_silence_s: float = 12.0  # a node that is silent for so long is lost, whatever its engine says
    # What all jobs of a fleet know of its nodes: the folder of the node book; None: `fleet` in the state folder.
    fleet_dir: str | None = None
    page: str | None = None  # HOST:PORT at which the job's page is served while it runs; None: it is not
    server: str | None = None  # URL of a Holdfast server that the job is reported to
    notify: str | None = None  # the file of channels and rules for notices; None: nobody is notified
    isolation_share_percent: int = (
        5  # of the fleet's nodes, that all its jobs may isolate within an hour; at least one
    )
    # HOST:PORT at which metrics are served, an agent of many nodes at the next free port; None: they are not.
    metrics_address: str | None = None
    metrics_textfile: str | None = None  # a file ending with .prom, for node-exporter; None: there is none
    deterministic: bool = False  # set what makes a PyTorch run repeatable
    checkpoint_advice: bool = False  # compute the best interval, and pass it to each attempt
    prometheus: str | None = None  # URL of the Prometheus that has the metrics of the nodes' devices

    @property
    def is_one_machine(self) -> bool:
        """True if agent and controller are one process here."""
        return (self.engine, self.nnodes, self.spares, self.hosts) == ("local", 1, 0, "processes")
