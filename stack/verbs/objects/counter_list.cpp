// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/objects/counter_list.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <string>
#include <utility>

#include "stack/base/process/process_local.hpp"

namespace faultline::verbs {
namespace {

// Set before main(), by a constructor in stack/cm.
constinit std::atomic<const CounterSource*> room_above{nullptr};

std::string words_of(std::string_view name) {
  std::string words(name);
  for (char& c : words)
    if (c == '_') c = ' ';
  return words;
}

void describe_faults(std::vector<CounterText>& texts) {
  for (size_t kind = 0; kind < odp::kFaultKinds; ++kind) {
    const std::string name(name_of(static_cast<odp::FaultKind>(kind)));
    const auto add = [&](const std::string& bucket, const std::string& duration) {
      std::string key = "odp.fault_us.";
      key.append(name).append(bucket);
      std::string help = "fault services of kind ";
      help.append(words_of(name)).append(" that took ").append(duration);
      texts.push_back({std::move(key), "services", CounterKind::count, std::move(help)});
    };
    for (size_t bucket = 0; bucket + 1 < odp::kLatencyBuckets; ++bucket) {
      const std::string most = std::to_string(1U << bucket);
      add(".lt_" + most,
          bucket == 0 ? "less than 1 us" : std::to_string(1U << (bucket - 1)) + " us to " + most + " us");
    }
    add(".more", std::to_string(1U << (odp::kLatencyBuckets - 2)) + " us or more");
  }
}

void describe_all(std::vector<CounterText>& texts) {
  describe_rows("odp.", odp::kCounterRows<uint64_t>, texts);
  describe_faults(texts);
  describe_rows("transport.", transport::kCoreCounterRows, texts);
  for (size_t i = 1; i < static_cast<size_t>(wire::ParseError::count_); ++i) {  // 0 is no error
    const std::string name(wire::name_of(static_cast<wire::ParseError>(i)));
    texts.push_back({"parse." + name, "packets", CounterKind::count, "packets refused: " + words_of(name)});
  }
  for (size_t i = 0; i < static_cast<size_t>(transport::DropReason::count_); ++i) {
    const auto reason = static_cast<transport::DropReason>(i);
    texts.push_back({"drop." + std::string(transport::name_of(reason)), "packets", CounterKind::count,
                     "packets dropped: " + std::string(transport::help_of(reason))});
  }
  describe_rows("port.", kPortCounterRows<uint64_t>, texts);
  if (const CounterSource* const source = room_above.load(std::memory_order_acquire)) source->describe(texts);
}

/// Not a static of counter_texts(): a child that is forked during its construction would wait for it for
/// ever.
struct Texts {
  Texts() { describe_all(list); }
  std::vector<CounterText> list;
};
constinit ProcessLocal<Texts> all_texts;

/// Sums the cores' counters. CoreCounters consists of 64-bit numbers only.
transport::CoreCounters sum_of_cores(DeviceBackend& backend) {
  using Numbers = std::array<uint64_t, sizeof(transport::CoreCounters) / sizeof(uint64_t)>;
  Numbers sum{};
  for (uint32_t core = 0; core < backend.core_count(); ++core) {
    const auto numbers = std::bit_cast<Numbers>(backend.core(core).counters());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += numbers[i];
  }
  return std::bit_cast<transport::CoreCounters>(sum);
}

}  // namespace

CoreCounterRange core_counter_range() {
  return {std::size(odp::kCounterRows<uint64_t>) + odp::kFaultKinds * odp::kLatencyBuckets,
          transport::kFlatCounters};
}

void set_counter_source(const CounterSource& source) {
  room_above.store(&source, std::memory_order_release);
}

const std::vector<CounterText>& counter_texts() {
  return all_texts.get().list;
}

std::vector<uint64_t> counter_values(DeviceBackend& backend) {
  std::vector<uint64_t> values;
  values.reserve(counter_texts().size());
  const odp::Counters odp = backend.memory().counters();
  read_rows(odp::kCounterRows<uint64_t>, odp, values);
  for (const auto& kind : odp.fault_latency) values.insert(values.end(), kind.begin(), kind.end());
  values.resize(values.size() + transport::kFlatCounters);
  transport::flatten(sum_of_cores(backend), std::span(values).last<transport::kFlatCounters>());
  read_rows(kPortCounterRows<uint64_t>, backend.port_counters(), values);
  if (const CounterSource* const source = room_above.load(std::memory_order_acquire))
    source->read(backend, values);
  return values;
}

}  // namespace faultline::verbs
