# Tools are run at a pinned version and stay out of go.mod: they bring hundreds of modules.
GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULN   := go run golang.org/x/vuln/cmd/govulncheck@v1.9.0
FUZZTIME ?= 30s
OPERATIONS ?= 40000
SEED ?=

# The processors that functions are built for: arm64 or x86_64. The template's parameter decides, but SAM does not hand it
# on; so it is read where `sam deploy --guided` keeps it, or else is the template's default.
ARCHITECTURE ?= $(or $(shell sed -n 's/.*Architecture=[\\"]*\([a-z0-9_]*\).*/\1/p' samconfig.toml | tail -1),arm64)
GOARCH_arm64 := arm64
GOARCH_x86_64 := amd64
# This machine's own, for functions that run here.
HERE = $(if $(filter arm64 aarch64,$(shell uname -m)),arm64,x86_64)
# Static, small, and the same bytes wherever it is built.
GO_FUNCTION = CGO_ENABLED=0 GOOS=linux GOARCH=$(or $(GOARCH_$(ARCHITECTURE)),$(error ARCHITECTURE must be arm64 or \
	x86_64, not "$(ARCHITECTURE)")) go build -trimpath -buildvcs=false -tags lambda.norpc -ldflags '-s -w -buildid='

# Local engines have neither accounts nor regions, and are not to see real keys.
DYNAMODB ?= http://127.0.0.1:8000
SAM_LOCAL ?=
# Apart from what `sam deploy` would upload.
SAM_HERE := .aws-sam/here
LOCAL_AWS := AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_SESSION_TOKEN= \
	SAM_CLI_TELEMETRY=0

.DEFAULT_GOAL := help
.PHONY: help run test race prove mutants fuzz bench soak performance model build lint fmt tidy vuln tour ci clean \
	bench-functions contention capacity functions reproducible sam-validate sam-build dynamodb-local sam-local sam-test sam-sweep

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## run Redrive on http://127.0.0.1:3000
	go run ./local

test: ## run the tests, as the README says
	go test ./...

race: ## run the tests with the race detector, in random order
	go test -race -shuffle=on ./...

prove: ## let clients use both stores while everything fails, OPERATIONS (40000) times each (needs an engine)
	go run ./local/prove -operations $(OPERATIONS) $(if $(SEED),-seed $(SEED))

mutants: ## put faults into the code, one after the other, and see which test finds each (needs an engine, takes long)
	go run ./local/mutants

fuzz: ## fuzz every target for FUZZTIME (30s)
	.ci/fuzz $(FUZZTIME)

bench: ## measure HTTP, store and layers side by side, on an engine the bare SDK too, claims before backlogs, allocations
	go run ./local/bench
	go test -run '^$$' -bench . -benchmem ./shared/api

soak: ## run a server for an hour at half its top rate, and see what grows
	mkdir -p docs/performance
	go run ./local/soak -svg docs/performance/soak-

performance: ## rates, latencies and costs of both stores: docs/performance.md (needs an engine, ten minutes)
	go run ./local/performance

model: ## what a million messages cost, and how many shards a rate needs: docs/cost.md
	go run ./local/model

bench-functions: ## start-up beside an empty function, size and memory of each function (needs the emulator and an engine)
	go run ./local/emulator/bench

contention: ## 64 claimers on an index that lags: lost writes a claim (needs an engine)
	go test -run '^$$' -bench Contention -benchtime 1x ./shared/dynamo

capacity: ## what each operation costs, as the engine reports it (needs an engine)
	REDRIVE_REQUIRE_ENGINE=1 go test -count=1 -run TestCapacity -v ./shared/dynamo

build: ## build everything without cgo, for other machines too
	CGO_ENABLED=0 go build -trimpath ./...
	CGO_ENABLED=0 GOOS=linux GOARCH=arm go build ./...
	CGO_ENABLED=0 GOOS=windows GOARCH=amd64 go build ./...
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go build ./...

lint: ## check style and the arrows between the packages
	$(GOLANGCI) run ./...

fmt: ## format the code
	$(GOLANGCI) fmt ./...

tidy: ## check that go.mod and go.sum list what is used
	go mod tidy -diff

vuln: ## look for known vulnerabilities (needs the network)
	$(GOVULN) ./...

tour: ## run the tour of the README and compare what it prints
	.ci/tour

ci: tidy build lint ## what CI runs
	CGO_ENABLED=0 $(MAKE) test
	$(MAKE) race tour

functions: ARCHITECTURE := $(HERE)
functions: ## build the functions for this machine, as dist/functions/<name>/bootstrap
	@set -e; for folder in functions/*/; do \
		name=$$(basename $$folder); \
		$(GO_FUNCTION) -o dist/functions/$$name/bootstrap ./functions/$$name; \
	done

reproducible: ## check that two builds of the functions, in two folders, are the same bytes
	.ci/reproducible

# What `sam build` calls for each function of the template, EnqueueFunction from the folder functions/enqueue.
build-%Function:
	$(GO_FUNCTION) -o $(ARTIFACTS_DIR)/bootstrap ./functions/$(shell echo $* | tr A-Z a-z)

sam-validate: ## check template.yaml (this and what follows needs SAM)
	SAM_CLI_TELEMETRY=0 sam validate --lint --region us-east-1

sam-build: ## build the functions for AWS; ARCHITECTURE=x86_64 where the template's parameter is
	SAM_CLI_TELEMETRY=0 ARCHITECTURE=$(ARCHITECTURE) sam build --parameter-overrides Architecture=$(ARCHITECTURE)

# Redrive runs locally in three ways: on SQLite, `make run`; in one process on DynamoDB Local, `make dynamodb-local` and
# `go run ./local -dynamodb http://127.0.0.1:8000`; as functions in containers on it, `make dynamodb-local sam-local`.
dynamodb-local: ## run DynamoDB Local on http://127.0.0.1:8000 (needs Docker)
	docker compose -p redrive -f local/compose.yaml up -d

# Another engine: DYNAMODB=… is where this machine reaches it; SAM_LOCAL='--env-vars …' says where containers do.
sam-local: ## run the functions in containers on http://127.0.0.1:3000, on DynamoDB Local
	$(LOCAL_AWS) ARCHITECTURE=$(HERE) sam build --build-dir $(SAM_HERE) --parameter-overrides Architecture=$(HERE)
	go run ./local/table -endpoint $(DYNAMODB) -table redrive
	$(LOCAL_AWS) sam local start-api --template $(SAM_HERE)/template.yaml --parameter-overrides Architecture=$(HERE) $(SAM_LOCAL)

sam-test: ## tell the stories to functions in containers (takes minutes)
	REDRIVE_REQUIRE_SAM=1 go test -count=1 -v -timeout 20m ./local/sam

sam-sweep: ## sweep once, beside sam-local, which has no schedule
	$(LOCAL_AWS) sam local invoke SweepFunction --template $(SAM_HERE)/template.yaml --parameter-overrides Architecture=$(HERE) $(SAM_LOCAL)

clean: ## remove what was built, not the messages
	rm -rf bin dist coverage.out .aws-sam
