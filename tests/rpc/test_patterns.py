#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Patterns: listed, registered, refused, versioned, removed; and graphs that are rewritten with them."""
import struct

from harness import *

NEG_NEG = '''pattern "neg_neg" {
  version %d
  doc "minus minus"
  dim N
  input %%x : f32[N]
  source { %%a = aten.neg(%%x) %%y = aten.neg(%%a) return %%y }
  replacement { %%y = aten.mul.Scalar(%%x) {other=%s} return %%y }
}'''
GRAPH = 'npugraph 1\ngraph "minus" {\n  input %x : f32[2]\n  %a = aten.neg(%x)\n  %b = aten.neg(%a)\n  return "b" = %b\n}\n'


def add(c, text, **kwargs):
    return c.call("Graphs/RegisterPattern", pb.RegisterPatternRequest(text=text, **kwargs)).patterns


def result(c, **kwargs):
    g = c.register(GRAPH, **kwargs).graph
    return list(struct.unpack("<2f", c.replay(g, [struct.pack("<2f", 1, 2)]).outputs[0])), g


@test("the built-in patterns are listed, and one is shown with its text")
def builtin(daemon):
    with Client(daemon) as c:
        listed = c.call("Graphs/ListPatterns", pb.ListPatternsRequest()).patterns
        assert {"add_rms_norm", "linear_swiglu", "qk_norm_rope_scatter"} <= {p.name for p in listed}
        assert all(p.owner == "built-in" and p.version and len(p.digest) == 64 and p.doc and not p.text for p in listed)
        one = c.call("Graphs/ListPatterns", pb.ListPatternsRequest(name="add_rms_norm")).patterns
        assert len(one) == 1 and one[0].text.startswith('pattern "add_rms_norm" {')
        refused("NOT_FOUND", "NOT_FOUND", c.call, "Graphs/ListPatterns", pb.ListPatternsRequest(name="none"))


@test("a pattern applies to graphs that are registered after it, until it is removed; versions rise")
def life(daemon):
    with Client(daemon) as c:
        assert result(c)[0] == [1, 2]
        before = c.register(GRAPH)
        p = add(c, NEG_NEG % (1, "3"))
        assert [(i.name, i.version) for i in p] == [("neg_neg", 1)]
        got, g = result(c)
        assert got == [3, 6], got  # the pattern is wrong on purpose, which shows that it is used
        assert "aten.mul.Scalar" in c.call("Graphs/Describe", pb.DescribeRequest(graph=g, form=pb.DESCRIBE_FORM_PLAN)).text
        assert list(struct.unpack("<2f", c.replay(before.graph, [struct.pack("<2f", 1, 2)]).outputs[0])) == [1, 2]
        assert result(c, options={"pattern_fusion_pass": "false"})[0] == [1, 2]
        add(c, NEG_NEG % (1, "3"))  # the same again
        refused("ALREADY_EXISTS", "ALREADY_EXISTS", add, c, NEG_NEG % (1, "4"))
        add(c, NEG_NEG % (2, "4"))
        assert result(c)[0] == [4, 8]
        c.call("Graphs/RemovePattern", pb.RemovePatternRequest(name="neg_neg"))
        assert result(c)[0] == [1, 2]
        refused("NOT_FOUND", "NOT_FOUND", c.call, "Graphs/RemovePattern", pb.RemovePatternRequest(name="neg_neg"))


@test("bad patterns are refused in words, and nothing of their text is kept")
def bad(daemon):
    with Client(daemon) as c:
        bad_second = NEG_NEG % (1, "3") + '\npattern "p" { input %x : f32[4] source { %y = aten.neg(%x) return %y } replacement { %y = aten._to_copy(%x) {dtype=bf16} return %y } }'
        for text, reason in ((bad_second, "GRAPH_TYPE_MISMATCH"), ("", "GRAPH_PARSE"), ("pattern", "GRAPH_PARSE"),
                             (NEG_NEG % (0, "3"), "OUT_OF_RANGE"), ((NEG_NEG % (1, "3")).replace("neg_neg", "add_rms_norm"), "ALREADY_EXISTS")):
            got = None
            try:
                add(c, text)
            except grpc.RpcError as e:
                got = Refusal(e)
            assert got and got.reason == reason and len(got.text) > 15, (text, got and (got.reason, got.text))
        assert "neg_neg" not in {p.name for p in c.call("Graphs/ListPatterns", pb.ListPatternsRequest()).patterns}


