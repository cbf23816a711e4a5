// SPDX-License-Identifier: BSD-3-Clause
#include "stack/cm/counter_source.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "stack/base/process/process_local.hpp"
#include "stack/cm/service.hpp"
#include "stack/verbs/objects/counter_list.hpp"

namespace faultline::cm {
namespace {

/// The services of this process, and per device the sums of those that have ended.
struct Services {
  std::mutex mutex;
  std::vector<std::pair<std::string, Service*>> running;
  std::map<std::string, ServiceCounters> ended;
};

Services& services() {
  static constinit ProcessLocal<Services> instance;
  return instance.get();
}

void add(ServiceCounters& sum, const ServiceCounters& more) {
  for (const auto& row : kManagerCounterRows) sum.manager.*row.member += more.manager.*row.member;
  for (size_t i = 0; i < sum.manager.mad_errors.size(); ++i)
    sum.manager.mad_errors[i] += more.manager.mad_errors[i];
  for (size_t i = 0; i < sum.manager.drops.size(); ++i) sum.manager.drops[i] += more.manager.drops[i];
  sum.overruns += more.overruns;
}

ServiceCounters counters_of(Service& service) {
  return {service.with([](const Manager& manager, TimeNs) { return manager.counters(); }),
          service.overruns()};
}

/// Forms a counter's name from a phrase: a counter's name has no spaces.
std::string counter_name(std::string_view prefix, std::string_view name) {
  std::string full = std::string(prefix) + std::string(name);
  std::replace(full.begin(), full.end(), ' ', '_');
  std::transform(full.begin(), full.end(), full.begin(), [](unsigned char c) { return std::tolower(c); });
  return full;
}

void describe(std::vector<verbs::CounterText>& texts) {
  verbs::describe_rows("cm.", kManagerCounterRows, texts);
  texts.push_back({"cm.overruns", "datagrams", CounterKind::count,
                   "datagrams that came faster than the service's thread took them"});
  for (size_t i = 1; i < static_cast<size_t>(wire::MadError::count_); ++i) {  // 0 is no error
    const std::string_view name = wire::name_of(static_cast<wire::MadError>(i));
    texts.push_back({counter_name("cm.parse.", name), "messages", CounterKind::count,
                     "messages refused: " + std::string(name)});
  }
  for (size_t i = 0; i < static_cast<size_t>(DropReason::count_); ++i) {
    const std::string_view name = name_of(static_cast<DropReason>(i));
    texts.push_back({counter_name("cm.drop.", name), "messages", CounterKind::count,
                     "messages dropped: " + std::string(name)});
  }
}

void read(verbs::DeviceBackend& backend, std::vector<uint64_t>& values) {
  ServiceCounters sum;
  {
    Services& all = services();
    const std::lock_guard guard(all.mutex);
    const std::string& device = backend.description().name;
    if (const auto found = all.ended.find(device); found != all.ended.end()) add(sum, found->second);
    for (const auto& [name, service] : all.running)
      if (name == device) add(sum, counters_of(*service));
  }
  verbs::read_rows(kManagerCounterRows, sum.manager, values);
  values.push_back(sum.overruns);
  values.insert(values.end(), sum.manager.mad_errors.begin() + 1, sum.manager.mad_errors.end());
  values.insert(values.end(), sum.manager.drops.begin(), sum.manager.drops.end());
}

constexpr verbs::CounterSource kSource{.describe = describe, .read = read};

[[gnu::constructor]] void register_source() {
  verbs::set_counter_source(kSource);
}

}  // namespace

void begin_counting(Service& service, const std::string& device) {
  Services& all = services();
  const std::lock_guard guard(all.mutex);
  all.running.emplace_back(device, &service);
}

void end_counting(Service& service, const std::string& device) {
  Services& all = services();
  const std::lock_guard guard(all.mutex);
  std::erase_if(all.running, [&](const auto& entry) { return entry.second == &service; });
  add(all.ended[device], counters_of(service));
}

}  // namespace faultline::cm
