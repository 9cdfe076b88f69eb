# `make help` lists the targets. They need Go, make, gcc and git, and kubectl to use the cluster.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The folder in which `make run` keeps its cluster, and further flags of `sluice up`.
DIR ?= .sluice
UP_FLAGS ?=
# Packages to test and flags of go test: make test PKG=./lifecycle/... ARGS=-v
ARGS ?=
# Folders that only `make test-all` tests; test/house has the reason of each. Of test/e2e, `make test` runs the passes
# (test/e2e/passes_test.go).
LATER_PACKAGES := test/lab/cluster/kwok test/e2e/hostile test/installation test/scale

COMMANDS := sluice webhook lifecycle gpuagent
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# The modules of Sluice and of the lab in one build or one run of tests.
WORKSPACE := GOWORK=$(CURDIR)/.ci/workspace/go.work
# Equal sources, VERSION, COMMIT and toolchain give equal binaries, in every folder and from every archive
# of the sources. So Go stamps nothing from git, and the C linker adds no build ID.
BUILD_FLAGS := -trimpath -buildvcs=false
# Nothing uses C but the agent, for NVIDIA's library: not names of hosts and users, not kustomize's plugins. Tests link in two thirds of the
# time without C, and Go's cache serves the programs, built without C, the tests and the embedded Kubernetes (test/lab/cluster/build).
# Debug information takes the compiler a tenth of the time, and no program keeps it.
COMPILE_FLAGS := -tags=netgo,osusergo,kustomize_disable_go_plugin_support -gcflags=all=-dwarf=false
export GOFLAGS := $(filter-out $(COMPILE_FLAGS),$(shell go env GOFLAGS)) $(COMPILE_FLAGS)
LDFLAGS := -s -w -X sluice.dev/api/config.Version=$(VERSION) -X sluice.dev/api/config.Commit=$(COMMIT)

LINT := bin/tools/golangci-lint
CONTROLLER_GEN := bin/tools/controller-gen
CRD_REF_DOCS := bin/tools/crd-ref-docs
GOTESTSUM := bin/tools/gotestsum
CYCLONEDX := bin/tools/cyclonedx-gomod
LICENSES := bin/tools/go-licenses
VULNCHECK := bin/tools/govulncheck

##@ Use

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

.PHONY: run
run: build-lab ## Start a real Kubernetes with Sluice on simulated DGX nodes, here
	@bin/sluice up --detach --dir '$(DIR)' $(UP_FLAGS)

.PHONY: stop
stop: ## Stop what `make run` started, and remove it
	@test -x bin/sluice-lab || $(MAKE) build-lab
	@bin/sluice down --dir '$(DIR)'

# Where `make install` puts the command line.
PREFIX ?= $(HOME)/.local
BINDIR ?= $(PREFIX)/bin

# The folder into which `make build-cli` builds sluice, for GOOS and GOARCH.
CLI_DIR ?= bin

.PHONY: build-cli
build-cli:
	CGO_ENABLED=0 go build $(BUILD_FLAGS) -ldflags '$(LDFLAGS)' -o '$(CLI_DIR)/' ./cmd/sluice

.PHONY: install
install: build-cli ## Install sluice, `kubectl sluice` and its completion into BINDIR
	install -d '$(DESTDIR)$(BINDIR)'
	install -m 755 bin/sluice cmd/sluice/completion/kubectl_complete-sluice '$(DESTDIR)$(BINDIR)/'
	ln -sf sluice '$(DESTDIR)$(BINDIR)/kubectl-sluice'
	@echo "Installed sluice, kubectl-sluice and kubectl_complete-sluice into $(DESTDIR)$(BINDIR)"

##@ Develop

# The agent loads NVIDIA's library through C at run time. The build needs neither header nor driver.
define build-agent
	CGO_ENABLED=1 go build $(BUILD_FLAGS) -ldflags '$(LDFLAGS) -extldflags=-Wl,--build-id=none' -o bin/ ./cmd/gpuagent
