#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Properties of the two commands besides building: scripts/run keeps the tests that scripts/test has configured, the command that
# installs missing packages is printed, and a build prints its progress.
#   scripts_test.sh
set -euo pipefail
source_dir=$(realpath "$(dirname "$0")/../..")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

# A project of a few files replaces the product: the test is of the scripts, with the real Meson and ninja.
mkdir -p "$folder/tree/scripts" "$folder/home"
cp "$source_dir"/scripts/{common.sh,setup,packages.txt} "$folder/tree/scripts/"
cat >"$folder/tree/meson.build" <<'END'
project('small', 'cpp', version: '1')
executable('one', 'one.cpp')
foreach number : ['2', '3', '4', '5']
  executable('other' + number, 'one.cpp')
endforeach
if get_option('tests')
  test('one', executable('one_test', 'one.cpp'))
endif
END
printf "option('tests', type: 'boolean', value: true)\noption('benchmarks', type: 'boolean', value: true)\n" >"$folder/tree/meson_options.txt"
echo 'int main() { return 0; }' >"$folder/tree/one.cpp"
tests_of() { meson introspect --tests "$1" | python3 -c 'import json, sys; print(len(json.load(sys.stdin)))'; }
unset FAULTLINE_BUILD_DIR

# shellcheck disable=SC2016 # for the shell that is started
in_scripts() { (cd "$folder/tree" && bash -euo pipefail -c '. scripts/common.sh; '"$1"); }
in_scripts 'configure_run' >"$folder/fresh.out"
[ "$(tests_of "$folder/tree/build/plain")" -eq 0 ] || fail "a fresh scripts/run configures tests"
in_scripts 'configure plain -Dtests=true -Dbenchmarks=true; compile' >"$folder/built.out"
[ "$(tests_of "$folder/tree/build/plain")" -eq 1 ] || fail "scripts/test configures no tests"
in_scripts 'configure_run; compile one' >"$folder/again.out"
[ "$(tests_of "$folder/tree/build/plain")" -eq 1 ] || fail "scripts/run has taken the tests away"
echo "ok: scripts/run leaves the tests of scripts/test"

grep -Eq '^== building in build/plain: [0-9]+ steps, about [0-9]+ (s|min) on [0-9]+ free CPUs; log: build/plain.build.log$' "$folder/built.out" ||
  fail "a build does not say how much there is to do: $(cat "$folder/built.out")"
grep -Eq '^== built in [0-9]+ (s|min)$' "$folder/built.out" || fail "a build does not say how long it took"
[ -s "$folder/tree/build/plain.build.log" ] || fail "the log is not where the line says"
echo 'int main() { return nothing; }' >"$folder/tree/one.cpp"
if in_scripts 'configure_run; compile' >"$folder/broken.out" 2>&1; then fail "a broken build is none"; fi
grep -q "nothing" "$folder/broken.out" || fail "a broken build does not show the compiler's line"
[ -z "$(jobs -p)" ] || fail "a script leaves processes"
echo "ok: a build says how far it is"

printf '[build]\nno-such-package-of-debian\n' >>"$folder/tree/scripts/packages.txt"
user=()
if [ "$(id -u)" -eq 0 ]; then user=(setpriv --reuid=210003 --regid=210003 --clear-groups); fi
chmod -R a+rX "$folder"
if ! "${user[@]}" true 2>/dev/null; then
  echo "root without its capabilities becomes no other user: the line for others was not tried"
elif "${user[@]}" sudo -n true 2>/dev/null; then
  echo "this user may install packages: the line for others was not tried"
else
  if "${user[@]}" env HOME="$folder/home" bash "$folder/tree/scripts/setup" build >"$folder/setup.out" 2>&1; then fail "a missing package is not missed"; fi
  grep -Eq '^  sudo apt-get update && sudo apt-get install --no-install-recommends .*no-such-package-of-debian' "$folder/setup.out" ||
    fail "no line to paste: $(cat "$folder/setup.out")"
  echo "ok: missing packages come with the line that installs them"
fi
