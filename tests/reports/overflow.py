"""Reports of overflow, inf and NaN."""

from __future__ import annotations

from mpmath import mp, mpf
from reports.exact import k3, zero
from reports.record import Report, Shown, run

KIND = "overflow, inf and NaN"
NAIVE = "exp(d) - d - 1"
OUT = "clip(exp(d) - d - 1, -10, 10)"
IN = "c = clip(r, -20, 20); exp(c) - c - 1"
IN_OUT = "c = clip(d, -20, 20); clip(exp(c) - c - 1, -10, 10)"
GAUSSIAN = "0.5*(-1 + v2 - v1 + exp(v1 - v2) + d*d*exp(-v2))"
FEW = {"per_decade": 100}
GSPO = "r = exp(mean(policy - old)); -min(r*A, clip(r, 0.8, 1.2)*A)"
nan, inf = float("nan"), float("inf")


def _slope(d):
    return mp.expm1(d)


def _mean_k3(d):
    return mp.fsum(k3(x) for x in d) / len(d)


def _gaussian(v1, v2, d):
    terms = (v - w + mp.exp(w - v) - 1 + x * x * mp.exp(-v) for v, w, x in zip(v2, v1, d, strict=True))
    return mp.fsum(terms) / 2 / len(d)


OVERFLOW = (
    Report(
        "B11",
        "https://github.com/PrimeIntellect-ai/prime-rl/pull/1329",
        KIND,
        "A metric meant to show how far two policies are apart is computed from clamped log-ratios: it "
        "stops at exp(20) - 21, and cancels near 0.",
        (
            run(
                IN,
                quantity="k3",
                only="value",
                **FEW,
                errors="value KLA001, value KLA101, value KLA104",
                notes="value KLA601",
            ),
            run(
                IN,
                quantity="k3",
                clamp="none",
                at="d=25",
                args="d=r",
                only="value",
                errors="value KLA001",
                shows=(Shown("value", 485165150.0, 7.2004899e10, k3),),
            ),
            run(
                IN,
                quantity="k3",
                clamp="none",
                at="d=-40",
                args="d=r",
                only="value",
                errors="value KLA001",
                shows=(Shown("value", 19.0, 39.0, k3),),
            ),
            run(
                IN,
                quantity="k3",
                at="d=3e-4",
                args="d=r",
                only="value",
                errors="value KLA001, value KLA104",
                shows=(Shown("value", 0.0, 4.5004505e-8, k3),),
            ),
        ),
    ),
    Report(
        "B15",
        "https://github.com/OpenRLHF/OpenRLHF/pull/1335",
        KIND,
        "k3 is clamped after its exponential has overflowed: the value is 10 and the gradient 0 times inf.",
        (
            run(
                "clip(exp(d) - 1 - d, -10, 10)",
                quantity="k3",
                **FEW,
                errors="gradient KLA401",
                notes="value KLA601, gradient KLA402",
            ),
            run(
                "clip(exp(d) - 1 - d, -10, 10)",
                quantity="k3",
                at="d=100",
                errors="gradient KLA401",
                shows=(Shown("value", 10.0, 10.0, lambda d: mpf(10)), Shown("gradient", nan, 0.0, zero)),
            ),
        ),
    ),
    Report(
        "B17",
        "https://github.com/huggingface/trl/pull/6637",
        KIND,
        "One token far off makes exp(ref - policy) infinite, and with it the mean, which is well within "
        "range: from 88.7 in float32 and bfloat16, from 11.09 in float16.",
        (
            run(
                "mean(exp(d) - d - 1)",
                at="d=89,0*999",
                dtypes="fp32",
                errors="value KLA202",
                shows=(Shown("value", inf, 4.489612819e35, _mean_k3),),
            ),
            run(
                "mean(exp(d) - d - 1)",
                at="d=89,0*999",
                dtypes="bf16",
                errors="value KLA202",
                shows=(Shown("value", inf, 4.489612819e35, _mean_k3),),
            ),
            run(
                "mean(exp(d) - d - 1)",
                at="d=11.1,0*999",
                dtypes="fp16",
                errors="value KLA202, gradient KLA401",
                shows=(Shown("value", inf, 66.26253186, _mean_k3),),
            ),
            run("fp32(exp(d) - d - 1)", quantity="k3", dtypes="fp16", only="value", errors="value KLA202"),
        ),
    ),
    Report(
        "B18",
        "https://github.com/huggingface/trl/pull/6550",
        KIND,
        "The log-ratio is formed in float16 and clipped at 20, beyond what exp can hold there.",
        (
            run(
                "fp32(exp(clip(d, None, 20)))",
                quantity="ratio",
                dtypes="fp16",
                only="value",
                errors="value KLA202",
            ),
            run(
                "fp32(exp(clip(d, None, 20)))",
                quantity="ratio",
                dtypes="fp16",
                only="value",
                at="d=20",
                errors="value KLA202",
                shows=(Shown("value", inf, 485165195.4, mp.exp),),
            ),
            run(
                "exp(clip(d, None, 20))",
                dtypes="bf16",
                only="value",
                at="d=20",
                passes="value",
                shows=(Shown("value", 484442112.0, 485165195.4, mp.exp),),
            ),
        ),
    ),
    Report(
        "B19",
        "https://github.com/verl-project/verl/pull/1779",
        KIND,
        "Clamps on the log-ratio and on k3 end the pull where it is needed most: the gradient is 0 from "
        "d = 2.61.",
        (
            run(
                IN_OUT,
                quantity="k3",
                clamp="none",
                **FEW,
                errors="value KLA001, gradient KLA402, gradient KLA403",
            ),
            run(IN_OUT, quantity="k3", **FEW, notes="value KLA601, gradient KLA402"),
            run(
                IN_OUT,
                quantity="k3",
                clamp="none",
                at="d=2,3,30",
                errors="value KLA001, gradient KLA402",
                shows=(
                    Shown("value", 4.3890562, 4.3890561, k3),
                    Shown("value", 10.0, 1.0686475e13, k3),
                    Shown("gradient", 0.0, 1.0686475e13, _slope),
                ),
            ),
        ),
    ),
    Report(
        "B26",
        "https://github.com/google/tunix/pull/1560",
        KIND,
        "The same clamp after the exponential in JAX: a finite loss with a NaN gradient, jitted or not.",
        (
            run(
                OUT,
                quantity="k3",
                backends="jax",
                modes="eager jit",
                at="d=100",
                errors="gradient@eager KLA401, gradient@jit KLA401",
                shows=(
                    Shown("value@jit", 10.0, 10.0, lambda d: mpf(10)),
                    Shown("gradient@eager", nan, 0.0, zero),
                    Shown("gradient@jit", nan, 0.0, zero),
                ),
            ),
            run(OUT, quantity="k3", backends="jax", only="gradient", **FEW, errors="gradient KLA401"),
        ),
    ),
    Report(
        "B27",
        "https://github.com/OpenRLHF/OpenRLHF/pull/1293",
        KIND,
        "The ratio of a sequence overflows; min() picks the clipped branch, and the other one still sends "
        "0 times inf back.",
        (
            run(
                GSPO,
                with_="A=1",
                at="policy=-1*4 old=-91*4",
                passes="value",
                errors="gradient:policy KLA401",
                shows=(
                    Shown("value", -1.2000000477, -1.2, lambda policy, old: mpf(-12) / 10),
                    Shown("gradient:policy", nan, 0.0, zero),
                ),
            ),
        ),
    ),
    Report(
        "B28",
        "https://github.com/meta-pytorch/torchforge/issues/664",
        KIND,
        "One token of 4,096 with d = 22.6 is the whole mean: k3 is exponential in the log-ratio.",
        (
            run(
                "mean(exp(d) - d - 1)",
                at="d=22.6432,0.01*4095",
                passes="value, gradient",
                shows=(Shown("value", 1665163.25, 1665163.293, _mean_k3),),
            ),
            run(
                NAIVE,
                quantity="k3",
                at="d=22.6432",
                passes="value",
                shows=(Shown("value", 6.82050867e9, 6820508848.0, k3),),
            ),
        ),
        "explained",
        "the estimator's variance, not rounding: value and gradient are right to 4e-8",
    ),
    Report(
        "B111",
        "https://github.com/lucidrains/DALLE2-pytorch/issues/138",
        KIND,
        "The KL of two Gaussians from log-variances: exp(v1 - v2) overflows, and exp(-v2) with d = 0 is "
        "inf times 0.",
        (
            run(
                GAUSSIAN,
                at="v1=-100 v2=-100 d=0",
                errors="value KLA201, gradient:v2 KLA401",
                shows=(Shown("value", nan, 0.0, zero),),
            ),
            run(
                f"mean({GAUSSIAN})",
                at="v1=90,0*15 v2=0*16 d=0*16",
                errors="value KLA202, gradient:v1 KLA401",
                shows=(Shown("value", inf, 6.10202e38 / 16, _gaussian),),
            ),
        ),
    ),
)