endef

# What a release has.
.PHONY: build-release
build-release:
	CGO_ENABLED=0 go build $(BUILD_FLAGS) -ldflags '$(LDFLAGS)' -o bin/ $(patsubst %,./cmd/%,$(filter-out gpuagent,$(COMMANDS)))
	$(build-agent)

.PHONY: build
build: build-release ## Build the binaries into bin/
	$(WORKSPACE) CGO_ENABLED=0 go build $(BUILD_FLAGS) -ldflags '$(LDFLAGS)' -o bin/ ./test/lab/cmd/sluice-lab ./test/lab/cmd/sluice-lab-gpuagent

# What `make run` needs: Sluice but for the agent, the lab with an agent of its own, and the embedded Kubernetes, with one progress.
.PHONY: build-lab
build-lab:
	@test -x bin/sluice-lab || echo "Building Sluice and Kubernetes. The first time this takes about twelve minutes on two quiet cores."
	@CGO_ENABLED=0 go run -C test/lab ./cmd/build -ldflags '$(LDFLAGS)'

.PHONY: build-tests
build-tests: build-lab
	$(build-agent)
	@bin/sluice-lab programs

.PHONY: sbom
sbom: build-release $(CYCLONEDX) ## Write the bill of materials of each binary, CycloneDX, into bin/sbom/
	@mkdir -p bin/sbom
	for binary in $(COMMANDS); do \
	  $(CYCLONEDX) bin -json -noserial -notimestamp -version '$(VERSION)' -output bin/sbom/$$binary.cdx.json bin/$$binary; \
	done

# Only a test that hangs needs this limit: with empty caches, on a busy machine, the tests of a package take hours.
TEST_TIMEOUT := 6h
# `make verify` vets. Debug information would only slow down linking. Without paths of this folder, another clone has the compiled packages
# in Go's cache already.
# Two packages more than processors at a time: test/e2e mostly waits, and so does one of the others.
TEST_FLAGS = -p $$(($$(getconf _NPROCESSORS_ONLN) + 2)) -timeout $(TEST_TIMEOUT) -vet=off -trimpath -ldflags=-w
# -v in ARGS shows each test's output; else one line a package, and failures.
TEST_FORMAT = $(if $(filter -v,$(ARGS)),standard-verbose,pkgname)

.PHONY: release
release: ## Write the files of a release into dist/; needs VERSION, and IMAGES, the registry of the images
	@VERSION='$(VERSION)' COMMIT='$(COMMIT)' IMAGES='$(IMAGES)' .ci/release-files

# The tests use what `make build` has just built, and do not build it again.
test test-all hostile disrupt soak bench: export SLUICE_BIN := $(CURDIR)/bin

# A test that fails is run again once, unless more than five fail. The last lines name those that passed only then.
RERUN_FLAGS = $(if $(filter -failfast,$(ARGS)),,--rerun-fails=1 --rerun-fails-max-failures=5 --rerun-fails-run-root-test)
# A cached result of a test that was run again would hide its failure.
COUNT_FLAG = $(if $(filter -count -count=%,$(ARGS)),,-count=1)
# test/e2e comes first: it takes longest and mostly waits, so that the others run beside it. Less is collected, which took a quarter of the time.
define run-tests
	@rm -f bin/test.json; status=0; \
	$(WORKSPACE) GOGC=$${GOGC:-400} $(GOTESTSUM) --format $(TEST_FORMAT) --jsonfile bin/test.json $(RERUN_FLAGS) --packages "$(PKG)" -- $(TEST_FLAGS) $(COUNT_FLAG) $(ARGS) || status=$$?; \
	echo; echo "The ten slowest tests:"; $(GOTESTSUM) tool slowest --jsonfile bin/test.json --num 10; \
	go run ./test/flaky bin/test.json || status=1; exit $$status
endef

