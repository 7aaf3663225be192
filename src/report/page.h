// The results as all parts of a report need them: figures with their arms, and how an arm is drawn.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "record/results.h"

namespace renorm::report {

// Batchnorm has warm colours and dashes, Batch Renorm cool colours and, but for a second one in a figure,
// solid lines. Arms of a figure differ, and so do all arms with Batch Renorm, until the colours are used up.
struct Look {
  int colour = 0;  // --c0 to --c6 of report.css
  int dash = 0;    // of kDashes and the patterns of series.js; 0 is solid
};
std::vector<Look> looks_of(const std::vector<record::Arm>& arms);

// A short piece of an arm's line, as inline SVG.
std::string swatch(const Look& look);
std::string reference_swatch();

// A figure with the indices of its arms. Arms without a figure of the results are in a last one, "Other
// arms".
struct FigureArms {
  record::Figure figure;
  std::vector<size_t> arms;
};
std::vector<FigureArms> figures_of(const record::Results& results);

// The index of the reference arm, whose curve the other figures repeat, or the number of arms.
size_t reference_arm(const record::Results& results);

// Whether any arm has a figure of the paper.
bool mentions_paper(const record::Results& results);

struct Page {
  explicit Page(const record::Results& of);

  const record::Results& results;
  std::vector<FigureArms> figures;
  std::vector<Look> looks;
  bool paper;  // whether the paper is mentioned
};

// The label of an arm, or its name if it has none; escaped.
std::string label_of(const record::Arm& arm);

}  // namespace renorm::report
