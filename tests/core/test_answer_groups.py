"""Equal answers together, the rarest first."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.answer_groups import Answer, answer_groups, exit_code, shell_code


def answer(worker, output=b"ok\n", outcome="exited", code=0, node=None, **more):
    return Answer(
        node=node or f"node-{worker}", worker=worker, outcome=outcome, code=code, output=output, **more
    )


ANSWERS = st.lists(
    st.builds(
        answer,
        st.integers(0, 40),
        st.sampled_from([b"", b"a\n", b"a 1\n", b"a 2\n", b"node-3 up\n", b"node-4 up\n"]),
        st.sampled_from(["exited", "timed-out", "no-answer", "not-reached"]),
        st.sampled_from([0, 1, -9]),
    ),
    unique_by=lambda one: one.worker,
)


@given(ANSWERS, st.booleans())
def test_every_answer_is_in_one_group_and_rare_ones_come_first(answers, loose):
    groups = answer_groups(answers, loose=loose)
    assert sorted(worker for group in groups for worker in group.workers) == sorted(
        one.worker for one in answers
    )
    sizes = [len(group.answers) for group in groups]
    assert sizes == sorted(sizes)
    for group in groups:
        assert len({(one.outcome, one.code) for one in group.answers}) == 1
        if not loose:
            assert len({one.output for one in group.answers}) == 1
    assert answer_groups(reversed(answers), loose=loose) == groups


@given(ANSWERS)
def test_loose_groups_are_made_of_whole_strict_ones(answers):
    loose_of = {
        worker: number
        for number, group in enumerate(answer_groups(answers, loose=True))
        for worker in group.workers
    }
    for group in answer_groups(answers):
        assert len({loose_of[worker] for worker in group.workers}) == 1


def test_numbers_and_names_of_nodes_do_not_count_where_that_is_asked_for():
    outputs = [
        b"gpu-01 up  3 days, 12.5 C, 0x7f2a, driver 550.54.15 sha 9f86d081e4",
        b"gpu-02 up 14 days, 9.75 C, 0x11, driver 550.54.15 sha 2c26b46b68",
    ]
    answers = [
        answer(number, output, node=f"gpu-0{number + 1}.cluster") for number, output in enumerate(outputs)
    ]
    assert len(answer_groups(answers)) == 2
    assert [group.workers for group in answer_groups(answers, loose=True)] == [(0, 1)]


def test_words_are_never_evened_out():
    answers = [answer(0, b"state: up face"), answer(1, b"state: down deed")]
    assert len(answer_groups(answers, loose=True)) == 2


def test_who_did_not_answer_is_in_no_group_with_one_who_did():
    groups = answer_groups(
        [
            answer(0, b""),
            answer(1, b"", "timed-out", None),
            answer(2, b"", "no-answer", None),
            answer(3, b"", "no-answer", None),
            answer(4, b""),
            answer(5, b""),
        ]
    )
    assert [(group.first.outcome, group.workers) for group in groups] == [
        ("timed-out", (1,)),
        ("no-answer", (2, 3)),
        ("exited", (0, 4, 5)),
    ]


def test_of_two_groups_of_a_size_the_one_that_went_wrong_comes_first():
    groups = answer_groups([answer(0), answer(1, code=1)])
    assert [group.workers for group in groups] == [(1,), (0,)]


def test_nodes_without_a_worker_are_named():
    (group,) = answer_groups([answer(None, node="spare-1"), answer(3)])
    assert (group.workers, group.nodes) == ((3,), ("spare-1",))


def test_an_answer_that_was_cut_is_another_than_one_that_was_not():
    assert len(answer_groups([answer(0, cut_bytes=7), answer(1, cut_bytes=9), answer(2)])) == 2


def test_codes_as_a_shell_gives_them():
    assert shell_code(answer(0, code=-9)) == 137
    assert shell_code(answer(0, outcome="timed-out", code=-15)) == 124
    assert shell_code(answer(0, outcome="no-answer", code=None)) == 1
    assert exit_code(answer_groups([answer(0, code=3), answer(1, b"x", code=3)])) == 3
    assert exit_code(answer_groups([answer(0, code=0), answer(1, code=3)])) == 1
    assert exit_code(()) == 1
