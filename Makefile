# The menu. Logic is in crates/xtask and dev/; a target is one line.
.PHONY: help run build test test-integration lint check manifests samples install

help: ## Show this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## Build the binary and show what it serves
	@cargo run --quiet --locked --bin vitistack -- summary

build: ## Build the binary
	@dev/setup.sh build && cargo build --workspace --locked

test: ## Golden cases and unit tests: needs Rust only
	@dev/setup.sh build && cargo test --workspace --locked

test-integration: ## The same behaviour on a real kube-apiserver, which it builds itself
	@dev/setup.sh integration && cargo test --workspace --locked --all-features

lint: ## Formatting, clippy, docs, licences, generated files, arrows, API rules
	@dev/setup.sh lint && cargo xtask lint

# Ten times the plans of mixed faults of `make test`; another number by the same variable.
check: export VITISTACK_FAULT_PLANS ?= 10000
check: lint test-integration ## Everything; the same as .ci/run

manifests: ## Write config/ and docs/reference from the code
	@dev/setup.sh build && cargo xtask gen

samples: build ## Print every sample manifest
	@cargo run --quiet --locked --bin vitistack -- samples

install: build ## Install the definitions and roles into the current cluster
	@cargo run --quiet --locked --bin vitistack -- crds | kubectl apply --server-side -f - && cargo run --quiet --locked --bin vitistack -- rbac | kubectl apply --server-side -f -
