"""The whole reasoning over matches: what is said in the end."""

from msgspec.structs import replace

from core.diagnosis.candidate_kit import knowing, match, search, signature
from holdfast.core.diagnosis.candidates import filled, is_calm
from holdfast.core.diagnosis.diagnose import diagnose
from holdfast.core.diagnosis.words.telling import telling_lines
from holdfast.model.matches import Search, Skipped, Source
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit

OOM = signature(
    "oom",
    "gpu_oom",
    title=Words(en="{bytes} were missing", zh="缺少 {bytes}"),
    action="reduce_memory",
)
CLOSED = signature("closed", "nccl_network_error", role="symptom")
STARTS = signature("omp-threads-notice", "none", role="context")
ENDED = signature("ended", "unknown", role="symptom", weight=0.3)
FAILED = signature("failed", "python_exception", weight=0.6)
KNOWN = knowing(OOM, CLOSED, STARTS, ENDED, FAILED)


def test_captures_fill_the_words():
    told = diagnose(search(match(OOM, captures={"bytes": "2 GiB"})), KNOWN)
    assert (told.category, told.title, told.action) == (
        "gpu_oom",
        Words(en="2 GiB were missing", zh="缺少 2 GiB"),
        "reduce_memory",
    )


def test_fields_side_by_side_are_what_is_known_and_brackets_without_any_are_left_out():
    text = "evicted ({name}{why}) from {host}"
    assert filled(text, {}) == "evicted from"
    assert filled(text, {"why": "memory", "host": "n7"}) == "evicted (memory) from n7"
    assert filled("link down: {device} {name}", {"name": "eth0"}) == "link down: eth0"
    assert (
        filled("link down: {device} {name}", {"name": "eth0", "device": "03:00.0"})
        == "link down: 03:00.0 eth0"
    )
    assert filled("link down: {device} {name}", {}) == "link down"


def test_what_is_not_known_is_left_out_with_the_words_that_lead_to_it():
    text = "job {job} was lost[ on {host}], {name}: see `scontrol show node {host}`"
    assert filled(text, {}) == "job was lost: see `scontrol show node HOST`"
    known = {"job": "7", "host": "n7", "name": "late"}
    assert filled(text, known) == "job 7 was lost on n7, late: see `scontrol show node n7`"
    assert filled("网卡 {device} 的固件[在 {host} 上]停止", {}) == "网卡的固件停止"
    assert filled("shape [2, 3] of {name}", {"name": "[{host}]"}) == "shape [2, 3] of [{host}]"


def test_the_title_is_that_of_the_line_that_is_quoted():
    told_to = signature(
        "torchrun-told-to-stop",
        "terminated",
        explained_by=("*",),
        title=Words(en="told to stop", zh="收到停止"),
    )
    closes = signature(
        "torchrun-closes-rank",
        "terminated",
        role="symptom",
        title=Words(en="ends by {name}", zh="以 {name} 终止"),
    )
    known = knowing(told_to, closes)
    told = diagnose(
        search(
            match(told_to, captures={"name": "15"}),
            match(closes, offset=90, captures={"name": "SIGTERM"}),
        ),
        known,
    )
    assert (told.title.en, told.first_error.text) == ("ends by SIGTERM", "torchrun-closes-rank at 90")


def test_the_same_from_many_ranks_is_one_fact_with_witnesses():
    seen = [match(OOM, source=n, rank=n, at_s=100.0 + n) for n in range(64)]
    told = diagnose(search(*seen, sources=64), KNOWN)
    (fact,) = told.evidence
    assert (fact.count, fact.ranks) == (64, tuple(range(64)))
    assert told.first_error.file == "rank-0.log"


def test_a_message_that_begins_on_the_next_line_is_quoted_with_it():
    raised = {"text": "RuntimeError: Error(s) in loading:", "error_type": "RuntimeError"}
    goes_on = match(OOM, **raised, record=("    size mismatch for head", "next"))
    first = diagnose(search(goes_on), KNOWN).first_error
    assert (first.text, first.after) == (
        "RuntimeError: Error(s) in loading: size mismatch for head",
        ("next",),
    )
    over = match(OOM, **raised, record=("step 12",))
    assert diagnose(search(over), KNOWN).first_error.text == raised["text"]


