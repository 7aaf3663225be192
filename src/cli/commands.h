// The commands of the program. A new command has its own file, and a declaration and an entry of kCommands
// here.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>

namespace renorm::cli {

struct Command {
  CLI::App* app;  // owned by the parent
  // Called after the whole command line was parsed; throws the errors of base/errors.h.
  std::function<void()> run;
  // Flags of other programs and their names here, for hints.
  std::map<std::string, std::string> known_elsewhere = {};
};

// Each adds a command to the command line.
Command add_bench_layer(CLI::App& bench);
Command add_bench_step(CLI::App& bench);
Command add_bench_workers(CLI::App& bench);
Command add_data(CLI::App& program);
Command add_doctor(CLI::App& program);
Command add_eval(CLI::App& program);
Command add_export(CLI::App& program);
Command add_models(CLI::App& program);
Command add_predict(CLI::App& program);
Command add_report(CLI::App& program);
Command add_reproduce(CLI::App& program);
Command add_train(CLI::App& program);

struct CommandEntry {
  Command (*add)(CLI::App& parent);
  bool in_bench = false;  // a command of `renorm bench`
};

// All commands, in the order of the help text.
inline constexpr CommandEntry kCommands[] = {
    {add_reproduce},
    {add_report},
    {add_train},
    {add_eval},
    {add_export},
    {add_predict},
    {add_data},
    {add_models},
    {add_bench_layer, true},
    {add_bench_step, true},
    {add_bench_workers, true},
    {add_doctor},
};

}  // namespace renorm::cli
