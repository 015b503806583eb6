"""In which order the world tells of a node's end must not matter: engine, link and agent are not in step."""

from core.workers.worker_group_kit import World
from holdfast.core.workers.roster import Settings
from holdfast.model.nodes.workers import NodeDown
from holdfast.model.policy import Policy
from holdfast.model.state import Running

POLICY = Policy(max_restarts=100, unconditional_restart=True, same_problem_in_a_row_max=100)


def test_a_node_whose_end_the_engine_tells_before_its_link_breaks_is_not_waited_for():
    made = World(3, 2, POLICY, Settings(checks=False))
    made.begin()
    made.do(made.worker_group.news(NodeDown(node="n1", reason="all its processes have ended"), made.at_s))
    made.crash("n1")  # only now the connection closes
    made.tick()
    made.settle()
    assert made.running == {"n0": (2, 0), "n2": (2, 1)}


def test_nor_one_that_falls_silent_without_a_word_of_its_link():
    made = World(3, 2, POLICY, Settings(checks=False))
    made.begin()
    made.do(made.worker_group.news(NodeDown(node="n1", reason="all its processes have ended"), made.at_s))
    made.do(made.worker_group.silent("n1", 3.0, made.at_s))
    made.places["n1"].has_link = made.places["n1"].joined = False
    made.tick()
    made.settle()
    assert made.running == {"n0": (2, 0), "n1": (1, 1), "n2": (2, 1)}


def test_nodes_that_a_scheduler_takes_away_with_the_whole_job_are_no_fault():
    made = World(3, 2, POLICY, Settings(checks=False))
    made.begin()
    for node in ("n0", "n1"):
        made.do(
            made.worker_group.news(NodeDown(node=node, reason="as all of the job", with_job=True), made.at_s)
        )
    made.tick()
    assert made.state.job.incident is None
    assert isinstance(made.state.phase, Running)
