"""No fault of the control plane may stop a healthy job: simulated with seeds; bench.kubernetes.simulated runs many more."""

import pytest

from core.kubernetes.control_plane import run


@pytest.mark.parametrize("seed", range(40))
def test_faults_of_the_control_plane_cost_no_healthy_pod(seed):
    assert run(seed) == []
