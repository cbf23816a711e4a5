// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/tree/known_devices.hpp"

#include <algorithm>
#include <map>

#include <net/if.h>
#include <unistd.h>

#include "stack/abi/interfaces/own_interfaces.hpp"
#include "stack/verbs/objects/counter_list.hpp"
#include "stack/verbs/objects/objects.hpp"

namespace faultline::abi {

namespace {

void add(const verbs::CounterText& text, uint64_t value, uint64_t& sum) {
  sum = text.kind == CounterKind::maximum ? std::max(sum, value) : sum + value;
}

}  // namespace

KnownDevices::KnownDevices(bool with_counters) : list_(ibv_get_device_list(&count_), ibv_free_device_list) {
  if (list_ == nullptr || count_ == 0) return;
  const HostInterfaces hosts;
  const bool shows_own = shows_interfaces();
  for (int i = 0; i < count_; ++i) {
    const verbs::VerbsDevice& device = verbs::device_of(list_[i]);
    const auto engine = verbs::running_engine(device.description.name);
    DeviceFacts facts{.description = &device.description,
                      .guid_be = ibv_get_device_guid(list_[i]),
                      .index = device.index,
                      .verbs_name = device.dev_name,
                      .version = verbs::firmware_of(device.description),
                      .port = verbs::describe_port(device.description, engine.get()),
                      .interface = host_interface_of(device.description, hosts.first()),
                      .own_interface = {},
                      .counters = with_counters
                                      ? named_counters(counters_of_programs(device.description.name))
                                      : std::vector<NamedCounter>{}};
    facts.interface_index = if_nametoindex(facts.interface.c_str());
    if (shows_own)
      facts.own_interface = interface_of(device.description, device.index, facts.port, hosts.first());
    if (facts.own_interface) {
      facts.interface = facts.own_interface->name;
      facts.interface_index = facts.own_interface->index;
    }
    facts_.push_back(std::move(facts));
  }
}

std::vector<std::unique_ptr<status::SegmentReader>> programs_with(const std::string& device) {
  const uint64_t here = status::identity_of(static_cast<uint32_t>(getpid())).pid_namespace;
  auto segments = status::open_segments();
  std::erase_if(segments, [&](const auto& segment) {
    return segment->device() != device || segment->header().pid_namespace != here || segment->is_closed() ||
           segment->is_dead();
  });
  return segments;
}

std::vector<NamedCounter> named_counters(std::span<const uint64_t> values) {
  std::vector<NamedCounter> counters;
  const std::vector<verbs::CounterText>& texts = verbs::counter_texts();
  for (size_t i = 0; i < texts.size(); ++i)
    counters.push_back({texts[i].name, i < values.size() ? values[i] : 0});
  return counters;
}

std::vector<uint64_t> counters_of_programs(const std::string& device) {
  const std::vector<verbs::CounterText>& texts = verbs::counter_texts();
  std::vector<uint64_t> sums;
  // A forked child does not use its parent's device: for it, the parent is another process.
  const auto engine = verbs::running_engine(device);
  const bool runs_here = engine != nullptr && !engine->is_of_parent_process();
  if (runs_here) sums = verbs::counter_values(*engine->backend);
  for (const auto& program : programs_with(device)) {
    if (runs_here && program->pid() == static_cast<uint32_t>(getpid())) continue;
    sums.resize(texts.size());
    // By name: a program of another version has other counters.
    std::map<std::string, uint64_t> values;
    for (const auto& counter : program->counters())
      values.emplace(status::SegmentReader::text(counter.text.name), counter.value);
    for (size_t i = 0; i < texts.size(); ++i)
      if (const auto found = values.find(texts[i].name); found != values.end())
        add(texts[i], found->second, sums[i]);
  }
  return sums;
}

}  // namespace faultline::abi
