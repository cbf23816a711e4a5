// SPDX-License-Identifier: BSD-3-Clause
// What a compiler of Debian 12 and its libstdc++ and libgcc take from glibc, and glibc 2.31 lacks. Linked
// into each program and library of the archive, hidden.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <locale.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define HIDDEN __attribute__((visibility("hidden")))

// glibc 2.32: nonzero allows cheaper reference counts. Zero is always right.
HIDDEN char __libc_single_threaded = 0;

// glibc 2.36: libstdc++'s std::random_device.
HIDDEN uint32_t arc4random(void) {
  uint32_t value;
  if (getentropy(&value, sizeof(value)) != 0) abort();
  return value;
}

// glibc 2.32: the text of an error, without a translation.
HIDDEN const char* strerrordesc_np(int error) {
  static _Atomic(locale_t) plain;
  if (plain == (locale_t)0) {
    const locale_t made = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t none = (locale_t)0;
    if (made == (locale_t)0) return NULL;
    if (!__atomic_compare_exchange_n((locale_t*)&plain, &none, made, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      freelocale(made);
  }
  return strerror_l(error, plain);
}

// glibc 2.34: the child closes the descriptors from `first` on. Before, it closes those that are open now.
HIDDEN int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions, int first) {
  int (*newer)(posix_spawn_file_actions_t*, int) = NULL;
  *(void**)&newer = dlsym(RTLD_DEFAULT, "posix_spawn_file_actions_addclosefrom_np");
  if (newer != NULL) return newer(actions, first);
  DIR* folder = opendir("/proc/self/fd");
  if (folder == NULL) return errno;
  int error = 0;
  for (struct dirent* entry = readdir(folder); entry != NULL && error == 0; entry = readdir(folder)) {
    const int descriptor = atoi(entry->d_name);
    if (descriptor >= first) error = posix_spawn_file_actions_addclose(actions, descriptor);
  }
  closedir(folder);
  return error;
}

// glibc 2.35: where the unwinder finds the frames of an address.
struct search {
  uintptr_t address;
  struct dl_find_object* result;
};

static int matches(struct dl_phdr_info* object, size_t size, void* argument) {
  (void)size;
  const struct search* search = argument;
  const ElfW(Phdr)* frames = NULL;
  uintptr_t begin = UINTPTR_MAX;
  uintptr_t end = 0;
  int found = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    const uintptr_t start = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) frames = part;
    if (part->p_type != PT_LOAD) continue;
    if (start < begin) begin = start;
    if (start + part->p_memsz > end) end = start + part->p_memsz;
    found |= search->address >= start && search->address < start + part->p_memsz;
  }
  if (!found || frames == NULL) return 0;
  *search->result = (struct dl_find_object){
      .dlfo_map_start = (void*)begin,
      .dlfo_map_end = (void*)end,
      .dlfo_eh_frame = (void*)(object->dlpi_addr + frames->p_vaddr),
  };
  return 1;
}

HIDDEN int _dl_find_object(void* address, struct dl_find_object* result) {
  struct search search = {(uintptr_t)address, result};
  if (dl_iterate_phdr(matches, &search) != 1) return -1;
  Dl_info unused;
  void* map = NULL;
  if (dladdr1(address, &unused, &map, RTLD_DL_LINKMAP) == 0) return -1;
  result->dlfo_link_map = map;
  return 0;
}

