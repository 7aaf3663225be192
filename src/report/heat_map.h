// A figure over two settings.
#pragma once

#include <string>

#include "report/page.h"

namespace renorm::report {

// One table per series: a cell per pair of settings, coloured and with its figure written in it. The colours
// of all tables have one scale. The y axis goes up. "" if no arm has a figure.
std::string heat_maps(const Page& page, const FigureArms& entry);

}  // namespace renorm::report
