"""Reports of log-softmax and tail mass."""

from __future__ import annotations

from mpmath import mp
from reports.exact import kl_forward, kl_reverse, log_softmax, one, softmax
from reports.record import Report, Shown, run

TAIL = "log-softmax, tail mass"
P, Q = "-0.6931472,-1.2039728,-1.6094379", "-0.5108256,-1.0498221,-2.9957323"


def _tail(x):
    return mp.fsum(softmax(x)[1:])


def _second(x):
    return log_softmax(x)[1]


TAIL_MASS = (
    Report(
        "B12",
        "https://github.com/verl-project/verl/issues/7856",
        TAIL,
        "The top-k terms of a forward KL alone can sum to less than 0; a clamp at 0 then removes the value "
        "and the gradient.",
        (
            run(
                ":topk_forward",
                quantity="kl-forward",
                sizes=(8, 64),
                with_="k=2",
                errors="value KLA104, value KLA001, gradient:student KLA402, gradient:student KLA404",
            ),
            run(
                ":topk_forward",
                quantity="kl-forward",
                with_="k=2",
                at=f"teacher={P} student={Q}",
                errors="value KLA104, gradient:student KLA402",
                shows=(Shown("value", 0.0, 0.1398529, kl_forward),),
            ),
            run(
                "t = log_softmax(teacher); x = log_softmax(student); "
                "(exp(t)*(t - x))[0] + (exp(t)*(t - x))[1]",
                only="value",
                at=f"teacher={P} student={Q}",
                passes="value",
                shows=(
                    Shown(
                        "value",
                        -0.13740602,
                        -0.13740602,
                        lambda teacher, student: mp.fsum(
                            mp.exp(a) * (a - b)
                            for a, b in zip(log_softmax(teacher)[:2], log_softmax(student)[:2], strict=True)
                        ),
                    ),
                ),
            ),
        ),
    ),
    Report(
        "B13",
        "https://github.com/verl-project/verl/pull/7855",
        TAIL,
        "The mass outside the top k, taken as 1 - sum p, is rounding where the top k has nearly all.",
        (
            run(
                "1 - sum(exp(log_softmax(x)[[0]]))",
                at="x=0,-20*1999",
                errors="value KLA001, gradient KLA403",
                shows=(Shown("value", 3.8146973e-06, 4.120229115e-06, _tail),),
            ),
            run(
                "1 - sum(exp(fp32(bf16(x))))",
                at="x=-0.5108256,-1.2039728,-2.303585",
                only="value",
                errors="value KLA001",
                shows=(
                    Shown(
                        "value", -0.000291348, 9.992e-05, lambda x: 1 - mp.fsum(mp.exp(a) for a in x), 1e-5
                    ),
                ),
            ),
        ),
    ),
    Report(
        "B42",
        "https://github.com/genlm/genlm-backend/pull/66",
        TAIL,
        "bfloat16 log-probabilities below -32 are a quarter apart: up to 13% of the probability.",
        (
            run(
                "exp(fp32(log_softmax(x)[1]))",
                at="x=0.124,-40",
                dtypes="bf16",
                only="value",
                errors="value KLA001",
                shows=(Shown("value", 4.2483543e-18, 3.75e-18, lambda x: mp.exp(_second(x)), 2e-3),),
            ),
            run(
                "log_softmax(x)[1]",
                at="x=0.124,-40",
                dtypes="bf16",
                only="value",
                passes="value",
                shows=(Shown("value", -40.0, -40.124, _second, 1e-4),),
            ),
        ),
    ),
    Report(
        "B48",
        "https://github.com/pytorch/executorch/pull/20090",
        TAIL,
        "A softmax whose denominator is a running bfloat16 sum stops at 256: 512 equal tokens get 1/256 "
        "each.",
        (
            run(
                ":running_log_prob",
                quantity="selected-log-prob",
                dtypes="bf16",
                only="value",
                at="logits=0*512 index:int=0",
                errors="value KLA001",
                shows=(
                    Shown(
                        "value",
                        -5.5451774,
                        -6.2383246,
                        lambda logits, index: log_softmax(logits)[int(index[0])],
                    ),
                ),
            ),
            run(
                ":running_log_prob",
                quantity="selected-log-prob",
                dtypes="bf16",
                only="value",
                sizes=(1000,),
                errors="value KLA001",
            ),
            run(
                "log_softmax(x)[0]",
                at="x=0*512",
                dtypes="bf16",
                only="value",
                passes="value",
                shows=(Shown("value", -6.25, -6.2383246, lambda x: log_softmax(x)[0]),),
            ),
        ),
    ),
    Report(
        "B54",
        "https://github.com/billy-enrizky/openbrowser-ai/pull/63",
        TAIL,
        "log_softmax in bfloat16 over 151,671 tokens: at -12 nats a ratio is 3% off.",
        (
            run(
                "exp(log_softmax(fp32(x))[0] - fp32(log_softmax(x)[0]))",
                dtypes="bf16",
                only="value",
                at="x=0,0.04*151670",
                errors="value KLA001",
                shows=(Shown("value", 1.0309615, 1.0, one),),
            ),
        ),
    ),
    Report(
        "B114",
        "https://github.com/verl-project/verl/pull/7806",
        TAIL,
        "The same for the reverse KL: the term of the teacher's top token is negative, and clamped away.",
        (
            run(
                ":topk_reverse",
                quantity="kl-reverse",
                sizes=(8, 64),
                with_="k=1",
                errors="value KLA104, value KLA001, gradient:student KLA402",
            ),
            run(
                ":topk_reverse",
                quantity="kl-reverse",
                with_="k=1",
                at="student=-0.5108256,-0.9162907 teacher=-0.1053605,-2.3025851",
                errors="value KLA104, gradient:student KLA402",
                shows=(Shown("value", 0.0, 0.31123868, kl_reverse),),
            ),
        ),
    ),
)
