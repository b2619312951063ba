"""Reports of masks and sums, and of preference losses."""

from __future__ import annotations

from mpmath import mp, mpf
from reports.exact import log_softmax, one, total, zero
from reports.record import Report, Shown, run

MASKS = "masks and sums"
PREFERENCE = "preference-loss ratios"
MEAN = "sum(values*mask)/sum(mask)"
ODDS = "c = log_softmax(chosen)[0]; r = log_softmax(rejected)[0]; (c - r) - (log1p(-exp(c)) - log1p(-exp(r)))"
nan, inf = float("nan"), float("inf")


def _log_odds_ratio(chosen, rejected):
    def log_odds(z):
        kept, rest = log_softmax(z)
        return kept - rest

    return log_odds(chosen) - log_odds(rejected)


def _log_sigmoid(x):
    return -mp.log1p(mp.exp(-x))


def _masked_difference(train, rollout, mask):
    kept = [abs(t - r) for t, r, m in zip(train, rollout, mask, strict=True) if m]
    return mp.fsum(kept) / len(kept)


SUMS = (
    Report(
        "B22",
        "https://github.com/PrimeIntellect-ai/prime-rl/pull/2084",
        MASKS,
        "A token is dropped by multiplying with 0, but its ratio is inf; where() mends the value and not "
        "the gradient.",
        (
            run(
                "keep*A*exp(trainer - inference)",
                with_="A=1",
                at="trainer=-1 inference=-100 keep=0",
                errors="value KLA201, gradient:trainer KLA401",
                shows=(Shown("value", nan, 0.0, zero), Shown("gradient:trainer", nan, 0.0, zero)),
            ),
            run(
                "sum(where(keep, A*exp(trainer - inference), 0))",
                with_="A=1",
                at="trainer=-1 inference=-100 keep:bool=0",
                passes="value",
                errors="gradient:trainer KLA401",
                shows=(Shown("value", 0.0, 0.0, zero),),
            ),
        ),
    ),
    Report(
        "B23",
        "https://github.com/NVIDIA-NeMo/RL/pull/4120",
        MASKS,
        "The mask is applied after exp: a masked gap of 200 nats is inf times 0.",
        (
            run(
                "sum(mask*exp(d))/sum(mask)",
                at="d=0,200 mask:bool=1,0",
                errors="value KLA201, gradient:d KLA401",
                shows=(Shown("value", nan, 1.0, one), Shown("gradient:d", nan, 0.0, zero)),
            ),
            run(MEAN, quantity="masked-mean", sizes=(8,), errors="value KLA108"),
        ),
    ),
    Report(
        "B31",
        "https://github.com/NVIDIA-NeMo/RL/issues/158",
        MASKS,
        "A masked mean divides by the sum of the mask, which is 0 in a batch without tokens.",
        (
            run(MEAN, quantity="masked-mean", sizes=(1, 8), errors="value KLA108, gradient:values KLA401"),
            run(
                MEAN,
                quantity="masked-mean",
                at="values=1,2 mask:bool=0,0",
                only="value",
                errors="value KLA201",
                shows=(Shown("value", nan, 0.0, zero),),
            ),
        ),
    ),
    Report(
        "B32",
        "https://github.com/NVIDIA-NeMo/RL/pull/4154",
        MASKS,
        "A token outside the trainer's top-k has log-probability -inf, and the mask multiplies that by 0.",
        (
            run("sum(values*mask)", quantity="masked-sum", sizes=(8,), errors="value KLA108"),
            run(
                "sum(abs(gen - prev)*mask)",
                truth="sum(where(mask, abs(gen - prev), 0))",
                only="value",
                at="gen=-2,-1 prev=-inf,-1 mask:bool=0,1",
                errors="value KLA201",
                shows=(Shown("value", nan, 0.0, zero),),
            ),
        ),
    ),
    Report(
        "B34",
        "https://github.com/lightonai/pylate/issues/239",
        MASKS,
        "The guard 1e-8 is 0 in float16: equal scores are 0/0.",
        (
            run(
                "(x - min(x))/(max(x) - min(x) + 1e-8)",
                at="x=3,3,3,3",
                dtypes="fp16",
                only="value",
                errors="value KLA201",
                shows=(Shown("value", nan, 0.0, zero),),
            ),
        ),
    ),
    Report(
        "B39",
        "https://github.com/PrimeIntellect-ai/prime-rl/pull/568",
        MASKS,
        "A running bfloat16 sum of ratios near 1 stays at 256.",
        (
            run(
                ":running_sum",
                quantity="sequence-sum",
                dtypes="bf16",
                only="value",
                sizes=(1000,),
                errors="value KLA001",
            ),
            run(
                ":running_sum",
                quantity="sequence-sum",
                dtypes="bf16",
                only="value",
                at="values=1*1000",
                errors="value KLA001",
                shows=(Shown("value", 256.0, 1000.0, total),),
            ),
            run(
                "sum(values)",
                quantity="sequence-sum",
                dtypes="bf16",
                only="value",
                at="values=1*1000",
                passes="value",
                shows=(Shown("value", 1000.0, 1000.0, total),),
            ),
        ),
    ),
    Report(
        "B49",
        "https://github.com/huggingface/candle/pull/3718",
        MASKS,
        "A running float16 sum stays at 2048.",
        (
            run(
                "cumsum(values)[-1]",
                quantity="sequence-sum",
                backends="numpy",
                dtypes="fp16",
                only="value",
                at="values=1*4096",
                errors="value KLA001",
                shows=(Shown("value", 2048.0, 4096.0, total),),
            ),
            run(
                "cumsum(values)[-1]/4096",
                truth="mean(values)",
                backends="numpy",
                dtypes="fp16",
                only="value",
                at="values=1*4096",
                errors="value KLA001",
                shows=(Shown("value", 0.5, 1.0, one),),
            ),
        ),
    ),
    Report(
        "B117",
        "https://github.com/radixark/miles/pull/2476",
        MASKS,
        "Slots without a log-probability hold 0, and a viewer subtracts without looking at the mask.",
        (
            run(
                "mean(abs(train - rollout))",
                truth="sum(where(mask, abs(train - rollout), 0))/sum(mask)",
                at="train=-0.51,-30 rollout=-0.5,0 mask:bool=1,0",
                only="value",
                errors="value KLA001",
                shows=(Shown("value", 15.005, 0.01, _masked_difference),),
            ),
        ),
    ),
)

