// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/story/story.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/faultline/story/analysis.hpp"
#include "apps/faultline/story/capture_file.hpp"
#include "apps/faultline/story/capture_story.hpp"
#include "apps/faultline/story/page.hpp"
#include "apps/faultline/story/recording_story.hpp"
#include "stack/base/exit_status.hpp"
#include "stack/base/private_file.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::cli {
namespace {

int refuse(const std::string& line) {
  std::fprintf(stderr, "faultline story: %s\n", line.c_str());
  return kUsageExit;
}

/// A file in memory.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (bytes_ != nullptr) munmap(bytes_, size_);
  }

  /// Returns 0 or an errno.
  int open(const std::string& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat state {};
    if (fd.get() < 0 || fstat(fd.get(), &state) != 0) return errno;
    if (!S_ISREG(state.st_mode)) return S_ISDIR(state.st_mode) ? EISDIR : EINVAL;
    if (state.st_size == 0) return 0;
    void* const bytes =
        mmap(nullptr, static_cast<size_t>(state.st_size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (bytes == MAP_FAILED) return errno;
    bytes_ = bytes;
    size_ = static_cast<size_t>(state.st_size);
    return 0;
  }
  [[nodiscard]] std::span<const uint8_t> bytes() const {
    return {static_cast<const uint8_t*>(bytes_), size_};
  }

 private:
  void* bytes_ = nullptr;
  size_t size_ = 0;
};

/// Returns "", or what is wrong with the file.
std::string read(std::span<const uint8_t> file, story::Story& story) {
  if (story::is_recording(file)) {
    if (std::string wrong = story::read_recording_story(file, story); !wrong.empty()) return wrong;
    return story.events.empty() ? "nothing was recorded: no QP of the device was used" : "";
  }
  if (!story::is_capture(file)) return "neither a recording nor a pcapng or pcap file";
  story.origin = "packet capture";
  if (std::string wrong = story::read_capture_story(file, story); !wrong.empty()) return wrong;
  return story.events.empty() ? "it has no RoCEv2 packet" : "";
}

/// Returns 0 or an errno.
int write_file(const std::string& path, std::string_view text) {
  const UniqueFd fd(open_private_file(path));
  if (fd.get() < 0) return errno;
  while (!text.empty()) {
    const ssize_t written = write(fd.get(), text.data(), text.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

int run_story(const StoryOptions& options) {
  MappedFile file;
  if (const int error = file.open(options.file); error != 0)
    return refuse(fmt::format("{}: {}", options.file, std::strerror(error)));
  story::Story story;
  story.source = std::filesystem::path(options.file).filename().string();
  if (const std::string wrong = read(file.bytes(), story); !wrong.empty())
    return refuse(fmt::format("{}: {}", options.file, wrong));
  for (const std::string& note : story.notes)
    std::fprintf(stderr, "faultline story: %s: %s\n", options.file.c_str(), note.c_str());
  story::analyse(story);
  if (options.as_json) {
    std::printf(
        "%s\n",
        story::summary_of(story).dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return 0;
  }
  const std::string page = options.output.empty() ? options.file + ".html" : options.output;
  if (const int error = write_file(page, story::page_of(story)); error != 0)
    return refuse(fmt::format("cannot write {}: {}", page, std::strerror(error)));
  std::printf("%s: %zu events of %zu connections, %zu findings\n", page.c_str(), story.events.size(),
              story.connections.size(), story.findings.size());
  return 0;
}

}  // namespace faultline::cli
