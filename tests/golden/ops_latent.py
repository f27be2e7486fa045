# SPDX-License-Identifier: Apache-2.0
"""Cases of attention over a latent cache (MLA): keys of two parts, the first of which are the values."""

import math

import torch

from ops_cases import DTYPES, case, gen, randn, rounded, tolerance
from ops_arithmetic import attend


def latent_attention():
    # heads, kv heads, size of the latent, of the rope part, block size, [(rows of queries, context length)]
    table = [
        (16, 1, 32, 8, 8, [(1, 20), (1, 1), (1, 9)]),
        (3, 1, 17, 6, 4, [(5, 13), (0, 3), (2, 2)]),
        (4, 2, 9, 5, 3, [(1, 7), (4, 8)]),
        (1, 1, 8, 1, 1, [(3, 3)]),
    ]
    for dtype, cache_dtype in (("f32", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("f32", "bf16")):
        for heads, kv_heads, d, r, bs, lengths in table:
            scale = 1.0 / math.sqrt(d + r)
            per = [-(-length // bs) for _, length in lengths]
            blocks, width = sum(per) + 1, max(per) + 1
            order = torch.randperm(blocks, generator=gen).tolist()
            # Slots that no sequence owns have garbage, so that a read beyond a context shows.
            latents, ropes = (torch.full((blocks, bs, kv_heads, n), 50.0, dtype=DTYPES[cache_dtype]) for n in (d, r))
            bt = torch.full((len(lengths), width), -1, dtype=torch.int32)
            firsts, seconds, outs, used = [], [], [], 0
            for s, (rows, length) in enumerate(lengths):
                q, qr = randn(rows, heads, d, dtype=dtype, scale=1.5), randn(rows, heads, r, dtype=dtype, scale=1.5)
                k, kr = randn(length, kv_heads, d, dtype=cache_dtype), randn(length, kv_heads, r, dtype=cache_dtype)
                mine = order[used : used + per[s]]
                used += per[s]
                bt[s, : per[s]] = torch.tensor(mine, dtype=torch.int32)
                for i in range(length):
                    latents[mine[i // bs], i % bs], ropes[mine[i // bs], i % bs] = k[i], kr[i]
                out = attend(torch.cat((q, qr), -1), torch.cat((k, kr), -1), k, scale)
                firsts.append(q)
                seconds.append(qr)
                outs.append(rounded(out, dtype))
            out = torch.cat(outs)
            ends, contexts = torch.tensor([n for n, _ in lengths]).cumsum(0), torch.tensor([n for _, n in lengths])
            case(
                "npu.fused_infer_attention_score",
                [torch.cat(firsts), latents, latents, bt, ends, contexts, torch.cat(seconds), ropes],
                [out],
                {
                    "num_heads": heads,
                    "num_key_value_heads": kv_heads,
                    "scale": scale,
                    "block_size": bs,
                    "input_layout": "TND",
                    "sparse_mode": 3,
                },
                tolerance(dtype, out, ulps=32, loose=2e-6),
                tag="latent" if dtype == cache_dtype else f"latent_cache_{cache_dtype}",
            )


def latent_writes():
    for dtype, cache_dtype in (("f32", "f32"), ("f32", "bf16"), ("bf16", "bf16")):
        for t, kv_heads, d, r, nb, bs, slots in ((5, 1, 70, 6, 4, 3, [0, 11, 4, -1, 7]), (2, 2, 3, 65, 1, 4, [1, 3])):
            k, v = randn(t, kv_heads, d, dtype=dtype), randn(t, kv_heads, r, dtype=dtype)
            kc, vc = (randn(nb, bs, kv_heads, n, dtype=cache_dtype) for n in (d, r))
            k2, v2 = kc.clone(), vc.clone()
            for row, slot in enumerate(slots):
                if slot >= 0:
                    k2[slot // bs, slot % bs], v2[slot // bs, slot % bs] = k[row].to(k2.dtype), v[row].to(v2.dtype)
            case(
                "npu.scatter_pa_kv_cache",
                [k, v, torch.tensor(slots, dtype=torch.int32), kc, vc],
                [],
                mutates=[(3, k2), (4, v2)],
                tag="latent" if dtype == cache_dtype else f"latent_cache_{cache_dtype}",
            )


def latent():
    latent_attention()
    latent_writes()
