# SPDX-License-Identifier: Apache-2.0
#
# The two that matter: `make run` builds caisson and does the main job on real
# input; `make test` passes the tests. `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

VERSION ?= $(shell git describe --tags --match 'v*' --dirty 2>/dev/null || echo v0.0.0-dev+$$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown))
MODULE := github.com/caisson-run/caisson
LDFLAGS := -s -w -X $(MODULE)/internal/cli.version=$(VERSION)

# caisson is one static binary: nothing is built with cgo but the race detector.
export CGO_ENABLED := 0
# What is built knows no directory: another clone of the same source finds it in Go's
# caches, and what vet, staticcheck and test-race have said of it.
export GOFLAGS := $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath

# Packages that link gVisor's sentry: the race detector makes them minutes slower
# to compile and to run. And those that start sandboxes, in which a binary built
# with cgo finds no dynamic linker, or make system calls in all threads, as a router
# does and only a binary without cgo can. They are tested without it.
HEAVY := $(wildcard *.go) $(wildcard cmd/*/*.go) $(wildcard sandbox/process/*.go) $(wildcard sandbox/microvm/*.go) $(wildcard sandbox/gvisor/*.go) $(wildcard sandbox/gvisor/*/*.go) $(wildcard sandbox/gvisor/*/*/*.go) $(wildcard internal/tools/bench/*.go) $(wildcard attack/*.go) $(wildcard egress/*.go) $(wildcard egress/router/*.go) $(wildcard internal/roadtest/*.go) $(wildcard internal/linux/threads/*.go)
# Those that take longest are begun first.
LONGEST := ./sandbox/gvisor ./attack ./sandbox/process ./internal/roadtest
HEAVY_PACKAGES = $(LONGEST) $(filter-out $(LONGEST),$(addprefix ./,$(sort $(patsubst %/,%,$(dir $(HEAVY))))))
# The parts of the gVisor level, whose own tests start no sandbox: what those said of the same source is
# kept, as with the race detector, and they are not linked again.
KEPT_PACKAGES = $(filter ./sandbox/gvisor/%,$(HEAVY_PACKAGES))
# Its machines carry the agent of a build: what a test binary would be as one is too large.
VM_PACKAGE := ./sandbox/microvm
LIGHT_PACKAGES = $(filter-out $(HEAVY_PACKAGES:./%=$(MODULE)/%) $(MODULE),$(shell go list ./...))

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

## Build and run

.PHONY: build
build: ## bin/caisson, static and stripped
	@mkdir -p bin
	$(call build_caisson,$(shell go env GOARCH),bin/caisson)

# build_caisson ARCH OUTPUT: what runs inside (the agent), around a gVisor sandbox
# (the engine) and at the other end of a network (the router) is built first,
# slim, and embedded; a plain `go install` does without and is all of them itself.
# No time or commit is stamped on them: another commit of the same code has the
# same engine.
GUEST := guest/caisson-guest
ENGINE := internal/linux/engine/caisson-engine
ROUTER := internal/linux/engine/caisson-router
define build_caisson
	GOOS=linux GOARCH=$(1) go build -ldflags '-s -w' -o .cache/engine/$(1)-guest ./cmd/caisson-guest
	go run ./internal/tools/pack quick .cache/engine/$(1)-guest $(GUEST)
	GOOS=linux GOARCH=$(1) go build -buildvcs=false -ldflags '-s -w' -o .cache/engine/$(1) ./cmd/caisson-engine
	GOOS=linux GOARCH=$(1) go build -buildvcs=false -ldflags '-s -w' -o .cache/engine/$(1)-router ./cmd/caisson-router
	go run ./internal/tools/pack program .cache/engine/$(1) $(ENGINE)
	go run ./internal/tools/pack program .cache/engine/$(1)-router $(ROUTER)
	GOOS=linux GOARCH=$(1) go build -tags embedguest,embedengine -ldflags '$(LDFLAGS)' -o $(2) ./cmd/caisson
endef

EXAMPLE := examples/data-analysis

.PHONY: run
run: build ## build, then run real code on real data behind gVisor
	@.ci/need python3
	bin/caisson run --mount $(EXAMPLE)/data.csv $(EXAMPLE)/analyse.py data.csv

## Tests

TEST_PACKAGES := python3 python3-pip curl e2fsprogs iproute2 util-linux procps \
	python3-ipython python3-ipykernel python3-pandas python3-matplotlib python3-pil

# go test does not judge again what make lint has judged, and links without what
# debuggers want: a third of the time that goes by before a test begins.
GOTEST := go test -vet=off -ldflags=-w

# Two suites at a time: each of them waits a lot, for limits, for sandboxes to end,
# for an engine. The limits of go test's own time are for what hangs: they are no
# measure of a busy machine.
.PHONY: test
test: ## everything that must pass before a change lands; says what it installs
	@.ci/need $(TEST_PACKAGES) qemu-system-x86 kmod $(if $(filter 0,$(shell id -u)),docker.io)
	@.ci/node >/dev/null
	@$(MAKE) --no-print-directory lint build
	@$(MAKE) --no-print-directory -j2 -o build test-heavy test-race test-scripts test-docker test-e2b E2B_TESTS=-short

.PHONY: lint
lint:
	@echo '== gofmt'
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "gofmt -w $$bad"; exit 1; }
	@echo '== go vet'
	@go vet ./...
	@echo '== staticcheck'
	@go tool staticcheck ./...

# What was built with the race detector waits a second before it ends, unless told not to.
.PHONY: test-race
test-race: # unit tests with the race detector, the only thing built with cgo
	@echo '== unit tests, race detector'
	@CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 .ci/ram $(GOTEST) -race -timeout 20m -skip '^TestScripts$$' $(LIGHT_PACKAGES)

# What `make test` leaves out of the escape suite's own tests: that with one protection
# out, wider rules of policy, a second caisson, noisy neighbours and a level where
# nothing holds its cases turn red is four minutes. The process level's own test of
# that stays, and so does the suite on all levels. `make test-attack` leaves nothing out.
ATTACK_LATER := TestWith(ProtectionsOut|WiderNetwork|HostsNetwork|WeakerPolicy)|TestWeakSecondCaisson|TestNoisyNeighbours|TestNothingHolds
# Forty real sandboxes, for a row of `make bench`: `make test-many` has it.
BENCH_LATER := TestEmbeddingRow

.PHONY: test-attack
test-attack: build ## the escape suite against every level and every weakened one
	@CAISSON=$(CURDIR)/bin/caisson go test -count=1 -timeout 20m ./attack

.PHONY: test-heavy
test-heavy: build # architecture, conformance of the levels and the escape suite as root and as uid 65534
	@echo '== architecture, conformance, escape suite'
	@CAISSON=$(CURDIR)/bin/caisson .ci/disk $(GOTEST) -short -count=1 -timeout 20m -skip '^($(ATTACK_LATER)|$(BENCH_LATER))$$' $(filter-out $(KEPT_PACKAGES) $(VM_PACKAGE),$(HEAVY_PACKAGES))
	@$(GOTEST) -short -timeout 20m $(KEPT_PACKAGES)
	@CAISSON_GUEST_KERNEL=$$(.ci/guest-kernel) .ci/disk $(GOTEST) -tags embedguest,embedengine -short -count=1 -timeout 20m $(VM_PACKAGE)

# A process for each line: minutes with the race detector. Root runs all scripts with
# the built caisson. On the fake level run those that expect something else there, as
# an ordinary user those in which it matters who starts a sandbox; make test-users
# runs all on both.
FAKE_SCRIPTS = ^TestScripts$$/^($(shell grep -lE '^\[!real\] (! )?(exec|stdout|stderr)' testdata/script/*.txtar | sed -E 's,.*/(.*)\.txtar,\1,' | paste -sd '|'))$$
USER_SCRIPTS := ^TestScripts$$/^(collect|doctor|exit|image|killed|limit|mount|network|process|programs|run|sandbox|serve|stream|toolchain|tty|workspace)$$
# Linked once for all who run scripts.
SCRIPTS := $(CURDIR)/.cache/scripts.test
.PHONY: $(SCRIPTS)
$(SCRIPTS):
	@$(GOTEST) -c -o $@ ./internal/cli

.PHONY: test-scripts
test-scripts: build $(SCRIPTS) # scripts of the CLI on the fake level, and with the built caisson on gVisor
	@echo '== command line'
	@cd internal/cli && ../../.ci/ram $(SCRIPTS) -test.timeout 20m -test.run '$(FAKE_SCRIPTS)'
	@CAISSON_GUEST_KERNEL=$$(.ci/guest-kernel) .ci/disk .ci/scripts $(SCRIPTS) '$(USER_SCRIPTS)'

# What `make test` leaves out of the Docker level: a container takes a third of a
# second to half a second, the agent's own chapters are tried on other levels, and
# an ordinary user's container differs in its mounts; Podman and gVisor's runtime take
# four minutes more each.
# `make test-docker-all` leaves nothing out.
DOCKER_LATER := OnPodman|^TestConformanceOnRunsc|^TestRunscWithoutGroups$$|^TestConformanceAsNobody$$|^TestWithOneProtectionOut$$|^TestQuotas|^TestConformance$$/^(Stdio|Exit|Signals|Terminal)$$

.PHONY: test-docker
test-docker: build $(SCRIPTS) # the Docker level against a real engine, which needs root
	@echo '== Docker level'
	@if [ "$$(id -u)" = 0 ]; then .ci/need docker.io && cd internal/cli && \
		CAISSON_TEST_BINARY=$(CURDIR)/bin/caisson CAISSON_TEST_ENGINE=yes $(SCRIPTS) -test.timeout 10m -test.run '^TestScripts$$/^docker$$'; fi
	@$(GOTEST) -count=1 -timeout $(if $(DOCKER_LATER),20m -skip '$(DOCKER_LATER)',60m) ./sandbox/docker

.PHONY: test-docker-all
test-docker-all: ## the Docker level's whole suite on Docker, on Podman and with a stock runsc, as root and as an ordinary user
	@if [ "$$(id -u)" = 0 ]; then .ci/need podman runc; fi
	@$(MAKE) --no-print-directory test-docker DOCKER_LATER=
	@if [ "$$(id -u)" = 0 ]; then CAISSON_TEST_ENGINE=yes $(MAKE) --no-print-directory test-e2b E2B_RUN='^TestDocker$$$$'; fi
	@if [ "$$(id -u)" = 0 ]; then CAISSON_TEST_ENGINE=yes go test -count=1 -timeout 10m -run '^Test(DeclaredRequests|Template)$$/^docker' ./internal/roadtest; fi

# No registry that tests can reach has Kata Containers, so this is for who has them:
# KATA is an engine whose runtime "kata" they are. Where processors are emulated
# V2_SLOW=5 makes the clocks of the suite slower, and those of Kata stay: fewer virtual
# machines than eight may start there in time (KATA_FLAGS='-together 2'). With
# CAISSON_LEVELS=- a run prints what it sees, for make levels-by-hand.
KATA ?= unix:///var/run/docker.sock
KATA_RUN ?= ^TestConformanceOnKata$$
.PHONY: test-kata levels-by-hand
test-kata: ## the conformance suite on docker:kata, with an engine that has Kata Containers: KATA=unix:///var/run/docker.sock
	@CAISSON_TEST_KATA='$(KATA)' go test -count=1 -v -timeout 90m -run '$(KATA_RUN)' ./sandbox/docker $(KATA_FLAGS)

levels-by-hand: # a column of docs/levels.md that make test does not make, of what as many runs with CAISSON_LEVELS=- as are in LOG have printed; ON says on what
	@go test -count=1 -run '^TestTable$$' ./sandbox/drivertest -gather '$(abspath $(LOG))' -by-hand '$(ON)'
	@go test -count=1 -run '^TestTable$$' ./sandbox/drivertest -update

# What the conformance suite sees becomes docs/levels.md. The columns of cgroup v2
# are written by CAISSON_LEVELS=DIR make conformance-v2.
.PHONY: levels
levels: ## docs/levels.md anew: level by clause, as the conformance suite sees it
	@CAISSON_LEVELS=$(CURDIR)/sandbox/drivertest/levels go test -count=1 -timeout 60m -run '^TestConformance' $(CONFORMANCE)
	@go test -count=1 -run '^TestTable$$' ./sandbox/drivertest -update

CONFORMANCE = $(addprefix ./,$(patsubst %/,%,$(dir $(wildcard sandbox/*/conformance_test.go))))

# What others build on E2B's client wants a newer Node.js, and 125 MB: not in make test.
E2B_RUN := ^Test(SDK|Interpreter|Frameworks|Examples|TemplateClient|HeaderRules|HTTPBin)$$
.PHONY: test-e2b
test-e2b: build ## E2B's official clients, and what others build on them, against caisson serve
	@echo '== E2B clients'
	@node=$$($(if $(E2B_TESTS),,CAISSON_TEST_NODE=22) .ci/node); export PATH="$$node:$$PATH"; \
		for d in sdk interpreter $(if $(E2B_TESTS),,frameworks); do .ci/clients api/e2b/testdata/$$d; done; .ci/clients examples/agents; \
		CAISSON_TEST_BINARY=$(CURDIR)/bin/caisson $(GOTEST) -count=1 -timeout 30m -run '$(E2B_RUN)' $(E2B_TESTS) ./api/e2b

# Not in make test: a Node.js of its own and five minutes. The package's own tests
# speak with the same library at the other end.
.PHONY: test-mcp
test-mcp: build ## official MCP clients, servers and the conformance suite, with caisson mcp and its gateway
	@echo '== MCP clients and servers'
	@node=$$(CAISSON_TEST_NODE=22 .ci/node); export PATH="$$node:$$PATH"; \
		.ci/clients mcp/testdata/clients; \
		CAISSON_TEST_BINARY=$(CURDIR)/bin/caisson go test -count=1 -timeout 10m -run '^Test(Clients|ChangesOverMCP|Conformance|ConformanceOfServer)$$' $(MCP_TESTS) ./mcp

.PHONY: test-openai
test-openai: build ## OpenAI's official client against caisson serve, on gVisor
	@echo '== OpenAI client'
	@node=$$(CAISSON_TEST_NODE=22 .ci/node); export PATH="$$node:$$PATH"; \
		.ci/clients api/openai/testdata/sdk; \
		CAISSON_TEST_BINARY=$(CURDIR)/bin/caisson go test -count=1 -timeout 10m -run '^TestClient$$' ./api/openai

# 770 MB of agents: not in make test.
.PHONY: test-agents
test-agents: build ## Claude Code and Codex with a scripted model: calling tools of caisson mcp, and working in a sandbox
	@echo '== Agents'
	@node=$$(CAISSON_TEST_NODE=22 .ci/node); export PATH="$$node:$$PATH"; \
		.ci/clients mcp/testdata/agents; \
		export CAISSON_TEST_AGENTS=$(CURDIR)/mcp/testdata/agents CAISSON_TEST_BINARY=$(CURDIR)/bin/caisson; \
		go test -count=1 -timeout 10m -run '^TestAgents$$' ./mcp; \
		go test -count=1 -timeout 10m -run '^TestCodingAgents$$' ./internal/roadtest

# 400 MB of Debian packages: not in make test, which runs the quick recipes. Go, Rust and npm are used where they are.
.PHONY: test-recipes
test-recipes: build ## every command of docs/recipes, with a browser, databases and compilers
	@.ci/need chromium postgresql redis-server sqlite3 default-jdk-headless
	@node=$$(.ci/node); export PATH="$$node:$$PATH"; \
		CAISSON_TEST_RECIPES=1 CAISSON=$(CURDIR)/bin/caisson go test -count=1 -v -timeout 20m -run '^TestRecipes$$' .

.PHONY: test-vm
test-vm: build ## virtual machines: the conformance suite, hours where the processor is emulated; VM=REGEXP is a part
	@.ci/need qemu-system-x86 kmod
	@CAISSON_GUEST_KERNEL=$$(.ci/guest-kernel) V2_SLOW=3 go test -tags embedguest,embedengine -count=1 -v -timeout 6h -run '$(VM)' $(VM_PACKAGE)

.PHONY: test-v2
test-v2: $(if $(wildcard cmd/caisson),build) ## limits on a real cgroup v2 host: a small guest, plain and under systemd; V2=REGEXP is a part, V2_SUITE=trixie another Debian
	@.ci/need qemu-system-x86 erofs-utils mmdebstrap kmod xz-utils e2fsprogs zstd
	@go run ./internal/tools/v2guest test '$(V2)'

.PHONY: conformance-v2
conformance-v2: ## the conformance suite on an emulated cgroup v2 host, for a person to read: its clocks may be too slow; V2=tiny/root/gvisor/Network is a part, and what was seen is not tried again
	@.ci/need qemu-system-x86 erofs-utils mmdebstrap kmod xz-utils e2fsprogs zstd
	@go run ./internal/tools/v2guest conformance '$(V2)'

.PHONY: test-kills
test-kills: ## kill the owner of persistent sandboxes, 100 times, and a build in each of its phases
	@if [ "$$(id -u)" = 0 ]; then CAISSON_TEST_KILLS=100 go test -count=1 -timeout 60m -run '^TestKilled(Owner(LeavesSandboxes)?|Build)$$' ./internal/roadtest; fi

# What -short leaves out of test-heavy: chapters that are kept inside a sandbox, by
# its kernel and its agent, are tried as root alone, and so is the one-shot. And what
# FAKE_SCRIPTS and USER_SCRIPTS leave out.
.PHONY: test-users
test-users: build # the rest of the conformance suite, and all scripts, as uid 65534
	@$(MAKE) --no-print-directory test-scripts USER_SCRIPTS='^TestScripts$$$$' FAKE_SCRIPTS='^TestScripts$$$$'
	@$(GOTEST) -count=1 -timeout 20m -run '^TestConformanceAsNobody$$' ./sandbox/gvisor ./sandbox/process

.PHONY: test-all
test-all: test test-users test-attack test-docker-all test-kills test-e2b test-openai test-mcp test-agents test-recipes test-many test-soak test-v2 fuzz bench dist ## test, and all that is slow

.PHONY: test-many
test-many: # 200 sandboxes in a row on every level leave nothing, nor do 100 builds; every chapter on every road
	@if [ "$$(id -u)" = 0 ]; then .ci/need docker.io podman runc; fi
	@go test -count=1 -timeout 20m -run '^TestConformance/Lifetime/many' $(CONFORMANCE) -many=200
	@go test -count=1 -timeout 20m -run '^TestConformance/(Root|Image|Mounts|Masks|Refusals)' ./sandbox/process -all-roads
	@go test -count=1 -timeout 20m -run '^($(BENCH_LATER))$$' ./internal/tools/bench
	@CAISSON_TEST_BUILDS=100 go test -count=1 -timeout 20m -run '^TestBuildsInARow$$' ./internal/roadtest

.PHONY: test-soak
test-soak: # a hundred thousand connections through one router, 500 at once, leave nothing
	@go test -count=1 -timeout 15m -v -run '^TestManyConnections$$' ./egress/router -connections=100000 -at-once=500

.PHONY: fuzz
fuzz: ## every fuzz target, 10 s each; and 10 million lines with here-documents, read by bash and dash
	@.ci/fuzz 10s
	@go test -count=1 -timeout 12h -v -run '^TestHereDocuments$$' ./policy/shell -heredoc 10000000 -heredoc.seed "$$(date +%s)"

.PHONY: gvisor-next
gvisor-next: ## build and test against the newest gVisor that can be had
	@.ci/gvisor-next

# BENCH='-short -rows whole -o bench.md', for example
.PHONY: bench
bench: build ## medians and ratios against a stock runsc, and through E2B's client, as a table
	@go build -ldflags '-s -w' -o .cache/bench/bench ./internal/tools/bench
	@go build -tags embedguest,embedengine -ldflags '-s -w' -o .cache/bench/carrying ./internal/tools/bench
	@node=$$(.ci/node); export PATH="$$node:$$PATH"; \
		.ci/clients api/e2b/testdata/sdk; \
		.cache/bench/bench $(BENCH)

# SOAK='-soak 2m -idle 40', for a short one. 200 idle sandboxes want some 6 GB.
SOAK ?= -soak 10m -idle 200
.PHONY: bench-soak
bench-soak: build ## what many idle sandboxes cost, and what ten minutes of making and ending them leave
	@go build -ldflags '-s -w' -o .cache/bench/bench ./internal/tools/bench
	@.cache/bench/bench $(SOAK)

## Release

DIST_ARCHES := amd64 arm64

.PHONY: dist
dist: ## static binaries, packages and checksums for linux amd64 and arm64
	@rm -rf dist && mkdir -p dist
	@$(MAKE) --no-print-directory $(addprefix dist-,$(DIST_ARCHES))
	@cd dist && sha256sum *.tar.gz *.deb > SHA256SUMS && cat SHA256SUMS

.PHONY: $(addprefix dist-,$(DIST_ARCHES))
$(addprefix dist-,$(DIST_ARCHES)): dist-%:
	$(call build_caisson,$*,dist/caisson_linux_$*/caisson)
	@cp LICENSE $(wildcard README.md) dist/caisson_linux_$*/
	@tar -C dist --owner=0 --group=0 --numeric-owner --sort=name --mtime=@$(SOURCE_DATE) -czf dist/caisson_linux_$*.tar.gz caisson_linux_$*
	@go run ./internal/tools/pack deb -version '$(VERSION)' -arch $* -date $(SOURCE_DATE) -binary dist/caisson_linux_$*/caisson -out dist

# Archives are dated by the commit, so that the same source gives the same bytes.
SOURCE_DATE = $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

.PHONY: clean
clean: ## remove what was built; caches of the test guest stay in .cache
	rm -rf bin dist .cache/engine $(GUEST).zst $(ENGINE).zst $(ENGINE).txt $(ROUTER).zst $(ROUTER).txt
