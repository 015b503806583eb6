"""Live: rows change in their place, new ones are offered, a lost connection is said and made up for."""

import msgspec
from playwright.sync_api import expect

from holdfast.model.documents.jobs import JobRow
from web.page import incidents
from web.page.documents import FAILED, job_row


def _told(row: JobRow) -> dict:
    return {"id": row.id, "row": msgspec.to_builtins(row)}


def _connected(server) -> None:
    """Once the page listens. `heard`: by the handler of its request."""
    server.world.wait_for_stream()


def test_a_row_changes_in_its_place_and_a_new_job_is_offered(view, server):
    page = view("/").page
    _connected(server)
    before = page.locator(".job .name").all_text_contents()
    row = job_row("training", server.world.now_s)
    server.world.tell(
        "job", _told(msgspec.structs.replace(row, state="failed", sentence=FAILED, step=41_901))
    )
    first = page.locator(".job").nth(0)
    expect(first).to_contain_text("failed")
    expect(first).to_contain_text("41,901")
    for name in ("new-1", "new-2"):
        fresh = job_row("starting", server.world.now_s, id=name, name=name)
        server.world.rows.insert(0, fresh)
        server.world.tell("job", _told(fresh))
    offer = page.get_by_role("button", name="2 new jobs: show them")
    expect(offer).to_be_visible()
    assert page.locator(".job .name").all_text_contents() == before
    offer.click()
    expect(page.locator(".job").nth(0)).to_contain_text("new-2")
    expect(offer).to_have_count(0)


def test_a_job_and_its_incidents_are_read_anew_when_something_happens(view, server):
    page = view("/jobs/llama-70b").page
    _connected(server)
    row = msgspec.structs.replace(server.world.rows[0], state="failed", sentence=FAILED)
    server.world.rows[0] = row
    server.world.tell("job", _told(row))
    expect(page.locator("h1")).to_contain_text("ValueError in data.py:41")
    expect(page.locator(".path")).to_contain_text("failed")


def test_lines_of_the_tail_are_offered_and_follow_when_that_is_wished(view, server):
    page = view("/jobs/llama-70b?rank=5").page
    _connected(server)

    def say(number: int) -> None:
        line = msgspec.to_builtins(incidents.output_line(5, number, server.world.now_s))
        line["text"] = f"line {number}"
        server.world.tell("output", {"job": "llama-70b", "line": line})

    tail = page.get_by_role("region", name="Last lines of the output")
    say(100_001)
    say(100_002)
    offer = page.get_by_role("button", name="2 new lines ↓")
    expect(offer).to_be_visible()
    expect(tail).not_to_contain_text("line 100001")
    offer.click()
    expect(tail).to_contain_text("line 100002")
    page.get_by_label("follow").check()
    say(100_003)
    expect(tail).to_contain_text("line 100003")


def test_a_lost_connection_is_said_in_words_and_made_up_for(view, server):
    shown = view("/jobs/llama-70b")
    shown.expected += ("503", "Failed to load", "ERR_")
    _connected(server)
    server.world.deaf = True
    server.world.hang_up()
    lost = shown.page.get_by_text("No connection to the server since")
    expect(lost).to_be_visible()
    server.world.rows[0] = msgspec.structs.replace(server.world.rows[0], state="failed", sentence=FAILED)
    server.world.deaf = False
    expect(lost).to_have_count(0)
    # What happened meanwhile is there, although no event told of it.
    expect(shown.page.locator("h1")).to_contain_text("ValueError in data.py:41")


def test_a_stream_goes_on_after_the_last_event(view, server):
    shown = view("/jobs/llama-70b")
    shown.expected += ("503", "Failed to load", "ERR_")
    _connected(server)
    server.world.tell("job", _told(server.world.rows[0]))
    server.world.wait_until(lambda: server.world.sent == 1)
    server.world.hang_up()
    server.world.wait_until(lambda: "1" in server.world.resumed)
