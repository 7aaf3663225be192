// The renorm command. This file alone turns exceptions into messages and exit codes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <cstdlib>
#include <thread>

#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/names.h"
#include "kernels/kernels.h"

namespace renorm::cli {
namespace {

std::string version_text() {
  return fmt::format("renorm {}\nLibTorch {}\nSIMD target {}", RENORM_VERSION, TORCH_VERSION,
                     kernels::simd_target());
}

std::vector<std::string> valid_names(const CLI::App& app, bool flags) {
  std::vector<std::string> names;
  if (flags) {
    for (const CLI::Option* option : app.get_options()) names.push_back("--" + option->get_single_name());
  } else {
    for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  }
  return names;
}

// "renorm bench layer" for the command `layer`.
std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

[[noreturn]] void reject(const CLI::App& app, const std::string& word) {
  const bool is_flag = word.size() > 1 && word[0] == '-';
  const std::string name = is_flag ? word.substr(0, word.find('=')) : word;
  const std::vector<std::string> names = valid_names(app, is_flag);
  const std::string nearest = nearest_name(name, names);
  const std::string hint = !nearest.empty() ? fmt::format("did you mean '{}'?", nearest)
                           : names.empty()  ? "it takes flags only"
                                            : fmt::format("it has {}", fmt::join(names, ", "));
  throw UsageError(
      fmt::format("'{}' has no {} '{}'; {}", full_name(app), is_flag ? "flag" : "command", name, hint));
}

// The parser is told to let unknown words pass, because its own message names no alternative.
void reject_unknown_words(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining(false);
  if (!words.empty()) reject(app, words.front());
  for (const CLI::App* command : app.get_subcommands()) reject_unknown_words(*command);
}

[[noreturn]] void ask_for_command(const CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  throw UsageError(fmt::format("'{0}' needs a command: {1}; see '{0} --help'", full_name(*app),
                               fmt::join(valid_names(*app, false), ", ")));
}

// LibTorch 1.13 takes half of the CPUs unless it is told otherwise.
void use_all_cpus() {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const unsigned cpus = std::thread::hardware_concurrency();
  if (cpus > 0) at::set_num_threads(static_cast<int>(cpus));
}

int run(int argc, char** argv) {
  CLI::App program("Batch Renormalization for LibTorch", "renorm");
  program.allow_extras();
  program.set_version_flag("--version", version_text,
                           "Print the versions of renorm and LibTorch, and the SIMD target");
  CLI::App* bench = program.add_subcommand("bench", "Measure speed on this machine");
  bench->allow_extras();
  const std::vector<Command> commands = {add_bench_layer(*bench), add_demo(program)};
  for (const Command& command : commands) command.app->allow_extras();
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return program.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  reject_unknown_words(program);
  use_all_cpus();
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    command.run();
    return EXIT_SUCCESS;
  }
  ask_for_command(program);
}

int report(const std::string& message, ExitCode code) {
  fmt::print(stderr, "renorm: {}\n", message);
  return code;
}

}  // namespace
}  // namespace renorm::cli

int main(int argc, char** argv) {
  using namespace renorm::cli;
  try {
    return run(argc, argv);
  } catch (const UsageError& error) {
    return report(error.what(), kExitUsage);
  } catch (const OutputError& error) {
    return report(error.what(), kExitCannotWrite);
  } catch (const c10::Error& error) {
    return report(fmt::format("internal error: {}", error.what_without_backtrace()), kExitInternal);
  } catch (const std::exception& error) {
    return report(fmt::format("internal error: {}", error.what()), kExitInternal);
  }
}
