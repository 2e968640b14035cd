"""A network that fails, made as small as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnx import ModelProto, ValueInfoProto, shape_inference

from tests.drawn.network import checked


def shrunk(model: ModelProto, fails: Callable[[ModelProto], bool]) -> ModelProto:
    """The last of ever smaller networks that all fail, and that ONNX Runtime runs."""
    smaller: ModelProto | None = model
    while smaller:
        model = smaller
        smaller = next((each for each in _candidates(model) if _is_usable(each) and fails(each)), None)
    return model


def _candidates(model: ModelProto) -> Iterator[ModelProto]:
    """One output alone, the first ones first; one output less; from a tensor on; without a node between two others."""
    outputs = [o.name for o in model.graph.output]
    made = [name for own in model.graph.node if own.input for name in own.output if name]
    yield from (_pruned(model, [name]) for name in made if [name] != outputs)
    yield from (_pruned(model, [o for o in outputs if o != name]) for name in outputs[1:])
    known = {info.name: info for info in shape_inference.infer_shapes(model).graph.value_info}
    yield from (_pruned(model, outputs, known[name]) for name in reversed(made) if name in known)
    yield from (_without(model, k) for k in range(len(model.graph.node)))


def _without(model: ModelProto, k: int) -> ModelProto:
    found = ModelProto()
    found.CopyFrom(model)
    gone = found.graph.node.pop(k)
    for own in found.graph.node:
        own.input[:] = [gone.input[0] if gone.input and name in gone.output else name for name in own.input]
    return _pruned(found, [o.name for o in model.graph.output])


def _pruned(model: ModelProto, outputs: list[str], given: ValueInfoProto | None = None) -> ModelProto:
    """What some outputs need, maybe with a tensor that is an input now."""
    needed, kept, inputs = set(outputs), [], [*model.graph.input, *([given] if given else [])]
    for own in reversed(model.graph.node):
        if needed.intersection(own.output).difference(i.name for i in inputs):
            needed.update(own.input)
            kept.append(own)
    found = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    found.graph.name = model.graph.name
    found.graph.node.extend(reversed(kept))
    found.graph.initializer.extend(t for t in model.graph.initializer if t.name in needed)
    found.graph.input.extend(i for i in inputs if i.name in needed)
    found.graph.output.extend(ValueInfoProto(name=name) for name in outputs)
    return found


def _is_usable(model: ModelProto) -> bool:
    try:
        checked(model)
    except Exception:  # of ONNX Runtime or the checker: they have no common class
        return False
    return True
