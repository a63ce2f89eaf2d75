SHELL := /bin/bash
GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
CACHE := $(or $(RELINK_CACHE_DIR),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/relink)
# Where hack/setup, too, looks for Go: first, what it has fetched because the system's is not enough.
export PATH := $(CACHE)/go/current/bin:$(PATH):/usr/local/go/bin
# What is compiled once serves the programs, the tests, the linter and all clones of the repository. Only the race detector needs cgo.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath

# The release's programs, each by its package.
PROGRAMS := relink=./cmd/relink relink-agent=./cmd/relink-agent kubectl-relink=./cmd/kubectl-relink relink-macvlan=./plugins/main/macvlan relink-vlan=./plugins/main/vlan \
	relink-ipam=./plugins/ipam/relink relink-checkpoint=./plugins/meta/checkpoint \
	relink-host-access=./plugins/meta/hostaccess
LDFLAGS := -s -w -X github.com/relink-cni/relink/pkg/cniplugin.Version=$(VERSION) -X main.version=$(VERSION)

.PHONY: build crds man deb krew demo demo-svg test test-long test-stories test-units test-plain test-crash test-fuzz test-properties test-cluster test-machine lint bench install setup

build:  ## static, trimmed programs in bin/
	@for p in $(PROGRAMS); do \
		echo "build bin/$${p%%=*}"; \
		$(GO) build -ldflags='$(LDFLAGS)' -o bin/$${p%%=*} $${p#*=} || exit 1; \
	done

man: build  ## manual pages, and completions of the command, in bin/man and bin/completion
	@rm -rf bin/man bin/completion && mkdir -p bin/completion
	$(GO) run -tags man -ldflags='$(LDFLAGS)' ./cmd/relink bin/man
	$(GO) run -tags man -ldflags='$(LDFLAGS)' ./cmd/relink-agent bin/man
	@for shell in bash zsh fish; do bin/relink completion $$shell >bin/completion/relink.$$shell || exit 1; done

install: build man  ## into PREFIX/sbin, PREFIX/share, PREFIX/lib/systemd and CNI_BIN
	install -D -m 0755 -t $(DESTDIR)$(or $(PREFIX),/usr/local)/sbin bin/relink bin/relink-agent
	install -d $(DESTDIR)$(or $(PREFIX),/usr/local)/lib/systemd/system
	sed 's,/usr/local/sbin,$(or $(PREFIX),/usr/local)/sbin,' deploy/systemd/relink-agent.service \
		>$(DESTDIR)$(or $(PREFIX),/usr/local)/lib/systemd/system/relink-agent.service
	install -D -m 0644 -t $(DESTDIR)$(or $(PREFIX),/usr/local)/lib/systemd/network deploy/network/00-relink.network
	install -D -m 0644 -t $(DESTDIR)/etc/NetworkManager/conf.d deploy/network/relink.conf
	install -D -m 0755 -t $(DESTDIR)$(or $(CNI_BIN),/opt/cni/bin) bin/relink-macvlan bin/relink-vlan bin/relink-ipam bin/relink-checkpoint bin/relink-host-access
	install -D -m 0644 -t $(DESTDIR)$(or $(PREFIX),/usr/local)/share/man/man8 bin/man/*.8
	install -D -m 0644 bin/completion/relink.bash $(DESTDIR)$(or $(PREFIX),/usr/local)/share/bash-completion/completions/relink
	install -D -m 0644 bin/completion/relink.zsh $(DESTDIR)$(or $(PREFIX),/usr/local)/share/zsh/site-functions/_relink
	install -D -m 0644 bin/completion/relink.fish $(DESTDIR)$(or $(PREFIX),/usr/local)/share/fish/vendor_completions.d/relink.fish

deb: build man  ## bin/relink_VERSION_amd64.deb
	SOURCE_DATE_EPOCH=$(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || echo 0)) hack/package $(VERSION) bin

krew:  ## bin/kubectl-relink_OS_ARCH.tar.gz, which deploy/krew/relink.yaml names
	@for p in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do \
		dir=bin/krew/$$p; rm -rf $$dir && mkdir -p $$dir && cp LICENSE deploy/krew/kubectl_complete-relink $$dir || exit 1; \
		GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -ldflags='$(LDFLAGS)' -o $$dir/kubectl-relink ./cmd/kubectl-relink || exit 1; \
		tar --owner=0 --group=0 -C $$dir -czf bin/kubectl-relink_$${p%/*}_$${p#*/}.tar.gz . || exit 1; \
	done

setup:
	@hack/setup

demo: setup  ## the main job, shown in the test machine
	@hack/setup vm
	@$(GO) run ./test/demo