PATTERN = 'pattern "p" { %s source { %s } replacement { %s } }'
X, NEG = "input %x : f32[4]", "%y = aten.neg(%x) return %y"
BAD = (
    # cycles
    ((X, "%a = aten.neg(%b) %b = aten.neg(%a) return %a", NEG), "GRAPH_UNDEFINED", "no cycle"),
    ((X, "%a = aten.neg(%a) return %a", NEG), "GRAPH_UNDEFINED", "no cycle"),
    ((X, NEG, "%a = aten.neg(%b) %b = aten.neg(%a) return %a"), "GRAPH_UNDEFINED", "no cycle"),
    # unbound symbols, scalars, dtypes, operands
    (("input %x : f32[N]", NEG, NEG), "GRAPH_SYMBOL", "not declared"),
    (("dim M " + X, NEG, NEG), "GRAPH_SYMBOL", "nothing binds"),
    (("float f " + X, NEG, "%y = aten.mul.Scalar(%x) {other=f} return %y"), "GRAPH_SYMBOL", "binds"),
    (("dtype T = f32 " + X, NEG, "%y = aten._to_copy(%x) {dtype=T} return %y"), "GRAPH_SYMBOL", "dtype"),
    ((X + " input %z : f32[4]", NEG, "%y = aten.neg(%z) return %y"), "GRAPH_UNDEFINED", "does not use"),
    # replacements of another type or number
    ((X, NEG, "%y = aten._to_copy(%x) {dtype=bf16} return %y"), "GRAPH_TYPE_MISMATCH", "another type"),
    ((X, NEG, "%a = aten.neg(%x) %y = aten.view(%a) {size=[2,2]} return %y"), "GRAPH_TYPE_MISMATCH", "another type"),
    (("dim N input %x : f32[N]", NEG, "%a = aten.neg(%x) %y = aten.cat(%a, %a) return %y"), "GRAPH_TYPE_MISMATCH", "another type"),
    ((X, NEG, "%y = aten.neg(%x)"), "GRAPH_ARITY", "number of values"),
    # replacements that would alias
    ((X, NEG, "%y = aten.neg(%x) return %x"), "GRAPH_MUTATION", "alias"),
    ((X, NEG, "%y = aten.view(%x) {size=[4]} return %y"), "GRAPH_MUTATION", "alias"),
    ((X, "%a = aten.neg(%x) %b = aten.abs(%a) return %a, %b", "%a = aten.neg(%x) return %a, %a"), "GRAPH_REDEFINED", "returned twice"),
    (("state %s : f32[4] " + X, "aten.copy_(%s, %x) %y = aten.neg(%s) return %y", "%y = aten.add.Tensor(%s, %x) return %y"), "GRAPH_MUTATION", "one side"),
    (("state %s : f32[4] " + X, "%y = aten.add.Tensor(%s, %x) return %y", "aten.copy_(%s, %x) %y = aten.neg(%x) return %y"), "GRAPH_MUTATION", "one side"),
)


@test("cycles, unbound names, other types and aliases are refused each in words, and the daemon goes on")
def bad_kinds(daemon):
    with Client(daemon) as c:
        for parts, reason, says in BAD:
            got = None
            try:
                add(c, PATTERN % parts)
            except grpc.RpcError as e:
                got = Refusal(e)
            assert got and got.reason == reason and says in got.text, (parts, got and (got.reason, got.text))
        refused("MESSAGE_TOO_LARGE", "RESOURCE_EXHAUSTED", add, c, "# " + "x" * (1 << 20))
        assert result(c)[0] == [1, 2]


@test("a pattern that matches its own replacement ends")
def endless(daemon):
    with Client(daemon) as c:
        add(c, PATTERN.replace('"p"', '"grows"') % ("dim N input %x : f32[N]", NEG, "%a = aten.neg(%x) %b = aten.neg(%a) %y = aten.neg(%b) return %y"))
        assert result(c)[0] == [1, 2]
        c.call("Graphs/RemovePattern", pb.RemovePatternRequest(name="grows"))


