// SPDX-License-Identifier: BSD-3-Clause
// faultline-sim: a fabric of many hosts in virtual time. Each host runs the transport core that runs on real
// wires.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

#include <spdlog/fmt/fmt.h>
#include <sys/resource.h>

#include "apps/command_line/command_line.hpp"
#include "apps/sim/description/read_description.hpp"
#include "apps/sim/report/summary.hpp"
#include "apps/sim/report/write_files.hpp"
#include "apps/sim/world/world.hpp"
#include "stack/base/page_resource.hpp"
#include "stack/record/recording.hpp"

namespace {

using namespace faultline;
using namespace faultline::fabric;

constexpr int kFailed = 1;
constexpr int kMistake = 2;

struct Options {
  std::string file;
  std::optional<uint64_t> seed;
  std::optional<uint64_t> duration_ns;
  std::optional<transport::CongestionAlgorithm> algorithm;
  std::string output;
  FileFormat format = FileFormat::csv;
  std::string record;
  std::string record_host;
  bool as_json = false;
  bool prints_cost = false;
};

int fail(int status, const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
  return status;
}

/// Prints what the run has cost. Not on stdout, which two runs have equal.
void print_cost(std::chrono::steady_clock::time_point begin, const World& world) {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::fprintf(stderr, "cost        %.2f s, %.1f MB of memory, %.2f million events a second\n", took.count(),
               static_cast<double>(usage.ru_maxrss) / 1024,
               static_cast<double>(world.events()) / took.count() / 1e6);
}

/// Returns the index of a host by its name, the first without a name. Throws DescriptionError.
uint32_t find_host(const Topology& topology, const std::string& name) {
  if (name.empty()) return 0;
  for (uint32_t host = 0; host < topology.hosts; ++host)
    if (topology.nodes[host].name == name) return host;
  throw DescriptionError(
      fmt::format("faultline-sim: --record-host: \"{}\" is not a host of the fabric", name));
}

/// Creates the file of a recording; an older one is replaced. Throws std::runtime_error.
std::unique_ptr<record::Recording> make_recording(const std::string& file, const std::string& host) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(std::filesystem::symlink_status(file, ignored)))
    std::filesystem::remove(file, ignored);
  std::string error;
  auto recording = record::Recording::create({.file = file, .device = host, .is_virtual = true}, error);
  if (recording == nullptr) throw std::runtime_error("--record: " + error);
  return recording;
}

int run(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  Description description = read_description(options.file);
  if (options.seed) description.seed = *options.seed;
  if (options.duration_ns) description.duration_ns = *options.duration_ns;
  if (options.algorithm) description.congestion.algorithm = *options.algorithm;
  Recorder recorder{.host = find_host(description.topology, options.record_host), .ring = nullptr};
  std::unique_ptr<record::Recording> recording;
  if (!options.record.empty()) {
    recording = make_recording(options.record, description.topology.nodes[recorder.host].name);
    recorder.ring = &recording->ring_of_core(0);
  }
  // Each event touches another part of a state that exceeds all caches: huge pages save a fifth of the time.
  PageResource pages;
  constexpr size_t kFirstBytes = size_t{32} << 20;
  std::pmr::monotonic_buffer_resource memory(kFirstBytes, &pages);
  World world(description, recorder, &memory);
  world.run();
  const Summary summary = summarize(world);
  if (!options.output.empty()) write_files(world, summary, options.output, options.format);
  const std::string text = options.as_json ? json_of(summary).dump(2) + "\n" : text_of(summary);
  std::fputs(text.c_str(), stdout);
  if (options.prints_cost) print_cost(begin, world);
  if (std::fflush(stdout) != 0)
    return fail(kFailed, "faultline-sim: the summary cannot be written to stdout");
  return 0;
}

int start(int argc, char** argv) {
  Options options;
  CommandLine app("Simulates a fabric of many hosts, with the transport of real wires, in virtual time.",
                  "faultline-sim");
  app.add("file", options.file, "a TOML file that describes the fabric and its traffic").require();
  app.add("--seed", options.seed, "in place of the file's seed");
  app.add("--duration-ns", options.duration_ns, "in place of the file's virtual time, in nanoseconds")
      .in_range(uint64_t{1}, uint64_t{1'000'000'000'000});
  const std::map<std::string, transport::CongestionAlgorithm> algorithms{
      {"none", transport::CongestionAlgorithm::none},
      {"dcqcn", transport::CongestionAlgorithm::dcqcn},
      {"swift", transport::CongestionAlgorithm::swift}};
  std::string algorithm;
  app.add("--congestion", algorithm, "in place of the file's congestion control: none, dcqcn or swift")
      .one_of({"none", "dcqcn", "swift"});
  const auto output =
      app.add("--output", options.output, "write flows, ports, hosts and queues into files of this folder");
  std::string format = "csv";
  app.add("--format", format, "of these files: csv or json").one_of({"csv", "json"}).needs(output);
  const auto recorded =
      app.add("--record", options.record, "keep a recording of one host in this file, for faultline story");
  app.add("--record-host", options.record_host, "the host that is recorded; default: the first")
      .needs(recorded);
  app.add("--json", options.as_json, "print the summary as JSON");
  app.add("--cost", options.prints_cost, "print on stderr the time and memory that the run took");
  switch (app.parse(argc, argv)) {
    case CommandLine::Outcome::parsed:
      break;
    case CommandLine::Outcome::help:
      return app.report();
    case CommandLine::Outcome::mistake:
      return fail(kMistake,
                  fmt::format("faultline-sim: {}; faultline-sim --help lists the options", app.mistake()));
  }
  if (!algorithm.empty()) options.algorithm = algorithms.at(algorithm);
  options.format = format == "json" ? FileFormat::json : FileFormat::csv;
  return run(options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return start(argc, argv);
  } catch (const DescriptionError& error) {
    return fail(kMistake, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kFailed,
                "faultline-sim: not enough memory; use fewer hosts, connections or outstanding requests");
  } catch (const std::exception& error) {
    return fail(kFailed, fmt::format("faultline-sim: {}", error.what()));
  }
}
