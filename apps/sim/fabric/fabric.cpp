// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/fabric/fabric.hpp"

#include <span>

#include "stack/wire/packet/ecn.hpp"

namespace faultline::fabric {
namespace {

constexpr double kPsPerSecond = 1e12;
/// A pause frame of IEEE 802.3 Annex 31B.
constexpr uint32_t kPauseFrameBytes = 60;

Channel make_channel(const Link& link, uint32_t from, uint32_t to) {
  Channel channel;
  channel.from = from;
  channel.to = to;
  channel.delay_ps = ps_of(link.delay_ns);
  channel.ps_per_byte = 8 * kPsPerSecond / static_cast<double>(link.bits_per_s);
  return channel;
}

}  // namespace

Fabric::Fabric(const Description& description, EventQueue& events, Hosts& hosts, chaos::Random random,
               std::pmr::memory_resource* memory)
    : description_(description),
      events_(events),
      hosts_(hosts),
      random_(random),
      pool_(memory),
      channels_(memory),
      uplink_(description.topology.hosts),
      buffered_bytes_(description.topology.nodes.size()),
      is_up_(description.topology.links.size(), true),
      routes_(description.topology, is_up_) {
  channels_.reserve(2 * description.topology.links.size());
  for (const Link& link : description.topology.links) {
    channels_.push_back(make_channel(link, link.a, link.b));
    channels_.push_back(make_channel(link, link.b, link.a));
  }
  for (uint32_t i = 0; i < channels_.size(); ++i)
    if (is_host(channels_[i].from)) uplink_[channels_[i].from] = i;
  for (const Failure& failure : description.failures) {
    events_.add(ps_of(failure.down_ns), EventKind::link_down, failure.link);
    if (failure.up_ns != kNever) events_.add(ps_of(failure.up_ns), EventKind::link_up, failure.link);
  }
}

void Fabric::inject(uint32_t host, Frame& frame, TimePs now_ps) {
  ++counters_.injected_frames;
  counters_.injected_bytes += frame.length_bytes;
  const uint32_t index = uplink_[host];
  if (!channels_[index].is_up) {
    ++channels_[index].lost_frames;
    return drop(frame, counters_.failure_drops);
  }
  append(index, frame, now_ps);
}

void Fabric::handle(const Event& event) {
  switch (event.kind) {
    case EventKind::sent:
      return on_sent(event.target, event.time_ps);
    case EventKind::arrived:
      return on_arrived(event.target, event.time_ps);
    case EventKind::pause:
      return on_pause(event.target, true, event.time_ps);
    case EventKind::resume:
      return on_pause(event.target, false, event.time_ps);
    case EventKind::link_down:
      return set_link(event.target, false, event.time_ps);
    case EventKind::link_up:
      return set_link(event.target, true, event.time_ps);
    case EventKind::reroute:
      routes_ = Routes(description_.topology, is_up_);
      return;
    case EventKind::turn:
    case EventKind::traffic:
    case EventKind::sample:
      return;  // not the fabric's
  }
}

void Fabric::forward(uint32_t node, Frame& frame, uint32_t input, TimePs now_ps) {
  const std::span<const uint32_t> choices = routes_.choices(node, frame.destination);
  if (choices.empty()) return drop(frame, counters_.no_route_drops);
  const uint32_t index = Routes::choose(choices, node, frame.flow_hash);
  Channel& channel = channels_[index];
  switch (admit(channel, frame)) {
    case Admission::full:
      ++channel.dropped_frames;
      return drop(frame, counters_.full_drops);
    case Admission::down:
      ++channel.lost_frames;
      return drop(frame, counters_.failure_drops);
    case Admission::queued:
      break;
  }
  frame.input = input;
  maybe_mark(channel, frame);
  buffered(node) += frame.length_bytes;
  hold(input, frame.length_bytes, now_ps);
  append(index, frame, now_ps);
}

Fabric::Admission Fabric::admit(const Channel& channel, const Frame& frame) {
  if (!channel.is_up) return Admission::down;
  const SwitchParameters& limits = description_.switches;
  const bool fits = channel.queued_bytes + frame.length_bytes <= limits.queue_bytes &&
                    buffered(channel.from) + frame.length_bytes <= limits.buffer_bytes;
  return fits ? Admission::queued : Admission::full;
}

/// Marks by the queue that the frame finds (RED with the instantaneous length, as DCQCN configures it).
void Fabric::maybe_mark(Channel& channel, Frame& frame) {
  const SwitchParameters& red = description_.switches;
  const uint64_t length = channel.queued_bytes;
  if (!red.marks || length <= red.kmin_bytes) return;
  if (length <= red.kmax_bytes) {
    const auto span = static_cast<double>(red.kmax_bytes - red.kmin_bytes);
    if (!random_.happens(red.pmax * static_cast<double>(length - red.kmin_bytes) / span)) return;
  }
  if (!wire::mark_congestion_experienced({frame.bytes.data(), frame.kept_bytes()})) return;
  ++channel.marked_frames;
  ++counters_.marks;
}

void Fabric::append(uint32_t index, Frame& frame, TimePs now_ps) {
  Channel& channel = channels_[index];
  channel.lengths.note(channel.queued_bytes, now_ps);
  channel.queue.push(frame);
  ++channel.queued_frames;
  channel.queued_bytes += frame.length_bytes;
  channel.lengths.note_peak(channel.queued_bytes);
  if (!channel.is_sending() && !channel.is_paused) start(index, now_ps);
}

/// Begins to send the first frame of the queue.
void Fabric::start(uint32_t index, TimePs now_ps) {
  Channel& channel = channels_[index];
  channel.sends_until_ps = now_ps + channel.time_of(channel.queue.front()->length_bytes);
  events_.add(channel.sends_until_ps, EventKind::sent, index);
}

void Fabric::take_out(Channel& channel, const Frame& frame, TimePs now_ps) {
  channel.lengths.note(channel.queued_bytes, now_ps);
  --channel.queued_frames;
  channel.queued_bytes -= frame.length_bytes;
  if (is_host(channel.from)) return;
  buffered(channel.from) -= frame.length_bytes;
  let_go(frame.input, frame.length_bytes, now_ps);
}

void Fabric::on_sent(uint32_t index, TimePs now_ps) {
  Channel& channel = channels_[index];
  if (channel.sends_until_ps != now_ps) return;  // of a frame that was lost with the link
  channel.sends_until_ps = 0;
  Frame& frame = channel.queue.pop();
  take_out(channel, frame, now_ps);
  ++channel.sent_frames;
  channel.sent_bytes += frame.length_bytes;
  frame.arrives_ps = now_ps + channel.delay_ps;
  // Frames of a channel arrive in order, so that only the oldest needs an event.
  if (channel.under_way.empty()) events_.add(frame.arrives_ps, EventKind::arrived, index);
  channel.under_way.push(frame);
  if (!channel.queue.empty() && !channel.is_paused) start(index, now_ps);
  if (is_host(channel.from)) hosts_.on_frame_sent(channel.from, now_ps);
}

void Fabric::on_arrived(uint32_t index, TimePs now_ps) {
  Channel& channel = channels_[index];
  // The event may be of a frame that was lost with the link.
  if (channel.under_way.empty() || channel.under_way.front()->arrives_ps != now_ps) return;
  Frame& frame = channel.under_way.pop();
  if (!channel.under_way.empty())
    events_.add(channel.under_way.front()->arrives_ps, EventKind::arrived, index);
  if (!is_host(channel.to)) return forward(channel.to, frame, index, now_ps);
  if (frame.destination != channel.to) return drop(frame, counters_.no_route_drops);
  ++counters_.delivered_frames;
  counters_.delivered_bytes += frame.length_bytes;
  hosts_.on_frame(channel.to, frame, now_ps);
}

void Fabric::hold(uint32_t input, uint32_t bytes, TimePs now_ps) {
  Channel& channel = channels_[input];
  channel.held_bytes += bytes;
  const SwitchParameters& pfc = description_.switches;
  if (!pfc.pauses || channel.pause_sent || channel.held_bytes <= pfc.pause_on_bytes) return;
  channel.pause_sent = true;
  send_pause(input, EventKind::pause, now_ps);
}

void Fabric::let_go(uint32_t input, uint32_t bytes, TimePs now_ps) {
  Channel& channel = channels_[input];
  channel.held_bytes -= bytes;
  if (!channel.pause_sent || channel.held_bytes > description_.switches.pause_off_bytes) return;
  channel.pause_sent = false;
  send_pause(input, EventKind::resume, now_ps);
}

/// A pause frame overtakes the queue of the other direction, but not the frame that is being sent there;
/// that one is left out here.
void Fabric::send_pause(uint32_t input, EventKind kind, TimePs now_ps) {
  const Channel& back = channels_[opposite_of(input)];
  events_.add(now_ps + back.time_of(kPauseFrameBytes) + back.delay_ps, kind, input);
}

void Fabric::on_pause(uint32_t index, bool pauses, TimePs now_ps) {
  Channel& channel = channels_[index];
  if (channel.is_paused == pauses || !channel.is_up) return;
  channel.is_paused = pauses;
  if (pauses) {
    ++channel.pauses;
    ++counters_.pauses;
    channel.paused_since_ps = now_ps;
    return;
  }
  channel.paused_ps += now_ps - channel.paused_since_ps;
  if (!channel.is_sending() && !channel.queue.empty()) start(index, now_ps);
}

void Fabric::set_link(uint32_t link, bool is_up, TimePs now_ps) {
  is_up_[link] = is_up;
  for (const uint32_t index : {2 * link, 2 * link + 1}) {
    Channel& channel = channels_[index];
    if (is_up) {
      channel.is_up = true;
      on_pause(index, channel.pause_sent, now_ps);
    } else {
      lose(channel, now_ps);
      on_pause(index, false, now_ps);  // ends with the link
      channel.is_up = false;
      if (is_host(channel.from)) hosts_.on_frame_sent(channel.from, now_ps);
    }
  }
  events_.add(now_ps + ps_of(description_.switches.reroute_ns), EventKind::reroute, link);
}

/// Drops what is queued and under way.
void Fabric::lose(Channel& channel, TimePs now_ps) {
  channel.sends_until_ps = 0;
  while (!channel.queue.empty()) {
    Frame& frame = channel.queue.pop();
    take_out(channel, frame, now_ps);
    ++channel.lost_frames;
    drop(frame, counters_.failure_drops);
  }
  while (!channel.under_way.empty()) {
    ++channel.lost_frames;
    drop(channel.under_way.pop(), counters_.failure_drops);
  }
}

void Fabric::drop(Frame& frame, uint64_t& counter) {
  ++counter;
  counters_.dropped_bytes += frame.length_bytes;
  pool_.give_back(frame);
}

template <typename Visit>
void Fabric::visit_frames(Visit visit) const {
  for (const Channel& channel : channels_)
    for (const FrameList* const list : {&channel.queue, &channel.under_way})
      for (const Frame* frame = list->front(); frame != nullptr; frame = frame->next) visit(*frame);
}

uint64_t Fabric::frames_inside() const {
  uint64_t frames = 0;
  visit_frames([&](const Frame& /*frame*/) { ++frames; });
  return frames;
}

uint64_t Fabric::bytes_inside() const {
  uint64_t bytes = 0;
  visit_frames([&](const Frame& frame) { bytes += frame.length_bytes; });
  return bytes;
}

void Fabric::finish(TimePs now_ps) {
  for (Channel& channel : channels_) {
    channel.lengths.note(channel.queued_bytes, now_ps);
    if (channel.is_paused) channel.paused_ps += now_ps - channel.paused_since_ps;
    channel.paused_since_ps = now_ps;
  }
}

}  // namespace faultline::fabric
