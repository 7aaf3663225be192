#!/usr/bin/env bash
# fault.c itself, on a program whose changes are known one by one.
# usage: fault_test.sh FAULT_LIBRARY TOY
set -u
library=$1
toy=$2
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
failures=0

# disturbed KIND NUMBER CODE LEFT: with that fault the program ends with CODE and leaves a file of LEFT bytes,
# "-" for none.
disturbed() {
  local folder=$work/run left
  rm -rf "$folder"
  mkdir "$folder"
  local code=0
  env RENORM_FAULT="$1" RENORM_FAULT_AT="$2" RENORM_FAULT_DIR="$folder" LD_PRELOAD="$library" \
    "$toy" "$folder" >"$work/out" 2>&1 &
  wait $! 2>/dev/null || code=$?
  left=$(find "$folder" -type f -printf '%s')
  if [ "$code" -ne "$3" ] || [ "${left:--}" != "$4" ]; then
    echo "FAILED: $1 at $2: exit code $code instead of $3, file of ${left:--} bytes instead of $4"
    failures=$((failures + 1))
  fi
}

mkdir "$work/whole"
RENORM_FAULT_LOG=$work/log RENORM_FAULT_DIR=$work/whole LD_PRELOAD=$library "$toy" "$work/whole"
calls=$(awk '{ print $2 }' "$work/log" | xargs)
expected="mkdir open write fsync rename symlink unlink"
if [ "$calls" != "$expected" ]; then
  echo "FAILED: counted '$calls' instead of '$expected'"
  failures=$((failures + 1))
fi

left=(- - 4 8 8 8)  # bytes of the file when a change but the last goes wrong
for number in 1 2 3 4 5 6; do
  bytes=${left[$((number - 1))]}
  disturbed full $number 1 "$bytes"
  disturbed kill $number 137 "$bytes"
  [ $number -ne 3 ] || bytes=0
  disturbed io $number 1 "$bytes"
done
disturbed full 7 0 8
disturbed io 7 1 8
disturbed kill 7 137 8
disturbed full 8 0 8

[ $failures -eq 0 ] && echo "fault_test: passed"
exit $((failures > 0))