demo-svg: setup  ## the demo's terminal as docs/images/demo.svg
	@hack/setup vm
	@$(GO) run ./test/demo -svg docs/images/demo.svg

# The parts of test, the one that takes longest first. Two run at once: with three, a slow machine is too busy for what waits
# only for so long. What a part prints comes when it ends. A part that fails does not end the others.
TESTS := test-stories test-cluster test-units test-machine test-crash test-plain $(if $(RELINK_LONG),test-fuzz test-properties)

test: setup  ## all that shows something, once: units, namespaces, kills, stories on a real NIC driver
	@hack/setup node
	@echo "$(words $(TESTS)) parts, two at a time; each prints when it ends: $(TESTS)"
	@rm -rf $(RELINK_EVENTS) && mkdir -p $(RELINK_EVENTS)
	@RELINK_PROGRAMS_BUILT= $(GO) run ./test/binaries/prepare || exit; \
		RELINK_PROGRAMS_BUILT=1 $(MAKE) --no-print-directory -k -j 2 -Otarget $(TESTS); status=$$?; \
		times >$(RELINK_EVENTS)/all; test/run.sh summary <$(RELINK_EVENTS)/all && exit $$status

test-long:  ## test, and more of the same: for every night, and before a release
	@RELINK_LONG=1 $(MAKE) --no-print-directory test FUZZSECONDS=$(or $(FUZZSECONDS),300)

# The linter vets all packages: make lint. No result is taken from go's cache: it knows neither the programs that a test runs
# nor the kernel.
export GO
# All that the tests tell.
export RELINK_EVENTS := $(CURDIR)/bin/tests
TEST := $(CURDIR)/test/run.sh part -vet=off -count=1 -ldflags='-s -w'

# The race detector makes tests two to thirty times slower. make test has it where packages start goroutines: it is of no use elsewhere. The
# commands start few, and call packages that have the detector in their own tests. make test-long has it for all.
RACED := $(if $(RELINK_LONG),./...,$(sort $(dir $(shell grep -rlE --include='*.go' --exclude='*_test.go' '^\s*go [a-z]|[.]Go\b|inparallel[.]' ./checkpoint ./pkg))))

# Of the packages with the detector, these start no goroutine and compute a lot.
PLAIN := TestTheWholeStateComesBack|TestEveryKindComesBack|TestDecodeOfEveryPrefixIsTorn|TestStoreDoesAsItsModel|TestAllIsGivenUpOnAFullDisk|TestIPAMScaling|TestExplore|TestExploreFindsFaults

# What only make test-long has. How a test machine runs a single command, how it ends, and what it has, takes many boots to show: the
# stories would fail if the machine did not work. To make a cluster of 5,000 pods takes a minute. That an address has one pod is shown by
# the explorer for the protocol, by the model for the store, by histories on a real API, and by kills at any time: these show it in other
# ways. The kills of a repair, and of a restore with names that have changed, are those of TestRestoreKilledAtEveryStep with other steps.
LATER := $(if $(RELINK_LONG),none,TestExitStatusOutputAndShare|TestMachineFailures|TestCancelEndsMachine|TestMachineEndsWithKilledParent|TestDealLeavesASpentMachine|TestDealGoesOn|TestRepairKilledAtEveryStep|TestRestoreThatMovesKilledAtEveryStep|TestRestoreOfARenamedParentKilledAtEveryStep|TestAgentInALargeCluster|TestChaos|TestClusterModel|TestIPAMScaling|TestIPAMScalingAtOnce)

# In their directories: go shows what they count. Three machines on two processors: each waits for half of its time.
test-stories:
	cd test/e2e && $(TEST) -parallel 3 -timeout 60m

# The programs that are killed are built without the race detector. With it, this is a test of the tests.
test-crash:
	cd test/crash && $(TEST) $(if $(RELINK_LONG),-race -timeout 4h -skip '^($(PLAIN))$$',-timeout 30m -skip '^($(LATER))$$')

