"""Finds the tainted devices of pods: ResourceClaims map pods to devices, ResourceSlices hold the devices' taints. Pure.

A DRA driver taints a faulty device. All effects count as a report, also `None`, which drivers use for degraded health.

source: https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#device-taints-and-tolerations;
resource.k8s.io/v1: ResourceSlice spec.driver, spec.pool.name, spec.devices[].taints; ResourceClaim status.allocation.devices.
results, status.reservedFor
"""

from collections.abc import Iterable

from holdfast.model.kubernetes import ClaimState, Device, SliceState


class DeviceTaints:
    """The taints of devices, and the devices of pods. `changed`: something has changed since it was last reset."""

    def __init__(self) -> None:
        self.changed = False
        self._slices: dict[str, SliceState] = {}
        self._claims: dict[str, ClaimState] = {}

    def listed(self, slices: Iterable[SliceState] | None, claims: Iterable[ClaimState] | None) -> None:
        """Processes complete lists; None: of this kind nothing was listed."""
        if slices is not None:
            self._slices = {one.name: one for one in slices if one.tainted}
        if claims is not None:
            self._claims = {one.name: one for one in claims}
        self.changed = True

    def saw(self, one: SliceState | ClaimState, *, is_gone: bool = False) -> None:
        """Processes a slice or claim that was created, changed or deleted."""
        if isinstance(one, SliceState):
            self._slices.pop(one.name, None)
            if one.tainted and not is_gone:
                self._slices[one.name] = one
        else:
            self._claims.pop(one.name, None)
            if not is_gone:
                self._claims[one.name] = one
        self.changed = True

    def of_pod(self, uid: str) -> dict[str, str]:
        """Returns the tainted devices of a pod, with their taints: {"gpu.nvidia.com gpu-3": "taint KEY=VALUE:EFFECT"}."""
        used = [device for claim in self._claims.values() if uid in claim.pods for device in claim.devices]
        if not used:
            return {}
        tainted = {device: taints for one in self._slices.values() for device, taints in one.tainted.items()}
        return {_name(device): "taint " + ", ".join(tainted[device]) for device in used if device in tainted}


def _name(device: Device) -> str:
    return f"{device.driver} {device.name}"
