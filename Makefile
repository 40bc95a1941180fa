# Python, git and make are enough to start with: everything else goes into VENV. `make` alone lists the commands.

VENV ?= .venv
# cpu or gpu; left empty, gpu where nvidia-smi answers.
ENGINE ?=
# More arguments for `make demo` and `make lab`.
ARGS ?=

# A Python of ours comes first, so that an environment that works is kept. Each is run, because a name can be a stub.
PYTHON ?= $(or $(shell for python in $(VENV)/bin/python python3 python3.12 python3.11 python3.13 python3.14; do \
	"$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null \
	&& echo "$$python" && break; done),$(error no Python 3.11 to 3.14 was found; install one, or name it: PYTHON=/path/to/python))

SETUP = $(PYTHON) tools/setup_env.py venv --venv $(VENV) $(if $(ENGINE),--engine $(ENGINE))
TESTS = $(VENV)/bin/python tools/run_tests.py
LAB = GOMP_SPINCOUNT=10000 $(VENV)/bin/jupyter lab $(AS_ROOT) $(ARGS) notebooks/quickstart.ipynb
AS_ROOT = $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help demo lab test check test-js test-unit test-integration test-notebooks test-browser setup dev clean \
	setup-lab setup-check setup-model setup-all
.NOTPARALLEL:

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup-lab  ## answer one prompt in the terminal, and show where the time went
	@$(VENV)/bin/jupyter-infer demo $(ARGS)
	@echo; echo "Now the notebook: make lab"

lab: setup-lab  ## open the quick start in JupyterLab
	@$(LAB)

test: setup-all  ## run everything: ruff, mypy, js, unit, integration, notebook and browser tests
	@$(TESTS)

check: setup-check  ## what a commit must pass: ruff, mypy, the front end's checks and the unit tests
	@$(TESTS) ruff mypy js unit

test-js: setup-check  ## only the front end: Biome, types and its tests
	@$(TESTS) js

test-unit: setup-check  ## only the unit tests
	@$(TESTS) unit

test-integration: setup-model  ## only the tests that run vLLM with the default model
	@$(TESTS) integration

test-notebooks: setup-model  ## only the notebooks
	@$(TESTS) notebooks

test-browser: setup-all  ## only the tests that run JupyterLab in Chromium
	@$(TESTS) browser

setup: setup-all  ## install everything for work on the code
	@echo "The project is installed as it lies here. Activate it: . $(VENV)/bin/activate"
	@echo "JupyterLab with widgets that change as js/ is edited: make dev"

dev: setup-all  ## JupyterLab with hot reload: widgets on the page change as js/ is edited
	@$(VENV)/bin/python tools/front_end.py watch & trap "kill $$!" EXIT; ANYWIDGET_HMR=1 $(LAB)

clean:  ## remove what tools left behind; the environment stays
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis js/node_modules jupyter_infer/static
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

setup-lab:
	@$(SETUP) lab --model

setup-check:
	@$(SETUP) lab,test,dev

setup-model:
	@$(SETUP) lab,test,dev --model

setup-all:
	@$(SETUP) lab,test,dev --model --chromium
