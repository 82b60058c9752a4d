# A thin layer over uv: every target sets up what it needs, from a fresh checkout, with Python, make and git alone.

UV_VERSION := 0.13.7
PYTHON ?= python3
PYTHONS := 3.11 3.12 3.13
FUZZ_SECONDS ?= 60
# Most tests wait for servers, clients and clocks more than half of their time: twice as many processes as there are
# processors, and one more. Each process collects all tests anew, so that many more would take longer.
WAITING := -n $(shell expr 2 '*' $$(getconf _NPROCESSORS_ONLN) + 1)
# Debian's packages of the programs that `make test-deploy` starts.
PROXIES := apache2 caddy curl faketime haproxy nginx-light squid varnish
# Those that `make test-browsers` starts.
BROWSERS := firefox-esr webkit2gtk-driver xvfb
MUTANTS ?= 200
SEED ?= 1
KILLS ?= 500
export FUZZ_RELEASES FUZZ_STREAMS KILLS KILLS_AT_ONCE KILLS_STORES MUTANTS SEED

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
PAGE := src/usechat/web/built/index.html
PAGE_STAMP := web/node_modules/.package-lock.json

.PHONY: help install page demo demo-agent-ops test test-all test-core test-unit test-npm test-browser test-browsers test-pythons test-redis test-deploy test-temporal test-quick test-frameworks test-live-frameworks test-live-llama-index test-live-crewai wheel dist release record-frameworks check conformance fuzz kills mutants bench docs docs-serve audit format clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F '\t' '{printf "  make %-18s %s\n", $$1, $$2}'

install: $(UV_STAMP) $(NODE_STAMP) $(GENKIT_STAMP) $(SITE_STAMP) $(PAGE) ## prepare the virtual environment, the npm packages and the page

page: $(PAGE) ## build the chat page

demo: PORT ?= 8000
demo: $(UV_STAMP) $(PAGE) ## serve the demo and its page, offline, at PORT (8000)
	$(RUN) usechat demo --port $(PORT)

demo-agent-ops: $(UV_STAMP) $(PAGE) ## run an agent session, the gateway that connects AI SDK pages to it, and the page
	$(UV) run --quiet --no-dev --extra agent-ops python examples/agent_ops_demo.py

# Runs targets one after the other, all of them, and says at the end how long each took and which failed.
STAGES := $(PYTHON) scripts/stages.py
TEST := install test-core test-unit test-npm test-browser

test: ## run all tests on this Python and require the coverage: core, unit tests, real npm clients, a real browser
	@$(STAGES) $(TEST)

test-all: ## do what `make test` does; then run tests of the server over plain ASGI and behind Redis, unit tests on other Pythons, proxies and servers, a Temporal server, live frameworks, and the wheel
	@$(STAGES) $(TEST) test-pythons test-redis test-deploy test-temporal test-frameworks wheel

test-core: $(UV_STAMP) ## run the tests of the core and require its coverage
	$(RUN) pytest -n auto -m core --cov

test-unit: install ## run the other unit tests
	$(RUN) pytest $(WAITING) -m 'unit or stores or once'

test-npm: install ## run the tests with the real npm clients
	$(RUN) pytest $(WAITING) -m npm

test-browser: install ## run the tests with a real browser
	$(RUN) pytest -n auto -m browser; status=$$?; $(RUN) pytest -n 0 -m alone && exit $$status

test-pythons: install ## run unit tests on other Pythons, and over plain ASGI
	PYENV_VERSION=$$(pyenv versions --bare 2>/dev/null | paste -sd: -) $(RUN) python -m scripts.other_pythons $(PYTHONS)

# Debian's packages would start their services: in runlevel 1 they do not. A program that is missing fails its tests where apt can
# install it; elsewhere they are skipped, and the end of the stage counts them with the reason.
APT := RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq
APT_INSTALL = $(APT) install --no-install-recommends $(1) >/dev/null
APT_CAN := $(shell test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo 1)
WITH_APT = $(if $(APT_CAN),@$(call APT_INSTALL,$(1)) || { $(APT) update && $(call APT_INSTALL,$(1)); })

test-redis: install ## run tests of the server with agents behind a queue in Redis, and those of the store with Debian's Redis
	USECHAT_TEST_AGENTS=external $(RUN) pytest $(WAITING) -m external_agents
	$(call WITH_APT,redis-server)
	@if program=$$(command -v redis-server); then set -x; USECHAT_REDIS_SERVER=$$program $(RUN) pytest $(WAITING) \
		tests/contracts/test_run_stores.py tests/runs/redis -k 'redis and not valkey and not 6.2'; \
	else echo 'skipped: there is no redis-server on this machine'; fi

test-browsers: install ## run the core of the page in Firefox and WebKit, whose driver sometimes opens no window
	$(call WITH_APT,$(BROWSERS))
	USECHAT_REQUIRE_PROGRAMS=$(APT_CAN) $(RUN) pytest -n 2 -m browsers

test-deploy: install ## run usechat behind real proxies, on other servers, with a clock that jumps and a full disk
	$(call WITH_APT,$(PROXIES))
	$(UV) pip install --quiet --no-config --python .venv --target build/web_frameworks -r tests/deploy/frameworks.txt
	USECHAT_REQUIRE_PROGRAMS=$(APT_CAN) $(UV) run --quiet --group servers pytest -n 2 --dist loadfile -m deploy

