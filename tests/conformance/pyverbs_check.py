# SPDX-License-Identifier: BSD-3-Clause
"""Compares the results of pyverbs_run.py with the expected ones: no test fails, each test that should pass passes, and each skipped test
has the expected reason.
  pyverbs_check.py EXPECTED RESULTS ring|share|udp|udp-share [CLASS,CLASS...]
With classes, only their tests have run. Over udp an ordinary user has run them.

The expected results are those of rdma-core 44. In another version, tests that it has anew may pass or be skipped, whatever the reason, and
tests that it has no more are not missed. The reasons are printed then, with how many tests each skips.
"""
import collections
import os
import re
import subprocess
import sys

LISTED_VERSION = '44'

expected_path, results_path, kind = sys.argv[1:4]
only = sys.argv[4].split(',') if len(sys.argv) > 4 else None
# Properties of this machine that may prevent a test, whatever the stack can do.
NO_HUGE_PAGES = re.compile('There are no huge pages of size 2M allocated|Huge pages of size 2M is not supported')
NO_ROOT = re.compile('Must be run by root')
as_user = os.geteuid() != 0 or kind.startswith('udp')

found = subprocess.run(['dpkg-query', '-W', '-f', '${Version}', 'python3-pyverbs'], capture_output=True, text=True, check=False).stdout
is_listed = not found or found.split('.')[0] == LISTED_VERSION

expected = {}
with open(expected_path) as file:
    for line in file:
        if line.startswith('#'):
            continue
        test, result, reason, reason_of_user = (line.rstrip('\n').split('\t') + ['', ''])[:4]
        if only is not None and test.split('.')[-2] not in only:
            continue
        # The suite checks the effective user, whatever root may do in a container.
        expected[test] = (result, reason_of_user if reason_of_user and as_user else reason)

counts = {}
wrong = []
reasons = collections.Counter()
seen = set()
with open(results_path) as file:
    for line in file:
        test, result, reason = line.rstrip('\n').split('\t', 2)
        seen.add(test)
        counts[result] = counts.get(result, 0) + 1
        if result == 'skip':
            reasons[reason] += 1
        if not is_listed and test not in expected and result in ('pass', 'skip'):
            continue
        wanted, pattern = expected.get(test, ('', ''))
        if wanted == 'share':
            wanted, pattern = ('pass', '') if kind.endswith('share') else ('skip', "doesn't have net interface")
        if result == wanted and (result == 'pass' or re.search(pattern, reason)):
            continue
        if result == 'skip' and NO_HUGE_PAGES.search(reason):
            print(f'no huge pages here: {test} was not run')
        elif result == 'skip' and as_user and NO_ROOT.search(reason):
            print(f'needs root: {test} was not run')
        else:
            wrong.append(f'{test}: {result} ({reason}), expected: {wanted or "nothing"} {pattern}')
if is_listed:
    wrong += [f'{test}: did not run' for test in expected if test not in seen]
elif not seen:
    wrong.append('no test ran')
wrong += [f'{name}: no such class' for name in only or () if not any(test.split('.')[-2] == name for test in expected)]
print(', '.join(f'{count} {result}' for result, count in sorted(counts.items())))
if not is_listed:
    print(f'pyverbs {found}, skipped:')
    for reason, count in reasons.most_common():
        print(f'  {count}: {reason}')
for line in wrong[:20]:
    print('FAILED:', line)
if len(wrong) > 20:
    print(f'FAILED: and {len(wrong) - 20} more')
sys.exit(1 if wrong else 0)
