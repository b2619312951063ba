"""Reports of cancellation near zero."""

from __future__ import annotations

from mpmath import mp
from reports.exact import k3, kl_forward, log_softmax, zero
from reports.record import Report, Shown, run

KIND = "cancellation near zero"
NAIVE = "exp(d) - d - 1"
SELF = "t = log_softmax(teacher); x = log_softmax(student); sum(exp(t)*(t - x))"
FEW = {"per_decade": 100}


def _top_log_prob(logits, index):
    return log_softmax(logits)[int(index[0])]


CANCELLATION = (
    Report(
        "B01",
        "https://github.com/google/tunix/issues/2315",
        KIND,
        "In float32 the k3 term written exp(d) - d - 1 is a few rounding units for small d, of either sign.",
        (
            run(
                NAIVE,
                quantity="k3",
                backends="jax",
                modes="eager jit",
                **FEW,
                errors="value@eager KLA101, value@jit KLA101, value@eager KLA001, value@jit KLA104",
            ),
            run(
                NAIVE,
                quantity="k3",
                backends="jax",
                modes="eager jit",
                at="d=1e-6",
                only="value",
                errors="value@eager KLA101, value@jit KLA101",
                shows=(
                    Shown("value@eager", -5.9604645e-08, 5.000001641e-13, k3),
                    Shown("value@jit", -5.9604645e-08, 5.000001641e-13, k3),
                ),
            ),
        ),
    ),
    Report(
        "B02",
        "https://github.com/unslothai/unsloth-zoo/pull/1240",
        KIND,
        "torch has the same cancellation: at d = 1e-6 the penalty is negative, at 1e-4 it is 0.",
        (
            run(
                NAIVE,
                quantity="k3",
                **FEW,
                errors="value KLA001, value KLA101, value KLA104, gradient KLA403",
            ),
            run(
                NAIVE,
                quantity="k3",
                at="d=1e-6,1e-5,1e-4,1e-3",
                only="value",
                errors="value KLA101, value KLA104",
                shows=(
                    Shown("value", -5.9604645e-08, 5.0000016e-13, k3),
                    Shown("value", 4.7683716e-07, 5.0016676e-07, k3),
                ),
            ),
        ),
    ),
    Report(
        "B03",
        "https://github.com/unslothai/unsloth-zoo/pull/1240",
        KIND,
        "expm1(d) - d, the repair, still subtracts nearly equal numbers; and its automatic derivative is "
        "the old exp(d) - 1.",
        (
            run(
                "expm1(d) - d",
                quantity="k3",
                **FEW,
                errors="value KLA001, gradient KLA403",
                notes="value KLA104, gradient KLA402",
                absent="value KLA101",
            ),
            run(
                "expm1(d) - d",
                quantity="k3",
                at="d=1e-4,1e-6,3e-7,1e-7,1e-8",
                shows=(
                    Shown("value", 4.5474735e-13, 5.0000016e-13, k3),
                    Shown("value", 0.0, 5.0e-17, k3),
                    Shown("gradient", 9.5367432e-07, 1.0000005e-06, mp.expm1),
                ),
            ),
        ),
    ),
    Report(
        "B05",
        "https://github.com/pytorch/pytorch/issues/32520",
        KIND,
        "kl_div that is given probabilities takes their logarithm again: a distribution has a KL to itself "
        "of a few 1e-8, and often below 0.",
        (
            run(
                ":kl_div_of_probabilities",
                quantity="kl-forward",
                sizes=(2, 8),
                only="value",
                errors="value KLA101, value KLA102",
            ),
            run(
                ":kl_div_of_probabilities",
                quantity="kl-forward",
                at="student=1,2,3 teacher=1,2,3",
                only="value",
                errors="value KLA101, value KLA102",
                shows=(Shown("value", -2.98023e-08, 0.0, zero),),
            ),
        ),
    ),
    Report(
        "B06",
        "https://github.com/pytorch/pytorch/issues/80488",
        KIND,
        "Two things that look alike: a term of a KL may be negative, a KL of a row to itself may not, "
        "and comes out so.",
        (
            run(
                ":kl_div_of_probabilities",
                quantity="kl-forward",
                sizes=(64,),
                only="value",
                errors="value KLA101, value KLA102",
            ),
            run(
                "t = log_softmax(teacher); (exp(t)*(t - log_softmax(student)))[2]",
                only="value",
                at="student=1,2,3 teacher=8,10,6",
                passes="value",
                shows=(
                    Shown(
                        "value",
                        -0.0593029,
                        -0.0593029,
                        lambda teacher, student: (
                            mp.exp(log_softmax(teacher)[2])
                            * (log_softmax(teacher)[2] - log_softmax(student)[2])
                        ),
                    ),
                ),
            ),
            run(
                ":kl_div_of_log_probabilities",
                quantity="kl-forward",
                only="value",
                passes="value",
                at="student=1,2,3 teacher=8,10,6",
                shows=(Shown("value", 1.0679827, 1.0679827, kl_forward),),
            ),
        ),
    ),
    Report(
        "B07",
        "https://github.com/pytorch/pytorch/issues/113708",
        KIND,
        "The log-probability of a token that leads by 17 nats is exactly 0: log(1 + 4e-8) was rounded "
        "before the logarithm.",
        (
            run(
                ":selected_log_prob",
                quantity="selected-log-prob",
                sizes=(2, 8),
                errors="value KLA104, value KLA001, gradient:logits KLA404",
            ),
            run(
                ":selected_log_prob",
                quantity="selected-log-prob",
                at="logits=16.942385,0 index:int=0",
                only="value",
                errors="value KLA104",
                shows=(Shown("value", 0.0, -4.3854665e-08, _top_log_prob),),
            ),
            run(
                ":selected_log_prob",
                quantity="selected-log-prob",
                at="logits=15,0 index:int=0",
                only="value",
                errors="value KLA001",
                shows=(Shown("value", -3.5762781e-07, -3.0590227e-07, _top_log_prob),),
            ),
        ),
    ),
    Report(
        "B09",
        "https://github.com/ggml-org/ggml/pull/1515",
        KIND,
        "An operator called expm1 computes exp(x) - 1: 0 at 1e-8.",
        (
            run(
                "exp(x) - 1",
                quantity="expm1",
                backends="numpy",
                only="value",
                **FEW,
                errors="value KLA001",
                notes="value KLA104",
            ),
            run(
                "exp(x) - 1",
                quantity="expm1",
                backends="numpy",
                only="value",
                at="d=1e-8",
                shows=(Shown("value", 0.0, 9.999999989e-9, mp.expm1),),
            ),
        ),
    ),
    Report(
        "B113",
        "https://github.com/p-e-w/heretic/pull/180",
        KIND,
        "sum p (log p - log q) from bfloat16 log-probabilities of nearly equal rows is noise of both signs.",
        (
            run(
                SELF,
                quantity="kl-forward",
                dtypes="bf16",
                only="value",
                errors="value KLA101, value KLA104, value KLA001",
            ),
        ),
    ),
)
