// SPDX-License-Identifier: BSD-3-Clause
// The init of a guest that runs test programs: each line of /tests is a program's words. Prints
// "guest: STATUS LINE" for each and powers off.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

int run(char* line) {
  std::array<char*, 17> words{};
  size_t count = 0;
  for (char* word = std::strtok(line, " \n"); word != nullptr && count + 1 < words.size();
       word = std::strtok(nullptr, " \n"))
    words[count++] = word;
  if (count == 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    setenv("LD_LIBRARY_PATH", "/lib", 1);
    execv(words[0], words.data());
    std::perror(words[0]);
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 126;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void mount_at(const char* type, const char* place) {
  mkdir(place, 0755);
  if (mount(type, place, type, 0, nullptr) != 0) std::perror(place);
}

}  // namespace

int main() {
  mount_at("proc", "/proc");
  mount_at("sysfs", "/sys");
  mount_at("devtmpfs", "/dev");
  mount_at("tmpfs", "/tmp");
  mount_at("tmpfs", "/dev/shm");
  utsname system{};
  uname(&system);
  std::printf("\nguest: Linux %s\n", system.release);
  std::fflush(stdout);
  std::FILE* const tests = std::fopen("/tests", "r");
  std::array<char, 1024> line{};
  while (tests != nullptr && std::fgets(line.data(), line.size(), tests) != nullptr) {
    std::array<char, 1024> words = line;
    const int status = run(words.data());
    std::printf("\nguest: %d %s", status, line.data());
    std::fflush(stdout);
  }
  std::puts("guest: end");
  std::fflush(stdout);
  sync();
  reboot(RB_POWER_OFF);
  return 0;
}
