# Everything a person or CI runs. Each target sets up what it needs by itself; the first time that takes
# minutes (PyTorch), later nothing.

PYTHON ?= python3
# How many tests run at once: one more than two cores, for those that start real processes wait for them.
JOBS ?= 3
# The quick ones; the others by name: make bench BENCH=NAME
BENCH ?= journal observe/sampling simulator
BIN := .venv/bin
READY := .venv/ready
# Asked for first and exactly: what comes along with it is then settled before anything else asks for it.
TORCH := torch==2.13.0

.PHONY: setup check test tests pure browser slurm postgresql monitoring launchers demo bench golden

setup: $(READY)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Thousands of processes are started: each would compile what it imports anew.
unexport PYTHONDONTWRITEBYTECODE

# What is checked by reading goes on beside the tests, which wait more than they compute.
test: $(READY) browser slurm postgresql monitoring
	$(MAKE) --no-print-directory --jobs=2 check tests

tests: $(READY)
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# Only the tests of the pure rooms: the quickest answer while working on them.
pure: $(READY)
	$(BIN)/pytest -q -n 2 tests/core tests/parsers

# The pages are tried in a real browser. Where none can be had, those tests say so and are skipped.
browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
			apt-get update --quiet=2 && apt-get install --quiet=2 --yes --no-install-recommends chromium; } || \
		echo 'No browser can be installed here: the tests of pages are skipped' >&2

# A real Slurm for the tests of that engine: they start a small cluster of their own, and no service.
SLURM := slurm-wlm munge tini iproute2
slurm:
	@(PATH="$$PATH:/usr/sbin:/sbin"; for tool in slurmctld slurmd munged srun tini ip; do \
		command -v $$tool >/dev/null || exit 1; done) || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
			apt-get update --quiet=2 && \
			DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends $(SLURM); } || \
		echo 'Slurm cannot be installed here: its tests are skipped' >&2

# A real PostgreSQL for the tests of the server's index: they start one of their own, and no service.
postgresql:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
			apt-get update --quiet=2 && \
			DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends postgresql; } || \
		echo 'PostgreSQL cannot be installed here: its tests are skipped' >&2

# A real Prometheus, Alertmanager and node-exporter: tests start their own on loopback, and no service of the system.
MONITORING := prometheus prometheus-alertmanager prometheus-node-exporter
monitoring:
	@(for tool in promtool $(MONITORING); do command -v $$tool >/dev/null || exit 1; done) || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
			apt-get update --quiet=2 && \
			RUNLEVEL=1 SYSTEMD_OFFLINE=1 DEBIAN_FRONTEND=noninteractive \
			apt-get install --quiet=2 --yes --no-install-recommends $(MONITORING); } || \
		echo 'Prometheus cannot be installed here: its tests are skipped' >&2

# The training environment of bench/launchers/matrix.py: frameworks and MPI, a few GB; beside the project's own.
LAUNCHERS := openmpi-bin libopenmpi-dev mpich tini
launchers: .venv-launchers/ready
.venv-launchers/ready: pyproject.toml
	@(for tool in mpirun.openmpi mpirun.mpich mpicc tini; do command -v $$tool >/dev/null || exit 1; done) || \
		{ apt-get update --quiet=2 && \
			DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends $(LAUNCHERS); }
	$(PYTHON) -m venv --clear .venv-launchers
	.venv-launchers/bin/python -m pip install --quiet $(TORCH)
	.venv-launchers/bin/python -m pip install --quiet '.[launchers]'
	touch $@

demo: $(READY)
	$(BIN)/holdfast demo

bench: $(READY)
	for name in $(BENCH); do echo "$$name:"; $(BIN)/python -m bench.$$(echo $$name | tr / .) || exit 1; done

# Writes the golden files anew. Read the diff before you commit it.
golden: $(READY)
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --golden
	git --no-pager diff --stat -- tests/golden

$(READY): pyproject.toml setup.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --editable '.[demo,sim,stacks,dev]'
	touch $@

# Debian keeps a part of venv, ensurepip, in a package of its own.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
			apt-get update && apt-get install --yes --no-install-recommends python3-venv; } || \
		{ echo 'Python cannot make environments here. As root: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
