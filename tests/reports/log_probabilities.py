"""Reports of low-precision log-probabilities."""

from __future__ import annotations

from mpmath import mp
from reports.exact import log_softmax, one, zero
from reports.record import Report, Shown, run

LOW = "low-precision log-probabilities"
ROUNDED = "exp(log_softmax(x)[2] - log_softmax(fp32({}(x)))[2])"
TRUNCATED = "exp(log_softmax(logits)[0] - log_softmax(logits[[0, 1, 2]])[0])"
FULL = "exp(log_softmax(logits)[0] - log_softmax(logits)[0])"
LOGITS = "x=17.06,14.3,16.1,12.7"


def _ratio(policy, old):
    return mp.exp(policy - old)


def _second(x):
    return log_softmax(x)[1]


LOG_PROBABILITIES = (
    Report(
        "B29",
        "https://github.com/OpenRLHF/OpenRLHF/issues/931",
        LOW,
        "On-policy ratios are 1.002 or 0.997 and not 1: two passes round the same log-probability to "
        "neighbouring bfloat16 numbers; and nothing bounds a ratio of 5e8.",
        (
            run(
                "exp(fp32(bf16(policy)) - fp32(bf16(old)))",
                max_rel=1e-3,
                per_decade=50,
                only="value",
                errors="value KLA001",
            ),
            run(
                "exp(fp32(bf16(policy)) - fp32(bf16(old)))",
                max_rel=1e-3,
                at="policy=-0.4989 old=-0.4991",
                only="value",
                errors="value KLA001",
                shows=(Shown("value", 1.001955, 1.0002, _ratio),),
            ),
            run(
                "d = reference - policy; exp(d) - d - 1",
                quantity="k3-pair",
                dtypes="bf16",
                explain=True,
                per_decade=20,
                only="value",
                errors="value KLA101",
                notes="value KLA501",
            ),
            run(
                "exp(d)",
                quantity="ratio",
                at="d=20.03",
                passes="value",
                shows=(Shown("value", 4.99941e8, 4.99941e8, mp.exp),),
            ),
        ),
    ),
    Report(
        "B36",
        "https://github.com/huggingface/transformers/issues/31267",
        LOW,
        "The same logits, stored in bfloat16, give log-probabilities hundredths of a nat off and ratios "
        "outside a 1% band; in float16 they stay inside.",
        (
            run(
                ROUNDED.format("bf16"),
                at=LOGITS,
                only="value",
                errors="value KLA001",
                shows=(Shown("value", 0.943286, 1.0, one),),
            ),
            run(
                ROUNDED.format("fp16"),
                at=LOGITS,
                only="value",
                passes="value",
                shows=(Shown("value", 1.0062427, 1.0, one),),
            ),
        ),
    ),
    Report(
        "B37",
        "https://github.com/OpenRLHF/OpenRLHF/pull/634",
        LOW,
        "log_softmax of bfloat16 logits is bfloat16: against the same model in float32 there is a KL where "
        "there is none.",
        (
            run(
                "d = log_softmax(x)[1] - fp32(log_softmax(bf16(x))[1]); exp(d) - d - 1",
                only="value",
                at="x=10.3,8.1,2.0",
                errors="value KLA102",
                shows=(Shown("value", 3.5524368e-05, 0.0, zero),),
            ),
            run(
                "fp32(log_softmax(bf16(x))[1])",
                at="x=10.3,8.1,2.0",
                max_rel=1e-3,
                only="value",
                errors="value KLA001",
                shows=(Shown("value", -2.296875, -2.30530685, _second),),
            ),
        ),
    ),
    Report(
        "B40",
        "https://github.com/InternLM/xtuner/pull/1108",
        LOW,
        "One side takes log_softmax in bfloat16, the other in float32 of the same bfloat16 logits: the ratio "
        "of a policy to itself is 3% off.",
        (
            run(
                "exp(log_softmax(fp32(x))[1] - fp32(log_softmax(x)[1]))",
                dtypes="bf16",
                only="value",
                at="x=0.03,-9.75",
                errors="value KLA001",
                shows=(Shown("value", 0.97042, 1.0, one, 1e-4),),
            ),
        ),
    ),
    Report(
        "B44",
        "https://github.com/huggingface/trl/issues/4772",
        LOW,
        "0.012 nat of rounding per token is a factor of 3.3 over 100 tokens, above a cap of 3.",
        (
            run(
                "exp(sum(x - fp32(bf16(x))))",
                at="x=-4.988*100",
                only="value",
                errors="value KLA001",
                shows=(Shown("value", 3.320117, 1.0, one, 1e-4),),
            ),
            run(
                "exp(sum(policy - old))",
                quantity="sequence-ratio",
                at="policy=-0.988*100 old=-1*100",
                only="value",
                passes="value",
                shows=(
                    Shown(
                        "value",
                        3.320125,
                        3.320125,
                        lambda policy, old: mp.exp(mp.fsum(policy) - mp.fsum(old)),
                    ),
                ),
            ),
        ),
    ),
    Report(
        "B45",
        "https://github.com/huggingface/trl/issues/6789",
        LOW,
        "The sampler renormalises over the tokens that top-p keeps, the trainer does not: every ratio is "
        "low by the mass that is kept.",
        (
            run(
                TRUNCATED,
                truth=FULL,
                only="value",
                errors="value KLA001",
                at="logits=-0.6931472,-1.2039728,-1.89712,-2.9957323",
                shows=(Shown("value", 0.95, 1.0, one),),
            ),
            run(
                "log_softmax(logits)[0] - log_softmax(logits[[0, 1, 2]])[0]",
                only="value",
                passes="value",
                at="logits=-0.6931472,-1.2039728,-1.89712,-2.9957323",
                shows=(
                    Shown(
                        "value",
                        -0.05129329,
                        -0.05129329,
                        lambda logits: log_softmax(logits)[0] - log_softmax(logits[:3])[0],
                        1e-5,
                    ),
                ),
            ),
        ),
    ),
    Report(
        "B46",
        "https://github.com/huggingface/trl/issues/4159",
        LOW,
        "Only one of the two log-probabilities is taken at the sampling temperature.",
        (
            run(
                "exp(log_softmax(x/0.6) - log_softmax(x))",
                truth="exp(log_softmax(x/0.6) - log_softmax(x/0.6))",
                at="x=2,1,0",
                only="value",
                errors="value KLA001",
                shows=(Shown("value", 0.323583, 1.0, one),),
            ),
        ),
    ),
    Report(
        "B47",
        "https://github.com/verl-project/verl/issues/6280",
        LOW,
        "A bfloat16 matrix product depends on the size of the batch, and log-probabilities with it.",
        outcome="elsewhere",
        reason="a matrix product on a GPU: no formula of given inputs (on a CPU it does not differ)",
    ),
    Report(
        "B105",
        "https://github.com/huggingface/trl/issues/454",
        LOW,
        "Ratios of a first epoch drift to 1.03: generation and training see other masks and padding.",
        outcome="elsewhere",
        reason="needs the model and its generation; not a rounding of a formula",
    ),
)
