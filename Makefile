# A thin layer over tools/setup and the presets of CMakePresets.json.
# Compiling a file that includes LibTorch takes up to 1.5 GB, so the number of jobs depends on memory too.
JOBS ?= $(shell awk -v cores="$$(nproc)" '/^MemAvailable/ { fit = int($$2 / 1572864) } \
          END { if (fit < 1) fit = 1; print (fit < cores ? fit : cores) }' /proc/meminfo)
SUITE ?= trixie

.DEFAULT_GOAL := help
.PHONY: help run reproduce test build bench lint asan tsan fuzz soak compat test-cpus python deb clean

help: ## list the targets
	@echo "make TARGET [JOBS=n]"
	@sed -n 's/^\([a-z-]*\):.*## /  \1|/p' Makefile | awk -F'|' '{ printf "%-11s %s\n", $$1, $$2 }'

run: build ## the paper's experiments on built-in data in a few minutes, with a report
	build/release/renorm reproduce --quick

reproduce: build ## the full experiments: five seeds, over an hour
	build/release/renorm reproduce --full

test: ## build with warnings as errors and run every test; what CI runs
	@tools/setup --test
	@cmake --preset dev --log-level=WARNING >/dev/null
	@cmake --build --preset dev --parallel $(JOBS)
	@ctest --preset dev

build: ## optimized build: build/release/renorm and librenorm.so
	@tools/setup
	@cmake --preset release --log-level=WARNING >/dev/null
	@cmake --build --preset release --parallel $(JOBS)

python: ## the Python package in build/venv, a virtual environment
	@tools/setup --python
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) tools/venv

deb: ## Debian packages in build/deb: renorm, librenorm-dev, python3-renorm
	@tools/setup --deb
	@cmake --preset deb --log-level=WARNING >/dev/null
	@cmake --build --preset deb --parallel $(JOBS)
	@rm -f build/deb/*.deb
	@cpack --preset deb >build/deb/cpack.log || { cat build/deb/cpack.log; exit 1; }
	@ls build/deb/*.deb

bench: build ## time the layer against LibTorch, oneDNN and plain tensor operations
	build/release/renorm bench layer

lint: ## clang-format and clang-tidy
	@tools/setup --lint
	@tools/lint

asan: ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/setup --test
	@cmake --preset asan --log-level=WARNING >/dev/null
	@cmake --build --preset asan --parallel $(JOBS)
	@ctest --preset asan

tsan: ## the tests of the kernels and of the image loader under ThreadSanitizer
	@tools/setup
	@cmake --preset tsan-kernels --log-level=WARNING >/dev/null
	@cmake --build --preset tsan-kernels --parallel $(JOBS)
	@ctest --preset tsan-kernels
	@cmake --preset tsan-loader --log-level=WARNING >/dev/null
	@cmake --build --preset tsan-loader --parallel $(JOBS)
	@ctest --preset tsan-loader

fuzz: ## fuzz every parser of external input for a minute under AddressSanitizer
	@tools/setup --fuzz
	@tools/fuzz

soak: build ## training killed, with a full disk, under limits, and for an hour; two hours in all
	@tools/soak

test-cpus: test ## the tests as on CPUs without AVX-512, AVX2 or SSE4; writes a table in docs/compatibility.md
	@tools/setup --cpus
	@tools/test-cpus

compat: ## build and test inside another Debian release: SUITE=bookworm, trixie or sid
	@tools/compat $(SUITE)

clean: ## remove the build trees
	rm -rf build
