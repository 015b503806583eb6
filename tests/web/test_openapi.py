"""The OpenAPI document: kept as a file, and true of the server that is asked by it."""

import importlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from holdfast.web.api import openapi
from holdfast.web.api.route_table import ROUTES
from web.servers import Place, Server

KEPT = Path(__file__).parents[2] / "docs" / "openapi.json"
EXAMPLES = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """With a token: requests by the schema must not stop what they come across."""
    place = Place(tmp_path_factory.mktemp("state"))
    place.job("llama")
    running = Server(place.root, "--rate", "100000")
    running.token = place.token("operator")
    yield running
    said = running.said()
    running.stop()
    assert "Traceback" not in said, said


def test_the_document_in_docs_is_the_servers(request):
    if request.config.getoption("--golden"):
        KEPT.write_bytes(openapi.encoded())
    assert KEPT.read_bytes() == openapi.encoded(), "pytest --golden writes it anew: read the diff"


def test_every_route_has_an_operation_of_its_own():
    document = openapi.document()
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert sorted(one["operationId"] for one in operations) == sorted(route.name for route in ROUTES)


LABELS = sorted(
    f"{verb.upper()} {path}"
    for path, operations in openapi.document()["paths"].items()
    for verb in operations
    if path != "/api/v1/events"
)


@pytest.fixture(scope="module")
def schemathesis():
    """Imported here: each process of xdist collects this file, and few run it."""
    return importlib.import_module("schemathesis")


@pytest.fixture(scope="module")
def operations(schemathesis):
    """By label."""
    schema = schemathesis.openapi.from_dict(openapi.document())
    found = {one.ok().label: one.ok() for one in schema.get_all_operations()}
    assert {*LABELS} == {label for label in found if "/api/v1/events" not in label}
    return found


@pytest.fixture(scope="module")
def judged(schemathesis):
    named = ("response_schema_conformance", "content_type_conformance", "status_code_conformance")
    return [schemathesis.checks.not_a_server_error, *map(schemathesis.checks.CHECKS.get_one, named)]


@pytest.mark.parametrize("label", LABELS)
def test_requests_by_the_schema_are_answered_by_the_schema(label, operations, judged, server):
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operations[label].as_strategy())
    def ask(case):
        case.call_and_validate(
            base_url=server.url.rstrip("/"),
            headers={"Authorization": f"Bearer {server.token}"},
            checks=judged,
            timeout=30,
        )

    ask()