// glibc 2.32: the name of an error, "EPERM".
HIDDEN const char* strerrorname_np(int error) {
#define NAME(error) [error] = #error
  static const char* const kNames[] = {
      NAME(EPERM),
      NAME(ENOENT),
      NAME(ESRCH),
      NAME(EINTR),
      NAME(EIO),
      NAME(ENXIO),
      NAME(E2BIG),
      NAME(ENOEXEC),
      NAME(EBADF),
      NAME(ECHILD),
      NAME(EAGAIN),
      NAME(ENOMEM),
      NAME(EACCES),
      NAME(EFAULT),
      NAME(ENOTBLK),
      NAME(EBUSY),
      NAME(EEXIST),
      NAME(EXDEV),
      NAME(ENODEV),
      NAME(ENOTDIR),
      NAME(EISDIR),
      NAME(EINVAL),
      NAME(ENFILE),
      NAME(EMFILE),
      NAME(ENOTTY),
      NAME(ETXTBSY),
      NAME(EFBIG),
      NAME(ENOSPC),
      NAME(ESPIPE),
      NAME(EROFS),
      NAME(EMLINK),
      NAME(EPIPE),
      NAME(EDOM),
      NAME(ERANGE),
      NAME(EDEADLK),
      NAME(ENAMETOOLONG),
      NAME(ENOLCK),
      NAME(ENOSYS),
      NAME(ENOTEMPTY),
      NAME(ELOOP),
      NAME(ENOMSG),
      NAME(EIDRM),
      NAME(ECHRNG),
      NAME(EL2NSYNC),
      NAME(EL3HLT),
      NAME(EL3RST),
      NAME(ELNRNG),
      NAME(EUNATCH),
      NAME(ENOCSI),
      NAME(EL2HLT),
      NAME(EBADE),
      NAME(EBADR),
      NAME(EXFULL),
      NAME(ENOANO),
      NAME(EBADRQC),
      NAME(EBADSLT),
      NAME(EBFONT),
      NAME(ENOSTR),
      NAME(ENODATA),
      NAME(ETIME),
      NAME(ENOSR),
      NAME(ENONET),
      NAME(ENOPKG),
      NAME(EREMOTE),
      NAME(ENOLINK),
      NAME(EADV),
      NAME(ESRMNT),
      NAME(ECOMM),
      NAME(EPROTO),
      NAME(EMULTIHOP),
      NAME(EDOTDOT),
      NAME(EBADMSG),
      NAME(EOVERFLOW),
      NAME(ENOTUNIQ),
      NAME(EBADFD),
      NAME(EREMCHG),
      NAME(ELIBACC),
      NAME(ELIBBAD),
      NAME(ELIBSCN),
      NAME(ELIBMAX),
      NAME(ELIBEXEC),
      NAME(EILSEQ),
      NAME(ERESTART),
      NAME(ESTRPIPE),
      NAME(EUSERS),
      NAME(ENOTSOCK),
      NAME(EDESTADDRREQ),
      NAME(EMSGSIZE),
      NAME(EPROTOTYPE),
      NAME(ENOPROTOOPT),
      NAME(EPROTONOSUPPORT),
      NAME(ESOCKTNOSUPPORT),
      NAME(EOPNOTSUPP),
      NAME(EPFNOSUPPORT),
      NAME(EAFNOSUPPORT),
      NAME(EADDRINUSE),
      NAME(EADDRNOTAVAIL),
      NAME(ENETDOWN),
      NAME(ENETUNREACH),
      NAME(ENETRESET),
      NAME(ECONNABORTED),
      NAME(ECONNRESET),
      NAME(ENOBUFS),
      NAME(EISCONN),
      NAME(ENOTCONN),
      NAME(ESHUTDOWN),
      NAME(ETOOMANYREFS),
      NAME(ETIMEDOUT),
      NAME(ECONNREFUSED),
      NAME(EHOSTDOWN),
      NAME(EHOSTUNREACH),
      NAME(EALREADY),
      NAME(EINPROGRESS),
      NAME(ESTALE),
      NAME(EUCLEAN),
      NAME(ENOTNAM),
      NAME(ENAVAIL),
      NAME(EISNAM),
      NAME(EREMOTEIO),
      NAME(EDQUOT),
      NAME(ENOMEDIUM),
      NAME(EMEDIUMTYPE),
      NAME(ECANCELED),
      NAME(ENOKEY),
      NAME(EKEYEXPIRED),
      NAME(EKEYREVOKED),
      NAME(EKEYREJECTED),
      NAME(EOWNERDEAD),
      NAME(ENOTRECOVERABLE),
      NAME(ERFKILL),
      NAME(EHWPOISON),
  };
#undef NAME
  return error >= 0 && (size_t)error < sizeof(kNames) / sizeof(kNames[0]) ? kNames[error] : NULL;
}
