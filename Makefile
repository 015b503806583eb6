# Every command a person or CI runs. Each target installs what it needs. The first run takes minutes
# (PyTorch); later runs skip the installation.

PYTHON ?= python3
# Tests in parallel: more than the two cores, because tests that start real processes wait for about half of their time.
JOBS ?= 5
# The quick benchmarks. Run another with make bench BENCH=folder/name.
BENCH ?= journal observe/sampling simulator
BIN := .venv/bin
READY := .venv/ready
# Installed first, at a fixed version, so that its dependencies decide the versions of shared packages.
TORCH := torch==2.13.0

.PHONY: setup check test tests signatures pure browser slurm postgresql monitoring kubectl agent-folder agent-image launchers demo bench golden

setup: $(READY)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The tests start thousands of processes. Without cached bytecode, each would compile its imports again.
unexport PYTHONDONTWRITEBYTECODE

# Static checks run in parallel with the tests, which wait more than they compute.
test: $(READY) browser slurm postgresql monitoring kubectl agent-folder
	$(MAKE) --no-print-directory --jobs=2 check tests

tests: $(READY) signatures rewritten
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# pytest rewrites the assert statements of each test file and keeps the result, as Python keeps bytecode. In a fresh clone each
# of its processes would do that for all files. Two do it here, each for one half; what is wrong in a file, the tests report.
rewritten: $(READY)
	@[ -e .pytest_cache/rewritten ] || { for half in 'tests/[a-c]*/' 'tests/[d-z]*/'; do \
		$(BIN)/pytest --quiet --collect-only $$half >/dev/null 2>&1 & done; wait; \
		mkdir -p .pytest_cache; touch .pytest_cache/rewritten; }

# What the installation makes of the signatures, again: after a change of them each process would do it by itself.
signatures: $(READY)
	PYTHONDONTWRITEBYTECODE=1 $(BIN)/python -m holdfast.observe.search.ready_made src/holdfast/signatures

# Only the tests of the packages without I/O: the fastest feedback.
pure: $(READY)
	$(BIN)/pytest -q -n 2 tests/core tests/parsers

# The page tests need a real browser. Without one they are skipped, with a message.
# First Chromium's headless shell: it draws the same pages without windows of its own, with a third of the CPU.
browser:
	@command -v chromium-headless-shell >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update --quiet=2 && \
			apt-get install --quiet=2 --yes --no-install-recommends chromium-headless-shell 2>/dev/null; } || \
		command -v chromium chromium-browser google-chrome >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
			apt-get update --quiet=2 && apt-get install --quiet=2 --yes --no-install-recommends chromium; } || \
		echo 'Cannot install a browser here: the page tests are skipped' >&2

# A real Slurm for the tests of that engine. They start their own small cluster, not a system service.
SLURM := slurm-wlm munge tini iproute2
slurm:
	@(PATH="$$PATH:/usr/sbin:/sbin"; for tool in slurmctld slurmd munged srun tini ip; do \
		command -v $$tool >/dev/null || exit 1; done) || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
			apt-get update --quiet=2 && \
			DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends $(SLURM); } || \
		echo 'Cannot install Slurm here: its tests are skipped' >&2

# A real PostgreSQL for the tests of the server's index. They start their own, not a system service.
postgresql:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
			apt-get update --quiet=2 && \
			DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends postgresql; } || \
		echo 'Cannot install PostgreSQL here: its tests are skipped' >&2

# A real Prometheus, Alertmanager and node-exporter. The tests start their own on loopback, not system services.
MONITORING := prometheus prometheus-alertmanager prometheus-node-exporter
monitoring:
	@(for tool in promtool $(MONITORING); do command -v $$tool >/dev/null || exit 1; done) || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
			apt-get update --quiet=2 && \
			RUNLEVEL=1 SYSTEMD_OFFLINE=1 DEBIAN_FRONTEND=noninteractive \
			apt-get install --quiet=2 --yes --no-install-recommends $(MONITORING); } || \
		echo 'Cannot install Prometheus here: its tests are skipped' >&2

# A real kubectl for the tests of manifests. They apply to their own API server.
kubectl:
	@command -v kubectl >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
			apt-get update --quiet=2 && \
			DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends kubernetes-client; } || \
		echo 'Cannot install kubectl here: its tests are skipped' >&2

# The folder by which Holdfast runs in anybody's image, and that image. Both are of this machine's architecture.
AGENT := build/agent
AGENT_SOURCES := $(wildcard tools/agent_image/*) pyproject.toml $(shell find src/holdfast -type f ! -name '*.pyc' ! -name '*.msgpack')
agent-folder: $(READY)
	@$(MAKE) --no-print-directory $(AGENT)/ready || echo 'Cannot build the agent folder here: its tests are skipped' >&2

$(AGENT)/ready: $(AGENT_SOURCES)
	@(for tool in musl-gcc busybox dpkg-deb readelf; do command -v $$tool >/dev/null || exit 1; done) || \
		{ apt-get update --quiet=2 && DEBIAN_FRONTEND=noninteractive \
			apt-get install --quiet=2 --yes --no-install-recommends binutils busybox-static gcc libc6-dev musl-tools; }
	$(BIN)/python tools/agent_image/build.py $(AGENT)
	touch $@

agent-image: $(AGENT)/ready
	@command -v buildah >/dev/null || { apt-get update --quiet=2 && DEBIAN_FRONTEND=noninteractive \
		apt-get install --quiet=2 --yes --no-install-recommends buildah; }
	buildah --storage-driver vfs build --isolation chroot --tag holdfast-agent --file tools/agent_image/Containerfile $(AGENT)
	buildah --storage-driver vfs push holdfast-agent oci-archive:$(AGENT)/holdfast-agent.tar

# The environment of bench/launchers/matrix.py: training frameworks and MPI, a few GB, apart from .venv.
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

# Rewrites the golden files. Read the diff before you commit it.
golden: $(READY)
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --golden
	git --no-pager diff --stat -- tests/golden

$(READY): pyproject.toml setup.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --editable '.[demo,sim,stacks,dev]'
	touch $@

# Debian ships ensurepip, which venv needs, in a separate package.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
			apt-get update && apt-get install --yes --no-install-recommends python3-venv; } || \
		{ echo 'Python cannot make environments here. As root: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
