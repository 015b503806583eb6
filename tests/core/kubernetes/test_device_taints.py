"""Taints of devices are reports on the pods that use the devices, as ResourceSlices and ResourceClaims have them."""

import json

import pytest

from holdfast.core.kubernetes.known import Rules
from holdfast.core.kubernetes.pods import PodBook
from holdfast.model.kubernetes import Device, PodState
from holdfast.model.nodes.workers import DevicesSick, EngineNote
from holdfast.parsers.kubernetes.devices import claim_of, slice_of
from holdfast.parsers.kubernetes.objects import NotRead

TAINT = {"key": "gpu.example.com/unhealthy", "value": "xid-79", "effect": "None"}


def slice_with(*taints, device="gpu-3"):
    devices = [{"name": "gpu-0"}, {"name": device, "taints": list(taints)}]
    spec = {"driver": "gpu.example.com", "nodeName": "n", "pool": {"name": "n", "generation": 1}}
    one = {"metadata": {"name": "n-slice"}, "spec": {**spec, "devices": devices}}
    return slice_of(json.dumps(one).encode())


def claim(uid="u"):
    results = [{"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "gpu-3"}]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "t", "uid": uid}],
    }
    return claim_of(json.dumps({"metadata": {"name": "c"}, "status": status}).encode())


@pytest.fixture
def book():
    one = PodBook(Rules())
    one.listed([PodState(name="t", uid="u", node="n", phase="Running", running=True)], 0.0)
    one.turn(0.0)
    return one


def test_a_tainted_device_is_reported_once_for_the_pod_that_uses_it_and_so_is_its_recovery(book):
    book.devices.listed(None, [claim()])
    assert book.turn(1.0) == ([], [])
    for _ in range(2):
        book.devices.saw(slice_with(TAINT))
    (note, sick), acts = book.turn(2.0)
    taint = "taint gpu.example.com/unhealthy=xid-79:None"
    assert sick == DevicesSick(node="t", devices={"gpu.example.com gpu-3": taint})
    assert isinstance(note, EngineNote) and f"gpu.example.com gpu-3 ({taint})" in note.text and acts == []
    book.devices.saw(slice_with())
    assert book.turn(3.0)[0][1] == DevicesSick(node="t", devices={})


@pytest.mark.parametrize("gone", ["slice", "claim", "list"])
def test_what_is_gone_taints_nothing(book, gone):
    book.devices.listed([slice_with(TAINT)], [claim()])
    assert [type(one) for one in book.turn(1.0)[0]] == [EngineNote, DevicesSick]
    if gone == "list":
        book.devices.listed([], None)
    else:
        book.devices.saw(slice_with(TAINT) if gone == "slice" else claim(), is_gone=True)
    assert book.turn(2.0)[0][1] == DevicesSick(node="t", devices={})


def test_devices_of_other_pods_are_no_matter_of_this_job(book):
    book.devices.listed([slice_with(TAINT)], [claim("another")])
    assert book.turn(1.0) == ([], [])
    book.devices.listed([slice_with(TAINT, device="gpu-5")], [claim()])
    assert book.turn(2.0) == ([], [])


def test_objects_without_devices_are_read_and_others_are_refused():
    assert slice_of(b'{"metadata": {"name": "s"}, "spec": {"devices": null}}').tainted == {}
    found = claim_of(b'{"metadata": {"name": "c"}, "status": {"allocation": null}}')
    assert (found.devices, found.pods) == ((), ())
    assert claim().devices == (Device("gpu.example.com", "n", "gpu-3"),)
    for read in (slice_of, claim_of):
        with pytest.raises(NotRead):
            read(b'{"metadata": 1}')
