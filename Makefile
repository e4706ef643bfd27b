.DEFAULT_GOAL := help

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: ## Install what the tests need and run all of them (at most 25 minutes on two cores)
	@tools/test

.PHONY: test-full
test-full: ## The same with the slow tests and the full counts (about an hour)
	@tools/test --full

.PHONY: build
build: ## Build pgweir: target/release/pgweir
	@tools/install-deps build
	cargo build --release -p pgweir

.PHONY: demo
demo: ## Show the main job on a throw-away PostgreSQL (KEEP=1 leaves it running)
	@tools/install-deps demo
	cargo build --release -p pgweir
	cargo build -p xtask
	@cargo xtask demo $(if $(KEEP),--keep)

.PHONY: bench
bench: ## Measure pgweir beside PgBouncer and haproxy (about half an hour; BENCH="--rounds 3" for less)
	@tools/install-deps bench
	cargo build --release -p pgweir
	cargo build -p xtask
	@cargo xtask bench $(BENCH)
