"""Defines the names of objects, labels and variables that Holdfast uses on a cluster."""

LABEL_JOB = "holdfast.dev/job"
LABEL_ROLE = "holdfast.dev/role"
ROLE_CONTROLLER, ROLE_WORKER = "controller", "worker"
TAINT = "holdfast.dev/isolated"
REMAKE = "holdfast.dev/remake"  # annotation of the owner: it is suspended to make all pods anew
WRAP = "holdfast.dev/wrap"  # annotation: "done" of what is wrapped, "false" of what is to be left alone
CONTAINER = "training"  # that holds the agent

# Environment of the controller's pod.
ROLE_ENV = "HOLDFAST_KUBERNETES_ROLE"
JOB_ENV = "HOLDFAST_KUBERNETES_JOB"
KIND_ENV = "HOLDFAST_KUBERNETES_KIND"
NAMESPACE_ENV = "HOLDFAST_KUBERNETES_NAMESPACE"
POD_ENV = "HOLDFAST_KUBERNETES_POD"
POD_UID_ENV = "HOLDFAST_KUBERNETES_POD_UID"
POD_IP_ENV = "HOLDFAST_KUBERNETES_POD_IP"
SECRET_ENV = "HOLDFAST_KUBERNETES_SECRET"
CONTAINER_ENV = (
    "HOLDFAST_KUBERNETES_CONTAINER"  # of the pods, which holds the agent; empty: as the kind has it
)
TERMINATION_ENV = "HOLDFAST_KUBERNETES_TERMINATION"
TERMINATION_LOG = "/dev/termination-log"

PORT, LIFE_PORT = 29_470, 29_471  # at which the controller listens in its pod, and each agent in its own


def controller_name(job: str) -> str:
    return f"{job}-controller"


def objects_name(job: str) -> str:
    """Returns the name of the job's Secret, Role, Lease and other objects."""
    return f"{job}-holdfast"


def selector(job: str, role: str) -> str:
    return f"{LABEL_JOB}={job},{LABEL_ROLE}={role}"
