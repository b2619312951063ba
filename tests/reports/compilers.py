"""Reports of what a compiler changes."""

from __future__ import annotations

from mpmath import mp, mpf
from reports.exact import k3, zero
from reports.record import Report, Shown, run

KIND = "compilers"
ELU = "y = where(x > 0, x, 1.24*expm1(x)); 1/(y + exp(y))"
FEW = {"per_decade": 100}
BOTH = {"modes": "eager compile"}
JAX = {"backends": "jax", "modes": "eager jit"}


COMPILERS = (
    Report(
        "B51",
        "https://github.com/erfanzar/EasyDeL/pull/267",
        KIND,
        "A cross entropy minus an entropy, all in bfloat16, is not 0 on identical logits and not the same "
        "number under jit.",
        (
            run(
                ":cross_entropy_minus_entropy",
                quantity="kl-forward",
                dtypes="bf16",
                only="value",
                sizes=(8, 1000),
                **JAX,
                notes="value@jit KLA106",
                errors="value@eager KLA102, value@jit KLA102, value@eager KLA101, value@jit KLA101",
            ),
        ),
    ),
    Report(
        "B70",
        "https://github.com/jax-ml/jax/issues/23007",
        KIND,
        "XLA kept bfloat16 intermediates in float32, so that a formula for a rounding error was 0 under jit.",
        (
            run(
                "y - ((x + y) - x)",
                dtypes="bf16",
                **JAX,
                at="x=1,1 y=0.001,0.002",
                only="value",
                errors="value@eager KLA001, value@jit KLA001",
                absent="value@jit KLA106",
                shows=(
                    Shown("value@eager", 0.0019989013671875, 0.0, zero),
                    Shown("value@jit", 0.0019989013671875, 0.0, zero),
                ),
            ),
        ),
        "elsewhere",
        "GPU or TPU: jax 0.10.2 keeps the roundings on a CPU, in both modes alike",
    ),
    Report(
        "B71",
        "https://github.com/openxla/xla/issues/41605",
        KIND,
        "A conversion to bfloat16 and back is simplified away on a GPU.",
        (
            run(
                "fp32(bf16(x))",
                **JAX,
                at="x=1.2345678",
                only="value",
                absent="value@jit KLA106",
                shows=(
                    Shown("value@eager", 1.234375, 1.2345678, mpf),
                    Shown("value@jit", 1.234375, 1.2345678, mpf),
                ),
            ),
        ),
        "elsewhere",
        "GPU only: on a CPU both modes round",
    ),
    Report(
        "B72",
        "https://github.com/openxla/xla/issues/41579",
        KIND,
        "a x - a x is not 0 when one of the products is fused into a multiply-add.",
        (
            run(
                "a*x + b*x",
                **JAX,
                at="a=1e20 b=-1e20 x=1e10",
                only="value",
                passes="value@eager",
                errors="value@jit KLA001",
                notes="value@jit KLA106",
                shows=(Shown("value@eager", 0.0, 0.0, zero), Shown("value@jit", 4.993411e21, 0.0, zero)),
            ),
        ),
    ),
    Report(
        "B74",
        "https://github.com/pytorch/pytorch/issues/144039",
        KIND,
        "Compiled expm1 is exp(x) - 1: -5.96e-8 for -8.74e-8.",
        (
            run(
                "expm1(x)",
                quantity="expm1",
                only="value",
                **BOTH,
                **FEW,
                passes="value@eager",
                errors="value@compile KLA001",
                notes="value@compile KLA106",
            ),
            run(
                "expm1(x)",
                quantity="expm1",
                only="value",
                **BOTH,
                at="d=-8.742278e-08",
                notes="value@compile KLA106",
                shows=(
                    Shown("value@compile", -5.9604645e-08, -8.742277275e-8, mp.expm1),
                    Shown("value@eager", -8.7422777e-08, -8.742277275e-8, mp.expm1),
                ),
            ),
        ),
    ),
    Report(
        "B75",
        "https://github.com/pytorch/pytorch/issues/189803",
        KIND,
        "1/(y + exp(y)) of y = elu(x) has a pole near x = -0.6113, where one unit in the last place of "
        "expm1 is the whole denominator; eager and compiled differ there.",
        (
            run(
                ":reciprocal_of_elu",
                truth=ELU,
                only="value",
                **BOTH,
                grid="-2:2:200001",
                max_rel=1e-3,
                errors="value@eager KLA001, value@compile KLA001",
                notes="value@compile KLA106",
            ),
            run(
                ":reciprocal_of_elu",
                truth=ELU,
                only="value",
                **BOTH,
                grid="-0.612:-0.611:2001",
                errors="value@eager KLA001, value@compile KLA001",
                notes="value@compile KLA106",
            ),
        ),
    ),
    Report(
        "B76",
        "https://github.com/pytorch/pytorch/issues/161944",
        KIND,
        "Compiled exp on CUDA was an approximation, three to four times less accurate.",
        (run("exp(x)", quantity="ratio", only="value", **BOTH, **FEW, passes="value@eager, value@compile"),),
        "elsewhere",
        "CUDA only: compiled for a CPU, exp is as good as eager",
    ),
    Report(
        "B116",
        "https://github.com/pytorch/pytorch/pull/190533",
        KIND,
        "The vector code of torch.compile undoes the expm1 form of k3: negative there, but not eager.",
        (
            run(
                "expm1(d) - d",
                quantity="k3",
                only="value",
                **BOTH,
                **FEW,
                absent="value@eager KLA101",
                errors="value@compile KLA101, value@compile KLA001",
                notes="value@compile KLA106",
            ),
            run(
                "expm1(d) - d",
                quantity="k3",
                only="value",
                **BOTH,
                at="d=1e-3*8",
                notes="value@compile KLA106",
                shows=(
                    Shown("value@compile", 5.235197e-07, 5.001667559e-7, k3),
                    Shown("value@eager", 5.0012022e-07, 5.001667559e-7, k3),
                ),
            ),
            run(
                "expm1(d) - d",
                quantity="k3",
                only="value",
                **BOTH,
                at="d=1e-6*8",
                errors="value@compile KLA101",
                shows=(Shown("value@compile", -4.6325681e-08, 5.000001641e-13, k3),),
            ),
            run(
                "expm1(x)",
                quantity="expm1",
                only="value",
                **BOTH,
                at="d=1e-8*8",
                shows=(
                    Shown("value@compile", 0.0, 9.999999989e-9, mp.expm1),
                    Shown("value@eager", 9.99999994e-09, 9.999999989e-9, mp.expm1),
                ),
            ),
        ),
    ),
)
