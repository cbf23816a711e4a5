// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/export/export.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include "apps/faultline/export/metrics_server.hpp"
#include "apps/faultline/export/prometheus_text.hpp"
#include "apps/faultline/export/sysfs_tree.hpp"
#include "stack/base/exit_status.hpp"

namespace faultline::cli {

namespace {

std::string metrics() {
  return prometheus_text(read_running_programs());
}

/// node_exporter reads the file at any time: it must be complete, so it is written under another name.
int write_file(const std::string& path) {
  const std::string whole = path + ".new";
  std::ofstream file(whole, std::ios::trunc);
  file << metrics();
  file.close();
  if (file && std::rename(whole.c_str(), path.c_str()) == 0) return 0;
  const int error = errno;
  std::remove(whole.c_str());
  std::fprintf(stderr, "faultline: cannot write %s: %s; give --textfile a path that this user may write\n",
               path.c_str(), std::strerror(error));
  return kUsageExit;
}

int write_once(const ExportOptions& options) {
  if (options.sysfs.empty()) return write_file(options.textfile);
  std::string error;
  if (write_sysfs_tree(options.sysfs, error)) return 0;
  std::fprintf(stderr, "faultline: %s\n", error.c_str());
  return kUsageExit;
}

}  // namespace

int run_export(const ExportOptions& options) {
  if (!options.listen.empty()) {
    std::string error;
    serve_metrics(options.listen, metrics, error);
    std::fprintf(stderr, "faultline: %s\n", error.c_str());
    return kUsageExit;
  }
  if (options.textfile.empty() && options.sysfs.empty()) {
    if (options.seconds != 0) {
      std::fprintf(stderr, "faultline: --seconds has nothing to write; give --textfile or --sysfs\n");
      return kUsageExit;
    }
    const std::string text = metrics();
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
  }
  int status = write_once(options);
  while (status == 0 && options.seconds != 0) {
    std::this_thread::sleep_for(std::chrono::seconds(options.seconds));
    status = write_once(options);
  }
  return status;
}

}  // namespace faultline::cli
