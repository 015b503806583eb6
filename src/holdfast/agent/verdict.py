"""Improves the first verdict of a job on one machine by log lines and flight records.

Only who makes verdicts imports it: the agents of a multi-node job report their evidence to the controller, which concludes.
"""

from msgspec.structs import replace

from holdfast.agent.attempt import Attempt
from holdfast.agent.watch.hang_scene import Seen, as_flight_scene
from holdfast.core.diagnosis.concluded import concluded
from holdfast.model.verdicts import Evidence, Verdict
from holdfast.observe.search.code_store import tables_for


def with_logs(first: Verdict, attempt: Attempt, seen_of_ranks: Seen | None = None) -> Verdict:
    """Returns the verdict `first`, improved by log lines and flight records. An internal error here never
    delays the job.
    """
    try:
        seen = attempt.logs.search()
        tables = tables_for({one.category for one in seen.matches})
        if seen_of_ranks is None:
            return concluded(first, seen, attempt.logs.signatures, tables)
        scene = as_flight_scene(seen_of_ranks, attempt.looks.usual_bytes, attempt.world_size)
        return concluded(first, seen, attempt.logs.signatures, tables, scene, seen_of_ranks.lives)
    except Exception as error:  # noqa: BLE001 - hundreds of rules must not cost the recovery
        says = f"the lines of the logs could not be evaluated ({type(error).__name__}: {error}): the verdict does not use them"
        return replace(first, evidence=(*first.evidence, Evidence(text=says)))
