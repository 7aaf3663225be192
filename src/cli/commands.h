// The commands of the program: each adds itself to the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace renorm::cli {

struct Command {
  CLI::App* app;  // owned by the parent
  // Called when the whole command line was understood; throws UsageError or OutputError.
  std::function<void()> run;
};

Command add_bench_layer(CLI::App& bench);
Command add_demo(CLI::App& program);

}  // namespace renorm::cli
