// The results as all parts of a report need them: figures with their arms, and how an arm is drawn.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "record/results.h"

namespace renorm::report {

// Batchnorm has warm colours and dashes, Batch Renorm cool colours and, for the first one of a figure, a
// solid line. Arms of a figure differ, and so do all arms with Batch Renorm, until the colours are used up.
// Arms of one line over a setting look alike.
struct Look {
  int colour = 0;  // --c0 to --c6 of report.css
  int dash = 0;    // of kDashes and the patterns of series.js; 0 is solid
};
std::vector<Look> looks_of(const std::vector<record::Arm>& arms);

// The stroke-dasharray of a line.
const char* dashes(const Look& look);

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

// The arm that a figure is compared with: the figure's own reference or that of the results. None if there is
// no such arm. A figure with data or a model of its own has a reference of its own or none.
std::optional<size_t> reference_of(const record::Results& results, const record::Figure& figure);

// Whether any arm has a figure of the paper.
bool mentions_paper(const record::Results& results);

struct Page {
  explicit Page(const record::Results& of);

  const record::Results& results;
  std::vector<FigureArms> figures;
  std::vector<Look> looks;
  bool paper;           // whether the paper is mentioned
  std::string measure;  // "test accuracy", or what the results have instead; escaped
};

// The label of an arm, or its name if it has none; escaped.
std::string label_of(const record::Arm& arm);

// The labels of the references of all figures, each once; escaped.
std::set<std::string> references_of(const Page& page);

// The labels of these arms for one chart, escaped. A label that several of them have, or that is taken, is
// followed by the name of the arm, so that no two are equal.
std::vector<std::string> distinct_labels(const std::vector<record::Arm>& arms,
                                         const std::vector<size_t>& which,
                                         const std::vector<std::string>& taken = {});

}  // namespace renorm::report
