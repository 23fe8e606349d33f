"""cuda_library: .cu files compiled by nvcc for several GPUs into a static library."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

CudaArchsInfo = provider(
    doc = "The GPUs to compile for.",
    fields = {"gencode": "nvcc's -gencode options"},
)

def _gencode(arch):
    """90a -> machine code for sm_90a; compute_120 -> PTX."""
    if arch.startswith("compute_"):
        return "-gencode=arch={0},code={0}".format(arch)
    return "-gencode=arch=compute_{0},code=sm_{0}".format(arch)

def _cuda_archs_flag_impl(ctx):
    archs = [a.strip() for a in ctx.build_setting_value.split(",") if a.strip()]
    if not archs:
        fail("{} is empty: name at least one, like 90a or compute_120".format(ctx.label))
    return CudaArchsInfo(gencode = [_gencode(a) for a in archs])

cuda_archs_flag = rule(
    implementation = _cuda_archs_flag_impl,
    build_setting = config.string(flag = True),
)

def _common_args(ctx, cc_toolchain, compilation):
    """What every source of the library is compiled with."""
    args = ctx.actions.args()
    args.add("-ccbin", cc_toolchain.compiler_executable)
    args.add_all(["-c", "-x", "cu", "-std=c++17"])
    args.add_all(ctx.attr._archs[CudaArchsInfo].gencode)
    if ctx.var["COMPILATION_MODE"] == "opt":
        args.add_all(["-O3", "-DNDEBUG"])

    # No exceptions and no guarded statics: a C program then links the library
    # without libstdc++.
    args.add("-Xcompiler=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics")
    if "clang" not in cc_toolchain.compiler_executable:
        # Else gcc follows the sandbox's links and reads undeclared headers that
        # stand beside the real file.
        args.add("-Xcompiler=-fno-canonical-system-headers")

    # The same bytes from any folder: intermediate files are named after the object,
    # not after nvcc's process id (see also --orig_src_path_name and PWD below).
    args.add("--objdir-as-tempdir")
    args.add_all([".", ctx.bin_dir.path], before_each = "-I")
    args.add_all(compilation.quote_includes, before_each = "-I")
    args.add_all(compilation.includes, before_each = "-I")
    args.add_all(compilation.system_includes, before_each = "-isystem")
    args.add_all(compilation.defines, format_each = "-D%s")
    args.add_all(ctx.attr.copts)
    return args

def _compile(ctx, src, common, inputs):
    obj = ctx.actions.declare_file("_objs/{}/{}.o".format(ctx.label.name, src.basename[:-3]))
    args = ctx.actions.args()

    # Else the module id, and with it local names, is a hash of the absolute path.
    args.add_all(["-Xcudafe", "--orig_src_path_name=" + src.short_path])
    args.add("-o", obj)
    args.add(src)
    ctx.actions.run(
        outputs = [obj],
        inputs = depset([src], transitive = [inputs]),
        executable = ctx.executable._nvcc,
        arguments = [common, args],
        env = {
            "PATH": "/usr/bin:/bin",
            "PWD": "/proc/self/cwd",
        },
        mnemonic = "CudaCompile",
        progress_message = "Compiling {}".format(src.short_path),
    )
    return obj

def _cuda_library_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = cc_common.merge_cc_infos(cc_infos = [d[CcInfo] for d in ctx.attr.deps])
    own = CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset(ctx.files.hdrs),
    ))
    compilation = cc_common.merge_cc_infos(
        direct_cc_infos = [own],
        cc_infos = [deps],
    ).compilation_context

    common = _common_args(ctx, cc_toolchain, compilation)
    inputs = depset(transitive = [
        compilation.headers,
        ctx.attr._toolkit.files,
        cc_toolchain.all_files,
    ])
    objects = depset([_compile(ctx, src, common, inputs) for src in ctx.files.srcs])
    linking_context, linking_outputs = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        feature_configuration = features,
        cc_toolchain = cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            objects = objects,
            pic_objects = objects,
        ),
        linking_contexts = [deps.linking_context],
        disallow_dynamic_library = True,
    )
    library = linking_outputs.library_to_link
    archives = [library.pic_static_library or library.static_library] if library else []
    return [
        DefaultInfo(files = depset(archives)),
        CcInfo(
            compilation_context = compilation,
            linking_context = linking_context,
        ),
    ]

cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = [".cuh", ".h", ".inc"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(),
        "_archs": attr.label(default = "//tools/bazel:cuda_archs"),
        "_nvcc": attr.label(
            default = "@cuda//:bin/nvcc",
            allow_single_file = True,
            executable = True,
            cfg = "exec",
        ),
        "_toolkit": attr.label(default = "@cuda//:toolkit", cfg = "exec"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    provides = [CcInfo],
)
