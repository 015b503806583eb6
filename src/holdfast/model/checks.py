"""Defines the data types of checks: declaration, input, results. No behaviour.

A check examines one aspect of a node, or of each of its devices, and returns findings. If it cannot decide,
the result is a `skip` with the reason, never a `pass`.
"""

from typing import Any

from msgspec import Struct

from holdfast.model.signatures import Words

PASS, WARN, FAIL, SKIP = "pass", "warn", "fail", "skip"
STATUSES = (PASS, SKIP, WARN, FAIL)  # from good to bad

AREAS = ("gpu", "npu", "rdma", "net", "io", "host", "env", "comm")
SUITES = ("boot", "troubleshoot", "bench", "all")

# When a check may run.
BOOT, PROLOG, EPILOG, CONTINUOUS, ON_FAILURE, MANUAL = CONTEXTS = (
    "boot",
    "prolog",
    "epilog",
    "continuous",
    "on-failure",
    "manual",
)

IDLE = "idle"  # only in results: the boot check of a spare node

# The cost of a check. Only `passive` checks run while a job trains.
PASSIVE = "passive"  # reads files of the system
LIGHT = "light"  # writes a small file, opens a socket, starts a program: under a second of one core
DEVICE = "device"  # loads a device
NODE = "node"  # needs the whole node
COSTS = (PASSIVE, LIGHT, DEVICE, NODE)

# The origin of an expected value.
BASELINE = "baseline"  # this device, at the first good boot
PEERS = "peers"  # the other nodes, or the other devices of this one
STATED = "device"  # stated by the device or driver itself
RULE = "rule"  # a limit of Holdfast, with its reason in the documents
ASKED = "run"  # a requirement of the run: ranks, folders, program

# What a failed check means for the run.
DEVICE_FAULT = "device"  # a device or the node is broken: isolate it
ENVIRONMENT_FAULT = "environment"  # the run cannot work like this on any node: stop before GPUs are wasted
NO_FAULT = ""  # report it and continue


class Spec(Struct, frozen=True, kw_only=True):
    """The declaration of a check. `needs`: requirements, for people ("nvml", "torch", "root", "2 nodes").

    `on_hang`: the status of a check that exceeds `timeout_s`; `hang_advice`: advice for that case. `quick`:
    part of the quick boot check, which takes at most 5 s per node. `bench`: a benchmark.
    """

    name: str
    area: str
    what: Words
    contexts: tuple[str, ...]
    cost: str = PASSIVE
    timeout_s: float = 2.0
    needs: tuple[str, ...] = ()
    quick: bool = False
    bench: bool = False
    on_hang: str = WARN
    on_hang_fault: str = NO_FAULT
    hang_advice: Words = Words(en="", zh="")


class Finding(Struct, frozen=True, kw_only=True):
    """One result of a check, about the node or one of its devices.

    `measured`, `expected`: for people, with units. `whence`: origin of the expected value. `why`: one
    sentence; of a skip, its reason. `fault`: consequence of a failure for the run. `category`: the category
    of the taxonomy that it explains.
    """

    status: str
    measured: str = ""
    expected: str = ""
    whence: str = ""
    device: str = ""  # PCI address, interface, mount, ...
    why: str = ""
    advice: Words = Words(en="", zh="")
    fault: str = NO_FAULT
    category: str = ""


class Fact(Struct, frozen=True, kw_only=True):
    """One value that a check measured on the node or on a device. It becomes part of the baseline, or is compared
    with other nodes.

    `device`: "node", or a permanent identity: "gpu:SERIAL", "nic:NAME". `learn`: add the value to the baseline.
    `same`: it must be equal on all nodes. `peers`: a number that is compared with the same number of other devices
    of the same `model`; `low_is_bad`: low values are worse; `spread`: its measured variation, as a share of the number.
    """

    name: str
    value: str | int | float | bool
    device: str = "node"
    learn: bool = False
    same: bool = False
    peers: bool = False
    low_is_bad: bool = True
    spread: float = 0.0
    model: str = ""
    unit: str = ""


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of one check on one node. `status`: the worst of its findings."""

    check: str
    area: str
    status: str
    findings: tuple[Finding, ...] = ()
    facts: tuple[Fact, ...] = ()
    seconds: float = 0.0


class NodeChecks(Struct, frozen=True, kw_only=True):
    """All outcomes of the checks on one node. `why_not`: why there are none.

    `at_s`: when the node sent its results, in seconds since the epoch on its own clock. `heard_s`: when they were
    received, on the receiver's clock; 0 for a local result.
    """

    node: str
    outcomes: tuple[Outcome, ...] = ()
    seconds: float = 0.0
    at_s: float = 0.0
    why_not: str = ""
    heard_s: float = 0.0


class Baseline(Struct, frozen=True, kw_only=True):
    """The baseline of a node: values that earlier checks measured, by device, then by name. `at_s`: when each device
    was first measured.
    """

    facts: dict[str, dict[str, Any]] = {}
    at_s: dict[str, float] = {}

    def of(self, device: str, name: str) -> Any:
        """Returns a value of the baseline; None if it does not contain the value."""
        return self.facts.get(device, {}).get(name)

    def devices(self, kind: str) -> tuple[str, ...]:
        """Returns the devices of a kind ("gpu", "nic") in the baseline, sorted."""
        return tuple(sorted(device for device in self.facts if device.partition(":")[0] == kind))


class Scene(Struct, frozen=True, kw_only=True):
    """The input of a check: facts about the node, and about the run that the node must be able to train.

    `root`: the folder in which /proc, /sys, /dev, /etc and /var are read. `ranks`: number of ranks on this node; None
    if unknown. `env`, `cwd`, `command`: of the run; empty without a run. `folders`: path by use, "work",
    "checkpoint", "temporary". `good_s`: when a run last made progress here, in seconds since the epoch; 0 if unknown.
    `options`: of single checks, by name ("disk-write.bytes").
    """

    context: str = MANUAL
    quick: bool = False
    training: bool = False  # a job trains on this node now
    root: str = "/"
    host: str = ""
    now_s: float = 0.0
    good_s: float = 0.0
    ranks: int | None = None
    nodes: int = 1
    loader_workers: int | None = None
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    folders: dict[str, str] = {}
    own_pids: tuple[int, ...] = ()  # processes of the run and of Holdfast
    baseline: Baseline = Baseline()
    options: dict[str, str] = {}
