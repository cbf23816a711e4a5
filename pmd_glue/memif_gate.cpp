// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/memif_gate.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

struct rte_eth_dev;

namespace faultline::glue {
namespace {

struct Gates {
  std::mutex mutex;
  std::vector<TurnLock*> turns;
};
Gates& gates() {
  static Gates& instance = *new Gates;  // EAL's interrupt thread outlives static destructors
  return instance;
}

}  // namespace

MemifGate::MemifGate(TurnLock& turns) : turns_(turns) {
  Gates& all = gates();
  const std::lock_guard guard(all.mutex);
  all.turns.push_back(&turns);
}

MemifGate::~MemifGate() {
  Gates& all = gates();
  const std::lock_guard guard(all.mutex);
  std::erase(all.turns, &turns_);
}

}  // namespace faultline::glue

extern "C" {
void __real_memif_free_regions(rte_eth_dev* device);
void __wrap_memif_free_regions(rte_eth_dev* device);

void __wrap_memif_free_regions(rte_eth_dev* device) {
  auto& all = faultline::glue::gates();
  const std::lock_guard guard(all.mutex);
  for (auto* turns : all.turns) turns->lock();
  __real_memif_free_regions(device);
  for (auto* turns : all.turns) turns->unlock();
}
}
