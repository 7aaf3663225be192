// The charts over the steps, each as HTML; a chart or section without content is empty text.
#pragma once

#include <string>

#include "report/page.h"

namespace renorm::report {

// Test accuracy of the arms of a figure and, thin and grey, of its reference.
std::string curve_chart(const Page& page, const FigureArms& entry);

// Of the training of all arms whose figures are over the steps.
std::string clipping_section(const Page& page);  // arms with Batch Renorm
std::string loss_section(const Page& page);

}  // namespace renorm::report
