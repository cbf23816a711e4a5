// SPDX-License-Identifier: BSD-3-Clause
#include "apps/run/environment.hpp"

#include <cstdlib>
#include <vector>

#include "apps/run/find_files.hpp"
#include "apps/run/preload.hpp"

namespace faultline::run {
namespace {

std::string text_of(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : "";
}

}  // namespace

void unset_devices() {
  unsetenv("FAULTLINE_CONFIG");
  unsetenv("FAULTLINE_WIRE");
  unsetenv("FAULTLINE_UDP");
}

void set_environment(const std::string& library, const std::string& directory, const std::string& program) {
  if (const std::string found = find_switch(directory); !found.empty())
    setenv("FAULTLINE_SWITCH", found.c_str(), 1);
  const std::vector<std::string> needed = needed_libraries(find_program(program));
  setenv("LD_PRELOAD", preload_list(library, text_of("LD_PRELOAD"), needed).c_str(), 1);
  setenv("TSAN_OPTIONS", tsan_options(text_of("TSAN_OPTIONS")).c_str(), 1);
}

}  // namespace faultline::run
