// SPDX-License-Identifier: BSD-3-Clause
// Status segments: what a writer publishes is what a reader finds, also after the writer's death.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stack/status/segment_reader.hpp"
#include "stack/status/segment_writer.hpp"

namespace faultline::status {
namespace {

CounterRow counter(const char* name) {
  CounterRow row;
  std::string(name).copy(row.name.data(), row.name.size() - 1);
  return row;
}

DeviceFacts facts(const std::string& name) {
  DeviceFacts facts;
  facts.name = name;
  facts.port_kind = "ring";
  facts.cores = 2;
  facts.gids.push_back({0xfe, 0x80});
  facts.counters = {counter("odp.a"), counter("transport.b"), counter("transport.c"), counter("port.d")};
  facts.first_core_counter = 1;
  facts.core_counters = 2;
  return facts;
}

/// Each test has a device name of its own, since the folder is that of all of the user's processes.
class Segments : public ::testing::Test {
 protected:
  void TearDown() override {
    std::string error;
    const std::string folder = segment_directory(error);
    for (const std::filesystem::path path : segment_files(folder))
      if (path.filename().string().starts_with(device_)) std::filesystem::remove(path);
  }
  [[nodiscard]] std::unique_ptr<SegmentWriter> write() {
    std::string error;
    auto writer = SegmentWriter::create(facts(device_), error);
    EXPECT_NE(writer, nullptr) << error;
    return writer;
  }
  [[nodiscard]] std::vector<std::unique_ptr<SegmentReader>> read() const {
    auto all = open_segments();
    std::erase_if(all, [this](const auto& segment) { return segment->device() != device_; });
    return all;
  }
  const std::string device_ =
      "seg" + std::to_string(getpid()) + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(Segments, RowsAreReadAsWritten) {
  const auto writer = write();
  MrRow mr;
  mr.lkey = 7;
  mr.length_bytes = 4096;
  const RowIndex first = writer->add(mr);
  mr.lkey = 9;
  const RowIndex second = writer->add(mr);
  ASSERT_NE(first, second);

  const auto segments = read();
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(segments[0]->pid(), static_cast<uint32_t>(getpid()));
  EXPECT_EQ(segments[0]->port_kind(), "ring");
  EXPECT_FALSE(segments[0]->is_dead());
  ASSERT_EQ(segments[0]->rows<MrRow>().size(), 2U);
  EXPECT_EQ(segments[0]->rows<MrRow>()[1].second.lkey, 9U);

  writer->update<MrRow>(second, [](MrRow& row) { row.page_faults = 5; });
  EXPECT_EQ(segments[0]->rows<MrRow>()[1].second.page_faults, 5U);

  writer->remove<MrRow>(first);
  ASSERT_EQ(segments[0]->rows<MrRow>().size(), 1U);
  EXPECT_EQ(segments[0]->rows<MrRow>()[0].first, second);
  EXPECT_EQ(writer->add(mr), first) << "a removed row's place is used again";
}

TEST_F(Segments, CountersAreSumsOverTheCores) {
  const auto writer = write();
  writer->write_core_counters(0, std::array<uint64_t, 2>{10, 1});
  writer->write_core_counters(1, std::array<uint64_t, 2>{20, 2});
  writer->write_device_counters(std::array<uint64_t, 4>{7, 99, 99, 8});
  const auto segments = read();
  ASSERT_EQ(segments.size(), 1U);
  const auto counters = segments[0]->counters();
  ASSERT_EQ(counters.size(), 4U);
  EXPECT_EQ(SegmentReader::text(counters[1].text.name), "transport.b");
  EXPECT_EQ(counters[0].value, 7U);
  EXPECT_EQ(counters[1].value, 30U);
  EXPECT_EQ(counters[2].value, 3U);
  EXPECT_EQ(counters[3].value, 8U);
}

TEST_F(Segments, ATableHasAllItsRows) {
  const auto writer = write();
  for (RowIndex i = 0; i < TableOf<PdRow>::kCapacity; ++i)
    ASSERT_NE(writer->add(PdRow{.created_ns = i + 1}), kNoRow);
  EXPECT_EQ(writer->add(PdRow{}), kNoRow);
  const auto segments = read();
  ASSERT_EQ(segments.size(), 1U);
  const auto rows = segments[0]->rows<PdRow>();
  ASSERT_EQ(rows.size(), TableOf<PdRow>::kCapacity);
  EXPECT_EQ(rows.back().second.created_ns, TableOf<PdRow>::kCapacity);
}

TEST_F(Segments, AClosedDeviceLeavesNothing) {
  auto writer = write();
  const auto segments = read();
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_FALSE(segments[0]->is_closed());
  writer.reset();
  EXPECT_TRUE(segments[0]->is_closed()) << "for a reader that has it open";
  EXPECT_TRUE(read().empty());
}

TEST_F(Segments, ADeadWritersLastStateRemains) {
  const pid_t child = fork();
  if (child == 0) {
    const auto writer = write();
    static_cast<void>(writer->add(PdRow{.created_ns = 3, .handle = 4}));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const auto segments = read();
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_TRUE(segments[0]->is_dead());
  ASSERT_EQ(segments[0]->rows<PdRow>().size(), 1U);
  EXPECT_EQ(segments[0]->rows<PdRow>()[0].second.handle, 4U);
}

TEST_F(Segments, AForkedChildLeavesItsParentsSegmentAlone) {
  auto writer = write();
  const RowIndex row = writer->add(PdRow{.created_ns = 1, .handle = 2});
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = writer->add(PdRow{}) == kNoRow;
    writer->remove<PdRow>(row);
    writer->remove_file();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const auto segments = read();
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(segments[0]->rows<PdRow>().size(), 1U);
}

TEST_F(Segments, AZombieIsDead) {
  const pid_t child = fork();
  if (child == 0) {
    const auto writer = write();
    kill(getpid(), SIGKILL);
  }
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  const auto segments = read();
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_TRUE(segments[0]->is_dead());
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

bool is_zombie(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return text.find(") Z ") != std::string::npos;
}

TEST_F(Segments, AProcessWithoutItsFirstThreadIsNotDead) {
  const pid_t child = fork();
  if (child == 0) {
    auto writer = write();
    static_cast<void>(writer.release());
    std::thread([] { pause(); }).detach();
    syscall(SYS_exit, 0);  // ends this thread alone
  }
  constexpr int kTries = 10'000;
  for (int i = 0; i < kTries && !is_zombie(child); ++i) usleep(1000);
  EXPECT_TRUE(is_zombie(child));
  const auto segments = read();
  EXPECT_EQ(segments.size(), 1U);
  for (const auto& segment : segments) EXPECT_FALSE(segment->is_dead());
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST_F(Segments, OldSegmentsOfDeadProcessesAreRemoved) {
  constexpr int kDead = 12;
  constexpr size_t kMostDead = 8;
  for (int i = 0; i < kDead; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const auto writer = write();
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
  }
  const auto writer = write();
  size_t dead = 0;
  for (const auto& segment : read()) dead += segment->is_dead() ? 1 : 0;
  EXPECT_LE(dead, kMostDead);
  EXPECT_GE(dead, 1U);
}

TEST_F(Segments, AFileThatIsNoSegmentIsRefused) {
  const auto writer = write();
  const std::string copy = writer->path() + "copy";
  const size_t whole_bytes = std::filesystem::file_size(writer->path());
  for (const size_t bytes : {size_t{0}, size_t{8}, sizeof(SegmentHeader), whole_bytes - 1}) {
    std::filesystem::copy_file(writer->path(), copy, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(copy, bytes);
    EXPECT_EQ(SegmentReader::open(copy), nullptr) << bytes;
  }
  std::filesystem::copy_file(writer->path(), copy, std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(SegmentReader::open(copy), nullptr);
  std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
  const uint32_t version = kVersion + 1;
  file.seekp(offsetof(SegmentHeader, version));
  file.write(reinterpret_cast<const char*>(&version), sizeof version);
  file.close();
  EXPECT_EQ(SegmentReader::open(copy), nullptr) << "another version";
  std::filesystem::remove(copy);
}

TEST(RowCells, AReaderNeverSeesHalfARow) {
  struct Pair {
    uint64_t a = 0;
    uint64_t b = 0;
  };
  constexpr uint64_t kRows = 200'000;
  RowCell<Pair> cell;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 1; i <= kRows; ++i) cell.write({i, ~i});
    stop = true;
  });
  uint64_t reads = 0;
  while (!stop || reads == 0) {
    const auto row = cell.read();
    if (!row || row->a == 0) continue;
    ASSERT_EQ(row->a, ~row->b);
    ++reads;
  }
  writer.join();
}

TEST(RowCells, ATornRowIsNotRead) {
  RowCell<PdRow> cell;
  cell.write({.created_ns = 1});
  EXPECT_TRUE(cell.read().has_value());
  // The writer died within write(): the sequence, which comes first, is odd.
  ++*reinterpret_cast<std::atomic<uint32_t>*>(&cell);
  EXPECT_FALSE(cell.read().has_value());
  cell.write({.created_ns = 2});
  EXPECT_EQ(cell.read()->created_ns, 2U);
}

}  // namespace
}  // namespace faultline::status
