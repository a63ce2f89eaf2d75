SHELL := /bin/bash
GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
CACHE := $(or $(RELINK_CACHE_DIR),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/relink)

# The release's programs, each by its package.
PROGRAMS := relink=./cmd/relink relink-macvlan=./plugins/main/macvlan relink-vlan=./plugins/main/vlan \
	relink-ipam=./plugins/ipam/relink relink-checkpoint=./plugins/meta/checkpoint
LDFLAGS := -s -w -X github.com/relink-cni/relink/pkg/cniplugin.Version=$(VERSION)

.PHONY: build demo test fuzz lint bench install setup

build:  ## static, trimmed programs in bin/
	@for p in $(PROGRAMS); do \
		echo "build bin/$${p%%=*}"; \
		CGO_ENABLED=0 $(GO) build -trimpath -ldflags='$(LDFLAGS)' -o bin/$${p%%=*} $${p#*=} || exit 1; \
	done

install: build  ## into PREFIX/sbin and CNI_BIN
	install -D -m 0755 bin/relink $(DESTDIR)$(or $(PREFIX),/usr/local)/sbin/relink
	install -D -m 0755 -t $(DESTDIR)$(or $(CNI_BIN),/opt/cni/bin) bin/relink-macvlan bin/relink-vlan bin/relink-ipam bin/relink-checkpoint

setup:
	@hack/setup

demo: setup  ## the main job, shown in the test machine
	@hack/setup vm
	@$(GO) run ./test/demo

test: setup  ## all tests: unit and namespaces under the race detector, then the test machine
	@hack/setup vm
	$(GO) test -race $$($(GO) list ./... | grep -v /test/)
	@$(MAKE) --no-print-directory fuzz
	$(GO) -C test/crash test -race -timeout 30m  # In its directory: go shows what it counts.
	$(GO) test -p 1 -timeout 60m $$($(GO) list ./test/... | grep -v /test/crash)

# What reads hostile input, each for a minute at least, two at a time.
FUZZED := FuzzDecode=./checkpoint FuzzParse=./checkpoint/netfix FuzzParse=./plugins/main/macvlan FuzzParse=./plugins/main/vlan \
	FuzzParse=./pkg/ipam FuzzParseHostLocal=./pkg/ipam FuzzParseProbeAnswer=./pkg/kernel

fuzz:  ## a part of test
	@printf '%s\n' $(FUZZED) | GO=$(GO) xargs -P 2 -I{} hack/fuzz {} $(or $(FUZZSECONDS),60)

lint: setup
	@hack/setup lint
	$(CACHE)/tools/golangci-lint run ./...
	shellcheck -e SC2187 hack/setup hack/fuzz .ci/run $$(git ls-files '*.sh')

bench: setup  ## beside the peers, in one run; docs/benchmarks.md
	$(GO) run ./test/bench
