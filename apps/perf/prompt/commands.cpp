// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/prompt/commands.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>

#include "apps/perf/prompt/settings.hpp"
#include "apps/perf/prompt/show.hpp"

namespace faultline::perf {

namespace {

struct Command {
  const char* name;
  const char* arguments;  ///< for people
  const char* summary;
  size_t most_arguments;
  void (*run)(Bench&, const Arguments&);
  std::vector<std::string> (*candidates)(const Arguments&);  ///< that may follow these arguments
  void (*explain)();                                         ///< prints what help adds to the summary
};

std::span<const Command> commands();

const Command* command_of(const std::string& name) {
  const auto found =
      std::ranges::find_if(commands(), [&](const Command& command) { return command.name == name; });
  return found == commands().end() ? nullptr : &*found;
}

/// Returns a line of the command line's as the prompt writes it: its settings have no dashes.
std::string without_dashes(std::string line) {
  for (size_t at = line.find("--"); at != std::string::npos; at = line.find("--", at)) line.erase(at, 2);
  return line;
}

void print_row(const std::string& name, const char* arguments, const char* summary) {
  std::printf("  %-26s %s\n", (name + ' ' + arguments).c_str(), summary);
}

void help(Bench& /*bench*/, const Arguments& arguments) {
  if (arguments.empty()) {
    for (const Command& command : commands()) print_row(command.name, command.arguments, command.summary);
    return;
  }
  const Command* command = command_of(arguments.front());
  if (command == nullptr)
    throw Mistake("help: unknown command \"" + arguments.front() + "\"; help lists the commands");
  print_row(command->name, command->arguments, command->summary);
  if (command->explain != nullptr) command->explain();
}

void start(Bench& bench, const Arguments& /*arguments*/) {
  finish_ended_run(bench);
  if (bench.run.exists()) throw Mistake("start: a run is under way; stop ends it");
  if (const std::string conflict = conflict_of(bench.session.options()); !conflict.empty())
    throw Mistake("start: " + without_dashes(conflict) + "; set changes it");
  try {
    bench.run.start(bench.session.first_plan(), bench.length);
  } catch (const ConfigError& error) {
    throw Mistake("start: " + without_dashes(error.what()) + "; set changes it");
  } catch (const VerbsError& error) {
    throw Mistake(std::string("start: ") + error.what() + "; show config has the settings");
  } catch (const ExchangeError& error) {
    throw Mistake(std::string("start: ") + error.what() + "; quit, then connect to a server again");
  }
}

void stop(Bench& bench, const Arguments& /*arguments*/) {
  bench.need_run("stop");
  finish_run(bench);
}

void wait(Bench& bench, const Arguments& /*arguments*/) {
  bench.need_run("wait");
  if (!bench.on_terminal && bench.length.seconds == 0 && bench.length.iterations == 0)
    throw Mistake("wait: nothing ends this run; set seconds or iters before start, or stop it");
  if (bench.run.wait(-1, bench.on_terminal) == Woken::run_ended) finish_run(bench);
}

void set(Bench& bench, const Arguments& arguments) {
  finish_ended_run(bench);
  if (bench.run.exists()) throw Mistake("set: a run is under way; stop ends it");
  if (arguments.empty() || arguments.size() % 2 != 0)
    throw Mistake("set: a name or a value is missing; it takes NAME VALUE, and help set lists them");
  Settings changed = settings_of(bench);
  for (size_t i = 0; i < arguments.size(); i += 2) {
    const Setting* setting = setting_of(arguments[i]);
    if (setting == nullptr)
      throw Mistake("set: there is no setting \"" + arguments[i] + "\"; help set lists them");
    if (!setting->set(changed, arguments[i + 1]))
      throw Mistake("set " + arguments[i] + ": \"" + arguments[i + 1] + "\" is not possible; it takes " +
                    setting->values);
  }
  bench.session.options() = changed.test;
  bench.length = changed.length;
}

void show(Bench& bench, const Arguments& arguments) {
  if (arguments.empty()) throw Mistake("show: what to show is missing; help show lists it");
  const View* view = view_of(arguments.front());
  if (view == nullptr)
    throw Mistake("show: there is no \"" + arguments.front() + "\" to show; help show lists it");
  view->show(bench, Arguments(arguments.begin() + 1, arguments.end()));
}

void quit(Bench& bench, const Arguments& /*arguments*/) {
  bench.quit = true;
}

std::vector<std::string> no_words(const Arguments& /*before*/) {
  return {};
}

std::vector<std::string> command_names(const Arguments& before) {
  std::vector<std::string> names;
  if (!before.empty()) return names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  return names;
}

std::vector<std::string> words_of_set(const Arguments& before) {
  if (before.size() % 2 != 0) {
    const Setting* setting = setting_of(before.back());
    return setting == nullptr ? std::vector<std::string>{} : setting->candidates();
  }
  std::vector<std::string> names;
  for (const Setting& setting : settings()) names.emplace_back(setting.name);
  return names;
}

std::vector<std::string> words_of_show(const Arguments& before) {
  std::vector<std::string> names;
  if (before.empty())
    for (const View& view : views()) names.emplace_back(view.name);
  if (before.size() == 1) {
    const View* view = view_of(before.front());
    if (view != nullptr && view->takes_all) names.emplace_back("all");
  }
  return names;
}

void explain_set() {
  for (const Setting& setting : settings()) {
    print_row(std::string("  ") + setting.name, "", setting.summary);
    print_row("", "", setting.values);
  }
}

void explain_show() {
  for (const View& view : views()) print_row(std::string("  ") + view.name, view.arguments, view.summary);
}

constexpr size_t kAnyNumber = SIZE_MAX;

constexpr std::array kCommands{
    Command{"help", "[COMMAND]", "list the commands, or explain one", 1, help, command_names, nullptr},
    Command{"start", "", "connect queue pairs and begin a run", 0, start, no_words, nullptr},
    Command{"stop", "", "end the run and print its result", 0, stop, no_words, nullptr},
    Command{"wait", "", "wait until the run ends by seconds or iters; Enter ends the wait", 0, wait, no_words,
            nullptr},
    Command{"show", "WHAT", "print the state of the bench", kAnyNumber, show, words_of_show, explain_show},
    Command{"set", "NAME VALUE...", "change settings between two runs", kAnyNumber, set, words_of_set,
            explain_set},
    Command{"quit", "", "end the run and the program", 0, quit, no_words, nullptr},
};

std::span<const Command> commands() {
  return kCommands;
}

}  // namespace

void do_command(Bench& bench, const std::vector<std::string>& words) {
  const Command* command = command_of(words.front());
  if (command == nullptr) throw Mistake("unknown command \"" + words.front() + "\"; help lists the commands");
  const Arguments arguments(words.begin() + 1, words.end());
  if (arguments.size() > command->most_arguments)
    throw Mistake(words.front() + ": \"" + arguments.back() + "\" is too much; help " + words.front() +
                  " explains the command");
  command->run(bench, arguments);
}

std::vector<std::string> candidates_after(const std::vector<std::string>& before) {
  if (before.empty()) return command_names({});
  const Command* command = command_of(before.front());
  if (command == nullptr) return {};
  return command->candidates(Arguments(before.begin() + 1, before.end()));
}

void finish_run(Bench& bench) {
  try {
    const Result result = bench.run.finish();
    bench.last_messages = result.messages;
    print_table({result});
    if (result.wrong_bytes == 0) return;
  } catch (const std::runtime_error& error) {
    bench.run_failed = true;
    throw Mistake(std::string("the run failed: ") + error.what() + "; show counters may have the cause");
  }
  bench.run_failed = true;
  throw Mistake("bytes arrived wrong; show counters may have the cause");
}

void finish_ended_run(Bench& bench) {
  if (bench.run.exists() && bench.run.ended()) finish_run(bench);
}

}  // namespace faultline::perf