# What has a go.mod of its own, so that its requirements are not the product's: ./... leaves it out.
MODULES := $(patsubst %/go.mod,%,$(wildcard */*/go.mod))

UNITS := $$($(GO) list ./... | grep -v /test/)

test-units test-properties $(if $(RELINK_LONG),test-crash): export CGO_ENABLED := 1

test-units:
	$(TEST) -race -timeout 30m -skip '^($(PLAIN)|$(LATER))$$' $$(comm -12 <($(GO) list $(RACED) | sort) <(printf '%s\n' $(UNITS) | sort))

test-plain:
	$(TEST) -timeout $(if $(RELINK_LONG),4h,30m) -skip '^($(LATER))$$' -run '^($(PLAIN))$$' ./checkpoint ./pkg/kernel $(if $(RELINK_LONG),./pkg/ipam/lease ./pkg/netstate ./pkg/pool ./test/crash)
	$(if $(RELINK_LONG),,$(TEST) -timeout 30m -skip '^($(LATER))$$' $$(comm -13 <($(GO) list $(RACED) | sort) <(printf '%s\n' $(UNITS) | sort)))

# What is drawn at random; test-units draws each 50 or 100 times. The leases' model is one of PLAIN.
PROPERTIES := -timeout 4h -v -rapid.checks=2000 \
	-run 'KilledAnywhereAndRunTwice|NeverLowers|AsItsModel|GoThroughAll|FirstThatIsFree|SizeCountsAll|IsTakenInIsFound|DecodedAsTheyWere|EmptyWhatever|OneFieldThatChanged'
test-properties:
	$(GO) test -race ./checkpoint/restore ./pkg/ipam/lease ./pkg/netstate $(PROPERTIES) -skip '^($(PLAIN))$$'
	$(GO) test ./pkg/ipam/lease $(PROPERTIES) -run '^($(PLAIN))$$'

# Most of its time, it waits for etcd's disk, and for what nodes and the API do at intervals. So it is a part of its own.
test-cluster:
	cd test/cluster && $(TEST) -timeout 60m -skip '^($(LATER))$$' ./...

test-machine:
	@$(TEST) -p 1 -timeout 60m -skip '^($(LATER))$$' $$($(GO) list ./test/... | grep -v -e /test/crash -e /test/e2e $(if $(RELINK_LONG),,-e /vm/guest$$)) || failed=1; \
		for m in $(filter-out test/cluster,$(MODULES)); do (cd $$m && $(TEST) -p 1 -timeout 60m ./...) || failed=1; done; [ -z "$$failed" ]

# What reads hostile input. Its seeds are a part of test-units.
FUZZED := FuzzDecode=./checkpoint FuzzParse=./checkpoint/capture/netfix FuzzMacvlan=./checkpoint/attach/netconf FuzzVLAN=./checkpoint/attach/netconf FuzzHostAccess=./checkpoint/attach/netconf FuzzRead=./checkpoint/validate \
	FuzzParse=./pkg/ipam FuzzDecodeLease=./pkg/ipam/lease FuzzParseHostLocal=./pkg/ipam/hostlocal FuzzParseWhereabouts=./pkg/ipam/whereabouts FuzzParseClaim=./pkg/kernel/internal/wire \
	FuzzEachAttribute=./pkg/kernel/internal/rtnl FuzzParseAnswer=./pkg/kernel

test-fuzz:  ## FUZZSECONDS each, at least
	@for f in $(FUZZED); do GO=$(GO) hack/fuzz $$f $(or $(FUZZSECONDS),1) || failed=1; done; [ -z "$$failed" ]

CRDS := $(GO) -C hack/tools tool controller-gen crd paths=./v1alpha1 output:crd:stdout

crds:  ## the kinds of shared pools for the API, from pkg/pool
	$(CRDS) >deploy/kubernetes/pools/crds.yaml

# The most that hack/count may count. A commit that raises a bound says why.
COUNTS := -tokens 428000 -odd 0.1

# These open a namespace by a path that somebody gives now, not by a recorded one.
GIVEN_PATHS := checkpoint/attach/plugin.go checkpoint/attach/del.go checkpoint/capture/import.go

lint: setup
	@hack/setup lint
	$(GO) run ./hack/count $(COUNTS)
	@for m in . $(MODULES); do echo "lint $$m"; (cd $$m && $(CACHE)/tools/golangci-lint run ./...) || failed=1; done; [ -z "$$failed" ]
	$(CRDS) | diff deploy/kubernetes/pools/crds.yaml - || { echo "run: make crds" >&2; exit 1; }
	@! git grep -nE '\.Same\([A-Za-z.]+\.Identity\(\)\)' -- '*.go' ':!pkg/kernel' || { echo 'compare a namespace by CheckSame'; false; }
	@! git grep -nE 'kernel\.Open\(' -- '*.go' ':!*_test.go' ':!test' $(GIVEN_PATHS:%=':!%') || { echo 'open a recorded namespace by kernel.OpenSame'; false; }
	shellcheck -e SC2187 hack/setup hack/fuzz hack/package deploy/krew/kubectl_complete-relink .ci/run $$(git ls-files '*.sh')

bench: setup  ## beside the peers, in one run: the tables of docs/benchmarks.md, and charts of them
	$(GO) -C test/bench run .
