# make help says what there is. Everything covers every module of go.work.

.DEFAULT_GOAL := help
.PHONY: help setup check test parity fuzz bench bench-packages bench-dynamo bench-lambda cover roundtrip terraform-names

# The packages of all modules of the workspace, as patterns.
packages = $$(go list -m -f '{{.Dir}}/...')

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## bring what the tests need (installs it on Debian as root; elsewhere says what is missing)
	@scripts/setup.sh

check: ## format, vet, tidy modules, staticcheck
	@scripts/check.sh

# testreport runs go test itself, so no pipe can swallow its exit code.
test: setup check ## everything: setup, check, and all tests with the race detector
	@go run ./internal/testreport go test -json -race -shuffle=on $(packages)
	go test -run='^$$' -fuzz='^FuzzLoad$$' -fuzztime=10s -fuzzminimizetime=1s ./policy

FUZZTIME ?= 10m

fuzz: ## random input for the loader of policies and the adapters of Lambda events, FUZZTIME each
	go test -run='^$$' -fuzz='^FuzzLoad$$' -fuzztime=$(FUZZTIME) -fuzzminimizetime=1s ./policy
	go test -run='^$$' -fuzz='^FuzzEvents$$' -fuzztime=$(FUZZTIME) -fuzzminimizetime=1s ./lambdalimit

# The number of keys up to which growth is measured; 10,000,000 take 5 GB.
GROWTH ?= 10000000

bench: setup ## weir beside its rivals and floors: one table, and docs/performance.md
	go test -run='^$$' -bench='^BenchmarkAll$$' -benchtime=1x -timeout=1h ./bench -args -docs=$(CURDIR)/docs -growth=$(GROWTH)

parity: setup ## 100,000 random steps on all four stores: no decision may differ, and foreign clients find the same
	WEIR_PARITY_STEPS=100000 go test -run='^TestStoresAgree$$' -count=1 -timeout=1h -v .

bench-packages: setup ## the benchmarks of every package
	go test -run='^$$' -bench=. -benchmem $$(go list -m -f '{{.Dir}}/...' | grep -v '/bench/')

roundtrip: ## 10,000 random policies, as templates and back
	go test -run=RoundTrip ./cmd/weir/internal/generate -args -policies=10000

terraform-names: ## which names Terraform's AWS provider has, anew from npm: what the test of the generated text goes by
	@scripts/terraform-names.sh

cover: setup ## the tests with coverage: cover.out, and the share per package
	@scripts/cover.sh

bench-dynamo: setup ## reads, writes and trips per decision on a DynamoDB table, beside the classic scheme
	go test -run='^$$' -bench='^BenchmarkDynamo$$' -benchtime=1x ./dynamostore

bench-lambda: ## size and start-up time of a Lambda function, without weir and with a policy of 20 limits
	go test -run='^$$' -bench='^BenchmarkStartup$$' -benchtime=1x ./lambdalimit
