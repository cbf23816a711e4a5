// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/log.hpp"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/sinks/sink.h>
#include <sys/stat.h>
#include <unistd.h>

namespace faultline {
namespace {

/// An open log file. Never freed: another thread may write to it.
struct LogFile {
  int fd = -1;
  dev_t device = 0;
  ino_t inode = 0;

  /// False if the program has closed the descriptor, whose number may now be another file's.
  [[nodiscard]] bool is_open() const {
    struct stat status {};
    return fstat(fd, &status) == 0 && status.st_dev == device && status.st_ino == inode;
  }
};

/// Writes "faultline: TEXT" to stderr, or to a file. spdlog's own sinks hold a mutex for it, which would stay
/// locked in a child that is forked meanwhile. stdio's lock suffices for whole lines, and the C library
/// unlocks it in a child. A file needs no lock: each line is one write(2) that appends.
class LogSink final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    const int errno_before = errno;
    write_line(message);
    errno = errno_before;
  }
  void flush() override {}
  void set_pattern(const std::string& /*pattern*/) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter> /*formatter*/) override {}

  void use(const LogFile* file) { file_.store(file, std::memory_order_release); }

 private:
  void write_line(const spdlog::details::log_msg& message) const {
    const std::string_view name(message.logger_name.data(), message.logger_name.size());
    const std::string_view text(message.payload.data(), message.payload.size());
    fmt::memory_buffer line;
    fmt::format_to(std::back_inserter(line), "{}: {}\n", name, text);
    if (is_in_file({line.data(), line.size()})) return;
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
  }
  [[nodiscard]] bool is_in_file(std::string_view line) const {
    const LogFile* const file = file_.load(std::memory_order_acquire);
    return file != nullptr && file->is_open() && write(file->fd, line.data(), line.size()) > 0;
  }

  std::atomic<const LogFile*> file_{nullptr};  ///< nullptr: stderr
};

}  // namespace

spdlog::logger& log() {
  // Never destroyed: programs exit with devices open. A child continues with it, and with its level and file.
  // pthread_once(3) begins anew in a child that is forked during the call, unlike a static's initialisation.
  static spdlog::logger* instance = nullptr;
  static std::once_flag once;
  std::call_once(once, [] {
    instance = new spdlog::logger("faultline", std::make_shared<LogSink>());
    instance->set_level(spdlog::level::warn);
  });
  return *instance;
}

std::string log_file_path(std::string_view name, int process_id) {
  constexpr std::string_view kMark = "%p";
  std::string path(name);
  const std::string number = std::to_string(process_id);
  for (size_t at = path.find(kMark); at != std::string::npos; at = path.find(kMark, at + number.size()))
    path.replace(at, kMark.size(), number);
  return path;
}

std::string log_to_file(std::string_view name) {
  constexpr mode_t kOwnerAlone = 0600;
  const std::string path = log_file_path(name, getpid());
  // A pipe without a reader must not stop the program, at the opening or later.
  const int fd =
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, kOwnerAlone);
  struct stat status {};
  if (fd < 0 || fstat(fd, &status) != 0) {
    std::string error = fmt::format(
        "cannot append to {}: {}; name a file in a folder that this user may write; the log stays on stderr",
        path, std::strerror(errno));
    if (fd >= 0) close(fd);
    return error;
  }
  auto& sink = static_cast<LogSink&>(*log().sinks().front());
  sink.use(new LogFile{fd, status.st_dev, status.st_ino});
  return "";
}

}  // namespace faultline
