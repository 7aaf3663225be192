# Shared by the tests of the command. Requires $renorm; sets $work, a folder that is deleted at exit, and $failures.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  printf 'FAILED: %s\n' "$1"
  if [ -e "$work/out" ]; then sed 's/^/  stdout: /' "$work/out"; fi
  if [ -e "$work/err" ]; then sed 's/^/  stderr: /' "$work/err"; fi
  failures=$((failures + 1))
}

# run CODE ARGUMENT...: the command ends with CODE; an error is one line on standard error and nothing on
# standard output.
run() {
  expected=$1
  shift
  "$renorm" "$@" >"$work/out" 2>"$work/err"
  code=$?
  [ "$code" -eq "$expected" ] || fail "renorm $*: exit code $code instead of $expected"
  if [ "$expected" -ne 0 ]; then
    [ ! -s "$work/out" ] || fail "renorm $*: something on standard output"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "renorm $*: the error is not one line"
  fi
}

# prints TEXT, complains TEXT: standard output or standard error of the last command contains TEXT.
prints() { grep -qF -e "$1" "$work/out" || fail "standard output lacks '$1'"; }
complains() { grep -qF -e "$1" "$work/err" || fail "standard error lacks '$1'"; }

# state FOLDER: a sum over all of its files.
state() { (cd "$1" && find . -type f -exec sha256sum {} + | sort | sha256sum); }
