# Two commands: `make demo` shows the product at work, `make test` runs all tests. Both set up what they need in .venv and in a cache folder.
# What has to be there first: Python 3.11 or newer with venv, Java 17 or newer (on Debian as root it is installed), make.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# What shares a cluster or Spark shares a worker (tests/parallel.py). Three more than there are cores, as more than a third of the time is
# waiting: with two more all tests take 4 % less CPU, and 3 % longer. Quick tests wait less, and have one more.
MORE := 3
WORKERS ?= -n $(shell expr $$(nproc) + $(MORE))
# Python keeps what it compiled: tests start hundreds of its processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test tests test-quick test-pure test-chart test-pods chart-tools chart-package check bench bench-fleet bench-workers simulate-fleet bench-rates bench-isolation bench-report docs clean
.PHONY: docs-site docs-screenshots simulate simulate-defects chaos mutants fuzz fuzz-asan setup java kafka redis spark-classes test-fleet-minute test-all test-kafka test-pythons

demo: setup java
	$(BIN)/python -m proxy demo

# The checks run beside the tests, as mypy takes one core for a minute; so is the archive made, which the reports of later tests use.
test: setup java kafka redis
	@$(MAKE) --no-print-directory -j 3 check tests spark-classes

tests:
	$(BIN)/pytest $(WORKERS) $(PYTEST_ARGS)

# What starts no broker, no Spark, no Helm and no other Java program, and builds nothing: a minute on two cores.
test-quick: MORE := 1
test-quick: setup redis
	$(BIN)/pytest $(WORKERS) --quick $(PYTEST_ARGS)

# Everything: with what takes too long for every push, older brokers and older clients included; some two hours. Only the pods are left
# out (`make test-pods`).
test-all: setup java check kafka redis spark-classes
	$(BIN)/pytest $(WORKERS) --nightly $(PYTEST_ARGS)
	for version in 3.3 3.9 4.2 4.3; do $(MAKE) test-kafka KAFKA=$$version || exit 1; done
	$(MAKE) test-pythons test-fleet-minute
	$(MAKE) test-chart PYTEST_ARGS="-m api_server"

# The tests of APIs and of passing with brokers of another version: `make test-kafka KAFKA=3.9`. docs/versions.md says which there are.
KAFKA ?= 3.9
test-kafka: setup java
	@$(BIN)/python -m localkafka --fetch-only --version $(KAFKA)
	$(BIN)/pytest -m every_kafka --kafka $(KAFKA) $(PYTEST_ARGS)

# The unit and wire tests with each of python3.11 to python3.14 that is on PATH.
test-pythons: setup
	$(BIN)/python -m tests.pythons $(PYTEST_ARGS)

# How many seeded defects of quota/ and proxy/wire/ the quick tests catch; some twenty minutes. `make mutants MUTANTS_ARGS="--sample 1000 --seed 2"`
mutants: setup
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "mutmut>=3.8,<4"
	$(BIN)/python -m tests.mutants $(MUTANTS_ARGS)

# What the compiled build replaces, as it is read.
test-pure: setup
	KAFKA_QUOTA_PROXY_PURE=1 $(BIN)/pytest tests/wire tests/session tests/apis tests/fuzz $(PYTEST_ARGS)

# Whole deployments in simulated time under random faults, with new seeds for two minutes; `make simulate ARGS="--seconds 3600"`,
# `ARGS="--seed 17"`. docs/reliability.md says what is judged.
simulate: setup
	@$(BIN)/python -m tests.simulation $(ARGS)

# Ten minutes of faults under load on real parts, verified record by record; `make chaos ARGS="--duration 1h"`, `ARGS="--seed 17"`.
chaos: setup kafka redis
	@$(BIN)/python -m tests.chaos $(ARGS)

# Whether the simulation finds the defects of tests/simulation/defects.py; up to two minutes for each.
simulate-defects: setup
	@$(BIN)/python -m tests.simulation.defects $(ARGS)

# The compiled hot path beside the same sources as pure Python, a million frames of each API that it reads; `make fuzz ARGS="--seed 2"`.
fuzz: setup
	$(BIN)/python -m tests.fuzz.compare --frames 1000000 $(ARGS)

# The same with fewer frames and AddressSanitizer; gcc builds the hot path for it, which takes some minutes.
fuzz-asan: setup
	$(BIN)/python -m tests.fuzz.sanitized --frames 100000 $(ARGS)

# The chart, on a real API server too (deploy/README.md). Go builds it, once: `make chart-tools` does so ahead. `PYTEST_ARGS="-m api_server"`
# leaves out what `make test` runs.
test-chart: setup chart-tools
	$(BIN)/pytest $(WORKERS) tests/chart --api-server $(PYTEST_ARGS)