test-temporal: install ## run agents as workflows of a real Temporal server, with workers that are killed
	$(UV) pip install --quiet --no-config --python .venv --target build/temporal_openai_agents -r tests/temporal/openai_agents.txt
	$(UV) run --quiet --group temporal pytest -n 2 --dist loadfile -m temporal
	$(UV) run --quiet --group temporal pytest -q tests/test_doctests.py -k temporal

test-quick: $(UV_STAMP) ## run the fast tests of every package, without Node or a browser: about a minute
	$(RUN) pytest -q -n auto --hypothesis-profile=brief -m 'quick and not slow'

wheel: $(UV_STAMP) $(PAGE) ## build the wheel, install it into an empty environment of each Python, and ask its demo a question
	PYENV_VERSION=$$(pyenv versions --bare 2>/dev/null | paste -sd: -) $(RUN) python -m scripts.try_wheel $(PYTHONS) 3.14

dist: $(UV_STAMP) $(PAGE) ## build the sdist and the wheel into dist/, and check what they hold and how large they are
	$(RUN) python -m scripts.dist

release: $(UV_STAMP) $(PAGE) ## write VERSION and the date, build dist/, commit and tag; refuse if a step is missing
	$(RUN) python -m scripts.release $(VERSION)

# Their packages conflict with those of the other environments (tool.uv.conflicts): each group has one of its own.
FRAMEWORKS = USECHAT_FRAMEWORKS=$(1) UV_PROJECT_ENVIRONMENT=.venv-$(1) $(UV) run --quiet --no-default-groups --group $(1)

test-frameworks: ## run the real frameworks that `make test` replays from recordings, each group in its own environment
	@$(STAGES) test-live-frameworks test-live-llama-index test-live-crewai

test-live-frameworks: install
	$(call FRAMEWORKS,frameworks) pytest -n auto -m 'live and frameworks'

test-live-llama-index: install
	$(call FRAMEWORKS,llama-index) pytest -n auto -m 'live and llama_index'

test-live-crewai: install
	$(call FRAMEWORKS,crewai) pytest -n auto -m 'live and crewai'

record-frameworks: install ## record the frameworks again, into tests/adapters/recordings
	USECHAT_RECORD=1 $(call FRAMEWORKS,frameworks) pytest -n 0 tests/conformance/test_live_frameworks.py
	USECHAT_RECORD=1 $(call FRAMEWORKS,llama-index) pytest -n 0 tests/conformance/test_live_frameworks.py
	USECHAT_RECORD=1 $(call FRAMEWORKS,crewai) pytest -n 0 tests/conformance/test_live_frameworks.py

check: $(UV_STAMP) ## check formatting, lint, strict types and layers
	$(RUN) ruff format --check
	$(RUN) ruff check
	$(RUN) python -m scripts.typed_examples build/typed_examples
	$(RUN) mypy $(SOURCES) build/typed_examples
	$(RUN) pytest -q tests/test_layers.py

conformance: ## run only the tests with the real npm clients and a real browser
	@$(STAGES) install test-npm test-browser

fuzz: install ## search for failures that the tests do not cover, for FUZZ_SECONDS (60); FUZZ_RELEASES adds releases of `ai`, FUZZ_STREAMS ends it earlier
	$(RUN) python -m scripts.fuzz $(FUZZ_SECONDS)

kills: install ## end processes in the middle of answers, KILLS (500) times from SEED (1) on, and check what becomes of the answers
	$(RUN) python -m scripts.kills

mutants: $(UV_STAMP) ## change protocol/ and runs/ in MUTANTS (200) places; the unit tests must detect 95 % of the changes
	$(RUN) python -m scripts.mutants

bench: install ## measure usechat and its peers side by side; ONLY=core (server, agent-ops, open-harness, frameworks, chats, temporal) measures one part
	$(UV) run --quiet --group bench --group temporal python -m bench $(if $(ONLY),--only $(ONLY))

docs: $(UV_STAMP) $(SITE_STAMP) ## write the generated parts of the documentation, and build its site into build/docs
	$(RUN) python -m scripts.generate_docs
	$(RUN) python -m scripts.build_site

docs-serve: PORT ?= 8001
docs-serve: docs ## build the site and serve it on PORT (8001)
	$(RUN) python -m http.server --bind 127.0.0.1 --directory build/docs $(PORT)

audit: $(UV_STAMP) ## look for known vulnerabilities of the pinned packages, Python and npm; it says what could not be audited
	$(RUN) python -m scripts.audit

format: $(UV_STAMP) ## format the code, and fix what the linter can fix
	$(RUN) ruff format
	$(RUN) ruff check --fix

clean: ## remove everything that make created
	rm -rf build .tools .fuzz .venv .venv-3.* .venv-frameworks .venv-llama-index .venv-crewai .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache dist uv.lock $(NODE_DIR)/node_modules $(GENKIT_DIR)/node_modules scripts/site/node_modules web/node_modules src/usechat/web/built
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
