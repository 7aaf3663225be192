#!/usr/bin/env bash
# usage: runpath_test.sh COMPILER FOLDER...
# An empty or relative element of an RPATH or RUNPATH stands for the current folder: a library that lies there
# by the right name is loaded and runs. No program and no library below the folders has one.
set -euo pipefail
compiler=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# bad_element LIST: whether a list separated by colons has an element that is neither absolute nor at $ORIGIN.
bad_element() {
  local element
  while IFS= read -r -d : element; do
    # shellcheck disable=SC2016  # the name is not expanded here but by the dynamic linker
    case $element in
      /* | '$ORIGIN' | '$ORIGIN'/* | '${ORIGIN}' | '${ORIGIN}'/*) ;;
      *) return 0 ;;
    esac
  done <<<"$1:"
  return 1
}

# check FILE: prints the list of FILE if an element is bad.
check() {
  local list
  list=$(readelf -d "$1" | sed -nE 's/.*\((RPATH|RUNPATH)\).*\[(.*)\]$/\2/p')
  [ -z "$list" ] && ! readelf -d "$1" | grep -qE '\((RPATH|RUNPATH)\)' && return 0
  ! bad_element "$list" || echo "$1: '$list' has an element that stands for the current folder"
}

is_elf() { [ "$(head -c 4 "$1" | od -An -c | tr -d ' ')" = '177ELF' ]; }

# The check itself: toys with good and bad lists.
echo 'int one() { return 1; }' >"$scratch/toy.cpp"
toy() {
  "$compiler" -shared -fPIC -o "$scratch/toy.so" "$scratch/toy.cpp" ${1:+"-Wl,-rpath,$1"}
  check "$scratch/toy.so"
}
# shellcheck disable=SC2016
{
  for good in '' '$ORIGIN' '$ORIGIN/../lib:$ORIGIN/src' '/usr/lib:/opt/x/lib'; do
    [ -z "$(toy "$good")" ] || { echo "refuses the good list '$good'" && exit 1; }
  done
  for bad in '$ORIGIN::::' ':/usr/lib' '/usr/lib:' '/usr/lib::/opt/lib' 'lib' '$ORIGIN:lib' '.'; do
    [ -n "$(toy "$bad")" ] || { echo "accepts the bad list '$bad'" && exit 1; }
  done
}

find "$@" -type f '(' -perm -u+x -o -name '*.so*' ')' -print >"$scratch/files"
count=0
while IFS= read -r file; do
  is_elf "$file" || continue
  count=$((count + 1))
  check "$file" >>"$scratch/problems"
done <"$scratch/files"
cat "$scratch/problems"
[ "$count" -ge 2 ] || { echo "only $count programs and libraries in $*" && exit 1; }
[ ! -s "$scratch/problems" ] || exit 1
echo "$count programs and libraries, none of them searches the current folder"