# The chart as a package in dist/, the same bytes for the same commit; signed with `HELM_ARGS="--sign --key NAME --keyring FILE"`.
chart-package: setup
	@HELM=$$($(BIN)/python -c "from tests.chart.tools import tool; print(tool('helm'))") $(BIN)/python deploy/helm/package.py dist $(HELM_ARGS)

chart-tools: setup
	@$(BIN)/python -m tests.chart.tools

# The chart in real pods: root only, and only by hand. Their network, mounts and processes are gone when the tests end.
test-pods: setup java kafka
	$(BIN)/python -m tests.chart.tools helm etcd kube-apiserver node crds
	$(BIN)/python -m tests.pods.images
	unshare --net --mount --propagation private --pid --fork --kill-child --mount-proc catatonit -- $(BIN)/pytest tests/pods --pods $(PYTEST_ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Beside a pass-through in C. `make bench ARGS=--check` says what became worse since the last quiet run (docs/loadtest-results.md).
bench: setup
	$(BIN)/python -m benchmarks.bench $(ARGS)

# What a second process at the same port gains; a minute.
bench-fleet: setup kafka
	$(BIN)/python -m benchmarks.bench.fleet $(ARGS)

# 1, 2 and 4 workers, each held to a fifth of a processor (as root); memory and metrics of many (`ARGS="--scrape 100"`).
bench-workers: setup
	$(BIN)/python -m benchmarks.bench.workers $(ARGS)
	$(BIN)/python -m tests.fleet.cost_ledger_topic

# How well a fleet of proxies holds one quota, and what that costs Redis, in simulated time: the figures of docs/fleet.md; some 20 minutes.
simulate-fleet: setup
	$(BIN)/python -m benchmarks.fleet_simulation

# Scenarios of the load test on a real cluster, directly and behind proxies with different quotas: `make bench-mutations` and others;
# some minutes for each row (`ARGS="--way direct --scale 0.3"`).
EXPERIMENTS := mutations producer-ids produce-rate read-rate request-rate shared-rate topic-bytes-in tenant-rate stored-bytes topic-numbers
$(EXPERIMENTS:%=bench-%): bench-%: kafka
	$(BIN)/python -m benchmarks.experiments $* $(ARGS)

# Quotas beside what real clients get.
bench-rates: bench-produce-rate bench-read-rate bench-request-rate bench-shared-rate bench-topic-bytes-in

# What each attack of docs/isolation.md costs somebody else; some 20 minutes.
bench-isolation: kafka
	$(BIN)/python -m benchmarks.isolation $(ARGS)

# How fast the capacity report is, beside DuckDB.
bench-report: setup java
	$(BIN)/python -m benchmarks.report $(ARGS)

docs: setup
	$(BIN)/python -m proxy.config.reference > docs/settings.md
	$(BIN)/python -m proxy.observe.catalogue > docs/metrics.md
	$(BIN)/python -m quota.catalogue > reports/quotas/catalogue.py
	$(BIN)/python -m loadtest.results.schema > docs/loadtest-results.schema.json
	$(BIN)/python -m tests.isolation.cells > docs/isolation.md
	$(BIN)/python deploy/helm/generate.py

# The documentation as a site, in build/site; it loads nothing from elsewhere. A link or an anchor that leads nowhere is an error.
docs-site: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Pictures of the console and of the report in docs/img, by Chromium, of a demo that runs for it; some minutes.
docs-screenshots: setup java kafka
	$(BIN)/python -m tests.docs.screenshots

# 64 real clients in skewed shares at four proxies, and at four workers, for a minute; workers killed under load for a minute.
test-fleet-minute: kafka redis
	FLEET_MINUTE=1 $(BIN)/pytest tests/real/test_ledger.py tests/real/test_ledger_topic.py tests/real/test_workers.py \
	  tests/real/test_workers_rate.py -k "minute or 16_producers or killed_under_load" -s $(PYTEST_ARGS)

# For the tests of the ledger; where it cannot be installed they are skipped, and say so.
redis: setup
	@$(BIN)/python -m tests.redis_server

# The compiled build of the hot path is of the present sources, or it is not used; where it cannot be made, all runs as pure Python.
setup: $(READY)
	@$(BIN)/python make_venv.py --compile

java: setup
	@$(BIN)/python -W ignore::RuntimeWarning -m localkafka.java --install

kafka: java
	@$(BIN)/python -m localkafka --fetch-only

# With it each Spark of the tests takes 4 s of CPU less; once, half a minute and 200 MB in the cache folder. All works without it.
spark-classes: java
	-@$(BIN)/python -W ignore::RuntimeWarning -m reports.class_archive

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and was not found; on Debian: apt-get install python3 python3-venv" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 2; }
	@$(PYTHON) make_venv.py $(VENV)
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache demo-out build proxy/_hot *.egg-info
