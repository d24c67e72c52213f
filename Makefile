# Everything that is run on this repository has a target here. A line that ends
# in two hashes and a text is what `make help` shows.

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# Go runs things side by side by itself; two targets at once only mix their output.
.NOTPARALLEL:
.PHONY: help test fmt vet lint wire race cover fuzz bench crash chaos brief web proto tidy

GO       ?= go
# How long each fuzz target runs, which benchmarks run, how often `make crash`
# kills the process.
FUZZTIME ?= 10s
BENCH    ?= .
KILLS    ?= 200
# How long `make chaos` goes on, by which plan (0 makes one up and prints it), and how
# late a timer may be.
FOR      ?= 2m
SEED     ?= 0
LATE     ?= 2s
# A package whose tests take longer hangs, and its stacks are printed.
TIMEOUT  ?= 25m
# Each package of COVERED must have so many per cent of its statements covered.
COVERAGE ?= 85
COVERED  := . ./sqlite
PROFILE  := coverage.out

LINT      = $(GO) tool -modfile=tools/go.mod golangci-lint
# The gofmt of this Go, which need not be on the PATH.
GOFMT     = "$$($(GO) env GOROOT)/bin/gofmt" -s
GOFILES   = find . \( -name node_modules -o -name .git \) -prune -o -name '*.go' -print

help: ## show this
	@echo "usage: make TARGET"
	@echo
	@awk -F ':[^#]*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "variables: FUZZTIME=$(FUZZTIME) BENCH=$(BENCH) KILLS=$(KILLS) COVERAGE=$(COVERAGE)"
	@echo "With CI=true nothing is skipped: what cannot run fails."

test: fmt vet lint wire race cover crash brief web ## all that CI runs: format, vet, lint, tests under -race, coverage, kill -9, chaos, browser

fmt: ## check that every Go file is as gofmt wants it
	@bad=$$($(GOFILES) | xargs $(GOFMT) -l); \
	if [ -n "$$bad" ]; then echo "not formatted (make tidy mends it):"; echo "$$bad"; exit 1; fi

vet: ## go vet
	$(GO) vet ./...

lint: ## golangci-lint, built from tools/go.mod; .golangci.yml argues for each choice
	$(LINT) run

# The tests run once: the race detector and the coverage profile go together.
# Coverage counts what any test reaches, so that the root package is credited
# with what the tests of a store or an example make it do. -race needs a C
# compiler; find_cc gets one where it can.
race: ## all tests under the race detector; writes the coverage profile
	@$(find_cc); \
	coverpkg=$$($(GO) list $(COVERED) | paste -sd, -); \
	set -x; $(GO) test $$race -timeout=$(TIMEOUT) -covermode=atomic -coverpkg=$$coverpkg -coverprofile=$(PROFILE) ./...

cover: race ## run the tests and check the coverage of the root package and of sqlite
	@for pkg in $$($(GO) list $(COVERED)); do \
		awk -v pkg="$$pkg" -v floor=$(COVERAGE) "$$coverage" $(PROFILE) || low=1; \
	done; \
	test -z "$${low:-}"

fuzz: ## run each fuzz target for FUZZTIME
	@grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			(set -x; $(GO) test -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(FUZZTIME) "$$(dirname "$$file")"); \
		done; \
	done

bench: ## run the benchmarks that match BENCH
	$(GO) test -run='^$$' -bench='$(BENCH)' -benchmem ./...

crash: ## kill -9 a real process KILLS times; what was acknowledged must still be there
	BIDE_KILLS=$(KILLS) $(GO) test -v -count=1 -timeout=60m -run='^TestKillNine$$' .
	$(GO) test -count=1 -timeout=10m -run='^(TestKill|TestStore)' ./remote # whole; shorter under -race, as are these
	$(GO) test -count=1 -timeout=10m -run='^Test(OnPostgres|UnreliableStore|(Loop)?KilledAtEveryCommit|PollOneRecord|PollOverRandomServices)$$' .

