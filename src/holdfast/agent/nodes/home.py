"""Keeps the agent's folder on its node: it records which attempt was started, for an agent that takes over
after this one.

    jobs/<job>/nodes/<node>/state.json    what was started and stopped here
    jobs/<job>/nodes/<node>/set-up        the job's set-up as last sent by the controller

If the disk is full or gone, the worker's folder shows what ran in it.
"""

import os
import shutil
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.agent.launch import FACTS
from holdfast.agent.part import Part
from holdfast.agent.standby.start import GATE
from holdfast.link.messages import UNREADABLE
from holdfast.model.nodes.workers import SetUp

NODES = "nodes"
STATE, SET_UP = "state.json", "set-up"
JOURNAL_COPY = "journal-copy"  # the folder of agent.nodes.journal_copy


class NodeState(Struct, frozen=True, kw_only=True):
    """What an agent has started and stopped on its node, as stored in state.json.

    `started`: the last attempt whose command was started here, with this worker's part.

    `stopped`: the last attempt that was ordered to stop. Attempts up to the larger of the two are never
    started again.
    """

    started: int = 0
    part: Part | None = None
    stopped: int = 0


class NodeHome:
    """One node's folder in the job's folder.

    Never raises: after a failed write, `why_not` contains the reason.
    """

    def __init__(self, job_folder: Path, node: str) -> None:
        self.job_folder = job_folder
        self.folder = job_folder / NODES / node
        self.why_not = ""
        self.state = self._read_state()

    def note_start(self, attempt: int, part: Part) -> None:
        self._write_state(NodeState(started=attempt, part=part, stopped=self.state.stopped))

    def note_stop(self, attempt: int) -> None:
        if attempt > self.state.stopped:
            self._write_state(msgspec.structs.replace(self.state, stopped=attempt))

    def set_up(self) -> SetUp | None:
        """Returns the job's set-up that the previous agent received from the controller; None if there is
        none.
        """
        try:
            return msgspec.msgpack.decode((self.folder / SET_UP).read_bytes(), type=SetUp)
        except (OSError, *UNREADABLE):
            return None

    def keep_set_up(self, given: SetUp) -> None:
        self._write(SET_UP, msgspec.msgpack.encode(given))

    def _read_state(self) -> NodeState:
        try:
            return msgspec.json.decode((self.folder / STATE).read_bytes(), type=NodeState)
        except (OSError, *UNREADABLE):
            return NodeState()

    def _write_state(self, state: NodeState) -> None:
        self.state = state
        self._write(STATE, msgspec.json.encode(state))

    def _write(self, name: str, data: bytes) -> None:
        part = self.folder / f"{name}.part"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_bytes(data)
            os.replace(part, self.folder / name)
        except OSError as error:
            self.why_not = f"{self.folder / name} cannot be written: {error}"


def was_run(folder: Path) -> bool:
    """Returns whether a command ran in this worker's folder. A standby that was never released does not
    count.
    """
    try:
        facts = (folder / FACTS).read_bytes()
    except OSError:
        return False
    return b'"started"' in facts and (b'"released"' in facts or not (folder / GATE).exists())


def clear(folder: Path) -> None:
    """Removes the files of a standby whose agent was killed, so that the attempt starts with an empty
    folder.
    """
    if (folder / GATE).exists():
        shutil.rmtree(folder, ignore_errors=True)
