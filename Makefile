# make up      everything on this machine: sets up, builds, starts, prints a link
# make test    what a change can break: Go with -race, Vitest, real browsers
# make test-unit  the Go tests that need no box of their own, which run in a box, too
# make check   what a change touches, in two minutes
# make proofs  what make test leaves out for its length: kills, power cuts, hostile trees and pages, cheats, packages that are installed, this repository in a computer
# make race    everybody over the same files, 500 rounds; every acknowledged version is found
# make large   a file of 1 GiB and a pack of 300 MiB through the binary, bit for bit
# make kills   kills at random, for CHAOS=10m, and fifty within one long task
# make chaos   kills at each point and at random, damage of each kind to each file, power cuts
# make attack  each attack with its defences off, with each alone, and with all on
SHELL := /bin/bash
# The guest runs in boxes that have no C library.
export CGO_ENABLED := 0
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# A program with the race detector sleeps for a second before it ends: each of 80
# test binaries, and each process that a test starts of itself.
export GORACE := atexit_sleep_ms=0
GO_SOURCES := $(shell git ls-files -co --exclude-standard '*.go' '*.sql' '*.toml' '*.tmpl' '*.json' 'console/*' go.mod go.sum 2>/dev/null | grep -v '^desktop/')
DESKTOP_SOURCES := $(shell git ls-files -co --exclude-standard desktop 2>/dev/null)

.PHONY: up build test test-go test-unit test-desktop test-browser proofs proofs-computers proofs-files proofs-keeper proofs-pages proofs-itself check attack chaos damage kills race large lint lint-go lint-desktop bench fmt generate

up: build
	@scripts/setup run
	bin/choir up

build: bin/choir

desktop/node_modules/.package-lock.json: desktop/package.json desktop/package-lock.json
	@scripts/setup run
	cd desktop && npm ci --no-audit --no-fund
	@touch $@

desktop/dist/index.html: desktop/node_modules/.package-lock.json $(DESKTOP_SOURCES)
	cd desktop && npm run build
	@touch $@

# The guest is a small binary of its own, carried inside choir (docs/adr/0021).
GUEST := internal/guest/image/payload/choir-guest.zst

$(GUEST): $(GO_SOURCES)
	go build -ldflags "-s -w" -o $(GUEST:.zst=) ./cmd/choir-guest
	go run ./internal/guest/image/pack $(GUEST:.zst=) $@

# So is what reads pages of the web (docs/adr/0391).
READER := internal/guest/image/payload/choir-reader.zst

$(READER): $(GO_SOURCES)
	go build -ldflags "-s -w" -o $(READER:.zst=) ./cmd/choir-reader
	go run ./internal/guest/image/pack $(READER:.zst=) $@

bin/choir: desktop/dist/index.html $(GUEST) $(READER) $(GO_SOURCES)
	go build -tags embedguest -ldflags "-s -w -X main.version=$(VERSION)" -o $@ ./cmd/choir

test:
	@scripts/setup test
	@start=$$(date +%s); $(MAKE) --no-print-directory test-all && echo "make test took $$(( $$(date +%s) - start )) s"

.PHONY: test-all
test-all: build test-desktop test-go test-browser

# Libraries that compute over what a call gives them, and take several times as long
# under the race detector: SQLite (C in translation), regular expressions, deflate, and
# what cuts large files. The linker may choose their instance of a generic function for
# others, which is not watched there; they hold slices.Sort and slices.Equal.
UNWATCHED := modernc.org/sqlite/lib regexp regexp/syntax compress/flate github.com/restic/chunker
RACE := -race $(foreach p,$(UNWATCHED),-gcflags=$(p)=-race=false)

