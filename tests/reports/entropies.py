"""Reports of entropy and Jensen-Shannon divergence."""

from __future__ import annotations

from mpmath import mp
from reports.exact import entropy, jsd, softmax, zero
from reports.record import Report, Shown, run

KIND = "entropy, JSD"
NAIVE = "lp = log_softmax(logits); -sum(exp(lp)*lp)"
FIXES = (
    "lp = log_softmax(logits); -sum(where(exp(lp) > 0, exp(lp)*lp, 0))",
    "lp = log_softmax(logits); -sum(xlogy(exp(lp), exp(lp)))",
    "lp = log_softmax(logits); -sum(nan_to_num(exp(lp)*lp))",
)
MIXTURE = (
    "p = softmax(student); q = softmax(teacher); m = 0.5*p + 0.5*q; "
    "0.5*sum(p*(log(p) - log(m))) + 0.5*sum(q*(log(q) - log(m)))"
)
MEAN_OF_LOGS = (
    "s = log_softmax(student); t = log_softmax(teacher); m = 0.5*s + 0.5*t; "
    "0.5*sum(exp(s)*(s - m)) + 0.5*sum(exp(t)*(t - m))"
)
GENERAL = (
    "s = log_softmax(student); t = log_softmax(teacher); m = log((1 - beta)*exp(s) + beta*exp(t)); "
    "beta*sum(exp(t)*(t - m)) + (1 - beta)*sum(exp(s)*(s - m))"
)
NEARLY = "-8.03,-5.1,-11.2,-7.7,-9.3,-6.6,-10.4,-8.8"
TEACHER = "-8.0,-5.06,-11.25,-7.75,-9.31,-6.6,-10.375,-8.8125"
P, Q = "-0.3566749,-1.6094379,-2.3025851", "-0.6931472,-1.2039728,-1.6094379"
UNIFORM = "m = 1/(1 - exp(-a)) - 1/a; m*(a - b) - log((exp(a) - 1)/a) + log((exp(b) - 1)/b)"
nan = float("nan")


def _general(beta):
    def value(student, teacher):
        s, t = softmax(student), softmax(teacher)
        m = [(1 - beta) * x + beta * y for x, y in zip(s, t, strict=True)]
        ours = mp.fsum(x * mp.log(x / y) for x, y in zip(s, m, strict=True))
        return (1 - beta) * ours + beta * mp.fsum(x * mp.log(x / y) for x, y in zip(t, m, strict=True))

    return value


def _continuous_bernoulli(a, b):
    mean = 1 / (1 - mp.exp(-a)) - 1 / a
    return mean * (a - b) - mp.log(mp.expm1(a) / a) + mp.log(mp.expm1(b) / b)


def _masked_row(what):
    return run(what, quantity="entropy", at="logits=0,0,-inf", passes="value", errors="gradient KLA401",
               shows=(Shown("value", 0.69314718, 0.69314718, entropy),
                      Shown("gradient", nan, 0.0, zero)))  # fmt: skip