def test_what_stands_before_each_line_is_no_part_of_a_message():
    raised = {"text": "[default3]:ValueError: Error(s) in loading:", "error_type": "ValueError"}
    goes_on = match(OOM, **raised, record=("[default3]:    size mismatch for head", "[default3]:next"))
    assert diagnose(search(goes_on), KNOWN).first_error.text.endswith("loading: size mismatch for head")
    stamped = {"text": "2031-05-06 08:00:09 ValueError: Bad shards:", "error_type": "ValueError"}
    later = match(OOM, **stamped, record=("2031-05-06 08:00:10   part-7", "2031-05-06 08:00:10 step 12"))
    assert diagnose(search(later), KNOWN).first_error.text.endswith("Bad shards: part-7")


def test_lines_of_another_rank_are_no_part_of_a_message():
    raised = {"text": "[rank10]: RuntimeError: Error(s) in loading:", "error_type": "RuntimeError"}
    mixed = ("[rank11]:     main()", "[rank10]:     size mismatch for head", "[rank11]: RuntimeError: x")
    first = diagnose(search(match(OOM, **raised, record=mixed)), KNOWN).first_error
    assert first.text == "[rank10]: RuntimeError: Error(s) in loading: size mismatch for head"
    assert first.after == (mixed[0], mixed[2])


def test_what_nccl_says_of_its_failure_is_quoted_with_the_exception():
    raised = {"text": "[rank1]: DistBackendError: NCCL error in: a.hpp:26", "error_type": "DistBackendError"}
    lines = ("ncclSystemError: System call failed.", "Last error:", "socketPollConnect returned 113", "later")
    first = diagnose(
        search(match(OOM, **raised, record=tuple(f"[rank1]: {line}" for line in lines))), KNOWN
    ).first_error
    assert first.text.endswith(
        "a.hpp:26 ncclSystemError: System call failed. Last error: socketPollConnect returned 113"
    )
    assert first.after == ("[rank1]: later",)


def test_a_follower_makes_the_cause_surer_and_a_rival_less_sure():
    alone = diagnose(search(match(OOM, offset=1)), KNOWN).confidence
    followed = diagnose(search(match(OOM, offset=1), match(CLOSED, offset=5)), KNOWN).confidence
    doubted = diagnose(search(match(FAILED, offset=1), match(OOM, offset=5, source=1), sources=2), KNOWN)
    assert alone < followed
    assert doubted.category == "gpu_oom"


def test_clocks_years_apart_do_not_order_lines():
    old, new = match(OOM, source=0, at_s=1000.0), match(FAILED, source=1, at_s=1.7e9)
    assert diagnose(search(old, new, sources=2), KNOWN).category == "gpu_oom"


def test_of_several_runs_in_one_log_the_last():
    runs = (match(STARTS, offset=1), match(OOM, offset=5), match(STARTS, offset=9))
    assert diagnose(search(*runs), KNOWN).category == "none"
    assert diagnose(search(*runs, match(FAILED, offset=12)), KNOWN).category == "python_exception"


def test_none_is_only_half_sure_where_a_log_was_not_read_to_its_end():
    bomb = Skipped(name="a.gz", why="it unpacks to too much", lost=True)
    picture = Skipped(name="a.png", why="it is a binary file")
    whole, in_part = (
        diagnose(
            Search(sources=(Source(name="a.log", last_step_offset=9, is_finished=True),), skipped=skipped),
            KNOWN,
        )
        for skipped in ((picture,), (picture, bomb))
    )
    assert (whole.category, whole.confidence, in_part.category, in_part.confidence) == (
        "none",
        0.9,
        "none",
        0.5,
    )
    assert "the logs that could be read" in in_part.title.en
    assert "unread" in in_part.advice.en


