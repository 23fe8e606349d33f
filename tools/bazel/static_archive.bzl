"""static_archive: one .a with a single object that shows the public symbols only."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _split(linking_context, workspace_name):
    """(the project's own archives, linker inputs that stay outside like CUDA's)."""
    archives, outside = [], []
    for linker_input in linking_context.linker_inputs.to_list():
        if linker_input.owner.workspace_name != workspace_name:
            outside.append(linker_input)
            continue
        for library in linker_input.libraries:
            archives.append(library.pic_static_library or library.static_library)
    return archives, outside

def _merge(ctx, cc_toolchain, archives):
    out = ctx.actions.declare_file("lib{}.a".format(ctx.label.name))
    obj = ctx.actions.declare_file("{}.o".format(ctx.label.name))
    ctx.actions.run_shell(
        outputs = [obj, out],
        inputs = depset(archives, transitive = [cc_toolchain.all_files]),
        arguments = [
            cc_toolchain.ld_executable,
            cc_toolchain.objcopy_executable,
            cc_toolchain.ar_executable,
            obj.path,
            out.path,
        ] + [archive.path for archive in archives],
        # The objects are compiled with hidden visibility, so what is not marked
        # public becomes local here. Section groups are dissolved first, as a group
        # is known by a symbol that would otherwise turn local under it.
        command = """
            ld=$1 objcopy=$2 ar=$3 obj=$4 out=$5
            shift 5
            "$ld" -r --force-group-allocation -o "$obj" --whole-archive "$@" &&
            "$objcopy" --localize-hidden "$obj" &&
            "$ar" rcsD "$out" "$obj"
        """,
        mnemonic = "StaticArchive",
        progress_message = "Archiving {}".format(out.short_path),
    )
    return out

def _static_archive_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = cc_common.merge_cc_infos(cc_infos = [d[CcInfo] for d in ctx.attr.deps])
    archives, outside = _split(deps.linking_context, ctx.label.workspace_name)
    if not archives:
        fail("{}: there are no sources to archive".format(ctx.label))
    out = _merge(ctx, cc_toolchain, archives)

    merged = cc_common.create_linker_input(
        owner = ctx.label,
        libraries = depset([cc_common.create_library_to_link(
            actions = ctx.actions,
            feature_configuration = features,
            cc_toolchain = cc_toolchain,
            pic_static_library = out,
        )]),
        user_link_flags = depset(["-lpthread", "-ldl", "-lrt", "-lm"]),
    )
    return [
        DefaultInfo(
            files = depset([out]),
            runfiles = ctx.runfiles(files = [out]),
        ),
        CcInfo(
            compilation_context = ctx.attr.header[CcInfo].compilation_context,
            linking_context = cc_common.create_linking_context(
                linker_inputs = depset([merged] + outside, order = "topological"),
            ),
        ),
    ]

static_archive = rule(
    implementation = _static_archive_impl,
    attrs = {
        "deps": attr.label_list(mandatory = True, providers = [CcInfo]),
        "header": attr.label(
            doc = "the only header that targets depending on the archive see",
            mandatory = True,
            providers = [CcInfo],
        ),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    provides = [CcInfo],
)
