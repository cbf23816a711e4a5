#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Properties of the two commands besides building: scripts/run keeps the tests that scripts/test has configured, the command that
# installs missing packages is printed, a build prints its progress, and scripts/test chooses the tests that its options name.
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

# A compiler cache serves every checkout, also files with their names in them.
if command -v ccache >/dev/null; then
  printf '#include <cassert>\nint main(int count, char**) { assert(count > 0); return __FILE__[0] == 0; }\n' >"$folder/tree/one.cpp"
  sed -i "1r /dev/stdin" "$folder/tree/meson.build" < <(grep -F -e -fmacro-prefix-map "$source_dir/meson.build")
  rm -rf "$folder/tree/build"
  cp -r "$folder/tree" "$folder/other-checkout"
  for checkout in tree other-checkout; do
    CCACHE_DIR=$folder/cache ccache --zero-stats >"$folder/cache.out"
    (cd "$folder/$checkout" && CCACHE_DIR=$folder/cache FAULTLINE_WERROR=${werror:-} bash -euo pipefail -c '. scripts/common.sh; configure_run; compile one') >"$folder/cache.out" 2>&1 ||
      fail "a build with a compiler cache: $(cat "$folder/cache.out")"
    werror=true  # as in CI
  done
  CCACHE_DIR=$folder/cache ccache --print-stats >"$folder/cache.out"
  awk '{ count[$1] = $2 } END { exit !(count["cache_miss"] == 0 && count["direct_cache_hit"] + count["preprocessed_cache_hit"] > 0) }' "$folder/cache.out" ||
    fail "another checkout finds nothing in the compiler cache: $(grep -E 'hit|miss' "$folder/cache.out" | tr '\n' ' ')"
  echo "ok: a compiler cache serves every checkout"
  printf 'int main() { int unused; return 0; }\n' | tee "$folder/other-checkout/one.cpp" >"$folder/tree/one.cpp"
  (cd "$folder/tree" && CCACHE_DIR=$folder/cache bash -euo pipefail -c '. scripts/common.sh; configure_run; compile one') >"$folder/cache.out" 2>&1 ||
    fail "a warning stops a user's build: $(cat "$folder/cache.out")"
  if (cd "$folder/other-checkout" && CCACHE_DIR=$folder/cache FAULTLINE_WERROR=true bash -euo pipefail -c '. scripts/common.sh; configure_run; compile one') \
    >"$folder/cache.out" 2>&1; then fail "a warning from the compiler cache is no error"; fi
  grep -q 'unused.*-Wunused-variable' "$folder/cache.out" || fail "the warning is not shown: $(cat "$folder/cache.out")"
  echo "ok: a warning from the compiler cache is an error where warnings are"
fi

# What scripts/test chooses: --list runs nothing.
tree=$folder/chosen
mkdir -p "$tree"/{docs,tests,stack/base}
cp -r "$source_dir/scripts" "$tree/"
printf '#!/bin/sh\nexit 0\n' >"$tree/tests/run.sh"
chmod +x "$tree/tests/run.sh"
cat >"$tree/docs/rooms.md" <<'END'
# Rooms

| room | what it has | may include | may use | threads | tests |
|---|---|---|---|---|---|
| `stack/base` | tools | | | any | `unit-1` `slow-1` |

## Tests of other places

| place | tests |
|---|---|
| `docs` | `suite:pages` |
END
cat >"$tree/meson.build" <<'END'
project('small', version: '1')
get_option('tests')
foreach number : ['1', '2', '3', '4', '5', '6', '7', '8', '9']
  test('unit-' + number, find_program('tests/run.sh'), args: number, suite: ['unit', 'default'])
  test('slow-' + number, find_program('tests/run.sh'), args: number, suite: number == '1' ? ['kernel'] : ['e2e'])
endforeach
test('pages', find_program('tests/pages.sh'), suite: 'pages')
END
cp "$tree/tests/run.sh" "$tree/tests/pages.sh"
cp "$folder/tree/meson_options.txt" "$tree/"
printf '/build\n' >"$tree/.gitignore"
commit() { git -C "$tree" add --all && git -C "$tree" -c user.name=test -c user.email=test@example.org commit --quiet --allow-empty -m "$1"; }
git init --quiet "$tree"
commit first
script=scripts/test
listed() { (cd "$tree" && "$script" "$@" --list | grep -v '^== '); }
expect() { [ "$2" = "$3" ] || fail "$1: '$2' instead of '$3'"; }
indented() { printf '  %s\n' "$@"; }