# What make test leaves out, and make proofs runs: tests of whole computers, packages
# and pages that take long and prove something of the whole that few changes touch.
PROOFS := ^(TestALongTaskSurvivesKills|TestEachTaskCanBeSolved|TestOurTasksEndAsTheirCassettesSay|TestAnEvaluationLeavesNothing|TestHostileTrees|TestTheKeyIsNowhere|TestGoIsVerified|TestEveryCutOfAnAnswer|TestCheatsAreNotVerified|TestWhatLockFilesNameIsInstalledForChecks|TestComputersShareDependencies|TestAnAgentProgramOfNpm)$$
# The same of whole computers' files, and who gets at them: git, undo, edits and full disks.
FILE_PROOFS := ^(TestGit|TestGitOfTheComputersFilesAsAUser|TestGitGivesWhatVisibleRefsReach|TestAPushThatIsCutOff|TestWhatWasJustPushedIsEverywhere|TestEveryDoorOnAFullDiskAsAUser|TestEditsSurviveACrash|TestEditsDuringATaskSurvive|TestUndoUndoesWhateverWasLast|TestUndoTakesBackWhatACommandDidAlone|TestUndoPassesOverACommandThatOnlyRead|TestLargeFilesComeBack)$$
# The same of the keeper's engine and of runs: power cuts, kills and full disks over many instants.
KEEPER_PROOFS := ^(TestDeathAtEachEdge|TestDeathAfterEveryEvent|TestAPowerCutKeepsWhatWasRemovedAndMoved|TestKilledWithLargeFiles|TestAnEmptyFileThatWasPutStaysWhereverItIsMoved|TestWhatAFullDiskKeepsFromBeingWrittenIsSaidSo|TestWhatIsWrittenByHandAfterAPowerCutStays|TestAPushOntoAFullDisk|TestACopyAfterAPowerCutHoldsWhatWasRemovedAndMoved|TestAStartOnAFullDiskLeavesATornPut)$$
# And of all of it at once: this repository is built and tested in a computer.
ITSELF := ^TestChoirOSInChoirOS$$
PROOF_PAGES := attacks.test.mjs broken.test.mjs hostile.test.mjs hurt.test.mjs

# All of Go in one call, so that neither core waits for the other: whole computers wait a
# good deal, and beside them others are compiled and run. Packages begin in this order, two
# at a time; those that take longest come first. Damage is a part of chaos. make lint vets
# all of it, and go test would once more, with all it depends on.
LONGEST := ./test/e2e ./internal/workspace/keeper/engine ./test/attack ./bench ./internal/dispatch ./internal/sandbox/local ./internal/ledger ./internal/control

# A client of the Model Context Protocol that is not ours.
test/mcp/node_modules/.package-lock.json: test/mcp/package.json test/mcp/package-lock.json
	cd test/mcp && npm ci --no-audit --no-fund
	@touch $@

# An agent program that is not ours.
test/acp/node_modules/.package-lock.json: test/acp/package.json test/acp/package-lock.json
	cd test/acp && npm ci --no-audit --no-fund
	@touch $@

test-go: build test/mcp/node_modules/.package-lock.json test/acp/node_modules/.package-lock.json
	CGO_ENABLED=1 scripts/in-memory go test $(RACE) -vet=off -p 2 -timeout 25m -skip '$(PROOFS)|$(FILE_PROOFS)|$(KEEPER_PROOFS)|$(ITSELF)' $(LONGEST) $$(go list ./contract/... ./internal/... ./cmd/... ./console/... ./desktop/... ./docs/... ./bench/... ./eval/... ./test/... | grep -Ev '/test/(damage|chaos)$$')

# Five parts, of which CI runs one with each change, in turns (docs/adr/0451, 0486).
proofs: proofs-computers proofs-files proofs-keeper proofs-pages proofs-itself

proofs-computers: build test/acp/node_modules/.package-lock.json
	CGO_ENABLED=1 scripts/in-memory go test $(RACE) -vet=off -timeout 25m -run '$(PROOFS)' ./test/e2e ./eval ./internal/gateway

proofs-files: build
	CGO_ENABLED=1 scripts/in-memory go test $(RACE) -vet=off -timeout 25m -run '$(FILE_PROOFS)' ./test/e2e

proofs-keeper: build
	CGO_ENABLED=1 scripts/in-memory go test $(RACE) -vet=off -timeout 25m -run '$(KEEPER_PROOFS)' ./internal/workspace/keeper/engine ./internal/dispatch
	CGO_ENABLED=1 scripts/in-memory go test $(RACE) -vet=off -timeout 25m ./test/chaos

proofs-pages: build bin/cache/modelserver desktop/node_modules/.package-lock.json
	cd test/browser && ../../scripts/in-memory timeout --kill-after=20 1000 node --test --test-concurrency=2 --test-timeout=600000 $(PROOF_PAGES)
	$(MAKE) --no-print-directory damage

