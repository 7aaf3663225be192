// A chart over a setting.
#pragma once

#include <string>

#include "report/page.h"

namespace renorm::report {

// The figures of arms over their places on the x axis, as SVG that needs no script: one line per series, a
// bar of one standard deviation where there are several seeds, a level for an arm without a place and, thin
// and grey, one for the reference. "" if there is nothing to draw. Figures and places that no chart can show,
// such as NaN, are left out; the axis is linear if a place has no logarithm.
std::string setting_chart(const Page& page, const FigureArms& entry);

}  // namespace renorm::report