.PHONY: test
test: PKG ?= ./test/e2e $(filter-out $(LATER_PACKAGES:%=sluice.dev/%) $(LATER_PACKAGES:%=sluice.dev/%/%),$(shell $(WORKSPACE) go list ./... ./test/lab/...))
test: build-tests $(GOTESTSUM) ## Test the packages, and one pass for each data path and each role; PKG= and ARGS= narrow it
	@$(WORKSPACE) go list ./... ./test/lab/... >/dev/null # else a package with an error would leave PKG empty
	@$(WORKSPACE) .ci/announce-test test $(PKG)
	bin/sluice-lab programs promtool >/dev/null
	$(run-tests)

.PHONY: test-all
test-all: export SLUICE_TESTS := all
test-all: PKG ?= ./test/e2e ./... ./test/lab/...
test-all: build-tests $(GOTESTSUM) ## Run all tests; PKG= and ARGS= narrow them
	@$(WORKSPACE) .ci/announce-test test-all $(PKG)
	bin/sluice-lab programs kueue helm prometheus promtool >/dev/null
	go test -C test/bench -timeout $(TEST_TIMEOUT) ./...
	go test -C test/images -timeout $(TEST_TIMEOUT) ./...
	$(run-tests)

# How long `make hostile` sends random requests and pods that do not fit, and how often it runs the race for a project's limit.
HOSTILE_DURATION ?= 10m
RACES ?= 100

.PHONY: hostile
hostile: build-tests ## Attack Sluice: all attacks, ten minutes of random requests and of conflicts, a hundred races
	bin/sluice-lab programs kueue >/dev/null
	SLUICE_HOSTILE_DURATION=$(HOSTILE_DURATION) go test ./test/e2e/hostile -count 1 -timeout 2h -v $(ARGS)
	go test ./test/e2e -run '^TestLimitHoldsUnderConflicts$$' -quota-conflict-time $(HOSTILE_DURATION) -count 1 -timeout 8h -v $(ARGS)
	go test ./test/e2e -run '^TestQuotaRace$$' -quota-race-rounds $(RACES) -count 1 -timeout 8h $(ARGS)

.PHONY: disrupt
disrupt: DURATION ?= 5m
disrupt: build-tests ## Disrupt what admits pods and ends work, under load; five minutes each, or DURATION=
	go test ./test/e2e -run '^Test(Disruptions|LeaderKilled)$$' -disruption-time $(DURATION) -count 1 -timeout 24h -v $(ARGS)

.PHONY: soak
soak: DURATION ?= 15m
soak: build-tests ## Load a cluster steadily and watch memory and goroutines; fifteen minutes, or DURATION=
	go test ./test/e2e -run '^TestSoak$$' -soak-time $(DURATION) -count 1 -timeout 240h -v $(ARGS)

.PHONY: bench
bench: PKG ?= ./test/e2e ./...
bench: build-tests ## Run the benchmarks
	go test -run '^$$' -bench . -benchmem -timeout 120m $(ARGS) $(PKG)
	go test -C test/bench -run '^$$' -bench . -benchtime 2s -timeout 30m $(ARGS)

.PHONY: generate
generate: generate-api generate-tables ## Generate deep copies, CRDs, reference pages, RBAC rules, tables and the chart

# The tests that write what is generated from tables in the code; without UPDATE they compare it. The chart comes last: it has the others'.
UPDATE ?= -update
.PHONY: generate-tables
generate-tables:
	go test ./lifecycle/timelimit/suspend ./lifecycle/tenancy/project ./webhook/workload ./policies/library -count=1 -run '^TestGenerated' $(UPDATE)
	go test ./policies/check -count=1 -run '^TestInputReference' $(UPDATE)
	go test ./manifests ./test/installation -count=1 -run '^TestGenerated' $(UPDATE)

