"""Parses ResourceSlices and ResourceClaims of the Kubernetes API into the types of `model.kubernetes`. Pure.

source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/resource-slice-v1/,
…/workload-resources/resource-claim-v1/
"""

import msgspec
from msgspec import Struct

from holdfast.model.kubernetes import ClaimState, Device, SliceState
from holdfast.parsers.kubernetes.objects import NotRead


class _Meta(Struct):
    name: str = ""


class _Taint(Struct):
    key: str
    value: str = ""
    effect: str = ""


class _DeviceEntry(Struct):
    name: str
    taints: list[_Taint] | None = None


class _Pool(Struct):
    name: str = ""


class _SliceSpec(Struct):
    driver: str = ""
    pool: _Pool = msgspec.field(default_factory=_Pool)
    devices: list[_DeviceEntry] | None = None


class _Slice(Struct):
    metadata: _Meta
    spec: _SliceSpec = msgspec.field(default_factory=_SliceSpec)


class _Result(Struct):
    driver: str = ""
    pool: str = ""
    device: str = ""


class _Devices(Struct):
    results: list[_Result] | None = None


class _Allocation(Struct):
    devices: _Devices = msgspec.field(default_factory=_Devices)


class _Consumer(Struct):
    resource: str = ""
    uid: str = ""


class _ClaimStatus(Struct, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: list[_Consumer] | None = None


class _Claim(Struct):
    metadata: _Meta
    status: _ClaimStatus = msgspec.field(default_factory=_ClaimStatus)


_SLICES = msgspec.json.Decoder(_Slice)
_CLAIMS = msgspec.json.Decoder(_Claim)


def slice_of(raw: bytes) -> SliceState:
    """Parses a ResourceSlice. raises: NotRead"""
    try:
        one = _SLICES.decode(raw)
    except msgspec.MsgspecError as error:
        raise NotRead(f"a ResourceSlice cannot be read: {error}") from error
    spec = one.spec
    tainted = {
        Device(spec.driver, spec.pool.name, device.name): tuple(map(_text, device.taints))
        for device in spec.devices or ()
        if device.taints
    }
    return SliceState(name=one.metadata.name, tainted=tainted)


def claim_of(raw: bytes) -> ClaimState:
    """Parses a ResourceClaim. raises: NotRead"""
    try:
        one = _CLAIMS.decode(raw)
    except msgspec.MsgspecError as error:
        raise NotRead(f"a ResourceClaim cannot be read: {error}") from error
    status = one.status
    results = (status.allocation.devices.results if status.allocation is not None else None) or ()
    return ClaimState(
        name=one.metadata.name,
        devices=tuple(Device(each.driver, each.pool, each.device) for each in results),
        pods=tuple(each.uid for each in status.reserved_for or () if each.resource == "pods"),
    )


def _text(taint: _Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
