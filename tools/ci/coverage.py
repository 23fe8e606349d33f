"""Prints the share of lines run of lib/ and plans/, per file and in total.

Reads the .gcno files below a folder, and the counters (.gcda) beside them, with
gcov. Lines between LCOV_EXCL_START and LCOV_EXCL_STOP, and lines with LCOV_EXCL_LINE,
are left out: they need a GPU. Exits 1 below LIMIT.
"""

import collections
import glob
import json
import os
import subprocess
import sys

LIMIT = 95.0  # per cent of the lines of lib/ and plans/


def read_counts(folder):
    """source -> {line: times run}, summed over the objects that contain it."""
    counts = collections.defaultdict(collections.Counter)
    for path in sorted(glob.glob(os.path.join(folder, "**", "*.gcno"), recursive=True)):
        report = subprocess.run(["gcov", "--json-format", "--stdout", path], check=True,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        for source in json.loads(report)["files"]:
            name = os.path.normpath(source["file"])
            if name.startswith(("lib/", "plans/")) and os.path.exists(name):
                for line in source["lines"]:
                    counts[name][line["line_number"]] += line["count"]
    return counts


def excluded_lines(path):
    """The numbers of the lines that are left out."""
    excluded, inside = set(), False
    with open(path, encoding="utf-8") as source:
        for number, line in enumerate(source, 1):
            inside = inside or "LCOV_EXCL_START" in line
            if inside or "LCOV_EXCL_LINE" in line:
                excluded.add(number)
            inside = inside and "LCOV_EXCL_STOP" not in line
    if inside:
        sys.exit(f"coverage: {path}: LCOV_EXCL_START without LCOV_EXCL_STOP")
    return excluded


def ranges(numbers):
    """[3, 4, 5, 9] -> '3-5 9'"""
    runs = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def main():
    counts = read_counts(sys.argv[1])
    total = total_run = everything = everything_run = 0
    print(f"{'file':<28}{'lines':>6}{'run':>6}{'%':>7}  not run")
    for path in sorted(counts):
        excluded = excluded_lines(path)
        lines = {n: c for n, c in counts[path].items() if n not in excluded}
        missed = [n for n, c in lines.items() if c == 0]
        run = len(lines) - len(missed)
        total += len(lines)
        total_run += run
        everything += len(counts[path])
        everything_run += sum(1 for c in counts[path].values() if c)
        share = f"{100 * run / len(lines):.1f}" if lines else "-"
        print(f"{path:<28}{len(lines):>6}{run:>6}{share:>7}  {ranges(missed)}".rstrip())
    share = 100 * total_run / total if total else 0.0
    if everything > total:
        print(f"with the {everything - total} lines that need a GPU:"
              f" {100 * everything_run / everything:.1f} % of {everything} lines")
    print(f"coverage of lib/ and plans/: {share:.1f} % of {total} lines")
    return 1 if share < LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
