#!/usr/bin/env bash
# The parts of tools/compat that need no other system: what it reads from CTest's log, and its search for compilers.
# usage: compat_test.sh COMPAT
set -euo pipefail
compat=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in test_counts skipped_names has_no_compiler; do
  # shellcheck disable=SC1090
  source <(sed -n "/^$name() {/,/^}/p" "$compat")
done

fail() { echo "compat_test: $*" >&2; exit 1; }
same() { [ "$1" = "$2" ] || fail "expected '$2', got '$1'"; }

cat >"$work/log" <<'END'
1/5 Test: kernels
[  PASSED  ] 12 tests.
[  SKIPPED ] Suite.Case (3 ms)
[  SKIPPED ] 1 test, listed below:
Test Passed.
2/5 Test: python_module
Ran 21 tests in 3.125s

OK (skipped=5)
Test Passed.
3/5 Test: python_compile
OK (expected failures=1, skipped=12)
Test Passed.
4/5 Test: install_python
Skip regular expression found in output.
5/5 Test: workers_network
Ran 7 tests in 0.262s

OK (skipped=7)
Test Passed.
END
same "$(test_counts "$work/log")" "3 of 5 (12 cases) | 2 (1 cases)"
same "$(skipped_names "$work/log")" "Suite.Case
5 Python cases of python_module
12 Python cases of python_compile
install_python
7 Python cases of workers_network
24 Python cases in all"
same "$(skipped_names /dev/null)" "0 Python cases in all"

# A system with the programs in one folder, and sh as it is in Debian.
mkdir "$work/bin"
shell=$(command -v dash || command -v sh)
inside() { PATH=$work/bin "$shell" -c "$1" >"$work/found"; }
has_no_compiler || fail "found $(cat "$work/found") in an empty folder"
for name in g++ gcc c++ cc clang++ cmake; do
  printf '#!/bin/sh\n' >"$work/bin/$name"
  chmod +x "$work/bin/$name"
  if has_no_compiler; then fail "$name was not found"; fi
  rm "$work/bin/$name"
done
echo "compat_test: passed"
