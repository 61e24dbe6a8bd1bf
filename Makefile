# The short way: `make demo` and `make check` do everything on a fresh Debian 12 or Ubuntu 24.04.
# Behind it: Meson in build/ (and build-asan/, build-tsan/, build-fuzz/), tools/check.py for the stages.

PYTHON ?= python3
FUZZ_SECONDS ?= 600

.PHONY: all build demo check test asan tsan fuzz cov lint fmt oracle bench wheel deb install clean help

all: build

build: ## the program, at build/plimsoll
	@tools/setup.sh build
	@[ -f build/build.ninja ] || meson setup build >build-setup.log || { cat build-setup.log; exit 1; }
	@rm -f build-setup.log
	@ninja -C build

demo: build ## diagnose a real snapshot and explain a real message
	@tools/demo.sh

check: ## everything: tests, sanitizers, short fuzzing, linters
	@tools/setup.sh check
	@$(PYTHON) tools/check.py $(STAGES)

test: ## the quick tests (under 30 s)
	@tools/setup.sh check
	@[ -f build/build.ninja ] || meson setup build >/dev/null
	@ninja -C build
	@meson test -C build --no-rebuild --print-errorlogs --suite quick --suite cli

asan: ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/setup.sh check
	@$(PYTHON) tools/check.py tests-asan

tsan: ## the threaded tests under ThreadSanitizer
	@tools/setup.sh check
	@$(PYTHON) tools/check.py tests-tsan

fuzz: ## each fuzz target for FUZZ_SECONDS (600)
	@tools/setup.sh check
	@tools/fuzz.sh $(FUZZ_SECONDS)

cov: ## line coverage of the library and the program
	@tools/setup.sh check
	@tools/coverage.sh

lint: ## all linters
	@tools/setup.sh check
	@tools/lint.sh

fmt: ## rewrite the C files in the project's format
	@tools/lint.sh fix

oracle: ## compare with the real PyTorch allocator (installs PyTorch, several GB)
	@tools/setup.sh check
	@$(PYTHON) tools/check.py tests-oracle

bench: build ## the benchmarks; figures are ratios
	@meson test -C build --benchmark --verbose

wheel: ## the Python wheel with the program in it, into dist/
	@tools/setup.sh check
	@$(PYTHON) tools/wheel.py

deb: ## a Debian package of the program and the service of its monitor, into dist/
	@tools/setup.sh build
	@[ -f build-deb/build.ninja ] || meson setup build-deb --prefix=/usr --buildtype=release >/dev/null
	@ninja -C build-deb
	@tools/make_deb.sh build-deb dist

install: build ## into /usr/local, or where `meson setup build --prefix` said
	@meson install -C build

clean: ## remove all build folders
	rm -rf build build-asan build-tsan build-fuzz build-cov build-wheel dist

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 12
