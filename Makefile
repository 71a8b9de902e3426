# Tools are run at a pinned version and stay out of go.mod: they bring hundreds of modules.
GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULN   := go run golang.org/x/vuln/cmd/govulncheck@v1.9.0
FUZZTIME ?= 30s

.DEFAULT_GOAL := help
.PHONY: help run test race crash fuzz bench build lint fmt tidy vuln tour ci clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## run Redrive on http://127.0.0.1:3000
	go run ./local

test: ## run the tests, as the README says
	go test ./...

race: ## run the tests with the race detector, in random order
	go test -race -shuffle=on ./...

crash: ## kill the server 50 times and check what it had acknowledged
	REDRIVE_CRASH_ROUNDS=50 go test -count=1 -run TestCrash -v -timeout 30m ./local/...

fuzz: ## fuzz every target for FUZZTIME (30s)
	@set -e; for pkg in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "… $$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

bench: ## measure HTTP, store and bare handler side by side, claims before backlogs, allocations
	go run ./local/bench
	go test -run '^$$' -bench . -benchmem ./shared/api

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

clean: ## remove what was built, not the messages
	rm -rf bin dist coverage.out