ENTROPIES = (
    Report(
        "B52",
        "https://github.com/modelscope/ms-swift/issues/10156",
        KIND,
        "Student in float32, teacher in bfloat16 until the mixture: its probabilities do not sum to 1, and "
        "the divergence is negative.",
        (
            run(
                ":jsd_of_mixed_dtypes",
                quantity="jsd",
                at=f"student={NEARLY} teacher:bf16={TEACHER}",
                only="value",
                errors="value KLA101, value KLA001",
                shows=(Shown("value", -0.00134790, 6.28808e-05, jsd, 1e-4),),
            ),
        ),
    ),
    Report(
        "B57",
        "https://github.com/huggingface/trl/issues/7221",
        KIND,
        "-sum p log p meets 0 times -inf at a masked token; the usual repairs mend the value and leave the "
        "gradient NaN.",
        (
            run(NAIVE, quantity="entropy", sizes=(2, 8), errors="value KLA201, gradient KLA401"),
            run(NAIVE, quantity="entropy", sizes=(2,), dtypes="fp16", errors="value KLA201"),
            run(
                NAIVE,
                quantity="entropy",
                at="logits=0,0,-inf",
                only="value",
                errors="value KLA201",
                shows=(Shown("value", nan, 0.6931471806, entropy),),
            ),
            run(
                NAIVE,
                quantity="entropy",
                at="logits=65504,-65504",
                dtypes="fp16",
                only="value",
                errors="value KLA201",
            ),
            *(_masked_row(fix) for fix in FIXES),
        ),
    ),
    Report(
        "B59",
        "https://github.com/linkedin/Liger-Kernel/issues/1453",
        KIND,
        "A mixture of probabilities below e**-104 is 0, and 0 times its logarithm NaN.",
        (
            run(MIXTURE, quantity="jsd", sizes=(2,), errors="value KLA201, gradient:student KLA401"),
            run(
                MIXTURE,
                quantity="jsd",
                at="student=0,-110 teacher=0,-110",
                only="value",
                errors="value KLA201",
                shows=(Shown("value", nan, 0.0, zero),),
            ),
        ),
    ),
    Report(
        "B61",
        "https://github.com/huggingface/trl/issues/2202",
        KIND,
        "The mixture is the mean of the log-probabilities, not the logarithm of the mean.",
        (
            run(MEAN_OF_LOGS, quantity="jsd", sizes=(8,), only="value", errors="value KLA107, value KLA001"),
            run(
                MEAN_OF_LOGS,
                quantity="jsd",
                only="value",
                errors="value KLA107, value KLA001",
                at="student=-13.8155106,-1e-6 teacher=-1.0005e-3,-6.9077553",
                shows=(Shown("value", 5.175381, 0.6891856462, jsd),),
            ),
        ),
    ),
    Report(
        "B63",
        "https://github.com/modelscope/ms-swift/issues/10078",
        KIND,
        "A generalised divergence goes to 0 as beta goes to 1, but at beta = 1 it is a plain KL.",
        (
            run(
                ":generalized_jsd",
                truth=GENERAL,
                with_="beta=0.9",
                at=f"student={Q} teacher={P}",
                only="value",
                passes="value",
                shows=(Shown("value", 0.00818479, 0.00818479, _general(mp.mpf("0.9")), 1e-5),),
            ),
            run(
                ":generalized_jsd",
                truth=GENERAL,
                with_="beta=1",
                at=f"student={Q} teacher={P}",
                only="value",
                errors="value KLA102",
                shows=(Shown("value", 0.0920329, 0.0, zero),),
            ),
        ),
    ),
    Report(
        "B65",
        "https://github.com/google-deepmind/optax/pull/1762",
        KIND,
        "A tangent of 0 is multiplied by the log-softmax of a masked logit, -inf.",
        (
            run(
                ":weighted_log_softmax",
                truth="sum(w[[1, 2]]*log_softmax(x[[1, 2]]))",
                backends="jax",
                at="w=0,0,0 x=-inf,0,0",
                only="value",
                errors="value KLA201",
                shows=(Shown("value", nan, 0.0, zero),),
            ),
        ),
    ),
    Report(
        "B66",
        "https://github.com/pytorch/pytorch/issues/89558",
        KIND,
        "kl_div has a finite value at a target of 0, and NaN in the gradient by the target there; through "
        "the logits of the target, where the true gradient is 0, it is NaN too.",
        (
            run(
                ":kl_div_of_probabilities",
                at="student=-0.5108256,-0.9162907 teacher=0,-200",
                truth="sum(softmax(teacher)*(log_softmax(teacher) - log_softmax(student)))",
                passes="value, gradient:student",
                errors="gradient:teacher KLA401",
                shows=(Shown("gradient:teacher", nan, 0.0, lambda student, teacher: mp.mpf(0), 1e-80),),
            ),
        ),
    ),
    Report(
        "B67",
        "https://github.com/pytorch/pytorch/issues/144279",
        KIND,
        "KL(Uniform(0, 1) || Beta(1, 1)) used x log x, NaN at 0.",
        (
            run(
                ":kl_of_uniform_and_beta",
                truth="sum(exp(d) - d - 1)",
                at="d=0",
                only="value",
                passes="value",
                shows=(Shown("value", 0.0, 0.0, zero),),
            ),
            run(
                "sum(x*log(x))",
                truth="sum(xlogy(x, x))",
                at="x=0",
                only="value",
                errors="value KLA201",
                shows=(Shown("value", nan, 0.0, zero),),
            ),
        ),
        "fixed",
        "torch 2.13 returns 0 for it; the old formula, retyped, is found",
    ),
    Report(
        "B68",
        "https://github.com/pytorch/pytorch/issues/72525",
        KIND,
        "A KL of two continuous Bernoulli takes its mean from clamped probabilities and its normaliser "
        "from unclamped logits: far below 0.",
        (
            run(
                ":kl_of_continuous_bernoulli",
                truth=UNIFORM,
                at="a=-500 b=20",
                only="value",
                errors="value KLA001",
                shows=(Shown("value", -16.675005, 22.17887582, _continuous_bernoulli),),
            ),
        ),
    ),
)
