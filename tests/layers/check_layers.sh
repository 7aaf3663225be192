#!/usr/bin/env bash
# usage: check_layers.sh ROOT
# Reads the #include lines under ROOT/src and ROOT/include and fails on any that points against
#   kernels <- ops <- nn <- { data, models, train } <- { experiments, report } <- cli
# base (errors, files, text, random numbers) and record may be used by everything from data on.
# LibTorch's headers are on the default include path, so neither compiler nor linker would notice.
set -euo pipefail

cd "$1"
# A line is "layer:layers it may include:families of outside headers it may include".
# Families: torch (torch, ATen, c10, caffe2), hwy, json; all other outside headers are open to every layer.
rules="
base:base:
kernels:kernels:hwy
ops:kernels ops:torch
nn:kernels ops nn:torch
record:base record:json
data:base record data:torch
models:base ops nn models:torch
train:base record ops nn data models train:torch json
experiments:base record ops nn data models train experiments:torch json
report:base record report:json
cli:base record kernels ops nn data models train experiments report cli:torch hwy json
"

find src include -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.inl' \) | sort |
  xargs -r grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' /dev/null |
  awk -v rules="$rules" '
  function layer_of(path) {  # "src/nn/x.cpp", "include/renorm/nn/x.h" -> "nn"; "" for files above all layers
    sub(/^src\//, "", path); sub(/^include\/renorm\//, "", path)
    return path ~ /\// ? substr(path, 1, index(path, "/") - 1) : ""
  }
  function family_of(header) {
    if (header ~ /^(torch|ATen|c10|caffe2)\//) return "torch"
    if (header ~ /^hwy\//) return "hwy"
    if (header ~ /^nlohmann\//) return "json"
    return ""
  }
  function breach(place, text) { print place ": " text; breaches++ }
  BEGIN {
    count = split(rules, lines, "\n")
    for (i = 1; i <= count; i++) {
      if (split(lines[i], part, ":") < 2) continue
      known[part[1]] = 1
      m = split(part[2], names, " "); for (j = 1; j <= m; j++) may[part[1], names[j]] = 1
      m = split(part[3], names, " "); for (j = 1; j <= m; j++) may_external[part[1], names[j]] = 1
    }
  }
  {
    file = $0; sub(/:.*/, "", file)
    place = $0; sub(/^[^:]*:/, "", place); sub(/:.*/, "", place); place = file ":" place
    header = $0; sub(/^[^"<]*["<]/, "", header); sub(/[">].*/, "", header)
    from = layer_of(file)
    seen++
    if (from == "") next  # include/renorm/renorm.h gathers the public headers
    if (!(from in known)) { breach(place, "layer \"" from "\" is not in the rules"); next }
    if (header ~ /\.\.\//) { breach(place, "relative path \"" header "\": name the layer instead"); next }
    family = family_of(header)
    if (family != "") {
      if (!((from, family) in may_external)) breach(place, from " may not include " header)
      next
    }
    to = header; sub(/^renorm\//, "", to)
    to = to ~ /\// ? substr(to, 1, index(to, "/") - 1) : ""
    if (to in known && !((from, to) in may)) breach(place, from " may not include " header)
    if (file ~ /^include\// && header !~ /^renorm\// && to in known)
      breach(place, "an installed header may not include " header ", which is not installed")
  }
  END {
    if (seen == 0) { print "no #include lines found: wrong folder?"; exit 2 }
    if (breaches > 0) { print breaches " include(s) against the layers"; exit 1 }
    print seen " includes, all in order"
  }'
