"""Finds the CUDA toolkit and shows it as a repository.

It is looked for where tools/setup.sh looks: CUDA_PATH; else /usr/local/cuda; else
the folder that tools/setup.sh lays out, MOEPLAN_CUDA_CACHE or ~/.cache/moeplan/cuda-13.0.
"""

def _find(rctx):
    environ = rctx.os.environ
    if environ.get("CUDA_PATH"):
        return rctx.path(environ["CUDA_PATH"])
    installed = rctx.path("/usr/local/cuda")
    cache = rctx.path(environ.get("MOEPLAN_CUDA_CACHE") or
                      (environ.get("HOME") or "/root") + "/.cache/moeplan/cuda-" + rctx.attr.version)
    laid_out = cache.get_child("bin").get_child("nvcc").exists
    if laid_out and not installed.get_child("bin").get_child("nvcc").exists:
        return cache
    return installed

def _refuse(found, root, version):
    fail(("found {} at {}, but moeplan is built with CUDA {} exactly: install that toolkit " +
          "there, point to it with CUDA_PATH (export CUDA_PATH=/path/to/cuda-{}, or " +
          "--repo_env=CUDA_PATH=... on Bazel's command line), or run tools/setup.sh").format(found, root, version, version))

def _check_version(rctx, root):
    """Refuses any release but the one asked for: its number decides the kernels' bits."""
    version = rctx.attr.version
    nvcc = root.get_child("bin").get_child("nvcc")
    if not nvcc.exists:
        _refuse("no CUDA toolkit", root, version)
    result = rctx.execute([nvcc, "--version"])
    if result.return_code != 0:
        _refuse("an nvcc that does not run", root, version)
    if "release {},".format(version) in result.stdout:
        return
    parts = result.stdout.split("release ")
    found = "CUDA " + parts[1].split(",")[0] if len(parts) > 1 else "an nvcc without a release number"
    _refuse(found, root, version)

def _cuda_configure_impl(rctx):
    root = _find(rctx)
    _check_version(rctx, root)

    libdir = root.get_child("lib64")
    if not libdir.exists:
        libdir = root.get_child("lib")
    if not libdir.get_child("libcudart_static.a").exists:
        _refuse("a CUDA toolkit without libcudart_static.a", root, rctx.attr.version)

    # bin/ is a real folder of links: nvcc finds its parts relative to the folder it
    # was called in, and from a link of the whole folder that would leave the sandbox.
    for entry in root.get_child("bin").readdir():
        rctx.symlink(entry, "bin/" + entry.basename)
    for name in ["bin", "libdevice"]:
        rctx.symlink(root.get_child("nvvm").get_child(name), "nvvm/" + name)
    rctx.symlink(root.get_child("include"), "include")
    for name in ["libcudart_static.a", "libcublasLt.so.13"]:
        if libdir.get_child(name).exists:
            rctx.symlink(libdir.get_child(name), "lib/" + name)
    rctx.template(
        "BUILD.bazel",
        Label("//tools/bazel:cuda.BUILD"),
        substitutions = {"%{libdir}": str(libdir)},
        executable = False,
    )

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    attrs = {"version": attr.string(mandatory = True)},
    configure = True,
    environ = [
        "CUDA_PATH",
        "HOME",
        "MOEPLAN_CUDA_CACHE",
    ],
    local = True,
)
