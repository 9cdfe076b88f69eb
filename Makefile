# Sluice. `make help` lists what can be made.
# Needs Go, make, gcc and git; kubectl to look at what runs.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Where `make run` keeps its cluster, and what else `sluice up` is told.
DIR ?= .sluice
UP_FLAGS ?=
# Packages to test, and flags for go test: make test PKG=./lifecycle/... ARGS=-v
PKG ?= ./...
ARGS ?=

COMMANDS := sluice webhook lifecycle
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X sluice.dev/api.Version=$(VERSION)

LINT := bin/tools/golangci-lint
CONTROLLER_GEN := bin/tools/controller-gen

##@ Use

.PHONY: help
help: ## Say what can be made
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

.PHONY: run
run: build ## Start a real Kubernetes with Sluice on simulated DGX nodes, here
	@bin/sluice up --detach --dir '$(DIR)' $(UP_FLAGS)

.PHONY: stop
stop: build ## Stop what `make run` started, and remove it
	@bin/sluice down --dir '$(DIR)'

##@ Develop

.PHONY: build
build: ## Build the binaries into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ $(COMMANDS:%=./cmd/%)
	@# NVIDIA's library is loaded through C, where there is one: no header and no driver is needed to build.
	CGO_ENABLED=1 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/gpuagent

.PHONY: test
test: build ## Run all tests; those that need Kubernetes run on the embedded one
	bin/sluice up --build-only --scheduler kueue
	go test -timeout 45m $(ARGS) $(PKG)
	go test -C test/bench -timeout 10m ./...

.PHONY: bench
bench: build ## Run the benchmarks
	bin/sluice up --build-only
	go test -run '^$$' -bench . -benchmem -timeout 60m $(ARGS) $(PKG)
	go test -C test/bench -run '^$$' -bench . -benchtime 2s -timeout 30m $(ARGS)

.PHONY: generate
generate: generate-api ## Write anew what follows from the code: deep copies, CRDs, rights, tables
	go test ./lifecycle/timelimit/suspend -count=1 -run '^TestGenerated' -update

.PHONY: generate-api
generate-api: $(CONTROLLER_GEN)
	$(CONTROLLER_GEN) object:headerFile=api/header.txt paths=./api/...
	rm -rf api/v1alpha1/applyconfiguration
	$(CONTROLLER_GEN) applyconfiguration:headerFile=api/header.txt paths=./api/v1alpha1
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=manifests/crds

.PHONY: format
format: $(LINT) ## Format the code
	$(LINT) fmt

.PHONY: verify
verify: verify-tidy verify-generated verify-lint verify-imports ## Check format, vet, linters, generated files, go.mod and import rules

.PHONY: verify-lint
verify-lint: $(LINT)
	go vet ./...
	$(LINT) fmt --diff
	$(LINT) run --allow-parallel-runners
	cd test/bench && go vet ./... && ../../$(LINT) run --allow-parallel-runners ./...

.PHONY: verify-tidy
verify-tidy:
	go mod tidy -diff
	for module in test/cluster/pins test/cluster/pins/kueue test/bench .ci/tools .ci/lint; do (cd $$module && go mod tidy -diff && go mod verify >/dev/null); done

.PHONY: verify-generated
verify-generated: $(CONTROLLER_GEN)
	.ci/verify-generated

.PHONY: verify-imports
verify-imports:
	go test ./test/house

$(LINT): .ci/lint/go.mod .ci/lint/go.sum
	@echo "building golangci-lint (about two minutes, once)"
	go build -C .ci/lint -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(CONTROLLER_GEN): .ci/tools/go.mod .ci/tools/go.sum
	go build -C .ci/tools -o ../../$@ sigs.k8s.io/controller-tools/cmd/controller-gen
	@touch $@
