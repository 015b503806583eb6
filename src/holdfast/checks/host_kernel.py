"""The kernel's version."""

import platform
import re
from collections.abc import Iterator

from holdfast.checks.registry import Check, Seen
from holdfast.model.checks import (
    BOOT,
    CONTINUOUS,
    MANUAL,
    ON_FAILURE,
    PASS,
    PROLOG,
    RULE,
    SKIP,
    WARN,
    Fact,
    Finding,
    Scene,
    Spec,
)
from holdfast.model.signatures import Words

KERNEL_MIN = (5, 5)  # older ones can hang in distributed training: what PyTorch's launchers warn of
_VERSION = re.compile(r"(\d+)\.(\d+)")


def kernel_version(scene: Scene) -> Iterator[Seen]:
    release = platform.release()
    found = _VERSION.match(release)
    if found is None:
        yield Finding(status=SKIP, why=f"the kernel's version {release!r} cannot be read")
        return
    is_new = (int(found[1]), int(found[2])) >= KERNEL_MIN
    yield Fact(name="kernel", value=release, same=True)
    yield Finding(
        status=PASS if is_new else WARN,
        measured=release,
        expected="5.5 or newer",
        whence=RULE,
        why="" if is_new else f"kernel {release} is older than 5.5, with which processes can hang",
        advice=Words(en="Upgrade the kernel to 5.5 or newer.", zh="请将内核升级到 5.5 或更新版本。"),
    )


CHECKS = (
    Check(
        Spec(
            name="host-kernel",
            area="host",
            what=Words(en="version of the kernel", zh="内核版本"),
            contexts=(BOOT, PROLOG, CONTINUOUS, ON_FAILURE, MANUAL),
            quick=True,
        ),
        kernel_version,
    ),
)
