"""Defines the samples of one node, taken once a second: network, disks, memory, devices, and NCCL's RAS
report.
"""

from msgspec import Struct

from holdfast.model.samples import RankSample


class InterfaceSample(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The counters of a network interface since its creation, at one moment."""

    name: str
    is_up: bool | None = None  # operstate; None: not reported (loopback, tunnels)
    received_bytes: int
    sent_bytes: int
    errors: int = 0  # of both directions
    dropped: int = 0


class PortSample(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One port of an RDMA device, whose traffic is in no process's I/O and in no interface's counters.

    `errors`: nonzero error and congestion counters, by their names in sysfs; read every few seconds.
    """

    device: str  # mlx5_0
    port: int
    state: str  # ACTIVE, INIT, DOWN ...; "" unknown
    received_bytes: int | None = None
    sent_bytes: int | None = None
    errors: dict[str, int] = {}


class DiskSample(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The counters of a block device at one moment. Network file systems have none."""

    name: str
    read_bytes: int
    written_bytes: int
    in_flight: int = 0  # requests that the device has not answered
    busy_s: float = 0.0  # time with at least one such request


class NodeSample(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one node at one moment. Counters since boot; None if they could not be read.

    `ports_age_s`: age of the ports' values, if their driver does not answer; None if they were never read.
    """

    interfaces: tuple[InterfaceSample, ...] = ()
    ports: tuple[PortSample, ...] = ()
    ports_age_s: float | None = None
    disks: tuple[DiskSample, ...] = ()
    dirty_bytes: int | None = None  # written to files and not yet being written to a disk
    writeback_bytes: int | None = None  # being written to a disk
    available_bytes: int | None = None  # memory that programs can still allocate
    tcp_sent: int | None = None  # segments, of this network namespace
    tcp_retransmitted: int | None = None  # segments sent again
    tcp_timeouts: int | None = None  # a peer did not answer in time, back-off doubled


class DeviceSample(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one GPU or NPU; None: the driver does not report it.

    `error`: the driver's error if nothing is known.
    """

    index: int
    address: str = ""  # PCI, as the kernel writes it: 0000:5d:00.0
    uuid: str = ""
    power_w: float | None = None
    power_limit_w: float | None = None
    utilization: float | None = None  # 0..1, share of time with a running kernel, even a waiting collective
    sm_active: float | None = None  # 0..1, share of active SMs: low in a waiting collective
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    temperature_c: int | None = None
    error: str = ""


class RankRef(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process in NCCL's RAS report. `rank`: its rank in the communicator; None if the entry is about the process as
    a whole.
    """

    rank: int | None = None
    pid: int | None = None
    node: str = ""  # its address
    gpu: int | None = None  # CUDA's number


class RasGroup(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Communicators of the same size and status in NCCL's RAS report. Counts are NCCL's."""

    communicators: int
    nodes: int
    ranks: int  # of one communicator
    status: str  # RUNNING, INIT, FINALIZE, ABORT, NOCOMM, UNKNOWN
    errors: tuple[str, ...] = ()  # MISMATCH, ERROR, INCOMPLETE; empty: OK


class RasLaunched(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ranks of one communicator that have launched equally many operations.

    `who`: those that the report lists.
    """

    operation: str  # AllReduce; "" if all kinds are counted together (NCCL before 2.26)
    count: int  # operations launched
    ranks: int
    who: tuple[RankRef, ...] = ()


class RasTrouble(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry under Errors or Warnings of NCCL's RAS report.

    `communicator`: its hash; empty for the job as a whole.
    """

    kind: str  # INCOMPLETE, DEAD, ERROR, MISMATCH, TIMEOUT ...
    communicator: str = ""
    missing: int = 0  # ranks or processes without an answer
    who: tuple[RankRef, ...] = ()  # missing, dead, or with an error
    launched: tuple[RasLaunched, ...] = ()
    says: tuple[str, ...] = ()  # unparsed lines


class RasReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """NCCL's RAS report on the job. It may show a healthy job during a real hang, so it is evidence and never a
    verdict.

    `is_whole`: the report is complete; a truncated report may lack entries.
    """

    nccl: str = ""  # version
    processes: int | None = None
    groups: tuple[RasGroup, ...] = ()
    troubles: tuple[RasTrouble, ...] = ()
    is_whole: bool = False


class Moment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All samples of one worker and its node at one second, as an agent stores them; or only the values that changed.
    `at_s`: on the job's clock.

    `devices_age_s`, `ras_age_s`: age of these values, which grows while a driver or NCCL does not respond.
    """

    at_s: float
    ranks: tuple[RankSample, ...] = ()
    node: NodeSample | None = None
    devices: tuple[DeviceSample, ...] = ()
    devices_age_s: float | None = None
    ras: RasReport | None = None
    ras_age_s: float | None = None
