#!/usr/bin/env python3
"""Writes the corpus of checkpoint_fuzz: small files, good and with one thing wrong.

Usage: make_corpus.py FOLDER. The same bytes each time.
"""

import copy
import json
import os
import struct
import sys

SHAPE = {
    "hidden_size": 16, "moe_intermediate_size": 16, "n_routed_experts": 2,
    "num_experts_per_tok": 1, "intermediate_size": 16, "n_shared_experts": 1,
    "routed_scaling_factor": 2.5, "swiglu_limit": 10.0,
}
BYTES = {"BF16": 2, "F32": 4, "I32": 4, "U8": 1, "F8_E4M3": 1}
SITE = "model.layers.3.mlp"


def tensors(naming):
    """[(name, dtype, shape, bytes)] of a dense and a routed site."""
    weight, scale = naming
    plain = [("model.layers.0.mlp." + p + "_proj.weight", "BF16", [16, 16])
             for p in ("gate", "up", "down")]
    plain += [(SITE + ".gate.weight", "BF16", [2, 16]),
              (SITE + ".gate.e_score_correction_bias", "F32", [2])]
    plain += [(SITE + ".shared_experts." + p + "_proj.weight", "BF16", [16, 16])
              for p in ("gate", "up", "down")]
    for expert in range(2):
        for p in ("gate", "up", "down"):
            at = "%s.experts.%d.%s_proj." % (SITE, expert, p)
            plain += [(at + weight, "U8", [16, 8]),
                      (at + "weight_scale", "F8_E4M3", [16, 1]),
                      (at + scale, "F32", [])]
    plain += [("input.x", "BF16", [1, 16]), ("expect.router.ids", "I32", [1, 1]),
              ("expect.moe.ref_f32", "F32", [1, 16]),
              ("expect.dense.ref_f32", "F32", [1, 16])]
    result = []
    for name, dtype, shape in plain:
        size = BYTES[dtype]
        for extent in shape:
            size *= extent
        fill = b"\x38" if dtype == "F8_E4M3" else b"\x00"
        data = fill * size
        if name.endswith("_scale_2") or name.endswith("global_scale"):
            data = struct.pack("<f", 0.5)
        result.append((name, dtype, shape, data))
    return result


def header_of(entries, shape=SHAPE):
    header, at = {}, 0
    if shape is not None:
        header["__metadata__"] = {"case": json.dumps(shape)}
    for name, dtype, extents, data in entries:
        header[name] = {"dtype": dtype, "shape": extents,
                        "data_offsets": [at, at + len(data)]}
        at += len(data)
    return header


def file_of(header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)

    def put(name, content):
        with open(os.path.join(folder, name), "wb") as out:
            out.write(content)

    modelopt = tensors(("weight", "weight_scale_2"))
    compressed = tensors(("weight_packed", "weight_global_scale"))
    data = b"".join(entry[3] for entry in modelopt)
    header = header_of(modelopt)
    put("modelopt", file_of(header, data))
    put("compressed", file_of(header_of(compressed), data))
    put("dense", file_of(header_of(modelopt[:3]), data[:1536]))
    put("no_shape", file_of(header_of(modelopt, None), data))
    put("truncated", file_of(header, data)[:-1])
    put("empty", b"")
    put("long_header", struct.pack("<Q", 1 << 62) + b"{}")
    put("no_json", struct.pack("<Q", 8) + b"not json")

    def spoil(name, change):
        other = copy.deepcopy(header)
        change(other)
        put(name, file_of(other, data))

    expert = SITE + ".experts.1.up_proj."
    spoil("overlap", lambda h: h[expert + "weight"].update(
        data_offsets=[0, 128]))
    spoil("outside", lambda h: h[expert + "weight"].update(
        data_offsets=[1 << 62, (1 << 62) + 128]))
    spoil("dtype", lambda h: h[expert + "weight"].update(dtype="I8"))
    spoil("rank", lambda h: h[expert + "weight"].update(shape=[16, 8, 1]))
    spoil("wraps", lambda h: h[expert + "weight"].update(
        shape=[1 << 62, 4], data_offsets=[0, 0]))
    spoil("missing", lambda h: h.pop(expert + "weight_scale"))
    spoil("no_experts", lambda h: h["__metadata__"].update(
        case=json.dumps(dict(SHAPE, n_routed_experts=0))))
    spoil("many_experts", lambda h: h["__metadata__"].update(
        case=json.dumps(dict(SHAPE, n_routed_experts=1024))))
    spoil("qwen_shape", lambda h: h["__metadata__"].update(
        case=json.dumps({"hidden_size": 16, "num_experts": 2,
                         "moe_intermediate_size": 16,
                         "num_experts_per_tok": 1})))
    codes = bytearray(data)
    codes[header[expert + "weight_scale"]["data_offsets"][0]] = 0x7F
    put("nan_code", file_of(header, bytes(codes)))
    put("config", json.dumps({"model_type": "gpt_oss", "hidden_size": 2880,
                              "num_local_experts": 32, "hidden_act": "silu",
                              "text_config": {"n_group": 1}}).encode())
    put("index", json.dumps({"metadata": {"case": json.dumps(SHAPE)},
                             "weight_map": {"a": "../x", "b": "null",
                                            "c": 7}}).encode())


if __name__ == "__main__":
    main()