# It compiles and downloads gigabytes, so it is on the disk.
proofs-itself: build
	go test -count=1 -timeout 70m -run '$(ITSELF)' -v ./test/e2e

# What needs no box of its own: the tests of the packages, but for the driver's of boxes and the keeper's engine, which takes leases
# as only a keeper's box may. So they run in a box, too; what needs more than that has says so where it is skipped (docs/end-to-end.md).
GO_TEST ?= go test
test-unit:
	$(GO_TEST) -vet=off -timeout 20m -skip '$(PROOFS)|$(FILE_PROOFS)|$(KEEPER_PROOFS)' $$(go list ./contract/... ./internal/... ./cmd/... ./console/... ./desktop/... ./docs/... ./eval/... | grep -Ev '/internal/(sandbox/local|workspace/keeper/engine)$$')

test-desktop: desktop/node_modules/.package-lock.json
	cd desktop && npm test

bin/cache/modelserver: $(GO_SOURCES)
	go build -o $@ ./test/modelserver/cmd/modelserver

test-browser: build bin/cache/modelserver desktop/node_modules/.package-lock.json
	cd test/browser && ../../scripts/in-memory timeout --kill-after=20 1300 node --test --test-concurrency=3 --test-timeout=600000 $(filter-out $(PROOF_PAGES),$(notdir $(wildcard test/browser/*.test.mjs)))

check: $(GUEST) $(READER) desktop/node_modules/.package-lock.json
	@LONGEST='$(LONGEST)' scripts/check

# A build whose defences can be switched off (internal/defence); as root it
# tries everything as an ordinary user as well.
attack: desktop/dist/index.html
	go vet -tags defenceswitches ./internal/... ./test/attack
	set -o pipefail; go test -tags defenceswitches -count=1 -timeout 30m -run '^TestMatrix$$' -v ./test/attack | grep -v '^ *\(=== \|--- PASS\)'

# How long make chaos and make kills kill at random, and which tests of deaths make chaos runs.
CHAOS ?= 10m
CHAOS_RUN ?= .

# How large a file, in MiB, comes back whole through the binary.
LARGE_MB ?= 1024

large: build
	CHOIR_LARGE_MB=$(LARGE_MB) go test -count=1 -timeout 15m -run '^TestLargeFilesComeBack$$' -v ./test/e2e

chaos: build damage
	CHOIR_DEATHS=all go test -count=1 -timeout 20m -run '^(TestDeathAtEachEdge|TestDeathAfterEveryEvent|TestKilledAtEveryPoint)$$' ./internal/dispatch ./internal/workspace/keeper/engine
	CHOIR_CHAOS=$(CHAOS) CGO_ENABLED=1 go test $(RACE) -count=1 -timeout 40m -run '$(CHAOS_RUN)' -v ./test/chaos

damage: build
	go test -count=1 -timeout 12m ./test/damage

kills: build
	CHOIR_CHAOS=$(CHAOS) CGO_ENABLED=1 go test $(RACE) -count=1 -timeout 40m -run '^TestRandomKills$$' -v ./test/chaos
	go test -count=1 -timeout 10m -run '^TestALongTaskSurvivesKills$$' -v ./test/e2e

# How many rounds of puts, moves, removals, commands, publishes and restores over
# the same files, each with a kill.
RACE_ROUNDS ?= 500

race:
	CHOIR_RACE=$(RACE_ROUNDS) go test -count=1 -timeout 60m -run '^TestRaceOfEverybodyOverTheSameFiles$$' -v ./internal/workspace

lint: lint-go lint-desktop

lint-go:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'gofmt: run make fmt'; exit 1; }
	go vet ./...
	go tool -modfile=tools/go.mod staticcheck ./...
	go test -run '^TestThePageIsWhatIsDeclared$$' ./cmd/choir # else: make generate

lint-desktop: desktop/node_modules/.package-lock.json
	cd desktop && npm run lint && npm run typecheck

bench: build
	bin/choir bench --write docs/bench.md

fmt:
	gofmt -w $$(git ls-files '*.go')
	cd desktop && npm run fmt --if-present

generate:
	go generate ./...
