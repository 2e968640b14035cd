"""What PyTorch's exporters make of torchvision's and timm's networks, under random mappings, through real bundles.

    pip install torch torchvision timm onnxscript
    python -m tests.campaign.exported [--networks resnet18 ghostnet_050 …] [--mappings 2] [--seed 0]

Each with seeded random weights and a small image, by the older exporter (TorchScript) and the newer one (dynamo), of
open number of samples, and quantised by ONNX Runtime's tool in QDQ form, by its own operators, and frame by frame. Each
is cut as ``tests.campaign.mappings`` cuts the zoo, and compared with the whole model; ``--fold`` where it is asked for.
What an exporter or the tool cannot do is said and left. Prints a line a mapping and a table; exit code 1 if anything
is wrong or refused.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from runtime.frames import random_frame
from tests.campaign.mappings import Result, run, table
from tests.campaign.networks import RANKS, loaded
from tests.tiny_qdq import Frames

TORCHVISION = (
    "resnet18", "resnext50_32x4d", "densenet121", "squeezenet1_1", "googlenet",
    "inception_v3", "mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5", "shufflenet_v2_x0_5", "efficientnet_b0",
    "efficientnet_v2_s", "regnet_y_400mf", "convnext_tiny",
)  # fmt: skip
TIMM = (
    "ghostnet_050", "rexnet_100", "hardcorenas_a", "mobileone_s0", "repvgg_a0", "efficientnet_lite0",
    "tf_efficientnet_b0", "nf_resnet50", "eca_nfnet_l0", "convnext_atto", "convnextv2_atto", "cspresnet50",
    "dla46_c", "hrnet_w18_small", "res2net50_26w_4s", "skresnet18", "resnest14d", "edgenext_xx_small",
    "mobilevit_xxs", "mobilenetv4_conv_small", "fastvit_t8", "xception41", "vovnet39a", "selecsls42",
    "lcnet_050", "mixnet_s", "tf_mixnet_s", "fbnetv3_b", "dpn48b", "resnetaa50", "seresnet18", "gcresnet50t",
    "levit_128s", "poolformer_s12", "starnet_s1", "repvit_m0_9", "hgnetv2_b0", "regnetx_002",
    "densenetblur121d", "visformer_tiny",
)  # fmt: skip
INPUT = "input"
Export = Callable[[Any, Any, Path], object]


def built(name: str) -> tuple[Any, Any]:
    """A network that is ready to be exported, and an image: statistics are those of what it has seen."""
    import torch

    torch.manual_seed(0)
    module, size = _of_torchvision(name) if name in TORCHVISION else _of_timm(name)
    image = torch.randn(1, 3, size, size)
    module.train()
    with torch.no_grad():
        for _ in range(3):
            module(torch.randn(4, 3, size, size))
    return module.eval(), image


def _of_torchvision(name: str) -> tuple[Any, int]:
    from torchvision import models

    few = {"init_weights": False, "aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    return getattr(models, name)(weights=None, **few), 96 if name == "inception_v3" else 64


def _of_timm(name: str) -> tuple[Any, int]:
    import timm

    module = timm.create_model(name, pretrained=False, num_classes=10, exportable=True)
    own = module.default_cfg
    return module, own["input_size"][1] if own.get("fixed_input_size") else 64


def by_torch(module: Any, image: Any, file: Path, *, dynamo: bool, is_open: bool = False) -> None:
    """Export. is_open: the number of samples is left open"""
    import torch

    several = (
        {"dynamic_shapes": ({0: torch.export.Dim("batch")},)} if dynamo else {"dynamic_axes": {INPUT: {0: "batch"}}}
    )
    opset = {} if dynamo else {"opset_version": 17}
    torch.onnx.export(
        module, (image,), str(file), input_names=[INPUT], dynamo=dynamo, **opset, **(several if is_open else {})
    )


EXPORTS: dict[str, Export] = {
    "script": partial(by_torch, dynamo=False),
    "dynamo": partial(by_torch, dynamo=True),
    "script, open": partial(by_torch, dynamo=False, is_open=True),
    "dynamo, open": partial(by_torch, dynamo=True, is_open=True),
}


def quantised(source: Path, shape: tuple[int, ...], name: str, file: Path) -> None:
    """One of ``TOOL``."""
    ready = file.with_suffix(".ready.onnx")
    quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
    if name == "frame by frame":
        quantization.quantize_dynamic(ready, file)
    else:
        frames = Frames(*({INPUT: random_frame(INPUT, shape, "float32", 0, k)} for k in range(3)))
        quantization.quantize_static(str(ready), str(file), frames, **STATIC[name])


STATIC: dict[str, dict[str, Any]] = {
    "qdq": {},
    "qdq, a channel": {"activation_type": quantization.QuantType.QInt8, "per_channel": True},
    "operators": {"quant_format": quantization.QuantFormat.QOperator},
}
TOOL = (*STATIC, "frame by frame")


def made(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """How, and the file, of everything that comes of a network."""
    module, image = built(name)
    tasks: dict[str, Callable[[Path], object]] = {
        how: partial(export, module, image) for how, export in EXPORTS.items()
    }
    source = folder / "script.onnx"
    tasks |= {how: partial(quantised, source, tuple(image.shape), how) for how in TOOL}
    for how, task in tasks.items():
        file = folder / f"{how.replace(', ', '-').replace(' ', '-')}.onnx"
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                task(file)
                onnx.load(file, load_external_data=False)
        except Exception as failure:  # of another's program
            print(f"{name} {how}: cannot be made: {' '.join(str(failure).split())[:100]}", flush=True)
            continue
        yield how, file


def tried(name: str, how: str, file: Path, mappings: int, seed: int) -> list[Result]:
    """A network under so many mappings."""
    draw = random.Random(f"{name}/{how}/{seed}")
    graph, said, folded = loaded(file, False)
    if graph is None:
        return [Result(how, 0, "load", "", False, None, said, 0.0)]
    return [run(graph, draw.randint(*RANKS), draw, "inprocess", folded) for _ in range(mappings)]


def main() -> int:
    """Exit code 1 on any miss."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--networks", nargs="+", default=[*TORCHVISION, *TIMM])
    parser.add_argument("--mappings", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    results: list[Result] = []
    for name in arguments.networks:
        with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
            for how, file in made(name, Path(folder)):
                for result in tried(name, how, file, arguments.mappings, arguments.seed):
                    print(f"{name:22} {result._replace(network=how)}", flush=True)
                    results.append(result._replace(network=how))
    print(table(results))
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
