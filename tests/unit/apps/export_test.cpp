// SPDX-License-Identifier: BSD-3-Clause
// Prometheus' text format, and the requests that the server of `faultline export` answers.
#include <gtest/gtest.h>

#include "apps/faultline/export/metrics_server.hpp"
#include "apps/faultline/export/prometheus_text.hpp"

namespace faultline::cli::export_test {
namespace {

DeviceSamples device_of(pid_t process, std::vector<CounterSample> counters) {
  return {process, "ib_write_bw", "faultline0", std::move(counters)};
}

TEST(PrometheusText, HasOneFamilyForTheSameCounterOfAllDevices) {
  const CounterSample packets{"transport.tx_packets", "packets", "count", "RoCEv2 packets sent", 7};
  const CounterSample pages{"odp.num_odp_mr_pages", "pages", "gauge", "pages now mapped", 3};
  const DeviceSamples devices[] = {device_of(10, {packets, pages}), device_of(11, {packets})};
  EXPECT_EQ(
      prometheus_text(devices),
      "# HELP faultline_odp_num_odp_mr_pages pages now mapped\n"
      "# TYPE faultline_odp_num_odp_mr_pages gauge\n"
      "faultline_odp_num_odp_mr_pages{device=\"faultline0\",pid=\"10\",program=\"ib_write_bw\"} 3\n"
      "# HELP faultline_transport_tx_packets_total RoCEv2 packets sent\n"
      "# TYPE faultline_transport_tx_packets_total counter\n"
      "faultline_transport_tx_packets_total{device=\"faultline0\",pid=\"10\",program=\"ib_write_bw\"} 7\n"
      "faultline_transport_tx_packets_total{device=\"faultline0\",pid=\"11\",program=\"ib_write_bw\"} 7\n"
      "# HELP faultline_devices devices of running programs\n"
      "# TYPE faultline_devices gauge\n"
      "faultline_devices 2\n");
}

TEST(PrometheusText, HasTimesInSeconds) {
  const DeviceSamples devices[] = {
      device_of(1, {{"odp.fault_service_ns_total", "ns", "count", "sum", 1'500'000'000},
                    {"odp.fault_service_ns_max", "ns", "maximum", "longest", 250'000}})};
  const std::string text = prometheus_text(devices);
  EXPECT_NE(text.find("# TYPE faultline_odp_fault_service_seconds_total counter\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("faultline_odp_fault_service_seconds_total{device=\"faultline0\",pid=\"1\",program="
                      "\"ib_write_bw\"} 1.5\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("# TYPE faultline_odp_fault_service_seconds_max gauge\n"), std::string::npos) << text;
  EXPECT_NE(text.find("program=\"ib_write_bw\"} 0.00025\n"), std::string::npos) << text;
}

TEST(PrometheusText, SumsTheBucketsOfAHistogram) {
  // In the order of their names, as JSON has them: lt_16 is before lt_2.
  const DeviceSamples devices[] = {device_of(1, {{"odp.fault_us.swap.lt_16", "services", "count", "", 4},
                                                 {"odp.fault_us.swap.lt_2", "services", "count", "", 2},
                                                 {"odp.fault_us.swap.more", "services", "count", "", 1}})};
  const std::string label = "{device=\"faultline0\",pid=\"1\",program=\"ib_write_bw\",kind=\"swap\"";
  const std::string name = "faultline_odp_fault_duration_seconds";
  EXPECT_EQ(
      prometheus_text(devices),
      "# HELP " + name + " time from the request of a page to its resolution, by the kind of fault\n# TYPE " +
          name + " histogram\n" + name + "_bucket" + label + ",le=\"2e-06\"} 2\n" + name + "_bucket" + label +
          ",le=\"1.6e-05\"} 6\n" + name + "_bucket" + label + ",le=\"+Inf\"} 7\n" + name + "_count" + label +
          "} 7\n# HELP faultline_devices devices of running programs\n# TYPE faultline_devices gauge\n"
          "faultline_devices 1\n");
}

TEST(PrometheusText, QuotesWhatAProgramCallsItself) {
  DeviceSamples device = device_of(1, {{"a.b", "", "", "", 1}});
  device.program = "a\"b\\c\nd";
  const std::string text = prometheus_text({&device, 1});
  EXPECT_NE(text.find("program=\"a\\\"b\\\\c\\nd\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# TYPE faultline_a_b untyped\n"), std::string::npos) << text;
}

// A program of another build, or one that means harm.
TEST(PrometheusText, StaysWellFormedWhateverAProgramAnswers) {
  const DeviceSamples devices[] = {device_of(1, {{"a{b\n", "", "count", "two\nlines \\", 1},
                                                 {"odp.fault_us.swap.lt_x", "services", "count", "", 2},
                                                 {"odp.fault_us.k\"k.more", "services", "count", "", 3}})};
  const std::string text = prometheus_text(devices);
  EXPECT_NE(text.find("# HELP faultline_a_b__total two\\nlines \\\\\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("swap"), std::string::npos) << text;
  EXPECT_NE(text.find("kind=\"k\\\"k\",le=\"+Inf\"} 3\n"), std::string::npos) << text;
}

std::string page() {
  return "metric 1\n";
}

TEST(MetricsServer, AnswersEachKindOfRequest) {
  const struct {
    const char* head;
    const char* status;
    bool has_page;
  } rows[] = {
      {"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK", true},
      {"GET /metrics?name=x HTTP/1.0\r\n\r\n", "200 OK", true},
      {"HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK", false},
      {"GET / HTTP/1.1\r\n\r\n", "404 Not Found", false},
      {"GET /metricsx HTTP/1.1\r\n\r\n", "404 Not Found", false},
      {"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed", false},
      {"GET /metrics HTTP/2\r\n\r\n", "400 Bad Request", false},
      {"GET\r\n\r\n", "400 Bad Request", false},
      {" \r\n\r\n", "400 Bad Request", false},
      {"\r\n\r\n", "400 Bad Request", false},
  };
  for (const auto& row : rows) {
    const std::string answer = answer_request(row.head, page);
    EXPECT_TRUE(answer.starts_with(std::string("HTTP/1.1 ") + row.status + "\r\n")) << row.head << answer;
    EXPECT_EQ(answer.ends_with("\r\n\r\nmetric 1\n"), row.has_page) << row.head << answer;
    EXPECT_NE(answer.find("\r\nContent-Length: "), std::string::npos) << row.head;
  }
  EXPECT_NE(answer_request(rows[0].head, page).find("Content-Length: 9\r\n"), std::string::npos);
}

}  // namespace
}  // namespace faultline::cli::export_test
