"""Every action: it says what it will do, is sent once it is confirmed, and its answer stays where it was asked."""

import re

import pytest
from playwright.sync_api import expect

from web.page.test_views import WIDTHS

# Where it is, its button, what it says, what is filled in, the button that confirms, and what is sent.
ACTIONS = {
    "restart": ("/jobs/llama-70b", "Restart", "started again in the same workers", {"Reason": "new learning rate"}, "Restart", ("/jobs/llama-70b/restart", {"reason": "new learning rate"})),
    "stop": ("/jobs/llama-70b", "Stop", "get SIGTERM, then SIGKILL", {"Reason": "wrong data"}, "Stop", ("/jobs/llama-70b/stop", {"force": False, "reason": "wrong data"})),
    "acknowledge": ("/jobs/llama-70b/incidents/2", "Acknowledge", "Your name is shown", {"A note": "ticket 12"}, "Acknowledge", ("/jobs/llama-70b/incidents/2/acknowledge", {"text": "ticket 12"})),
    "correct": ("/jobs/llama-70b/incidents/2", "Wrong verdict?", "Both verdicts are kept", {"The right category": "gpu_oom", "How do you know": "dmesg"}, "Send the correction", ("/jobs/llama-70b/incidents/2/correct", {"category": "gpu_oom", "text": "dmesg"})),
    "restart of an incident": ("/jobs/llama-70b/incidents/2", "Restart the job", "All ranks are stopped", {}, "Restart the job", ("/jobs/llama-70b/restart", {"reason": ""})),
    "isolate of an incident": ("/jobs/llama-70b/incidents/2", "Isolate gpu-03", "No job of this state folder", {}, "Isolate gpu-03", ("/nodes/gpu-03/isolate", {"reason": "Xid 79: the GPU fell off the bus"})),
    "isolate": ("/nodes/gpu-05", "Isolate", "No job of this state folder", {"Reason": "noisy fan"}, "Isolate", ("/nodes/gpu-05/isolate", {"reason": "noisy fan"})),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_is_confirmed_sent_and_answered(view, server, name):
    """At each width; the page allows it again and again."""
    path, button, says, fields, confirm, sent = ACTIONS[name]
    shown = view(path, width=WIDTHS[0])
    page = shown.page
    for width in WIDTHS:
        server.world.asked.clear()
        shown.resize(width)
        page.get_by_role("button", name=button, exact=True).click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(says)
        assert server.world.asked == []
        for label, text in fields.items():
            dialog.get_by_label(label).fill(text)
        dialog.get_by_role("button", name=confirm, exact=True).click()
        expect(dialog).to_contain_text("Done by mueller; the journal says so.")
        assert server.world.asked == [sent]
        dialog.get_by_role("button", name="Close").click()
        expect(dialog).to_have_count(0)


def test_cancel_sends_nothing_and_gives_the_focus_back(view, server):
    page = view("/jobs/llama-70b").page
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_focused()
    assert server.world.asked == []


def test_force_is_sent_when_it_is_ticked(view, server):
    page = view("/jobs/llama-70b").page
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_label("immediately, without time").check()
    page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("Done")
    assert server.world.asked == [("/jobs/llama-70b/stop", {"force": True, "reason": ""})]


def test_a_refusal_is_said_in_the_servers_words_and_can_be_tried_again(view):
    shown = view("/nodes/gpu-03")
    shown.expected += ("409",)
    shown.page.get_by_role("button", name="Release", exact=True).click()
    dialog = shown.page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("repaired")
    dialog.get_by_role("button", name="Release", exact=True).click()
    expect(dialog.get_by_role("alert")).to_have_text("gpu-03 is not isolated any more.")
    expect(dialog.get_by_role("button", name="Release", exact=True)).to_be_enabled()


def test_a_correction_offers_the_test_line_of_a_signature(view):
    page = view("/jobs/llama-70b/incidents/2").page
    page.get_by_role("button", name="Wrong verdict?").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("The right category").fill("gpu_oom")
    dialog.get_by_role("button", name="Send the correction").click()
    expect(dialog.locator("pre")).to_contain_text("[[signature.matches]]")
    dialog.get_by_role("button", name="copy").click()
    expect(dialog).to_contain_text("copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("[[signature.matches]]")


def test_markdown_is_copied_in_the_readers_language_and_the_bundle_is_a_link(view, server):
    page = view("/jobs/llama-70b/incidents/2", chinese=True).page
    page.get_by_role("button", name="复制为 Markdown").click()
    expect(page.get_by_text("已复制").first).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "**llama-70b incident 2** (zh)\n"
    link = page.get_by_role("link", name="下载证据包")
    expect(link).to_have_attribute("href", "/sub/api/v1/jobs/llama-70b/incidents/2/bundle")


def test_a_viewer_sees_no_action(view, server):
    server.world.role = "viewer"
    shown = view("/jobs/llama-70b/incidents/2")
    page = shown.page
    expect(page.get_by_role("button", name="Copy as Markdown")).to_be_visible()
    for name in ("Acknowledge", "Restart the job", "Isolate gpu-03", "Wrong verdict?"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    shown.open("/jobs/llama-70b")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    expect(page.get_by_role("navigation").get_by_role("link", name="Terminal")).to_have_count(0)
    shown.open("/terminal?job=llama-70b")
    expect(page.get_by_text("Only operators may run commands")).to_be_visible()


def test_one_command_on_all_workers_is_asked_twice_and_equal_answers_are_joined(view, server):
    shown = view("/terminal?job=llama-70b", width=390)
    page = shown.page
    page.get_by_role("textbox", name="command").fill("sh -c 'nvidia-smi -L | wc -l'")
    page.get_by_role("button", name="Run …").click()
    assert server.world.asked == []
    page.get_by_role("button", name="Yes, run it on 8 workers").click()
    answers = page.locator(".answers > li")
    expect(answers).to_have_count(2)
    expect(answers.nth(0)).to_contain_text("worker 2 gpu-03 · code 1")
    expect(answers.nth(1)).to_contain_text("workers 0, 1, 3–7")
    expect(answers.nth(1)).to_contain_text("<img src=x")
    sent = (
        "/jobs/llama-70b/exec",
        {"command": ["sh", "-c", "nvidia-smi -L | wc -l"], "workers": None, "loose": False},
    )
    assert server.world.asked == [sent]
    assert shown.serious() == []


@pytest.mark.parametrize("width", WIDTHS)
def test_a_shell_is_opened_on_the_worker_typed_into_and_left(view, server, width):
    shown = view("/terminal?job=llama-70b&worker=3", width=width)
    page = shown.page
    page.get_by_role("button", name="Open a shell on worker 3").click()
    expect(page.get_by_text("A shell is open on worker 3.")).to_be_visible()
    page.locator(".xterm-helper-textarea").focus()
    page.keyboard.type("echo hällo")
    page.keyboard.press("Enter")
    expect(page.locator(".xterm-rows")).to_contain_text("echo hällo")
    # Its colours and sizes are there although the page allows no inline styles.
    expect(page.locator(".xterm-rows span", has_text="$").first).to_have_css("color", "rgb(200, 40, 40)")
    page.keyboard.type("exit")
    page.keyboard.press("Enter")
    expect(page.get_by_text("The shell ended with code 0.")).to_be_visible()
    assert server.world.typed == "echo hällo\rexit\r".encode()
    expect(page.get_by_role("button", name="Open a shell on worker 3")).to_be_visible()
    assert shown.run("document.documentElement.scrollWidth - innerWidth") <= 0


def test_login_leads_to_the_view_that_was_asked_for(view, server):
    server.world.locked, server.world.role = True, "viewer"
    shown = view("/login")
    shown.expected += ("401",)
    shown.open("/nodes/gpu-03?serial=1563221014405")
    page = shown.page
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("This token is not known, or it has expired.")
    page.get_by_label("Token").fill("right")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("h1")).to_contain_text("gpu-03 is isolated")
    assert re.search(r"/nodes/gpu-03\?serial=1563221014405$", page.url)
    assert not any("right" in url or "wrong" in url for url in shown.requests)


def test_login_never_leads_to_another_host(view, server):
    page = view("/login?next=//example.invalid/").page
    page.get_by_label("Token").fill("right")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("searchbox", name="Search jobs")).to_be_visible()
    assert page.url == server.address + "/"


def test_log_out(view, server):
    shown = view("/nodes", width=390)
    shown.page.get_by_role("button", name="Log out").click()
    expect(shown.page.get_by_label("Token")).to_be_visible()
    assert server.world.asked == [("/logout", {})]
