// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/interrupt_thread.hpp"

#include <future>

#include <rte_alarm.h>

namespace faultline::glue {
namespace {

struct Task {
  std::function<void()> function;
  std::promise<void> done;
};

}  // namespace

void run_on_interrupt_thread(std::function<void()> function) {
  Task task{std::move(function), {}};
  auto done = task.done.get_future();
  // Alarms are called on the interrupt thread.
  const int set = rte_eal_alarm_set(
      1,
      [](void* argument) {
        auto* due = static_cast<Task*>(argument);
        due->function();
        due->done.set_value();
      },
      &task);
  if (set == 0)
    done.wait();
  else
    task.function();  // no memory for an alarm: better the risk than a port that never stops
}

}  // namespace faultline::glue
