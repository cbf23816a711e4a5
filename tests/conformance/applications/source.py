# SPDX-License-Identifier: BSD-3-Clause
"""Programs that Debian ships as source only: fetched as a source package and built once, into a cache.

The cache is FAULTLINE_APPLICATIONS_CACHE, which the lane sets to a folder of its build directory. The next run repeats a build that
failed, and uses an existing one as it is. apt's own lists and sources do not change.
"""
import fcntl
import glob
import os
import shutil
import subprocess

import harness
from harness import networks

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
FETCH_SECONDS = 300
BUILD_SECONDS = 2 * 3600


def cache(name):
    home = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")) + "/faultline-applications"
    return os.path.join(os.environ.get("FAULTLINE_APPLICATIONS_CACHE", home), name)


def step(log, command, folder, seconds):
    log.write(f"$ {command}\n".encode())
    log.flush()
    try:
        return subprocess.run(["nice", "-n", "10", "sh", "-ec", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
                              stderr=subprocess.STDOUT, timeout=seconds).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def fetch(log, folder, source, suites):
    """Unpacks the original source of the first suite for which the mirror has it; returns the suite, or None."""
    # In Debian's deb822 files, and in the one-line ones.
    site = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Label: Debian"],
                          capture_output=True, text=True).stdout.split()
    if not site:
        networks.skip("apt knows no mirror of Debian")
    for suite in suites:
        apt = f"{folder}/apt-{suite}"
        for name in ("lists/partial", "cache/archives/partial"):
            os.makedirs(f"{apt}/{name}", exist_ok=True)
        with open(f"{apt}/sources.list", "w") as file:
            file.write(f"deb-src [signed-by={KEYRING}] {site[0]} {suite} main\n")
        options = (f"-q -o Dir::Etc::SourceList={apt}/sources.list -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists={apt}/lists "
                   f"-o Dir::Cache={apt}/cache -o APT::Sandbox::User=root")
        if step(log, f"apt-get {options} update && apt-get {options} source --download-only --tar-only {source}", folder, FETCH_SECONDS):
            tarballs = glob.glob(f"{folder}/{source}_*.orig.tar.*")
            os.makedirs(f"{folder}/source", exist_ok=True)
            if tarballs and step(log, f"tar -x --strip-components=1 -C source -f {tarballs[0]}", folder, FETCH_SECONDS):
                return suite
    return None


def build(name, source, suites, commands, product):
    """Returns the folder that has `product`, or exits with SKIPPED and the reason. The commands run in the unpacked source; $out is the
    returned folder, to which they install."""
    folder = cache(name)
    os.makedirs(folder, exist_ok=True)
    log_path = f"{folder}/build.log"
    with open(f"{folder}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        out = f"{folder}/out"
        if os.path.exists(f"{out}/{product}"):
            return out
        for tool in ("apt-get", "autoreconf", "make", "cc"):
            if not shutil.which(tool):
                networks.skip(f"not installed: {tool}")
        with open(log_path, "wb") as log:
            if not os.path.exists(f"{folder}/source/.fetched"):
                shutil.rmtree(f"{folder}/source", ignore_errors=True)
                suite = fetch(log, folder, source, suites)
                if not suite:
                    networks.skip(f"the mirror has no source of {source}")
                with open(f"{folder}/source/.fetched", "w") as file:
                    file.write(suite)
            print(f"building {name}, see {log_path}", flush=True)
            for command in commands:
                if not step(log, f"out={out}; {command}", f"{folder}/source", BUILD_SECONDS):
                    networks.skip(f"{source} could not be built: {command.split()[0]} failed, see {log_path}")
        if not os.path.exists(f"{out}/{product}"):
            networks.skip(f"{source} was built without {product}, see {log_path}")
        return out


def compiler():
    return "CC='ccache gcc' CXX='ccache g++'" if shutil.which("ccache") else "CC=gcc CXX=g++"


def expected(path):
    """TEST, RESULT and REASON of each line of a table; `#` begins a comment."""
    rows = {}
    with open(os.path.join(os.path.dirname(os.path.realpath(harness.__file__)), path)) as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                test, result, reason = (line.rstrip("\n").split("\t") + ["", ""])[:3]
                rows[test] = (result, reason)
    return rows
