// The parts of a report, each as HTML; a part without content is empty text.
#pragma once

#include <string>
#include <vector>

#include "record/results.h"
#include "report/arms.h"
#include "report/report.h"

namespace renorm::report {

// What every part asks of the results.
struct Page {
  explicit Page(const record::Results& of);

  const record::Results& results;
  std::vector<FigureArms> figures;
  std::vector<Look> looks;
  bool paper;  // whether the paper is mentioned
};

// The label of an arm, or its name if it has none; escaped.
std::string label_of(const record::Arm& arm);

std::string claims_section(const Page& page);
std::string table_section(const Page& page);
std::string accuracy_section(const Page& page);  // a chart a figure
std::string clipping_section(const Page& page);  // of the arms with Batch Renorm
std::string loss_section(const Page& page);
std::string data_section(const ReportExtras& extras);
std::string origin_section(const Page& page);  // commands, versions, seeds, runs

}  // namespace renorm::report
