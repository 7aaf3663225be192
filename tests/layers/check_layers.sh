#!/usr/bin/env bash
# usage: check_layers.sh ROOT
# Reads the #include lines under ROOT/src and ROOT/include and fails on any that breaks one of two rules.
#
# Layers: an include may only follow the arrows of
#   kernels <- ops <- nn <- { data, models, train } <- { export <- bench, experiments, report } <- cli
# base and record may be used by everything from data on. The table below is the rule in full.
#
# No torch: the files of the folders in `torch_free`, and the sources of every CMake target without
# renorm_use_torch, must not include a header of LibTorch, neither directly nor through other headers. The
# targets of src/cli are exempt: the program links everything.
#
# LibTorch's headers are on the default include path, so neither compiler nor linker would notice.
set -euo pipefail

cd "$1"
# layer:layers it may include:families of external headers it may include
# Families: torch (torch, ATen, c10, caffe2), hwy, json. Every layer may include all other external headers.
rules="
base:base:
kernels:kernels:hwy
ops:kernels ops:torch
nn:kernels ops nn:torch
record:base record:json
data:base record data:torch
models:base ops nn models:torch
dist:base dist:torch
train:base record ops nn data models dist train:torch json
export:base record ops nn data models train export:torch json
bench:base record kernels ops nn data models dist train export bench:torch hwy json
experiments:base record data models train experiments:json
report:base record report:json
cli:base record kernels ops nn data models dist train export bench experiments report cli:torch hwy json
"
torch_free="base kernels record experiments report"

# Sources of the targets without renorm_use_torch, one per line.
torch_free_sources() {
  find src -name CMakeLists.txt -not -path 'src/cli/*' | sort | while IFS= read -r list; do
    sed 's/#.*//' "$list" | tr '\n' ' ' | awk -v folder="$(dirname "$list")" '{
      text = $0
      while (match(text, /(add_library|add_executable|target_sources|renorm_use_torch) *\([^)]*\)/)) {
        call = substr(text, RSTART, RLENGTH); text = substr(text, RSTART + RLENGTH)
        split(call, part, "("); sub(/ *$/, "", part[1]); sub(/\)/, "", part[2])
        n = split(part[2], word, " ")
        if (part[1] == "renorm_use_torch") { uses_torch[word[1]] = 1; continue }
        for (i = 2; i <= n; i++) if (word[i] ~ /^[a-z].*\.cpp$/) target_of[folder "/" word[i]] = word[1]
      }
    }
    END { for (file in target_of) if (!(target_of[file] in uses_torch)) print file }'
  done
}

find src include -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.inl' \) | sort |
  xargs -r grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' /dev/null |
  awk -v rules="$rules" -v torch_free="$torch_free" -v sources="$(torch_free_sources | sort | tr '\n' ' ')" '
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
  # The chain of headers from a file to one of LibTorch, or "". torch_line[file] is the line it starts at.
  function torch_chain(file,   i, header, rest) {
    if (file in chain) return chain[file]
    chain[file] = ""
    for (i = 1; i <= includes[file]; i++) {
      header = included[file, i]
      if (family_of(header) == "torch") rest = header
      else {
        rest = torch_chain(header ~ /^renorm\// ? "include/" header : "src/" header)
        if (rest != "") rest = header " -> " rest
      }
      if (rest != "") { torch_line[file] = line_of[file, i]; return chain[file] = rest }
    }
    return ""
  }
  BEGIN {
    count = split(rules, lines, "\n")
    for (i = 1; i <= count; i++) {
      if (split(lines[i], part, ":") < 2) continue
      known[part[1]] = 1
      m = split(part[2], names, " "); for (j = 1; j <= m; j++) may[part[1], names[j]] = 1
      m = split(part[3], names, " "); for (j = 1; j <= m; j++) may_external[part[1], names[j]] = 1
    }
    m = split(torch_free, names, " "); for (j = 1; j <= m; j++) no_torch_layer[names[j]] = 1
    m = split(sources, names, " "); for (j = 1; j <= m; j++) no_torch[names[j]] = 1
  }
  {
    file = $0; sub(/:.*/, "", file)
    line = $0; sub(/^[^:]*:/, "", line); sub(/:.*/, "", line); place = file ":" line
    header = $0; sub(/^[^"<]*["<]/, "", header); sub(/[">].*/, "", header)
    from = layer_of(file)
    seen++
    included[file, ++includes[file]] = header
    line_of[file, includes[file]] = line
    if (includes[file] == 1) files[++file_count] = file
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
    for (i = 1; i <= file_count; i++) {
      file = files[i]
      if (!(layer_of(file) in no_torch_layer) && !(file in no_torch)) continue
      checked++
      if (torch_chain(file) != "") breach(file ":" torch_line[file], "must not use torch, includes " chain[file])
    }
    if (seen == 0) { print "no #include lines found: wrong folder?"; exit 2 }
    if (breaches > 0) { print breaches " include(s) against the rules"; exit 1 }
    print seen " includes in order, " checked " files without torch"
  }'
