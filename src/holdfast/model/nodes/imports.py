"""Defines the base classes of messages between controller and agents, and the two messages by which nodes without a shared
disk learn what a job's ranks import. See `workers.py` beside it for all others.
"""

from msgspec import Struct


class Report(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """A message from an agent. Times are on the node's clock; the controller converts them to the job's."""


class Command(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """A message to an agent.

    Each names its attempt or incident; a command for an ended attempt is ignored.
    """


class ImportsReport(Report, frozen=True, tag="imports-told"):
    """What the ranks of worker 0 import, and how they are started. Sent once its zygote has made the imports, without a
    shared disk.

    `content`: JSON, `Known` of `agent/standby/imports_known.py`.
    """

    content: bytes


class TakeImports(Command, frozen=True, tag="take-imports"):
    """Command to an agent without a worker: prepare a zygote with these imports. `content`: of ImportsReport."""

    content: bytes