@test("options that contradict each other are refused in words")
def contradictions(daemon):
    with Client(daemon) as c:
        for options, says in (({"force_eager": "true", "force_recapture": "true"}, "contradicts"),
                              ({"force_eager": "true", "verify_every_n": "2"}, "no others"),
                              ({"dump_tensor_data": "true", "verify_every_n": "2"}, "compare nothing"),
                              ({"use_graph_pool": "mine", "reuse_graph_pool_in_same_fx": "true"}, "leave one of them out"),
                              ({"data_dump_stage": "original"}, "without dump_tensor_data")):
            got = None
            try:
                c.register(GRAPH, options=options)
            except grpc.RpcError as e:
                got = Refusal(e)
            assert got and got.reason == "INVALID_ARGUMENT" and says in got.text, (options, got and (got.reason, got.text))
        twice = pb.RegisterRequest(text=GRAPH, options=[pb.GraphOption(name="force_eager", value=v) for v in ("true", "false")])
        assert "force_eager is given twice" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Graphs/Register", twice).text
        g = c.register(GRAPH, options={"force_recapture": "true"}).graph
        again = [pb.GraphOption(name="force_recapture", value=v) for v in ("false", "true")]
        c.call("Graphs/Capture", pb.CaptureRequest(graph=g, options=again[:1]))  # a capture may replace the graph's option, for itself only
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Graphs/Capture", pb.CaptureRequest(graph=g, options=again))
        assert result(c, options={"clone_input": "false", "clone_output": "true"})[0] == [1, 2]


@test("who has the right may register for all")
def for_all(daemon):
    with Client(daemon) as c:
        add(c, NEG_NEG % (1, "5"), for_all=True)  # the daemon's own user
        listed = {p.name: p.owner for p in c.call("Graphs/ListPatterns", pb.ListPatternsRequest()).patterns}
        assert listed["neg_neg"] == "all"
        assert result(c)[0] == [5, 10]
        c.call("Graphs/RemovePattern", pb.RemovePatternRequest(name="neg_neg", for_all=True))


@test("patterns belong to the identity that registers them; without the admin right nobody registers or removes for all")
def identities():
    with Daemon("--allow-plaintext=yes", "--listen=tcp:127.0.0.1:0") as d, Client(d) as mine, Client(d, address=d.listening("tcp")) as theirs:
        listed = lambda c: {p.name: p.owner for p in c.call("Graphs/ListPatterns", pb.ListPatternsRequest()).patterns if p.owner != "built-in"}
        add(mine, NEG_NEG % (1, "3"))
        assert result(mine)[0] == [3, 6] and result(theirs)[0] == [1, 2] and not listed(theirs)
        refused("NOT_FOUND", "NOT_FOUND", theirs.call, "Graphs/RemovePattern", pb.RemovePatternRequest(name="neg_neg"))
        refused("PERMISSION_DENIED", "PERMISSION_DENIED", add, theirs, NEG_NEG % (1, "5"), for_all=True)
        add(theirs, NEG_NEG % (1, "5"))  # another pattern of the same name, by another identity
        assert result(theirs)[0] == [5, 10] and result(mine)[0] == [3, 6]
        theirs.call("Graphs/RemovePattern", pb.RemovePatternRequest(name="neg_neg"))
        add(mine, (NEG_NEG % (1, "7")), for_all=True)
        refused("PERMISSION_DENIED", "PERMISSION_DENIED", theirs.call, "Graphs/RemovePattern", pb.RemovePatternRequest(name="neg_neg", for_all=True))
        assert listed(theirs) == {"neg_neg": "all"} and result(theirs)[0] == [7, 14]
        assert result(mine)[0] == [3, 6], "an identity's own comes first"
        mine.call("Graphs/RemovePattern", pb.RemovePatternRequest(name="neg_neg", for_all=True))
        assert result(theirs)[0] == [1, 2] and not listed(theirs)
        keys = lambda c: {k.key for k in c.call("Graphs/Explain", pb.ExplainRequest(graph=result(c)[1])).keys}
        assert len(keys(mine)) == len(keys(theirs)) == 1 and keys(mine) != keys(theirs), "patterns are part of the keys"


@test("a custom pattern applies only where an option names it, and must be there")
def custom(daemon):
    with Client(daemon) as c:
        add(c, (NEG_NEG % (1, "7")).replace("version 1", "version 1\n  phase custom").replace("neg_neg", "mine"))
        assert result(c)[0] == [1, 2]
        assert result(c, options={"post_grad_custom_pre_pass": "mine"})[0] == [7, 14]
        assert result(c, options={"post_grad_custom_post_pass": "mine"})[0] == [7, 14]
        refused("NOT_FOUND", "NOT_FOUND", c.register, GRAPH, options={"post_grad_custom_pre_pass": "mine,yours"})
        c.call("Graphs/RemovePattern", pb.RemovePatternRequest(name="mine"))


if __name__ == "__main__":
    main()
