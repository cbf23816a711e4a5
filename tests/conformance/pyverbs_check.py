# SPDX-License-Identifier: BSD-3-Clause
"""Compares the results of pyverbs_run.py with the expected ones: no test fails, each test that should pass passes, and each skipped test
has the expected reason.
  pyverbs_check.py EXPECTED RESULTS ring|share|udp|udp-share [CLASS,CLASS...]
With classes, only their tests have run. Over udp an ordinary user has run them.
"""
import os
import re
import sys

expected_path, results_path, kind = sys.argv[1:4]
only = sys.argv[4].split(',') if len(sys.argv) > 4 else None
# Properties of this machine that may prevent a test, whatever the stack can do.
NO_HUGE_PAGES = re.compile('There are no huge pages of size 2M allocated|Huge pages of size 2M is not supported')
NO_ROOT = re.compile('Must be run by root')
as_user = os.geteuid() != 0 or kind.startswith('udp')

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
seen = set()
with open(results_path) as file:
    for line in file:
        test, result, reason = line.rstrip('\n').split('\t', 2)
        seen.add(test)
        counts[result] = counts.get(result, 0) + 1
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
wrong += [f'{test}: did not run' for test in expected if test not in seen]
wrong += [f'{name}: no such class' for name in only or () if not any(test.split('.')[-2] == name for test in expected)]
print(', '.join(f'{count} {result}' for result, count in sorted(counts.items())))
for line in wrong[:20]:
    print('FAILED:', line)
if len(wrong) > 20:
    print(f'FAILED: and {len(wrong) - 20} more')
sys.exit(1 if wrong else 0)
