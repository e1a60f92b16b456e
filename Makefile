# The menu. Logic is in crates/xtask and dev/; a target is one line.
.PHONY: help run build test test-integration lint check manifests samples install uninstall deploy undeploy docker-build

help: ## Show this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Build the binary, hardly optimised because that is ready first, and run everything on this machine
	@dev/setup.sh build && cargo build --workspace --locked --bin vitistack && $${CARGO_TARGET_DIR:-target}/debug/vitistack up

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

uninstall: ## Remove the definitions and roles; refuses while there are objects of ours
	@dev/uninstall.sh

deploy: install ## Run the operators in the current cluster (IMAGE=registry/name:tag, else the released one)
	@cargo run --quiet --locked --bin vitistack -- manager $(if $(IMAGE),--image $(IMAGE)) | kubectl apply --server-side -f -

undeploy: build ## Stop the operators; machines, definitions and the namespace stay
	@cargo run --quiet --locked --bin vitistack -- manager | kubectl delete --ignore-not-found -l app.kubernetes.io/component=manager -f -

docker-build: ## Build the image of the operators (IMAGE=registry/name:tag)
	@docker build --tag $(or $(IMAGE),$(error write it as make docker-build IMAGE=registry.example/vitistack:1)) .
