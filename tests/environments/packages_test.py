#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The Debian packages' lists against an installation: each pattern of debian/*.install names a file, each file is in one package or in
debian/not-installed, and the versions agree. A program that is linked by faultline.pc finds the installed library.
  packages_test.py SOURCE_DIR BUILD_DIR VERSION"""
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402

SOURCE, BUILD, VERSION = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
PROGRAM = """
#include <faultline/faultline.h>
#include <stdio.h>
int main(void) { return puts(faultline_last_error()) < 0; }
"""
faults = []


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, timeout=lib.LIMIT_S, capture_output=True, text=True, **options).stdout


def patterns(path):
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def covers(pattern, file):
    """As dh_install: the pattern names the file, or a folder above it. '*' stands for one folder here."""
    wanted, parts = pattern.split("/"), file.split("/")
    return len(parts) >= len(wanted) and all(fnmatch.fnmatch(part, want) for part, want in zip(parts, wanted))


def option(name):
    text = run("meson", "introspect", "--buildoptions", BUILD)
    return re.search(r'"name": "%s", "value": "([^"]*)"' % name, text).group(1)


def compare_lists(files):
    lists = {path.name: patterns(path) for path in [*(SOURCE / "debian").glob("*.install"), SOURCE / "debian/not-installed"]}
    for name, wanted in lists.items():
        faults.extend(f"debian/{name}: {pattern} names no file of meson install" for pattern in wanted
                      if not any(covers(pattern, file) for file in files))
    for file in files:
        owners = [name for name, wanted in lists.items() if any(covers(pattern, file) for pattern in wanted)]
        if len(owners) != 1:
            faults.append(f"{file}: is in {' and '.join(owners) or 'no package'}")


def compare_versions():
    newest = re.match(r"faultline \(([^)]+)\)", (SOURCE / "debian/changelog").read_text()).group(1)
    if newest != VERSION:
        faults.append(f"debian/changelog begins with version {newest}, the project has {VERSION}")


def link_program(root, prefix, libdir, folder):
    """Linked against the installation, a program loads the installed library; so does faultline-perf, without ldconfig."""
    (folder / "program.c").write_text(PROGRAM)
    pkgconfig = root / libdir / "pkgconfig"
    variables = os.environ | {"PKG_CONFIG_PATH": str(pkgconfig)}
    flags = run("pkg-config", f"--define-variable=prefix={root}", "--cflags", "--libs", "faultline", env=variables).split()
    run("cc", folder / "program.c", "-o", folder / "program", *flags)
    # What a program needs comes from this installation, not from rdma-core.
    needed = run("readelf", "-d", folder / "program")
    if "libfaultline.so.0" not in needed or "libibverbs" in needed:
        faults.append("faultline.pc: the program does not link libfaultline.so.0 alone: " + needed)
    run(folder / "program", env=os.environ | {"LD_LIBRARY_PATH": str(root / libdir)})
    here = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}  # that of the build
    found = run("ldd", root / "bin/faultline-perf", env=here)
    if prefix != "/usr" and str((root / libdir).resolve()) not in str([pathlib.Path(line.split()[2]).resolve() for line in found.splitlines()
                                                                       if "libfaultline" in line and line.split()[2] != "not"]):
        faults.append(f"faultline-perf does not find the library of its installation:\n{found}")


def main():
    for tool in ("meson", "pkg-config", "readelf", "cc"):
        if shutil.which(tool) is None:
            print(f"SKIPPED: needs {tool}")
            sys.exit(77)
    prefix, libdir = option("prefix"), option("libdir")
    with tempfile.TemporaryDirectory(prefix="fl-packages-") as name:
        folder = pathlib.Path(name)
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", folder / "root")
        root = folder / "root" / prefix.lstrip("/")
        # The names that a package has, whatever this build's prefix and libdir are.
        names = sorted("usr/" + str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or not path.is_dir())
        package_names = [re.sub(f"^usr/{re.escape(libdir)}/", "usr/lib/x/", file) for file in names]
        compare_lists(package_names)
        link_program(root, prefix, libdir, folder)
    compare_versions()
    print("\n".join(faults) if faults else f"ok: {len(package_names)} files, each in one package")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
