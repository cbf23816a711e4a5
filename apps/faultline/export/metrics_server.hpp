// SPDX-License-Identifier: BSD-3-Clause
// Serves one page by HTTP: GET /metrics. RFC 9110, RFC 9112; a connection per request.
#pragma once

#include <string>
#include <string_view>

namespace faultline::cli {

using MetricsSource = std::string (*)();

/// Returns the response to a request's head, which ends with an empty line.
[[nodiscard]] std::string answer_request(std::string_view head, MetricsSource source);

/// Serves at "PORT", of 127.0.0.1, or at "ADDRESS:PORT" ("[::1]:9100"), one request at a time; does not
/// return while it can. On failure returns one line in `error`: what failed, why, what to do.
void serve_metrics(const std::string& place, MetricsSource source, std::string& error);

}  // namespace faultline::cli
