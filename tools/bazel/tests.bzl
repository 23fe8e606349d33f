"""Turns the files of tests/ into test targets, by their names."""

load(":copts.bzl", "CC_COPTS", "C_COPTS")

_KEYS = ["data", "deps", "shard_count", "size", "tags", "timeout"]

def gtests(overrides):
    """A cc_test for each *_test.cc; *_gpu_test.cc are tagged "gpu".

    Args:
      overrides: test name -> what differs: size, timeout, shard_count and tags
        replace the default, deps and data are added to it.
    """
    names = []
    for source in native.glob(["*_test.cc"], allow_empty = True):
        name = source[:-len(".cc")]
        names.append(name)
        own = overrides.get(name, {})
        for key in own:
            if key not in _KEYS:
                fail("tests/BUILD.bazel: override of {} has an unknown key: {}".format(name, key))
        gpu = name.endswith("_gpu_test")
        native.cc_test(
            name = name,
            size = own.get("size", "large" if gpu else "medium"),
            timeout = own.get("timeout"),
            srcs = [source],
            copts = CC_COPTS,
            data = [":data"] + own.get("data", []),
            shard_count = own.get("shard_count"),
            tags = own.get("tags", []) + (["gpu"] if gpu else []),
            # Those that lean on the library come before it.
            deps = own.get("deps", []) + [
                ":support",
                ":harness",
                "//:internal",
                "@googletest//:gtest_main",
            ],
        )
    for name in overrides:
        if name not in names:
            fail("tests/BUILD.bazel: override for a test that does not exist: " + name)

def c_tests():
    """A cc_test for each *_test.c: against the public header and the archive.

    A file without a main() is a test that it compiles.
    """
    native.genrule(
        name = "empty_main_c",
        testonly = True,
        outs = ["empty_main.c"],
        cmd = "echo 'int main(void) { return 0; }' >$@",
    )
    native.cc_library(
        name = "empty_main",
        testonly = True,
        srcs = [":empty_main_c"],
    )
    for source in native.glob(["*_test.c"], allow_empty = True):
        native.cc_test(
            name = source[:-len(".c")],
            size = "small",
            srcs = [source],
            copts = C_COPTS,
            deps = [
                "//:moeplan",
                ":empty_main",
            ],
        )

def fuzzers(deps):
    """A libFuzzer program for each fuzz/*_fuzz.cc; needs --config=fuzz.

    Args:
      deps: program name -> what it links in place of //:internal.
    """
    for source in native.glob(["fuzz/*_fuzz.cc"], allow_empty = True):
        name = source[len("fuzz/"):-len(".cc")]
        native.cc_binary(
            name = name,
            testonly = True,
            srcs = [source],
            copts = CC_COPTS,
            linkopts = ["-fsanitize=fuzzer"],
            tags = ["manual"],
            deps = deps.get(name, ["//:internal"]),
        )
