// The renorm command. This file alone turns exceptions into messages and exit codes.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <new>
#include <thread>

#include "base/address_space.h"
#include "base/cpu.h"
#include "base/errors.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/start_memory.h"
#include "dist/group.h"
#include "kernels/kernels.h"

namespace renorm::cli {
namespace {

constexpr size_t kMaxNamesListed = 12;

std::string version_text() {
  return fmt::format("renorm {}\nLibTorch {}\nSIMD target {}", RENORM_VERSION, TORCH_VERSION,
                     kernels::simd_target());
}

// "renorm bench layer" for the command `layer`.
std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

std::string hint(const std::string& word, const std::vector<std::string>& names, const std::string& command) {
  const std::string nearest = nearest_name(word, names);
  if (!nearest.empty()) return fmt::format("did you mean '{}'?", nearest);
  if (names.size() > kMaxNamesListed) return fmt::format("see '{} --help'", command);
  return fmt::format("known are {}", fmt::join(names, ", "));
}

[[noreturn]] void reject_flag(const CLI::App& app, const std::string& word, const Command* command) {
  const std::string flag = word.substr(0, word.find('='));
  std::string advice = hint(flag, flag_names(app), full_name(app));
  if (command != nullptr) {
    const auto elsewhere = command->known_elsewhere.find(flag);
    if (elsewhere != command->known_elsewhere.end()) advice = fmt::format("use '{}'", elsewhere->second);
  }
  throw UsageError(fmt::format("unknown flag '{}' for '{}'; {}", printable(flag), full_name(app), advice));
}

[[noreturn]] void reject_word(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> commands = command_names(app);
  if (!commands.empty()) {
    throw UsageError(fmt::format("unknown command '{}' for '{}'; {}", printable(word), full_name(app),
                                 hint(word, commands, full_name(app))));
  }
  std::vector<std::string> arguments;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->nonpositional()) arguments.push_back(option->get_name(true));
  }
  throw UsageError(
      fmt::format("unexpected argument '{}' for '{}', which takes {}", printable(word), full_name(app),
                  arguments.empty() ? std::string("flags only")
                                    : fmt::format("one {} and flags", fmt::join(arguments, ", one "))));
}

// The parser takes whatever follows a flag as its value.
void reject_flag_as_value(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->nonpositional() || option->get_items_expected_max() == 0) continue;
    for (const std::string& value : option->results()) {
      if (value.rfind("--", 0) != 0) continue;
      throw UsageError(fmt::format("--{} needs a value, but is followed by the flag '{}'",
                                   option->get_single_name(), printable(value)));
    }
  }
}

// The parser lets unknown words pass, because its own messages suggest no alternative.
void reject_unknown_words(const CLI::App& app, const std::vector<Command>& commands) {
  const Command* own = nullptr;
  for (const Command& command : commands) {
    if (command.app == &app) own = &command;
  }
  const std::vector<std::string> words = app.remaining(false);
  if (!words.empty()) {
    const std::string& word = words.front();
    if (word.size() > 1 && word[0] == '-') reject_flag(app, word, own);
    reject_word(app, word);
  }
  reject_flag_as_value(app);
  for (const CLI::App* command : app.get_subcommands()) reject_unknown_words(*command, commands);
}

[[noreturn]] void reject_missing_command(const CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  throw UsageError(fmt::format("'{0}' needs a command: {1}; see '{0} --help'", full_name(*app),
                               fmt::join(command_names(*app), ", ")));
}

std::vector<Command> add_commands(CLI::App& program) {
  program.allow_extras();
  program.option_defaults()->group("Flags");
  program.set_help_flag("-h,--help", "print this text and exit");
  program.formatter_fn(
      [](const CLI::App* app, const std::string& name, CLI::AppFormatMode) { return help_text(*app, name); });
  program.set_version_flag("--version", version_text,
                           "print the versions of renorm and LibTorch, and the SIMD target");
  CLI::App* bench = nullptr;
  std::vector<Command> commands;
  for (const CommandEntry& entry : kCommands) {
    if (entry.in_bench && bench == nullptr) {
      bench = program.add_subcommand("bench", "Measure speed on this machine");
      bench->allow_extras();
    }
    commands.push_back(entry.add(entry.in_bench ? *bench : program));
    commands.back().app->allow_extras();
  }
  // Last, because commands inherit it.
  program.footer("'renorm COMMAND --help' explains a command.");
  return commands;
}

// LibTorch 1.13 uses half of the CPUs by default.
void use_all_cpus() {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const unsigned cpus = std::thread::hardware_concurrency();
  if (cpus > 0) at::set_num_threads(static_cast<int>(cpus));
}

void run_parsed(const CLI::App& program, const std::vector<Command>& commands) {
  reject_unknown_words(program, commands);
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    use_all_cpus();
    return command.run();
  }
  reject_missing_command(program);
}

// Output counts only once it has been written.
void flush_output() {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw IoError(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

// The parser's messages name counts and types; these give the remedy.
std::string explained(const CLI::ParseError& error) {
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const bool repeated = text.find("received") != std::string::npos;
    return text.substr(0, text.find(':')) + (repeated ? " is given more than once" : " needs a value");
  }
  // "Could not convert: --steps = three"
  const size_t flag = text.find("--"), equals = text.find(" = ");
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr && flag < equals &&
      equals != std::string::npos) {
    return fmt::format("invalid value '{}' for {}", text.substr(equals + 3),
                       text.substr(flag, equals - flag));
  }
  return text;
}

int run(int argc, char** argv) {
  CLI::App program("Batch Renormalization for LibTorch: a layer, a trainer, and measurements", "renorm");
  const std::vector<Command> commands = add_commands(program);
  try {
    program.parse(argc, argv);
    run_parsed(program, commands);
  } catch (const CLI::Success& help_or_version) {
    program.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    throw UsageError(printable(explained(error)));
  }
  flush_output();
  return EXIT_SUCCESS;
}

int report(const Failure& failure) {
  std::fflush(stdout);
  std::fputs(fmt::format("renorm: {}\n", failure.message).c_str(), stderr);
  return failure.exit_code;
}

int run_reporting(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const dist::ReportedElsewhere& error) {
    return error.exit_code;
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) return report(failure_of(std::make_exception_ptr(std::bad_alloc())));
    return report({kExitInternal, fmt::format("internal error: {}", error.what_without_backtrace())});
  } catch (const std::exception&) {
    return report(failure_of(std::current_exception()));
  }
}

}  // namespace
}  // namespace renorm::cli

int main(int argc, char** argv) {
  // A write beyond 'ulimit -f' fails like one to a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  renorm::cli::explain_faults_under_a_limit();
  renorm::avoid_incomplete_amx();
  const int code = renorm::cli::run_reporting(argc, argv);
  if (!renorm::dist::is_thread_left_behind()) return code;
  std::fflush(nullptr);
  _exit(code);
}
