#include "train/clip_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/text.h"

namespace renorm::train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMaxSteps = 1'000'000'000'000;
const std::string kPaper = "paper";

// The spec and the piece of it that is being read.
struct Piece {
  const std::string& spec;
  std::string text;
  size_t at;  // where in the spec it begins

  [[noreturn]] void refuse(const std::string& expected) const {
    throw UsageError(fmt::format("expected {} at character {} of '{}', got '{}'", expected, at + 1,
                                 printable(spec), printable(text)));
  }
  Piece from(size_t begin, size_t count = std::string::npos) const {
    return {spec, text.substr(begin, count), at + begin};
  }
};

double read_number(const Piece& piece, double min, double max, const std::string& expected) {
  try {
    return parse_number(piece.text, "", min, max) + 0.0;
  } catch (const UsageError&) {
    piece.refuse(expected);
  }
}

int64_t read_steps(const Piece& piece, int64_t min, const std::string& expected) {
  try {
    return parse_integer(piece.text, "", min, kMaxSteps);
  } catch (const UsageError&) {
    piece.refuse(expected);
  }
}

double read_r_max(const Piece& piece) {
  return read_number(piece, 1.0, kInfinity, "r_max, a number of at least 1 or inf,");
}

double read_d_max(const Piece& piece) {
  return read_number(piece, 0.0, kInfinity, "d_max, a number of at least 0 or inf,");
}

ClipPoint read_point(const Piece& piece) {
  const std::string expected = "a step, or a part of the run such as 31%,";
  if (piece.text.empty() || piece.text.back() != '%') {
    return {static_cast<double>(read_steps(piece, 0, expected)), false};
  }
  return {read_number(piece.from(0, piece.text.size() - 1), 0.0, 100.0, expected) / 100.0, true};
}

std::vector<Piece> pieces_of(const std::string& spec) {
  std::vector<Piece> pieces;
  size_t at = 0;
  for (const std::string& text : split(spec, ',')) {
    pieces.push_back({spec, text, at});
    at += text.size() + 1;
  }
  return pieces;
}

ClipSpec read_paper(const Piece& all) {
  ClipSpec spec;
  if (all.text.size() == kPaper.size()) return spec;
  const Piece rest = all.from(kPaper.size());
  if (rest.text[0] != '@') rest.refuse("the end, or @ and a number of steps,");
  spec.paper_steps = read_steps(rest.from(1), 1, "a number of steps such as 130000");
  return spec;
}

ClipSpec read_constant(const std::vector<Piece>& pieces) {
  if (pieces.size() != 2) {
    pieces.front().refuse("paper, paper@STEPS, R,D or hold:H,r:R@S,d:D@S");
  }
  ClipSpec spec;
  spec.kind = ClipSpec::Kind::kConstant;
  spec.r_max = read_r_max(pieces[0]);
  spec.d_max = read_d_max(pieces[1]);
  return spec;
}

// "3@40000" after "r:" or "d:".
void read_limit(const Piece& piece, double (*read_value)(const Piece&), double* value, ClipPoint* point) {
  const size_t sign = piece.text.find('@');
  if (sign == std::string::npos) piece.refuse("a limit, @ and a step, such as 3@40000 or 3@31%,");
  *value = read_value(piece.from(0, sign));
  *point = read_point(piece.from(sign + 1));
}

ClipSpec read_ramp(const std::vector<Piece>& pieces) {
  ClipSpec spec;
  spec.kind = ClipSpec::Kind::kRamp;
  std::set<std::string> seen;
  for (const Piece& piece : pieces) {
    const auto [key, value] = split_spec(piece.text);
    const Piece rest = piece.from(std::min(key.size() + 1, piece.text.size()));
    if (key != "hold" && key != "r" && key != "d") piece.refuse("hold:H, r:R@S or d:D@S");
    if (!seen.insert(key).second) piece.refuse(fmt::format("'{}' only once, but it comes again", key));
    if (key == "hold") spec.hold = read_point(rest);
    if (key == "r") read_limit(rest, read_r_max, &spec.r_max, &spec.r_at);
    if (key == "d") read_limit(rest, read_d_max, &spec.d_max, &spec.d_at);
  }
  for (const char* key : {"r", "d"}) {
    if (seen.count(key) == 0) {
      throw UsageError(fmt::format("expected {}:LIMIT@STEP in '{}', but it ends without one", key,
                                   printable(pieces.front().spec)));
    }
  }
  return spec;
}

int64_t step_of(const ClipPoint& point, int64_t steps) {
  return std::llround(point.fraction ? point.value * static_cast<double>(steps) : point.value);
}

}  // namespace

ClipSpec parse_clip(const std::string& text) {
  if (text.rfind(kPaper, 0) == 0) return read_paper({text, text, 0});
  const std::vector<Piece> pieces = pieces_of(text);
  return text.find(':') == std::string::npos ? read_constant(pieces) : read_ramp(pieces);
}

ClipSteps clip_steps(const ClipSpec& spec, int64_t steps) {
  const ClipSteps result = {step_of(spec.hold, steps), step_of(spec.r_at, steps), step_of(spec.d_at, steps)};
  for (const auto& [name, at] : {std::pair("r", result.r_at), std::pair("d", result.d_at)}) {
    if (at >= result.hold) continue;
    throw UsageError(fmt::format(
        "--clip: {}_max must be reached at or after the hold, which ends at step {} of {}, got step {}", name,
        result.hold, steps, at));
  }
  return result;
}

}  // namespace renorm::train
