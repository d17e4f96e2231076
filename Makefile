# Everything goes through .venv, which `.ci/setup` makes when it is missing, half-made or out of date.
# Extra arguments for the program behind a target: make test ARGS="-k power"

.DEFAULT_GOAL := help
.PHONY: help demo test check docs reference bench fuzz setup clean setup-run setup-dev

BIN := .venv/bin
PACKAGES := phy flowgraphs hardware calibration fl
ARGS :=

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1	\2/p' Makefile

demo: setup-run ## set up what the software loopback needs and run the quickstart experiment
	$(BIN)/airdp run quickstart $(ARGS)

# A process for each core and one more, four at most, each with whole files: many tests start processes and wait for them.
test: setup-dev ## run the tests
	cores=$$(nproc) && $(BIN)/python -m pytest --numprocesses $$((cores < 3 ? cores + 1 : 4)) --dist loadfile $(ARGS)

check: setup-dev ## lint, formatting, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict $(PACKAGES) docs
	$(BIN)/lint-imports --no-logo

# The variable silences a notice about another program of the theme's makers.
docs: setup-dev ## build the guides into site/; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

reference: setup-dev ## write docs/reference/ and examples/notebooks/ again, from the code that they show
	$(BIN)/python -m docs.make_reference
	$(BIN)/python -m docs.make_notebooks

bench: setup-run ## measure speed
	$(BIN)/airdp bench $(ARGS)

# A new seed in each round, for an hour or FUZZ_SECONDS, and on until its round is done.
fuzz: setup-dev ## hostile files for an hour: mutated inputs to every reader
	end=$$(( $$(date +%s) + $${FUZZ_SECONDS:-3600} )); seed=1; while [ $$(date +%s) -lt $$end ]; do \
	  AIRDP_FUZZ=2000 AIRDP_FUZZ_SEED=$$seed $(BIN)/python -m pytest -q --numprocesses auto --maxprocesses 4 tests/fuzz $(ARGS) || exit 1; \
	  seed=$$((seed + 1)); done

setup: setup-dev ## set up all that the other targets need

clean: ## remove .venv, caches and build products; runs/ stays
	rm -rf .venv build dist site *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Not file targets: whether the set-up is current depends on contents, not on times (see .ci/setup).
setup-run:
	@sh .ci/setup run

setup-dev:
	@sh .ci/setup dev
