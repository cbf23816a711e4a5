// SPDX-License-Identifier: BSD-3-Clause
#include "apps/run/preload.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace faultline::run::preload_test {
namespace {

using List = std::vector<std::string>;

constexpr const char* kLibrary = "/opt/lib/libibverbs.so.1";

TEST(Preload, TheLibraryStandsBeforeTheUsersOwn) {
  EXPECT_EQ(preload_list(kLibrary, "", {}), kLibrary);
  EXPECT_EQ(preload_list(kLibrary, "libjemalloc.so.2", {"libc.so.6"}),
            "/opt/lib/libibverbs.so.1:libjemalloc.so.2");
  // ld.so(8): separated by spaces or colons.
  EXPECT_EQ(preload_list(kLibrary, ":a.so b.so::c.so ", {}), "/opt/lib/libibverbs.so.1:a.so:b.so:c.so");
}

TEST(Preload, ASanitizerOfTheUsersStaysFirst) {
  EXPECT_EQ(preload_list(kLibrary, "a.so:/usr/lib/libasan.so.8 b.so", {}),
            "/usr/lib/libasan.so.8:/opt/lib/libibverbs.so.1:a.so:b.so");
  // The user's choice is kept: a sanitizer runtime is not preloaded twice.
  EXPECT_EQ(preload_list(kLibrary, "/own/libasan.so.8", {"libasan.so.8"}),
            "/own/libasan.so.8:/opt/lib/libibverbs.so.1");
}

TEST(Preload, ASanitizerOfTheProgramComesFirst) {
  EXPECT_EQ(preload_list(kLibrary, "", {"libasan.so.8", "libibverbs.so.1", "libc.so.6"}),
            "libasan.so.8:/opt/lib/libibverbs.so.1");
  EXPECT_EQ(preload_list(kLibrary, "a.so", {"libstdc++.so.6", "libtsan.so.2"}),
            "libtsan.so.2:/opt/lib/libibverbs.so.1:a.so");
}

TEST(Preload, KnowsTheRuntimesOfBothCompilers) {
  for (const char* name : {"libasan.so.8", "/usr/lib/libtsan.so.2", "libhwasan.so.0", "liblsan.so.0",
                           "libclang_rt.asan-x86_64.so", "/llvm/libclang_rt.tsan-x86_64.so"})
    EXPECT_TRUE(is_sanitizer(name)) << name;
  for (const char* name : {"libubsan.so.1", "libc.so.6", "/home/libasan.so.8/liba.so", "mylibasan.so.8", ""})
    EXPECT_FALSE(is_sanitizer(name)) << name;
}

TEST(Preload, TheUsersOptionsOfThreadSanitizerWin) {
  // If an option is given twice, the last one is effective.
  EXPECT_EQ(tsan_options(""), "ignore_noninstrumented_modules=1");
  EXPECT_EQ(tsan_options("exitcode=3:ignore_noninstrumented_modules=0"),
            "ignore_noninstrumented_modules=1:exitcode=3:ignore_noninstrumented_modules=0");
}

TEST(Preload, FindsAProgramAsExecvpDoes) {
  const std::string found = find_program("sh");
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.substr(found.rfind('/')), "/sh");
  EXPECT_EQ(find_program(found), found);
  EXPECT_EQ(find_program("no-program-has-this-name"), "");
  EXPECT_EQ(find_program("/tmp"), "") << "a folder";
  EXPECT_EQ(find_program("/dev/null"), "");
}

class NeededLibraries : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream self("/proc/self/exe", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(self), {});
    std::string name = (std::filesystem::temp_directory_path() / "faultline-preload-XXXXXX").string();
    const int fd = mkstemp(name.data());
    ASSERT_GE(fd, 0);
    close(fd);
    path_ = name;
  }
  void TearDown() override { std::filesystem::remove(path_); }

  List read_back() {
    std::ofstream(path_, std::ios::binary) << bytes_;
    return needed_libraries(path_);
  }
  Elf64_Ehdr& header() { return *reinterpret_cast<Elf64_Ehdr*>(bytes_.data()); }
  Elf64_Phdr& program_header(Elf64_Word type) {
    auto* headers = reinterpret_cast<Elf64_Phdr*>(bytes_.data() + header().e_phoff);
    return *std::find_if(headers, headers + header().e_phnum,
                         [&](const Elf64_Phdr& one) { return one.p_type == type; });
  }
  Elf64_Phdr& first_segment() { return program_header(PT_LOAD); }
  Elf64_Phdr& dynamic_header() { return program_header(PT_DYNAMIC); }
  Elf64_Dyn& dynamic(Elf64_Sxword tag) {
    auto* entries = reinterpret_cast<Elf64_Dyn*>(bytes_.data() + dynamic_header().p_offset);
    return *std::find_if(entries, entries + dynamic_header().p_filesz / sizeof *entries,
                         [&](const Elf64_Dyn& one) { return one.d_tag == tag; });
  }

  std::string bytes_;
  std::string path_;
};

TEST_F(NeededLibraries, AreReadFromAProgram) {
  const List needed = read_back();
  EXPECT_NE(std::ranges::find(needed, "libc.so.6"), needed.end());
  EXPECT_EQ(needed, needed_libraries("/proc/self/exe"));
}

TEST_F(NeededLibraries, NoOtherFileHasAny) {
  for (const char* path : {"/no/such/file", "/", "/dev/null", "/etc/passwd"})
    EXPECT_EQ(needed_libraries(path), List()) << path;
  EXPECT_EQ(needed_libraries(""), List());
  bytes_[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(read_back(), List());
}

TEST_F(NeededLibraries, ACutFileHasNone) {
  const std::string whole = bytes_;
  for (const size_t length : {size_t{0}, size_t{3}, sizeof(Elf64_Ehdr) - 1, sizeof(Elf64_Ehdr) + 8}) {
    bytes_ = whole.substr(0, length);
    EXPECT_EQ(read_back(), List()) << length;
  }
}

TEST_F(NeededLibraries, AFileThatContradictsItselfIsNotFollowed) {
  const std::string whole = bytes_;
  const auto with = [&](auto change) {
    bytes_ = whole;
    change();
    return read_back();
  };
  EXPECT_EQ(with([&] { header().e_phoff = ~uint64_t{0}; }), List());
  EXPECT_EQ(with([&] { header().e_phentsize = 1; }), List());
  EXPECT_EQ(with([&] { header().e_phnum = 0xffff; }), List());
  EXPECT_EQ(with([&] { dynamic_header().p_offset = ~uint64_t{0}; }), List());
  EXPECT_EQ(with([&] { dynamic_header().p_filesz = ~uint64_t{0}; }), List());
  EXPECT_EQ(with([&] { dynamic(DT_STRTAB).d_un.d_ptr = ~uint64_t{0}; }), List());
  EXPECT_EQ(with([&] { first_segment().p_filesz = 8; }), List()) << "the names are in no segment";
  EXPECT_EQ(with([&] { dynamic(DT_STRSZ).d_un.d_val = ~uint64_t{0}; }), List());
  EXPECT_EQ(with([&] { dynamic(DT_STRSZ).d_un.d_val = 0; }), List());
  // A name that begins in the table must end there: a terminator lies after the table's last byte.
  const List cut = with([&] { dynamic(DT_STRSZ).d_un.d_val = dynamic(DT_NEEDED).d_un.d_val + 1; });
  for (const std::string& name : cut) EXPECT_LE(name.size(), dynamic(DT_STRSZ).d_un.d_val) << name;
}

}  // namespace
}  // namespace faultline::run::preload_test