expect "the default tier" "$(listed | tr -s '\n ' ' ')" \
  "rooms format tests $(echo unit-{1..9}) threats state changed-mutants "
every=$(listed --all | sort)
for third in 0 1 2; do listed --third "$third" >"$folder/third.$third"; done
expect "three thirds" "$(sort -u "$folder"/third.?)" "$(uniq <<<"$every")"
expect "a lane or test in two thirds" "$(sort "$folder"/third.? | uniq -d)" "$({ listed; echo rest; } | sort)"
for third in 0 1 2; do
  commit "number $third"
  listed --rotate >"$folder/rotated.$((($(git -C "$tree" rev-list --count HEAD)) % 3))"
done
for third in 0 1 2; do expect "the third $third of a commit" "$(cat "$folder/rotated.$third")" "$(cat "$folder/third.$third")"; done
git clone --quiet --depth 1 "file://$tree" "$folder/shallow"
(cd "$folder/shallow" && "$script" --rotate --list >"$folder/shallow.out") || fail "no third in a shallow clone"
grep -q '^rest$' "$folder/shallow.out" || fail "no third in a shallow clone"
echo "ok: three thirds are the whole, each lane once"

expect "a room" "$(listed --room stack/base | grep '^ ')" "$(indented unit-1 slow-1)"
expect "a place" "$(listed --room docs | grep '^ ')" "$(indented pages)"
echo "int changed;" >"$tree/stack/base/tool.cpp"
expect "a changed source" "$(listed --changed HEAD | grep '^ ')" "$(indented unit-1 slow-1)"
commit "a tool"
expect "the last commit" "$(listed --changed | grep '^ ')" "$(indented unit-1 slow-1)"
echo "# more" >>"$tree/tests/pages.sh"
expect "a changed test" "$(listed --changed HEAD | grep '^ ')" "$(indented pages)"
commit "a test"
echo "# more" >>"$tree/scripts/common.sh"
expect "a change of no room" "$(listed --changed HEAD | grep '^ ')" "$(indented unit-{1..9})"
expect "tests under stress" "$(listed --stress 3 unit-2 unit-3 | grep '^ ')" "$(indented unit-2 unit-3)"
echo "ok: --room, --changed and --stress choose their tests"

for wrong in --nothing nothing "--stress some" "--third 3" "--all rooms" "--room stack/none --list"; do
  status=0
  # shellcheck disable=SC2086 # words
  (cd "$tree" && "$script" $wrong) >"$folder/wrong.out" 2>&1 || status=$?
  expect "the status of scripts/test $wrong" "$status" 2
  expect "the lines of scripts/test $wrong" "$(grep -c '^faultline: ' "$folder/wrong.out") of $(wc -l <"$folder/wrong.out")" "1 of 1"
done
# A part that builds nothing, where nothing is built.
for stub in scripts/setup scripts/check-rooms docs/design/rooms.py; do
  mkdir -p "$tree/$(dirname "$stub")"
  cp "$tree/tests/run.sh" "$tree/$stub"
done
rm -rf "$tree/build"
(cd "$tree" && scripts/test rooms) >"$folder/rooms.out" 2>&1 || fail "a part fails without a build: $(cat "$folder/rooms.out")"
expect "the last line of a part" "$(tail -n 1 "$folder/rooms.out")" "2 passed, 0 failed, 0 skipped"
"$tree/scripts/test" --help >"$folder/help.out" || fail "scripts/test --help fails"
for option in --all --soak --rotate --third --changed --room --stress --coverage --list PART; do
  grep -q -- "$option" "$folder/help.out" || fail "scripts/test --help lacks $option"
done
for script in mutants tidy; do
  "$tree/scripts/$script" --help >"$folder/help.out" || fail "scripts/$script --help fails"
  grep -q -- --rotate "$folder/help.out" || fail "scripts/$script --help lacks --rotate"
done
status=0
"$tree/scripts/mutants" --nothing >"$folder/wrong.out" 2>&1 || status=$?
expect "the status of scripts/mutants --nothing" "$status" 2
"$source_dir/scripts/run" --help >"$folder/help.out" || fail "scripts/run --help fails"
grep -q 'scripts/run' "$folder/help.out" || fail "scripts/run --help does not help"
status=0
"$source_dir/scripts/run" --nothing >"$folder/wrong.out" 2>&1 || status=$?
expect "the status of scripts/run --nothing" "$status" 2
expect "the lines of scripts/run --nothing" "$(wc -l <"$folder/wrong.out")" 1
echo "ok: help, and one line for an option that is none"

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
