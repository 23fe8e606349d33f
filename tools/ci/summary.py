"""Counts the test cases of one `bazel test --build_event_json_file=EVENTS`.

Prints 'N passed, N failed, N skipped' and exits 1 unless something passed and
nothing failed. The events name the tests of this run and the test.xml of each, so
that cached results count and files left by earlier runs do not. A target that did
not build, a time-out and a crash count as a failure each.
"""

import argparse
import json
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree

CLOSING_LINE = "{} passed, {} failed, {} skipped"


def count_cases(uri):
    """[passed, failed, skipped] in one test.xml; zeros when there is none."""
    counts = [0, 0, 0]
    try:
        path = urllib.request.url2pathname(urllib.parse.urlparse(uri).path)
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return counts
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            counts[1] += 1
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            counts[2] += 1
        else:
            counts[0] += 1
    return counts


def read_events(path):
    """The last attempt of each test's shards, and the targets that have no result."""
    attempts = {}  # label -> {(run, shard): (attempt, status, uri of test.xml)}
    tests, built, broken = set(), set(), set()
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                break  # Bazel was stopped while writing
            key = event.get("id", {})
            if "targetConfigured" in key:
                if "testSize" in event.get("configured", {}):
                    tests.add(key["targetConfigured"]["label"])
            elif "targetCompleted" in key:
                success = event.get("completed", {}).get("success")
                (built if success else broken).add(key["targetCompleted"]["label"])
            elif "testResult" in key:
                test, body = key["testResult"], event.get("testResult", {})
                uris = {o["name"]: o.get("uri", "") for o in body.get("testActionOutput", [])}
                new = (test.get("attempt", 1), body.get("status"), uris.get("test.xml", ""))
                slots = attempts.setdefault(test["label"], {})
                slot = (test.get("run", 1), test.get("shard", 1))
                slots[slot] = max(new, slots.get(slot, new), key=lambda a: a[0])
    return attempts, (broken | (tests - built)) - set(attempts)


def count_run(events, status):
    """[passed, failed, skipped] of the run whose exit status was `status`."""
    try:
        attempts, without_result = read_events(events)
    except OSError:
        attempts, without_result = {}, set()
    total = [0, len(without_result), 0]
    for label in sorted(without_result):
        print("no result: " + label)
    for slots in attempts.values():
        for _, outcome, xml in slots.values():
            counts = count_cases(xml)
            if outcome != "PASSED" and counts[1] == 0:
                counts[1] = 1  # a time-out, or a crash outside any case
            total = [a + b for a, b in zip(total, counts)]
    if status != 0 and total[1] == 0:
        total[1] = 1  # Bazel failed before there was anything to count
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--status", type=int, default=0, help="Bazel's exit status")
    parser.add_argument("--counts", help="file that gets the three numbers")
    parser.add_argument("events")
    options = parser.parse_args()
    total = count_run(options.events, options.status)
    if options.counts:
        with open(options.counts, "w", encoding="utf-8") as out:
            print(*total, file=out)
    print(CLOSING_LINE.format(*total))
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
