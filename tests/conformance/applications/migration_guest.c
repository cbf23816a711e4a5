// SPDX-License-Identifier: BSD-3-Clause
// The guest of migration.py, its first process: it fills memory, changes a part of it all the time, and
// compares all of it. A page that a migration loses or mixes up is one that reads wrong here.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { page_words = 4096 / 8, still_pages = 24 << 8, changing_pages = 1 << 8, words_per_page = 8 };

// Mixes page, place and pass (the finalizer of SplitMix64), so that no two words of memory are alike.
static uint64_t value_of(uint64_t page, uint64_t word, uint64_t pass) {
  uint64_t x = (page << 32) ^ (word << 20) ^ pass;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

int main(void) {
  mknod("/console", S_IFCHR | 0600, makedev(5, 1));
  const int console = open("/console", O_RDWR);
  const uint64_t pages = still_pages + changing_pages;
  uint64_t* memory = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    dprintf(console, "guest: no memory\n");
    for (;;) pause();
  }
  for (uint64_t page = 0; page < still_pages; ++page) {
    for (uint64_t word = 0; word < page_words; ++word)
      memory[page * page_words + word] = value_of(page, word, 0);
  }
  for (uint64_t pass = 1;; ++pass) {
    for (uint64_t page = still_pages; page < pages; ++page) {
      for (uint64_t word = 0; word < page_words; ++word)
        memory[page * page_words + word] = value_of(page, word, pass);
    }
    uint64_t wrong = 0;
    for (uint64_t page = 0; page < pages; ++page) {
      const uint64_t then = page < still_pages ? 0 : pass;
      for (uint64_t word = 0; word < page_words; word += page_words / words_per_page) {
        wrong += memory[page * page_words + word] != value_of(page, word, then);
      }
    }
    dprintf(console, "guest: pass %llu, %llu wrong\n", (unsigned long long)pass, (unsigned long long)wrong);
  }
}
