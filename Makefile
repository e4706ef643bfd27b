.DEFAULT_GOAL := help
PROFILE ?= release
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: ## Install what the tests need and run all of them (at most 25 minutes on two cores)
	@tools/test

.PHONY: test-full
test-full: ## The same with the slow tests, the full counts and an hour's soak (about an hour and a half)
	@tools/test --full

.PHONY: test-faults
test-faults: ## Kill, stop and cut off servers, and storm, behind pgweir and PgBouncer: docs/faults.md (ten minutes)
	@tools/install-deps
	cargo build --profile quick -p pgweir
	@tools/faults

.PHONY: build
build: ## Build pgweir: target/release/pgweir
	@tools/install-deps build
	cargo build --release -p pgweir

.PHONY: book
book: ## Build the pages of docs/ as a book: target/book/index.html
	@tools/install-deps book
	@packaging/book $(TARGET)/book

.PHONY: deb
deb: book ## Build a Debian package in target/deb, with the book (PROFILE=quick links faster)
	@tools/install-deps deb
	cargo build --profile $(PROFILE) -p pgweir
	@packaging/deb/build $(TARGET)/$(PROFILE)/pgweir $(TARGET)/deb $(TARGET)/book

.PHONY: deb-assist
deb-assist: ## Build a Debian package of the extension (PG_CONFIG=/usr/lib/postgresql/NN/bin/pg_config)
	@tools/install-deps deb
	@packaging/deb/build-assist $(or $(PG_CONFIG),pg_config) $(TARGET)/deb

.PHONY: static
static: ## Build pgweir without any library: target/MACHINE-unknown-linux-musl/release/pgweir
	@tools/install-deps static
	cargo build --profile $(PROFILE) -p pgweir --no-default-features --target $(shell uname -m)-unknown-linux-musl

.PHONY: demo
demo: ## Show the main job on a throw-away PostgreSQL (KEEP=1 leaves it running)
	@tools/install-deps demo
	cargo build --locked --profile demo -p pgweir -p xtask --no-default-features
	@$(TARGET)/demo/xtask demo --seconds 6 --pgweir $(TARGET)/demo/pgweir $(if $(KEEP),--keep)

.PHONY: bench
bench: ## Measure pgweir beside PgBouncer and haproxy (about an hour; BENCH="--rounds 3" for less)
	@tools/install-deps bench
	cargo build --release -p pgweir
	cargo build -p xtask
	@cargo xtask bench $(BENCH)

.PHONY: instructions
instructions: ## Count what the session engine costs a transaction, under callgrind (five minutes)
	@tools/install-deps instructions
	cargo build --release -p pgweir
	@cargo xtask instructions