.PHONY: generate-api
generate-api: $(CONTROLLER_GEN) $(CRD_REF_DOCS)
	$(CONTROLLER_GEN) object:headerFile=api/header.txt paths=./api/...
	rm -rf api/v1alpha1/applyconfiguration
	$(CONTROLLER_GEN) applyconfiguration:headerFile=api/header.txt paths=./api/v1alpha1
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=manifests/crds
	$(CRD_REF_DOCS) --log-level=ERROR --source-path=./api/v1alpha1 --config=.ci/reference/config.yaml --templates-dir=.ci/reference --renderer=markdown --output-path=docs/reference/api.md

.PHONY: mails
mails: ## Write all mails, in both languages, into one page: bin/mails.html
	@mkdir -p bin
	CGO_ENABLED=0 go run -trimpath ./cmd/sluice notices preview --all --out bin/mails.html

.PHONY: format
format: $(LINT) ## Format the code
	$(LINT) fmt

.PHONY: verify
verify: verify-tidy verify-generated verify-lint verify-imports verify-licenses ## Check format, vet, linters, generated files, go.mod, import rules and licenses

.PHONY: verify-lint
verify-lint: $(LINT)
	go vet ./...
	@# People have the command line on macOS, too.
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go build -trimpath -o /dev/null ./cmd/sluice
	$(LINT) fmt --diff
	$(LINT) run --allow-parallel-runners
	for module in test/lab test/bench; do (cd $$module && go vet ./... && '$(CURDIR)/$(LINT)' fmt --diff && '$(CURDIR)/$(LINT)' run --allow-parallel-runners ./...); done

.PHONY: verify-tidy
verify-tidy:
	go mod tidy -diff
	for module in test/lab test/lab/cluster/pins test/lab/cluster/pins/{kueue,helm,prometheus} test/bench test/images .ci/tools .ci/lint .ci/release; do (cd $$module && go mod tidy -diff && go mod verify >/dev/null); done

.PHONY: verify-generated
verify-generated: $(CONTROLLER_GEN) $(CRD_REF_DOCS)
	.ci/verify-generated

.PHONY: verify-imports
verify-imports:
	go test ./test/house

# The licenses of what the binaries contain. Each of them permits distribution under the Apache License 2.0.
ALLOWED_LICENSES := Apache-2.0,BSD-2-Clause,BSD-3-Clause,ISC,MIT

.PHONY: verify-licenses
verify-licenses: $(LICENSES)
	@# Its warnings are about assembler and C files, which belong to the packages that it checks.
	$(LICENSES) check ./cmd/... --ignore sluice.dev --allowed_licenses=$(ALLOWED_LICENSES) --logtostderr=false --log_file=/dev/null

.PHONY: vuln
vuln: $(VULNCHECK) ## Search the binaries' dependencies for known vulnerabilities; needs vuln.go.dev
	$(VULNCHECK) ./cmd/...

$(LINT): .ci/lint/go.mod .ci/lint/go.sum
	@echo "building golangci-lint (about two minutes, once)"
	go build -C .ci/lint -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(CONTROLLER_GEN): .ci/tools/go.mod .ci/tools/go.sum
	go build -C .ci/tools -o ../../$@ sigs.k8s.io/controller-tools/cmd/controller-gen
	@touch $@

$(CRD_REF_DOCS): .ci/tools/go.mod .ci/tools/go.sum
	go build -C .ci/tools -o ../../$@ github.com/elastic/crd-ref-docs
	@touch $@

$(GOTESTSUM): .ci/tools/go.mod .ci/tools/go.sum
	go build -C .ci/tools -o ../../$@ gotest.tools/gotestsum
	@touch $@

$(CYCLONEDX): .ci/release/go.mod .ci/release/go.sum
	go build -C .ci/release -o ../../$@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
	@touch $@

$(LICENSES): .ci/release/go.mod .ci/release/go.sum
	go build -C .ci/release -o ../../$@ github.com/google/go-licenses
	@touch $@

$(VULNCHECK): .ci/release/go.mod .ci/release/go.sum
	go build -C .ci/release -o ../../$@ golang.org/x/vuln/cmd/govulncheck
	@touch $@
