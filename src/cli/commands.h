// The commands of the program: each adds itself to the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>

namespace renorm::cli {

struct Command {
  CLI::App* app;  // owned by the parent
  // Called when the whole command line was understood; throws the errors of base/errors.h.
  std::function<void()> run;
  // What other programs call a flag, and what it is called here: hints for those who come from them.
  std::map<std::string, std::string> known_elsewhere = {};
};

Command add_bench_layer(CLI::App& bench);
Command add_bench_step(CLI::App& bench);
Command add_data(CLI::App& program);
Command add_doctor(CLI::App& program);
Command add_eval(CLI::App& program);
Command add_export(CLI::App& program);
Command add_models(CLI::App& program);
Command add_predict(CLI::App& program);
Command add_report(CLI::App& program);
Command add_reproduce(CLI::App& program);
Command add_train(CLI::App& program);

}  // namespace renorm::cli
