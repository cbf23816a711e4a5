// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/export/running_programs.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "stack/base/runtime_directory.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::cli {

namespace {

using nlohmann::json;

constexpr timeval kPatience{.tv_sec = 1, .tv_usec = 0};
// DPDK's telemetry sends a greeting of less than 1 KiB, and at most 16 KiB in one answer.
constexpr size_t kMostAnswerBytes = 64 * 1024;

/// Returns a text of an object, or "" if it has none of this name: a program of another build may answer
/// otherwise.
std::string text_of(const json& object, const std::string& key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// In /tmp any user may have made the folder, and what answers there.
bool is_of_this_user(const std::filesystem::path& folder) {
  struct stat status {};
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

/// Returns the folders in which pmd_glue/eal places the sockets.
std::set<std::filesystem::path> socket_folders() {
  std::set<std::filesystem::path> folders;
  const auto add = [&](const std::string& base) {
    std::filesystem::path folder = std::filesystem::path(base) / "dpdk/faultline";
    if (is_of_this_user(folder)) folders.insert(std::move(folder));
  };
  for (const char* name : {"RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"})
    if (const char* const given = std::getenv(name)) add(given);
  if (getuid() == 0) add("/var/run");
  std::string error;
  add(runtime_directory(error));
  const std::string user = std::to_string(getuid());
  add("/tmp/faultline-" + user);
  add("/run/user/" + user + "/faultline");
  add("/dev/shm/faultline-" + user);
  return folders;
}

/// A connection to the telemetry of one program.
class Connection {
 public:
  explicit Connection(const std::filesystem::path& path)
      : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    const std::string text = path.string();
    if (!socket_ || text.size() >= sizeof address.sun_path) return;
    std::memcpy(address.sun_path, text.c_str(), text.size() + 1);
    setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return;
    greeting_ = receive();
  }

  [[nodiscard]] const json& greeting() const { return greeting_; }

  /// Returns the answer to a command; null if there is none.
  [[nodiscard]] json ask(const std::string& command) {
    if (send(socket_.get(), command.data(), command.size(), MSG_NOSIGNAL) < 0) return {};
    json answer = receive();
    const std::string name = command.substr(0, command.find(','));
    return answer.is_object() && answer.contains(name) ? std::move(answer[name]) : json();
  }

 private:
  [[nodiscard]] json receive() const {
    std::string text(kMostAnswerBytes, '\0');
    const ssize_t bytes = recv(socket_.get(), text.data(), text.size(), 0);
    if (bytes <= 0) return {};
    text.resize(static_cast<size_t>(bytes));
    return json::parse(text, nullptr, /*allow_exceptions=*/false);
  }

  UniqueFd socket_;
  json greeting_;
};

std::string program_name(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

/// `values` and `units` are the answers to /faultline/counters and /faultline/units.
std::vector<CounterSample> samples_of(const json& values, const json& units) {
  std::vector<CounterSample> samples;
  for (const auto& [key, value] : values.items()) {
    if (!value.is_number_unsigned()) continue;
    CounterSample sample{.name = key, .unit = {}, .kind = {}, .help = {}, .value = value.get<uint64_t>()};
    std::ranges::replace(sample.name, '/', '.');
    const std::string words = text_of(units, key);
    const size_t space = words.find(' ');
    sample.kind = words.substr(0, space);
    if (space != std::string::npos) sample.unit = words.substr(space + 1);
    samples.push_back(std::move(sample));
  }
  return samples;
}

/// Adds the help texts, which the program has by the names' beginnings.
void add_help(Connection& connection, std::vector<CounterSample>& samples) {
  std::map<std::string, json> of_component;
  for (CounterSample& sample : samples) {
    const std::string component = sample.name.substr(0, sample.name.rfind('.'));
    const auto [at, is_new] = of_component.try_emplace(component);
    if (is_new) at->second = connection.ask("/faultline/help," + component);
    std::string key = sample.name;
    std::ranges::replace(key, '.', '/');
    sample.help = text_of(at->second, key);
  }
}

void read_program(const std::filesystem::path& path, std::vector<DeviceSamples>& all) {
  Connection connection(path);
  if (!connection.greeting().is_object()) return;
  const auto pid = connection.greeting().find("pid");
  if (pid == connection.greeting().end() || !pid->is_number_integer()) return;
  const pid_t process = pid->get<pid_t>();
  const json units = connection.ask("/faultline/units");
  const json devices = connection.ask("/faultline/devices");
  if (!devices.is_array()) return;
  for (const json& device : devices) {
    if (!device.is_string()) continue;
    const json values = connection.ask("/faultline/counters," + device.get<std::string>());
    if (!values.is_object()) continue;
    std::vector<CounterSample> samples = samples_of(values, units);
    add_help(connection, samples);
    all.push_back({process, program_name(process), device.get<std::string>(), std::move(samples)});
  }
}

}  // namespace

std::vector<DeviceSamples> read_running_programs() {
  std::vector<DeviceSamples> all;
  for (const auto& folder : socket_folders()) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
      if (entry.path().filename().string().starts_with("dpdk_telemetry.v2")) read_program(entry.path(), all);
  }
  std::ranges::sort(all, [](const DeviceSamples& left, const DeviceSamples& right) {
    return std::tie(left.process, left.device) < std::tie(right.process, right.device);
  });
  return all;
}

}  // namespace faultline::cli
