"""Flags for the project's own code; what comes from outside keeps its own.

Floating-point contraction is off for every compiler: a fused multiply-add is
written out where one is meant, so that host and device give the same bits.
"""

C_COPTS = [
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Werror",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
    "-ffp-contract=off",
    "-fvisibility=hidden",
]

CC_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffp-contract=off",
]

# A spilled register or an array in local memory stops the build.
NVCC_COPTS = [
    "-fmad=false",
    "--Werror=all-warnings",
    "-Xptxas=--warn-on-spills,--warn-on-local-memory-usage",
    "-Xcompiler=-Wall,-Wextra,-ffp-contract=off",
]
