# One line per target; the logic is in crates/xtask and dev/.
.PHONY: help run build test test-integration fuzz lint check manifests samples install uninstall deploy undeploy docker-build

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Build the binary (debug build: quickest to compile) and run everything on this machine
	@dev/setup.sh build && cargo build --workspace --locked --bin vitistack && $${CARGO_TARGET_DIR:-target}/debug/vitistack up

build: ## Build the binary
	@dev/setup.sh build && cargo build --workspace --locked

test: ## Run unit tests and golden files: requires only Rust
	@dev/setup.sh build && cargo test --workspace --locked

test-integration: ## Run all tests, also on a real kube-apiserver, which is built first
	@dev/setup.sh integration && cargo test --workspace --locked --all-features

# Each of the nine targets for 200 s, one after another, with inputs that no run had before.
fuzz: export VITISTACK_FUZZ_SECONDS ?= 200
fuzz: export VITISTACK_FUZZ_RANDOM ?= 1
fuzz: ## Run every fuzz target, half an hour in all (VITISTACK_FUZZ_SECONDS=seconds for each target)
	@dev/setup.sh build && cargo test --workspace --locked --all-features --lib --test it -- fuzz:: --test-threads=1

lint: ## Check formatting, clippy, docs, licenses, generated files, dependencies, API rules, words and spelling
	@dev/setup.sh lint && cargo xtask lint

# Ten times as many fault plans as `make test`, and a minute of fuzz inputs; the variables set other numbers.
check: export VITISTACK_FAULT_PLANS ?= 10000
check: export VITISTACK_FUZZ_SECONDS ?= 7
check: lint test-integration ## Run all lints and tests, like .ci/run

manifests: ## Generate config/ and docs/reference
	@dev/setup.sh build && cargo xtask gen

samples: build ## Print every sample manifest
	@cargo run --quiet --locked --bin vitistack -- samples

install: build ## Install the CRDs and roles into the current cluster
	@cargo run --quiet --locked --bin vitistack -- crds | kubectl apply --server-side -f - && cargo run --quiet --locked --bin vitistack -- rbac | kubectl apply --server-side -f -

uninstall: ## Remove the CRDs and roles; refuses while objects of these kinds exist
	@dev/uninstall.sh

deploy: install ## Run the operators in the current cluster (IMAGE=registry/name:tag, default: the released image)
	@cargo run --quiet --locked --bin vitistack -- manager $(if $(IMAGE),--image $(IMAGE)) | kubectl apply --server-side -f -

undeploy: build ## Remove the operators; machines, CRDs and the namespace stay
	@cargo run --quiet --locked --bin vitistack -- manager | kubectl delete --ignore-not-found -l app.kubernetes.io/component=manager -f -

docker-build: ## Build the operators' image (IMAGE=registry/name:tag)
	@docker build --build-arg VITISTACK_COMMIT="$$(git rev-parse HEAD)" --tag $(or $(IMAGE),$(error set the image: make docker-build IMAGE=registry.example/vitistack:1)) .
