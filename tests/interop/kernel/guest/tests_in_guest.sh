# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Runs test programs as all that an emulated machine does: sourced by the tests of other kernels.

# Ends a hang: an emulated machine beside other work is ten times slower than alone.
guest_seconds=1800

cannot() {
  printf 'SKIPPED: no such kernel: %s\n' "$*" >&2
  exit 77
}

need_tools() {
  local tool
  for tool in qemu-system-x86_64 cpio ldd "$@"; do
    command -v "$tool" >/dev/null || cannot "$tool is not installed"
  done
}

# add_program BUILD ROOT PROGRAM: adds it and the libraries that it needs
add_program() {
  local library
  cp "$1/$3" "$2/bin/"
  while read -r library; do cp -L -n "$library" "$2/lib/" || true; done < <(ldd "$1/$3" | grep -o '/[^ ]*')
}

# boot_guest KERNEL INITRD: boots a guest whose init runs the lines of its /tests. Prints what failed or was skipped, and the status of each
# line. All output is in $folder/output.
boot_guest() {
  local kernel=$1 initrd=$2 failed
  timeout $guest_seconds qemu-system-x86_64 -machine pc -accel "${FAULTLINE_PEER_ACCEL:-tcg}" -cpu max -smp 2 -m 2048 -nographic -no-reboot \
    -net none -kernel "$kernel" -initrd "$initrd" -append 'console=ttyS0 quiet panic=-1 rdinit=/init' \
    </dev/null 2>&1 | tr -d '\r' >"$folder/output" || true
  # The tests' own output, if one failed, and each one's status.
  grep -aE '^guest:|FAILED|Failure|Which is|SKIPPED' "$folder/output" || true
  grep -aq '^guest: end' "$folder/output" || {
    tail -n 40 "$folder/output"
    echo "FAILED: the guest did not come to its end in $guest_seconds s"
    exit 1
  }
  failed=$(grep -acE '^guest: [1-9][0-9]* /' "$folder/output" || true)
  [ "$failed" = 0 ] || {
    tail -n 40 "$folder/output"
    echo "FAILED: $failed programs"
    exit 1
  }
}

# pack ROOT INITRD
pack() { (cd "$1" && find . | cpio --quiet -o -H newc) >"$2"; }

# run_in_guest KERNEL INIT BUILD TEST...: TEST is a program of BUILD with its arguments.
run_in_guest() {
  local kernel=$1 init=$2 build=$3 root=$folder/root test words
  shift 3
  mkdir -p "$root"/{bin,lib,lib64}
  cp "$init" "$root/init"
  cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
  # The C library loads it to end a thread.
  cp -L /lib/x86_64-linux-gnu/libgcc_s.so.1 "$root/lib/"
  for test in "$@"; do
    add_program "$build" "$root" "${test%% *}"
    words=''
    [ "${test#* }" = "$test" ] || words=" ${test#* }"
    printf '/bin/%s%s\n' "$(basename "${test%% *}")" "$words" >>"$root/tests"
  done
  pack "$root" "$folder/initrd"
  boot_guest "$kernel" "$folder/initrd"
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
