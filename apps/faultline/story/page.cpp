// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/story/page.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <isa-l/igzip_lib.h>

#include "apps/faultline/story/page_files.hpp"
#include "stack/record/record.hpp"
#include "stack/transport/shared/counters.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::story {
namespace {

std::string compress(std::vector<uint8_t>& bytes) {
  // The worst case is stored blocks, with a header of 5 bytes each, and gzip's own 18 bytes.
  std::string packed(bytes.size() + bytes.size() / 1024 + 4096, '\0');
  const auto levels = std::make_unique<std::array<uint8_t, ISAL_DEF_LVL1_DEFAULT>>();
  const auto stream = std::make_unique<isal_zstream>();
  isal_deflate_init(stream.get());
  stream->level = 1;
  stream->level_buf = levels->data();
  stream->level_buf_size = static_cast<uint32_t>(levels->size());
  stream->gzip_flag = IGZIP_GZIP;
  stream->end_of_stream = 1;
  stream->next_in = bytes.data();
  stream->avail_in = static_cast<uint32_t>(bytes.size());
  stream->next_out = reinterpret_cast<uint8_t*>(packed.data());
  stream->avail_out = static_cast<uint32_t>(packed.size());
  if (isal_deflate(stream.get()) != COMP_OK || stream->internal_state.state != ZSTATE_END) return "";
  packed.resize(stream->total_out);
  return packed;
}

std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k)
      text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 0x3fU] : '=';
  }
  return text;
}

template <typename Column, typename Value>
void add_column(std::vector<uint8_t>& bytes, const std::vector<Event>& events, Value value) {
  const size_t at = bytes.size();
  bytes.resize(at + events.size() * sizeof(Column));
  uint8_t* to = bytes.data() + at;
  for (const Event& event : events) {
    const auto one = static_cast<Column>(value(event));
    std::memcpy(to, &one, sizeof(one));
    to += sizeof(one);
  }
}

void replace(std::string& text, std::string_view mark, std::string_view by) {
  const size_t at = text.find(mark);
  if (at != std::string::npos) text.replace(at, mark.size(), by);
}

/// Names by the code of an event.
std::vector<std::string_view> drop_reasons() {
  std::vector<std::string_view> names(256);
  for (size_t i = 0; i < static_cast<size_t>(transport::DropReason::count_); ++i)
    names[i] = transport::name_of(static_cast<transport::DropReason>(i));
  for (size_t i = 0; i < static_cast<size_t>(wire::ParseError::count_); ++i)
    names[record::kParseErrors + i] = wire::name_of(static_cast<wire::ParseError>(i));
  return names;
}

/// JSON within a script element: "</script>" must not end it.
std::string within_script(std::string json) {
  for (size_t at = json.find('<'); at != std::string::npos; at = json.find('<', at + 6))
    json.replace(at, 1, "\\u003c");
  return json;
}

constexpr uint32_t kNotStarted = ~uint32_t{0};

/// What the page has of a work request: the microseconds before its first packet.
uint32_t wait_of(const Story& story, const Event& event) {
  constexpr uint64_t kNsPerUs = 1000;
  const WorkRequest& request = story.requests[event.argument];
  if (!request.has_started()) return kNotStarted;
  const uint64_t wait_us = (request.first_packet_ns - request.posted_ns) / kNsPerUs;
  return static_cast<uint32_t>(std::min<uint64_t>(wait_us, kNotStarted - 1));
}

}  // namespace

// The widest columns first: each begins at a multiple of its elements' size. Differences of times compress
// better.
std::string columns_of(const Story& story) {
  const std::vector<Event>& events = story.events;
  std::vector<uint8_t> bytes;
  uint64_t before_ns = 0;
  const auto step = [&](const Event& event) {
    return event.time_ns - std::exchange(before_ns, event.time_ns);
  };
  add_column<uint32_t>(bytes, events, step);
  before_ns = 0;
  add_column<uint32_t>(bytes, events, [&](const Event& event) { return step(event) >> 32; });
  add_column<int32_t>(bytes, events, [](const Event& event) { return event.psn; });
  add_column<uint32_t>(bytes, events, [&](const Event& event) {
    return event.kind == EventKind::post ? wait_of(story, event) : event.argument;
  });
  add_column<uint32_t>(bytes, events, [](const Event& event) { return event.length_bytes; });
  add_column<uint16_t>(bytes, events, [](const Event& event) { return event.connection; });
  add_column<uint16_t>(bytes, events, [](const Event& event) { return event.flags; });
  add_column<uint8_t>(bytes, events, [](const Event& event) { return static_cast<uint8_t>(event.kind); });
  add_column<uint8_t>(bytes, events, [](const Event& event) { return event.code; });
  add_column<uint8_t>(bytes, events, [&](const Event& event) {
    return event.kind == EventKind::post ? static_cast<uint8_t>(story.requests[event.argument].waited_for)
                                         : event.syndrome;
  });
  return base64_of(compress(bytes));
}

std::string page_of(const Story& story) {
  nlohmann::ordered_json summary = summary_of(story);
  for (const wire::OpcodeInfo& info : wire::kOpcodeTable) summary["opcodes"].push_back(info.name);
  summary["drop_reasons"] = drop_reasons();
  for (size_t i = 0; i < static_cast<size_t>(status::WaitsFor::count_); ++i)
    summary["waits"].push_back(status::name_of(static_cast<status::WaitsFor>(i)));
  std::string page(page_files::html());
  replace(page, "@STYLE@", page_files::css());
  replace(page, "@SCRIPT@", page_files::js());
  replace(page, "@COLUMNS@", columns_of(story));
  // The last, since its names may contain a mark.
  replace(page, "@SUMMARY@",
          within_script(summary.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
  return page;
}

}  // namespace faultline::story