chaos: ## break a cluster of real processes for FOR by the plan of SEED, and check what bide promises
	$(GO) run ./chaos -for $(FOR) -seed $(SEED) -late $(LATE)

brief: ## chaos for two minutes, with limits of time for a machine that has other things to do
	$(MAKE) chaos FOR=2m SEED=1 LATE=10s

wire: ## check that internal/wire is what proto/ makes
	@made=$$(mktemp -d); trap 'rm -rf "$$made"' EXIT; \
	(cd tools && $(GO) run ./proto ../proto "$$made" bide/v1/store.proto); \
	diff -r internal/wire "$$made" || { echo "internal/wire is not what proto/ makes: run make proto"; exit 1; }

# Each folder of WEB has the same three scripts: a clean install, tests, tests in a browser.
WEB := clients/typescript dashboard/web examples/storygen/web examples/livewall/web

web: ## tests of what runs in browsers, in node and in Chromium; installs both where it can
	@$(find_node); \
	for dir in $(WEB); do \
		(set -x; cd "$$dir"; npm ci --no-audit --no-fund && npm test && npm run browser); \
	done

proto: ## make internal/wire from proto/, with the plugins of tools/go.mod
	cd tools && $(GO) run ./proto ../proto ../internal/wire bide/v1/store.proto

tidy: ## format the code, tidy both go.mod files
	$(GOFILES) | xargs $(GOFMT) -w
	$(GO) mod tidy
	cd tools && $(GO) mod tidy

# find_cc sets $$race to -race if there is a C compiler, after trying to install
# one on Debian and its kin. Without one the tests still run, loudly less strict;
# in CI that is a failure.
define find_cc
race=-race; cc=$$($(GO) env CC | cut -d' ' -f1); \
if ! command -v "$$cc" >/dev/null && command -v apt-get >/dev/null; then \
	sudo=; [ "$$(id -u)" = 0 ] || sudo="sudo -n"; \
	echo "no C compiler ($$cc), which -race needs: installing gcc"; \
	{ $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends gcc libc6-dev; } || true; \
	cc=gcc; \
fi; \
if ! command -v "$$cc" >/dev/null; then \
	echo "no C compiler ($$cc): install the package gcc (and libc6-dev, musl-dev or glibc-devel)"; \
	if [ "$${CI:-}" = true ]; then echo "in CI nothing is skipped"; exit 1; fi; \
	echo "*** RUNNING WITHOUT THE RACE DETECTOR ***"; \
	race=; \
fi
endef

# find_node sees to it that there is a Node, after trying to install one on Debian
# and its kin. Without one the tests are left out, loudly; in CI that is a failure.
define find_node
if ! command -v npm >/dev/null && command -v apt-get >/dev/null; then \
	sudo=; [ "$$(id -u)" = 0 ] || sudo="sudo -n"; \
	echo "no Node, which the tests of the browser client need: installing it"; \
	{ $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends nodejs npm; } || true; \
fi; \
if ! command -v npm >/dev/null; then \
	echo "no Node: install the packages nodejs (20 or newer) and npm"; \
	if [ "$${CI:-}" = true ]; then echo "in CI nothing is skipped"; exit 1; fi; \
	echo "*** RUNNING WITHOUT THE TESTS OF WHAT RUNS IN BROWSERS ***"; exit 0; \
fi
endef

# coverage reads a profile, in which each test binary has its own count of every
# block: a block is covered if any of them reached it.
define coverage
NR > 1 {
	split($$1, at, ":"); dir = at[1]; sub(/\/[^\/]*$$/, "", dir)
	if (dir == pkg) { size[$$1] = $$2; if ($$3 > 0) hit[$$1] = 1 }
}
END {
	for (b in size) { all += size[b]; if (b in hit) covered += size[b] }
	share = all ? 100 * covered / all : 0
	low = share < floor
	printf "coverage %-36s %5.1f %% of %d statements%s\n", pkg, share, all, low ? sprintf(", needs %d %%", floor) : ""
	exit low
}
endef
export coverage
