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
