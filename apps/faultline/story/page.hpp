// SPDX-License-Identifier: BSD-3-Clause
// The page: one HTML file with its style, its script and the events. It loads nothing.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "apps/faultline/story/model.hpp"

namespace faultline::story {

/// Everything but the events: connections, counts, findings, tables.
[[nodiscard]] nlohmann::ordered_json summary_of(const Story& story);

/// The events as columns, one after the other, compressed with gzip (RFC 1952) and in base64 (RFC 4648).
/// page/data.js reads them. "" if memory is short.
[[nodiscard]] std::string columns_of(const Story& story);

[[nodiscard]] std::string page_of(const Story& story);

}  // namespace faultline::story