PREFERENCE_LOSSES = (
    Report(
        "B97",
        "https://github.com/pytorch/pytorch/issues/1835",
        PREFERENCE,
        "log(1 + exp(-x)) overflows at x = -300, where the answer is 300.",
        (
            run(
                "-log(1 + exp(-x))",
                quantity="log-sigmoid",
                per_decade=100,
                errors="value KLA202, value KLA104, gradient KLA401",
            ),
            run(
                "-log(1 + exp(-x))",
                quantity="log-sigmoid",
                only="value",
                at="x=-300",
                errors="value KLA202",
                shows=(Shown("value", -inf, -300.0, _log_sigmoid),),
            ),
            run(
                "log_sigmoid(x)",
                quantity="log-sigmoid",
                only="value",
                at="x=-300",
                passes="value",
                shows=(Shown("value", -300.0, -300.0, _log_sigmoid),),
            ),
        ),
    ),
    Report(
        "B100",
        "https://github.com/huggingface/trl/pull/5339",
        PREFERENCE,
        "The log-probability of a near-certain answer is 0 in bfloat16, and its log-odds inf - inf.",
        (
            run(
                ODDS,
                dtypes="bf16",
                at="chosen=17,0 rejected=18,0",
                errors="value KLA201, gradient:chosen KLA401",
                shows=(Shown("value", nan, -1.0, _log_odds_ratio),),
            ),
        ),
    ),
    Report(
        "B101",
        "https://github.com/axolotl-ai-cloud/axolotl/pull/3910",
        PREFERENCE,
        "A guard against log(0) bounds the log-probability by 0.999, not by something below 0.",
        (
            run(
                "log1p(-exp(clip(lp, None, 0.999)))",
                quantity="log1mexp",
                per_decade=100,
                only="value",
                errors="value KLA202",
            ),
            run(
                "log1p(-exp(clip(lp, None, 0.999)))",
                truth="log1p(-exp(clip(lp, None, -0.001)))",
                only="value",
                at="lp=0,1e-4",
                errors="value KLA201, value KLA202",
                shows=(
                    Shown("value", -inf, -6.9082552, lambda x: mp.log(-mp.expm1(mpf(-1) / 1000))),
                    Shown("value", nan, -6.9082552, lambda x: mp.log(-mp.expm1(mpf(-1) / 1000))),
                ),
            ),
        ),
    ),
    Report(
        "B103",
        "https://github.com/unslothai/unsloth-zoo/pull/830",
        PREFERENCE,
        "The floor 1e-12 is 0 in float16, so the logarithm that it guards is -inf.",
        (
            run("log(max(-expm1(lp), 1e-12))", dtypes="fp16", errors="value KLA202, gradient KLA401"),
            run(
                "log(max(-expm1(lp), 1e-12))",
                dtypes="fp16",
                at="lp=0",
                only="value",
                errors="value KLA202",
                shows=(Shown("value", -inf, -27.63102112, lambda x: mp.log(mpf(10) ** -12)),),
            ),
        ),
    ),
)
