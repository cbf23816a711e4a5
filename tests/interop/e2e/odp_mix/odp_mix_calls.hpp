// SPDX-License-Identifier: BSD-3-Clause
// The calls of odp_mix: one object per program thread, which makes them at random.
#pragma once

#include <random>

#include "tests/interop/e2e/odp_mix/odp_mix_arena.hpp"

namespace faultline::e2e::mix {

enum class Call : uint8_t {
  dont_need,
  free,
  remove,
  page_out,
  cold,
  unmap_and_map,
  unmap_for_another,
  map_over,
  resize,
  move,
  protect,
  fork,
  truncate,
  punch_hole,
  huge_page,
  collapse,
  no_huge_page,
  register_again,
  count_
};
inline constexpr size_t kCalls = static_cast<size_t>(Call::count_);

struct CallCounts {
  std::array<std::atomic<uint64_t>, kCalls> made{};
  std::array<std::atomic<uint64_t>, kCalls> refused{};  ///< by the kernel, as it may
  std::atomic<uint64_t> taken_places{0};                ///< where another mapping of the process was faster
};

/// A place that one thread is about to unmap and another wants: it maps memory of its own there as soon as
/// the kernel lets it, before the first is back from its munmap perhaps.
struct Offer {
  enum class State : uint8_t { none, being_made, offered, accepted, done };
  std::atomic<State> state{State::none};
  Arena* arena = nullptr;  ///< of whom offers
};

class Caller {
 public:
  Caller(std::span<Arena* const> arenas, const std::vector<bool>& allowed, CallCounts& counts, Offer& offer,
         Doing& doing, uint64_t seed)
      : arenas_(arenas), allowed_(allowed), counts_(counts), offer_(offer), doing_(doing), random_(seed) {}

  void run(const std::atomic<bool>& stop);

 private:
  void make(Call call, Arena& arena);
  [[nodiscard]] Pages some_pages(const Arena& arena);
  void hold();

  void advise(Call call, Arena& arena);
  void unmap_and_map(Arena& arena);
  void unmap_for_another(Arena& arena);
  void take_offer();
  void map_over(Arena& arena);
  void resize(Arena& arena);
  void move(Arena& arena);
  void protect(Arena& arena, bool alone);
  void fork_child(Arena& arena, bool alone);
  void truncate(Arena& arena);
  void punch_hole(Arena& arena);

  void make_one_mapping(Arena& arena);
  void watch_and_clear(Arena& arena, Pages pages, const char* call);
  void watch_old_place(Arena& arena, uint8_t* place, size_t length_bytes, const char* call);

  std::span<Arena* const> arenas_;
  const std::vector<bool>& allowed_;
  CallCounts& counts_;
  Offer& offer_;
  Doing& doing_;
  std::mt19937_64 random_;
  uint64_t next_rare_ns_ = 0;
};

}  // namespace faultline::e2e::mix
