#!/bin/sh
# tools/test-cpus in a tree with programs that run no tests: which CPUs it takes.
# usage: test_cpus_test.sh TEST_CPUS
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
mkdir -p "$work/tools" "$work/bin" "$work/build/dev" "$work/docs"
cp "$1" "$work/tools/test-cpus"
printf 'before\n<!-- cpus: begin -->\nold\n<!-- cpus: end -->\nafter\n' >"$work/docs/compatibility.md"

# program FILE LINE: prints the line.
program() {
  printf '#!/bin/sh\necho "%s"\n' "$2" >"$work/$1"
  chmod +x "$work/$1"
}
program bin/ctest "100% tests passed, 0 tests failed out of 3"
printf '#!/bin/sh\n[ "$1" = status ] || echo abc1234\n' >"$work/bin/git"
chmod +x "$work/bin/git"

# expect CODE TEXT TARGETS: with these targets of Highway the tool ends with CODE and prints TEXT.
expect() {
  program build/dev/renorm "ok  simd  $3; compiled for this CPU: $3"
  PATH="$work/bin:$PATH" CXX=true "$work/tools/test-cpus" >"$work/out" 2>&1
  code=$?
  [ "$code" -eq "$1" ] && grep -qF -e "$2" "$work/out" && return
  echo "FAILED: targets $3: exit code $code instead of $1, or no '$2' in:"
  sed 's/^/  /' "$work/out"
  failures=$((failures + 1))
}

# has ROW: the table has it.
has() {
  grep -qF -e "$1" "$work/docs/compatibility.md" && return
  echo "FAILED: the table lacks '$1'"
  failures=$((failures + 1))
}

expect 2 "'renorm doctor' lists AVX9" "AVX9, AVX2, SSE2"
grep -q old "$work/docs/compatibility.md" || { echo "FAILED: the table was replaced"; failures=$((failures + 1)); }
expect 0 "skylakex left out, this machine or its Highway has no AVX3" "AVX2, SSE4, SSE2"
has "| AVX2 | avx2 | AVX2 | Zen | yes | 3 of 3 |"
has "| SSE2 | default | SSE41 | Prescott | yes | 3 of 3 |"
expect 0 "sse2 left out, this machine or its Highway has no SSE2" "AVX3_ZEN4, AVX3"
has "| AVX3_ZEN4 | avx512 |"

[ "$failures" -eq 0 ] && echo "all passed"
exit "$failures"