def test_none_is_not_sure_where_no_end_is_seen():
    runs_on = Source(name="a.log", last_step_offset=9)
    answer = diagnose(Search(sources=(runs_on,)), KNOWN)
    assert (answer.category, answer.confidence) == ("none", 0.6)
    assert "end of the job is not in the logs" in answer.title.en


def test_none_is_less_sure_where_nothing_shows_that_a_job_worked():
    told = Source(name="n1.log", tail=("eth0: 3 completions lost", "link is up"))
    answer = diagnose(Search(sources=(told,)), KNOWN)
    assert (answer.category, answer.confidence) == ("none", 0.6)
    assert [fact.text for fact in answer.evidence] == ["eth0: 3 completions lost"]
    assert "give its own logs" in answer.advice.en
    known = match(STARTS, text="completions lost")
    assert not diagnose(Search(sources=(told,), matches=(known,)), KNOWN).evidence


def test_an_exception_whose_message_tells_another_category_is_explained_by_that():
    raised = signature(
        "uncaught",
        "python_exception",
        explanation=Words(en="nobody caught it", zh="未捕获"),
        advice=Words(en="look at the line", zh="查看该行"),
    )
    of_category = {
        "python_exception": ("nobody caught it", "look at the line"),
        "gpu_oom": ("GPU memory", "Use less"),
    }
    for category, (explanation, advice) in of_category.items():
        one = match(raised, text="RuntimeError: it ended", error_type="RuntimeError")
        told = diagnose(search(replace(one, category=category)), knowing(raised))
        assert told.category == category
        assert explanation in told.explanation.en
        assert advice in told.advice.en


def test_what_its_writer_calls_no_error_is_none_unless_the_signature_is_of_such_lines():
    text = "2031-01-02 03:04:05 - loader - WARNING - oom: skipping the sample"
    calm, of_such = match(OOM, text=text), knowing(signature("oom", "gpu_oom", matches=(text,)))
    assert diagnose(search(calm), KNOWN).category == "none"
    assert diagnose(search(calm), of_such).category == "gpu_oom"
    assert diagnose(search(match(OOM, text="[ERROR] oom: giving up")), KNOWN).category == "gpu_oom"
    interrupted = knowing(signature("ctrl-c", "terminated"))
    assert diagnose(search(match(interrupted["ctrl-c"], text=text)), interrupted).category == "terminated"
    raised = match(OOM, text=text, error_type="RuntimeError")
    assert diagnose(search(raised), KNOWN).category == "gpu_oom"


def test_a_fault_long_before_the_end_is_outlived():
    source = Source(name="a.log", last_step_offset=900, last_steps_offset=500)
    died = match(CLOSED, offset=950)
    old, fresh = match(OOM, offset=400), match(OOM, offset=600)
    assert diagnose(Search(sources=(source,), matches=(old, died)), KNOWN).category == "nccl_network_error"
    assert diagnose(Search(sources=(source,), matches=(fresh, died)), KNOWN).category == "gpu_oom"


def test_a_traceback_is_survived_by_more_than_the_step_that_others_take_before_they_notice():
    def said(error_type, **how):
        at = Source(name="a.log", last_step_offset=900, **how)
        seen = match(OOM, offset=600, error_type=error_type)
        return diagnose(Search(sources=(at,), matches=(seen,)), KNOWN).category

    assert said("") == "none"  # a line alone may be anything
    assert said("RuntimeError") == said("RuntimeError", last_three_steps_offset=500) == "gpu_oom"
    assert said("RuntimeError", last_three_steps_offset=700) == "none"
    assert said("RuntimeError", is_finished=True) == "none"


def test_an_end_that_nothing_explains_is_unknown_with_the_telling_lines():
    tail = ("step 7", "the frobnicator cannot reach the quux", "bye")
    seen = Search(sources=(Source(name="a.log", tail=tail),), matches=(match(ENDED, offset=9),))
    told = diagnose(seen, KNOWN)
    assert (told.category, told.first_error.text) == ("unknown", tail[1])


