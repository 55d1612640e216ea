# The two a newcomer needs: make demo (or make run, on the real network) and make test. make help lists the rest.
GO      ?= go
LINT    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 30s
MINUTES ?= 10
PACKAGES ?= ./...
# git may be absent, or refuse a clone that another user owns: the program then names no commit.
VCS = $(shell git status >/dev/null 2>&1 && echo auto || echo false)

.DEFAULT_GOAL := build
.PHONY: help man build build-fdb fdb-test run demo test test-long race soak mutants lint fuzz bench bench-go dictionary release clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/millrace, bin/relaysim and bin/bench
	$(GO) build -buildvcs=$(VCS) -o bin/ ./cmd/...

build-fdb: ## the same with FoundationDB; needs its client package, 7.3 or later (docs/foundationdb.md)
	$(GO) build -buildvcs=$(VCS) -tags fdb -o bin/ ./cmd/...

fdb-test: ## on the cluster of MILLRACE_TEST_FDB_CLUSTER_FILE, or on private fdbserver processes; those that stop servers always on such
	$(GO) vet -tags fdb ./intern/... ./cmd/...
	$(GO) test -tags fdb -count=1 -timeout 15m ./intern/kv/fdbkv/...
	$(GO) test -tags fdb -count=1 -timeout 15m -run Foundation ./intern ./cmd/bench
	$(GO) test -tags fdb -count=1 -timeout 15m -run Foundation ./cmd/millrace

run: build ## the real relay, data in ./data, websocket on :6008
	./bin/millrace serve

demo: build ## a simulated relay and millrace on this machine, nothing else needed
	@./deploy/demo

test: ## the tests of PACKAGES, a few minutes; not those of test-long
	$(GO) test -count=1 -timeout 30m $(TESTFLAGS) $(PACKAGES)

test-long: ## kill -9 in mid-stream, long random schedules: the tests that MILLRACE_TEST_LONG changes
	tests=$$($(GO) run ./.ci/long) && MILLRACE_TEST_LONG=1 $(GO) test -count=1 -vet=off -timeout 30m -parallel 4 $(TESTFLAGS) $$tests

# Not those of tools and of packages without a goroutine, nor those of .ci/race-skip: they compute in
# one, or start one server after another.
race: ## the tests of PACKAGES with the race detector; some minutes
	$(GO) test -count=1 -race -vet=off -timeout 30m -skip "^Test($$(paste -sd '|' .ci/race-skip))" $(TESTFLAGS) $$($(GO) list $(PACKAGES) | grep -v -e /bench -e /relaysim -e /format -e /postings -e /filter -e translate/verify$$)

soak: ## kills, relay faults, failed writes by a random schedule for MINUTES; SEED repeats one, LINKS=1 has links in each round, VERIFY=1 verifies (docs/testing.md)
	MILLRACE_TEST_SOAK_LINKS=$(LINKS) MILLRACE_TEST_SOAK_VERIFY=$(VERIFY) MILLRACE_TEST_SOAK_SEED=$(SEED) MILLRACE_TEST_SOAK_MINUTES=$(MINUTES) $(GO) test -count=1 -timeout 0 -v $(TESTFLAGS) -run '^TestSoak$$' ./cmd/millrace

mutants: ## the wrong edits that tests must catch; PART=0 to 19 tries a twentieth of them (docs/testing.md)
	$(GO) run ./.ci/mutants -part $(or $(PART),-1)

lint: ## golangci-lint, which has go vet's checks
	$(GO) run $(LINT) run ./...

fuzz: ## every fuzz target for FUZZTIME each
	@bin=$$(mktemp) && trap 'rm -f "$$bin"' EXIT && cache=$$($(GO) env GOCACHE)/fuzz/millrace && \
	for p in $$(grep -rl --include='*_test.go' '^func Fuzz' * | xargs -n 1 dirname | sort -u); do \
	  $(GO) test -c -fuzz . -o "$$bin" ./$$p || exit 1; \
	  (cd $$p && for f in $$("$$bin" -test.list '^Fuzz'); do \
	    echo "$$p $$f"; "$$bin" -test.run '^$$' -test.fuzz "^$$f\$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 100x -test.fuzzcachedir "$$cache/$$p" || exit 1; \
	  done) || exit 1; \
	done

bench: ## what millrace is to reach, a table for each subject: whole processes; ten minutes, of which the first run takes two to build a log (docs/performance.md)
	$(GO) run ./cmd/bench ingest -only full,jetstream,quiet
	$(GO) run ./cmd/bench intern -only load -uris 2000000
	$(GO) run ./cmd/bench replay
	$(GO) run ./cmd/bench subscribers

bench-go: ## a Go benchmark per hot path
	$(GO) test -run '^$$' -bench . -benchmem ./...

dictionary: ## the built-in dictionary again, from ../shared/corpus; takes minutes
	$(GO) run ./dict/builtin -corpus ../shared/corpus -out dict/data/51001.zdict

release: ## bin/release: archives, .deb, .rpm, SBOMs and checksums for linux on amd64 and arm64, byte for byte the same each time
	@./deploy/package/release

man: build ## bin/man/man1/millrace.1 and completion scripts for bash, zsh and fish in bin/completions
	@mkdir -p bin/man/man1 bin/completions
	./bin/millrace man >bin/man/man1/millrace.1
	for shell in bash zsh fish; do ./bin/millrace completion $$shell >bin/completions/millrace.$$shell || exit 1; done

clean: ## removes what make made: programs, manual page, logs of the benchmarks; not ./data, the log and UIDs of make run
	rm -rf bin "$${XDG_CACHE_HOME:-$$HOME/.cache}/millrace-bench" "$$HOME/Library/Caches/millrace-bench"
	@if [ -d data ]; then echo "./data, the log and UIDs of make run, is still there: make distclean removes it too"; fi

distclean: clean ## the same, and ./data
	rm -rf data
