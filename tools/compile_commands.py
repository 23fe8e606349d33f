"""Writes compile_commands.json for the project's C and C++ files, from `bazel aquery`.

Run it after a build: the commands use the links that the build made.
Usage: tools/compile_commands.py [Bazel's start-up options]
"""

import json
import os
import subprocess
import sys


def bazel(*args):
    return subprocess.run(["/usr/bin/bazel", *sys.argv[1:], *args], check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True).stdout


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    root = os.getcwd()
    directory = bazel("info", "execution_root").strip()
    actions = json.loads(bazel("aquery", "--output=jsonproto",
                               'mnemonic("CppCompile", //...)')).get("actions", [])
    commands = {}
    for action in actions:
        arguments = action["arguments"]
        path = os.path.join(root, arguments[arguments.index("-c") + 1])
        if os.path.exists(path):  # leaves out GoogleTest
            # gcc's own flag, which clang's tools do not know
            arguments = [a for a in arguments if a != "-fno-canonical-system-headers"]
            commands[path] = {"directory": directory, "file": path, "arguments": arguments}
    with open("compile_commands.json", "w", encoding="utf-8") as out:
        json.dump([commands[path] for path in sorted(commands)], out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