def test_nothing_seen_is_nothing_wrong():
    assert diagnose(search(), KNOWN).category == "none"


def test_a_log_that_ends_with_a_failure_in_unknown_words_is_no_healthy_one():
    def category(*tail, name="job.out", **changed):
        return diagnose(Search(sources=(Source(name=name, tail=tail, **changed),)), KNOWN).category

    assert category("set up", "Solver failed 3") == "unknown"
    assert category("[n7:311] sendreq.c:308 FATAL") == "unknown"
    assert category("Solver failed 3", "trying the next method") == "none"
    assert category("8 passed, 0 failed") == category("the solver has failed", is_finished=True) == "none"
    assert category("[    9.100000] scsi probe failed", name="dmesg.txt") == "none"
    assert category("May  6 07:01:28 n2 systemd[1]: a.service failed.") == "none"


def test_an_unknown_cause_has_the_process_that_the_launcher_names():
    told = signature("first-to-fail", "unknown", role="symptom", severity="fatal", rank_from="capture")
    found = diagnose(search(match(told, captures={"rank": "3"})), knowing(told))
    assert (found.category, found.culprits) == ("unknown", (Culprit(rank=3),))


def test_telling_lines_are_those_of_one_rank_rather_than_of_all():
    common = ("connection lost to peer 4",)
    sources = [Source(name=f"{n}", tail=common) for n in range(3)]
    sources.append(Source(name="odd", tail=(*common, "cannot open the tokenizer")))
    assert telling_lines(sources, KNOWN)[0].text == "cannot open the tokenizer"


def test_without_any_trouble_the_last_line_is_what_there_is():
    assert [one.text for one in telling_lines([Source(name="a", tail=("one", "two"))], KNOWN)] == ["two"]


def test_ranks_of_one_host_that_could_not_connect_are_that_hosts_fault():
    refused = signature("refused", "nccl_network_error")
    task = signature("task", "process_killed", role="symptom")
    known = knowing(refused, task)

    def action_of(*hosts):
        failed = [
            match(refused, offset=rank, rank=rank, captures={"host": host})
            for rank, host in enumerate(hosts, 1)
        ]
        return diagnose(search(*failed, match(task, offset=90, captures={"host": "b"})), known).action

    assert action_of("a", "a") == "isolate_node"
    assert action_of("a") == action_of("a", "b") == action_of("b", "b") == "fix_network"


def test_a_warning_that_an_exception_raised_is_no_mere_warning():
    fell_back = signature("fell-back-to-cpu", "cuda_init_error", severity="warning", weight=0.75)
    known = knowing(fell_back)
    raised = match(fell_back, error_type="RuntimeError")
    assert diagnose(search(raised), known).category == "cuda_init_error"
    assert diagnose(search(match(fell_back)), known).category == "none"


def test_what_a_logger_passes_on_of_an_uncaught_exception_is_no_calm_word():
    head = "2031-01-02 03:04:05,678 - launcher - INFO - "
    assert is_calm(head + "step 7", KNOWN)
    assert not is_calm(head + "[rank7]: torch.OutOfMemoryError: CUDA out of memory", KNOWN)
    assert is_calm(head + "[rank7]: retrying", KNOWN)


def test_who_goes_on_without_says_so_calmly():
    assert is_calm("handle failed once (STATUS_9), second try ok", KNOWN)
    assert is_calm("conv fallback: no algorithm, STATUS_9", KNOWN)
    assert is_calm("socket closed; recovered after 2 attempts", KNOWN)
    assert not is_calm("second attempt failed, giving up", KNOWN)
    assert not is_calm("no fallback is configured", KNOWN)


def test_who_tries_again_has_lost_nothing_so_far_unless_it_does_so_for_ever():
    refused = match(OOM, text="store: slow down (503), will retry")
    assert diagnose(search(refused), KNOWN).category == "none"
    assert diagnose(search(replace(refused, count=7)), KNOWN).category == "gpu_oom"
    assert diagnose(search(replace(refused, text="store: no more retries")), KNOWN).category == "gpu_oom"
