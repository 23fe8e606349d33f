"""Local stand-ins for three repositories that Bazel 4.2 would download.

Its built-in tools load a few symbols from @rules_cc and @rules_java and name two
targets of @remote_coverage_tools. The rules themselves are native, so forwarding
the names is enough. (`bazel coverage` does not work with an empty stand-in.)
"""

_CC_RULES = [
    "cc_binary",
    "cc_import",
    "cc_library",
    "cc_test",
    "cc_toolchain",
    "cc_toolchain_suite",
]

_JAVA_RULES = [
    "java_binary",
    "java_import",
    "java_library",
    "java_runtime",
    "java_toolchain",
]

_COVERAGE = """\
package(default_visibility = ["//visibility:public"])

filegroup(name = "coverage_report_generator")

filegroup(name = "lcov_merger")
"""

def _files_repository_impl(rctx):
    for path, text in rctx.attr.files.items():
        rctx.file(path, text, executable = False)

_files_repository = repository_rule(
    implementation = _files_repository_impl,
    attrs = {"files": attr.string_dict(mandatory = True)},
)

def _forward(names):
    return "".join(["{0} = native.{0}\n".format(name) for name in names])

def bazel_shims():
    _files_repository(
        name = "rules_cc",
        files = {
            "cc/BUILD.bazel": "",
            "cc/defs.bzl": _forward(_CC_RULES),
        },
    )
    _files_repository(
        name = "rules_java",
        files = {
            "java/BUILD.bazel": "",
            "java/defs.bzl": _forward(_JAVA_RULES),
        },
    )
    _files_repository(
        name = "remote_coverage_tools",
        files = {"BUILD.bazel": _COVERAGE},
    )
