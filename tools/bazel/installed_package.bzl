"""installed_package: a repository of links into what a Debian package installed."""

def _installed_package_impl(rctx):
    for link, candidates in rctx.attr.links.items():
        found = [path for path in candidates if rctx.path(path).exists]
        if not found:
            fail("{} is missing: install {}: run tools/setup.sh".format(
                candidates[0],
                rctx.attr.package,
            ))
        rctx.symlink(found[0], link)
    rctx.symlink(rctx.attr.build_file, "BUILD.bazel")

installed_package = repository_rule(
    implementation = _installed_package_impl,
    attrs = {
        "build_file": attr.label(mandatory = True),
        "links": attr.string_list_dict(
            doc = "link -> places to look for its target, the first that exists is taken",
            mandatory = True,
        ),
        "package": attr.string(
            doc = "the Debian package to name when nothing is found",
            mandatory = True,
        ),
    },
    configure = True,
    local = True,
)
