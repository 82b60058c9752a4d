# A thin layer over uv: every target sets up what it needs, from a fresh checkout, with Python, make and git alone.

UV_VERSION := 0.13.7
PYTHON ?= python3
PYTHONS := 3.11 3.12 3.13
FUZZ_SECONDS ?= 60
# Most tests wait for servers, clients and clocks half of their time: one process more than there are processors.
WAITING := -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# The tests of the server that also run with agents behind a queue in Redis.
EXTERNAL_AGENTS := tests/server/observers $(addprefix tests/server/test_,endpoints.py mounted.py own_database.py requests_headers.py shared_chats.py websocket_access.py edited_messages.py factories.py forgotten_runs.py load.py quotas.py released.py retries.py stored_turns.py stored_turns_features.py stored_history.py hooks.py chat_routes.py waiting_clients.py websocket.py websocket_leaving.py websocket_strangers.py routes.py requests_chat_ids.py large_requests.py)
# The tests of the benchmarks, of the documentation and of the repository itself: the same on every Python, so they run once.
ONCE := $(wildcard tests/test_bench*.py tests/*/test_bench.py) tests/test_docs.py tests/test_guides.py tests/test_layers.py tests/test_shell_blocks.py tests/test_site.py tests/test_specification.py
UNIT := --ignore=tests/conformance --ignore=tests/browser
# The stores, with every Redis and PostgreSQL, and the growth of memory: none of them serves HTTP, and the Python matters little.
STORES := $(filter-out tests/contracts/test_adapters.py $(addprefix tests/runs/redis/test_,conditions.py workers.py) tests/agent_ops/access/test_access_matrix.py, \
	$(wildcard tests/contracts/test_*.py tests/runs/redis/test_*.py tests/agent_ops/access/test_*.py)) tests/chats/test_sql.py tests/open_harness/test_growth.py
# They cover the core completely; coverage makes tests slower by half, so the others run without.
CORE := tests/protocol tests/check tests/test_errors.py tests/test_turn_data.py tests/test_doctests.py
# The core serves nothing: the last of the Pythons runs it, not this one.
OTHER_PYTHON := -q $(WAITING) --hypothesis-profile=brief $(UNIT) $(addprefix --ignore=,$(ONCE) $(STORES) $(CORE))
SLOW := $(addprefix tests/protocol/test_,states.py reframing_replay.py message_forgetting.py) tests/check/test_order.py tests/runs/test_open_calls_secret.py tests/runs/test_transport.py
# Fast tests of every package, for `make test-quick`, and for the last of the Pythons. No Redis, no PostgreSQL, no processes.
QUICK := tests/protocol tests/check tests/test_errors.py tests/test_public.py tests/test_sources.py tests/test_threads.py tests/test_turn_data.py tests/test_typescript.py \
	$(filter-out $(SLOW),$(wildcard tests/runs/test_*.py)) tests/server/auth tests/server/observers $(addprefix tests/server/test_,chat_response.py endpoints.py hooks.py requests_body.py requests_headers.py response.py routes.py settings.py stored_history.py) \
	$(addprefix tests/chats/test_,chat.py documents.py history.py memory.py) $(addprefix tests/client/test_,chat.py recording.py transport.py) tests/adapters/test_conversation.py tests/adapters/test_pydantic_ai.py \
	$(addprefix tests/genkit/test_,adapter.py inputs.py wire.py) tests/agent_ops/test_adapter_rows.py tests/agent_ops/test_prompt_tracker.py tests/open_harness/engine tests/open_harness/events tests/cli/test_cli.py tests/demo/test_tools.py tests/demo/test_tour.py
QUICKLY := -q -n auto --hypothesis-profile=brief $(QUICK) $(addprefix --ignore=,$(SLOW))
# It measures the processor time of the page's tasks: another browser beside it would use the caches of its core.
ALONE := tests/browser/test_size.py
MUTANTS ?= 200
SEED ?= 1
export FUZZ_RELEASES MUTANTS SEED

export UV_PYTHON_DOWNLOADS := never
# Images of containers often switch compiled files off. The tests start hundreds of processes: without the files each one compiles
# all that it imports, which takes half of the processor time of most tests.
export PYTHONDONTWRITEBYTECODE :=
# A registry may stumble; a build of twenty minutes does not fall over that.
export UV_HTTP_TIMEOUT := 120
export UV_HTTP_RETRIES := 8
export npm_config_fetch_retries := 5
# The target `page` builds it, with the Node of the environment; `pip install .` does so by itself (hatch_build.py).
export USECHAT_WITHOUT_PAGE := 1

UV := .tools/bin/uv
UV_STAMP := .tools/uv-$(UV_VERSION)
RUN := $(UV) run --quiet
NODE_DIR := tests/conformance/node
NODE_STAMP := $(NODE_DIR)/node_modules/.package-lock.json
GENKIT_DIR := tests/conformance/genkit_node
GENKIT_STAMP := $(GENKIT_DIR)/node_modules/.package-lock.json
SOURCES := $(wildcard src tests examples scripts bench) hatch_build.py
SITE_STAMP := scripts/site/node_modules/.package-lock.json
SITE := src/usechat/demo/site/versions.json
PAGE := src/usechat/web/built/index.html
PAGE_STAMP := web/node_modules/.package-lock.json

.PHONY: help install page demo demo-agent-ops test test-quick test-frameworks wheel record-frameworks check conformance fuzz mutants bench docs docs-serve format clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F '\t' '{printf "  make %-18s %s\n", $$1, $$2}'

install: $(UV_STAMP) $(NODE_STAMP) $(GENKIT_STAMP) $(PAGE) $(SITE) ## prepare the virtual environment, the npm packages, the page and the site that the demo shows

page: $(PAGE) ## build the chat page

demo: PORT ?= 8000
demo: $(UV_STAMP) $(PAGE) $(SITE) ## serve the demo and its page, offline, at PORT (8000)
	$(RUN) usechat demo --port $(PORT)

demo-agent-ops: $(UV_STAMP) $(PAGE) ## run an agent session, the gateway that connects AI SDK pages to it, and the page
	$(UV) run --quiet --no-dev --extra agent-ops python examples/agent_ops_demo.py

# Tells when a stage begins, and how long it took.
define stage
	@echo "== $(1)"; begin=$$(date +%s); $(2) || exit 1; echo "== $(1): $$(($$(date +%s) - begin)) s"
endef

test: install ## run all tests and require the coverage; then the unit tests over plain ASGI on another Python, and the fast tests on the others
	$(call stage,the core with coverage,$(RUN) pytest -n auto $(CORE) --cov)
	$(call stage,the other unit tests,$(RUN) pytest $(WAITING) $(UNIT) $(addprefix --ignore=,$(CORE)))
	$(call stage,agents behind a queue in Redis,USECHAT_TEST_AGENTS=external $(RUN) pytest $(WAITING) $(EXTERNAL_AGENTS))
	$(call stage,the real npm clients,$(RUN) pytest $(WAITING) tests/conformance)
	$(call stage,a real browser,$(RUN) pytest -n auto tests/browser --ignore=$(ALONE))
	$(call stage,a real browser by itself,$(RUN) pytest -n 0 $(ALONE))
	@default=$$($(RUN) python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	export PYENV_VERSION=$$(pyenv versions --bare 2>/dev/null | paste -sd: -); \
	plain=1; tested=$$default; absent=; \
	for version in $(PYTHONS); do \
		if [ $$version = $$default ]; then continue; fi; \
		if ! $(UV) python find --system $$version >/dev/null 2>&1; then absent="$$absent $$version"; continue; fi; \
		if [ $$plain = 1 ]; then what="Python $$version, over plain ASGI"; tests="$(OTHER_PYTHON)"; else what="Python $$version"; tests="$(filter-out tests/client/%,$(QUICKLY)) tests/client tests/testing $(addprefix tests/cli/test_,chat.py record.py integrations.py)"; fi; \
		echo "== $$what"; begin=$$(date +%s); \
		USECHAT_TEST_PLAIN_ASGI=$$plain UV_PROJECT_ENVIRONMENT=.venv-$$version $(UV) run --quiet --python $$version --no-default-groups --group test \
			pytest $$tests || exit 1; \
		echo "== $$what: $$(($$(date +%s) - begin)) s"; \
		plain=0; tested="$$tested $$version"; \
	done; \
	if [ $$plain = 1 ]; then echo "== over plain ASGI"; USECHAT_TEST_PLAIN_ASGI=1 $(RUN) pytest $(OTHER_PYTHON) || exit 1; fi; \
	echo "== Tested with Python $$tested."; \
	if [ -n "$$absent" ]; then echo "== NOT TESTED with Python$$absent: not installed on this machine."; fi

test-quick: $(UV_STAMP) ## run the fast tests of every package, without Node or a browser: about a minute
	$(call stage,fast tests,$(RUN) pytest $(QUICKLY))

wheel: $(UV_STAMP) $(PAGE) $(SITE) ## build the wheel, install it into an empty environment of each Python, and ask its demo a question
	PYENV_VERSION=$$(pyenv versions --bare 2>/dev/null | paste -sd: -) $(RUN) python -m scripts.try_wheel $(PYTHONS) 3.14

# Their packages conflict with those of the other environments (tool.uv.conflicts): each group has one of its own.
FRAMEWORKS = USECHAT_FRAMEWORKS=$(1) UV_PROJECT_ENVIRONMENT=.venv-$(1) $(UV) run --quiet --no-default-groups --group $(1)

test-frameworks: install ## run the real frameworks that `make test` replays from recordings, each group in its own environment
	$(call FRAMEWORKS,frameworks) pytest -n auto tests/conformance/test_live_framework*.py
	$(call FRAMEWORKS,llama-index) pytest -n auto tests/conformance/test_live_frameworks.py tests/conformance/test_live_l*.py
	$(call FRAMEWORKS,crewai) pytest -n auto tests/conformance/test_live_frameworks.py tests/conformance/test_live_crewai.py

record-frameworks: install ## record the frameworks again, into tests/adapters/recordings
	USECHAT_RECORD=1 $(call FRAMEWORKS,frameworks) pytest -n 0 tests/conformance/test_live_frameworks.py
	USECHAT_RECORD=1 $(call FRAMEWORKS,llama-index) pytest -n 0 tests/conformance/test_live_frameworks.py
	USECHAT_RECORD=1 $(call FRAMEWORKS,crewai) pytest -n 0 tests/conformance/test_live_frameworks.py

check: $(UV_STAMP) ## check formatting, lint, strict types and layers
	$(RUN) ruff format --check
	$(RUN) ruff check
	$(RUN) mypy $(SOURCES)
	$(RUN) pytest -q tests/test_layers.py

conformance: install ## run only the tests with the real npm clients and a real browser
	$(RUN) pytest -n auto tests/conformance
	$(RUN) pytest -n auto tests/browser --ignore=$(ALONE)
	$(RUN) pytest -n 0 $(ALONE)

fuzz: install ## search for failures that the tests do not cover, for FUZZ_SECONDS (60); FUZZ_RELEASES adds releases of `ai`
	$(RUN) python -m scripts.fuzz $(FUZZ_SECONDS)

mutants: $(UV_STAMP) ## change protocol/ and runs/ in MUTANTS (200) places; the unit tests must detect 95 % of the changes
	$(RUN) python -m scripts.mutants

bench: install ## measure usechat and its peers side by side; ONLY=core (server, agent-ops, open-harness, frameworks, chats) measures one part
	$(UV) run --quiet --group bench python -m bench $(if $(ONLY),--only $(ONLY))

docs: $(UV_STAMP) $(SITE_STAMP) ## write the generated parts of the documentation, and build its site into build/docs
	$(RUN) python -m scripts.generate_docs
	$(RUN) python -m scripts.build_site

docs-serve: PORT ?= 8001
docs-serve: docs ## build the site and serve it on PORT (8001)
	$(RUN) python -m http.server --bind 127.0.0.1 --directory build/docs $(PORT)

format: $(UV_STAMP) ## format the code, and fix what the linter can fix
	$(RUN) ruff format
	$(RUN) ruff check --fix

clean: ## remove everything that make created
	rm -rf build .tools .fuzz .venv .venv-3.* .venv-frameworks .venv-llama-index .venv-crewai .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache dist uv.lock $(NODE_DIR)/node_modules $(GENKIT_DIR)/node_modules scripts/site/node_modules web/node_modules src/usechat/demo/site src/usechat/web/built
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(UV_STAMP):
	$(PYTHON) -m venv --clear .tools
	.tools/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

# npm writes the stamp itself, inside node_modules, so the packages are installed again only when the lock changes.
$(NODE_STAMP): $(NODE_DIR)/package.json $(NODE_DIR)/package-lock.json | $(UV_STAMP)
	$(RUN) npm --prefix $(NODE_DIR) ci
	@touch $@

$(GENKIT_STAMP): $(GENKIT_DIR)/package.json $(GENKIT_DIR)/package-lock.json | $(UV_STAMP)
	$(RUN) npm --prefix $(GENKIT_DIR) ci --ignore-scripts
	@touch $@

$(SITE_STAMP): scripts/site/package.json scripts/site/package-lock.json | $(UV_STAMP)
	$(RUN) npm --prefix scripts/site ci --ignore-scripts
	@touch $@

$(PAGE_STAMP): web/package.json web/package-lock.json | $(UV_STAMP)
	$(RUN) npm --prefix web ci
	@touch $@

$(PAGE): $(PAGE_STAMP) web/index.html web/vite.config.ts web/tsconfig.json $(shell find web/src web/public -type f)
	$(RUN) npm --prefix web run build
	@touch $@

# Pages of the reference are made from the code; it is no prerequisite, since the demo would wait after each change.
$(SITE): $(SITE_STAMP) zensical.toml scripts/build_site.py $(shell find scripts/site/assets docs bench/results -type f) $(wildcard *.md)
	@echo "== The documentation's site"
	rm -rf $(@D)
	$(RUN) python -m scripts.build_site --into $(@D)
