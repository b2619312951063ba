"""kl-audit audit as a stranger uses it: outputs, exit codes, one line for what is wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import jsonschema
import pytest
from audit.helpers import CLAMP_OUT, NAIVE, kl_audit

from kl_audit.report.schema import report_json_schema

QUICK = ("--backend", "numpy", "--no-progress")


def report(*args, code=None):
    """Run an audit, and return its report: strict JSON that the schema accepts."""

    def refuse(text):
        raise ValueError(text)

    done = kl_audit("audit", *args, "--output-format", "json", code=code)
    found = json.loads(done.stdout, parse_constant=refuse)
    jsonschema.validate(found, report_json_schema())
    return found


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ((), "give one thing to audit: package.module:function, or a formula with --expr 'exp(d) - d - 1'."),
        (("--expr", NAIVE, "--quantity", "k3", "--clamp", "x"),
         "--clamp 'x': expected auto, none, in:LO,HI or out:LO,HI with LO < HI."),
        (("--expr", "a*b"),
         "the formula has 2 inputs, and no grid is known for them: give values with --at a=1 --at b=1."),
        (("--expr", NAIVE, "--quantity", "k3", "--at", "d=1e39", *QUICK),
         "grid --at: 1e+39 is beyond float32 (largest 3.40282e+38); give values within it."),
        (("no_such_module:f", "--quantity", "k3"), "no module 'no_such_module' (looked in "),
        (("--expr", NAIVE, "--output-format", "yaml"), "unknown output format 'yaml'. "),
        (("--expr", NAIVE, "-o", "/no/such/dir/x"), "cannot write '/no/such/dir/x': "),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_2(args, line):
    """Wrong use gets one line on stderr, nothing on stdout, and exit code 2."""
    done = kl_audit("audit", *args, code=2)
    assert done.stdout == ""
    (said,) = done.stderr.strip().splitlines()
    assert said.startswith(f"kl-audit: {line}")


def test_a_formula_that_cannot_be_read_has_a_caret():
    """Three lines: what is wrong, the formula, and the place."""
    done = kl_audit("audit", "--expr", "exp(d) - - ) 1", code=2)
    said, text, caret = done.stderr.rstrip("\n").splitlines()
    assert said.startswith("kl-audit: expression: ")
    assert (text, caret) == ("exp(d) - - ) 1", " " * 11 + "^")


def test_a_module_that_raises_is_one_line(tmp_path):
    """What a module raises when it is imported is told, without a traceback."""
    (tmp_path / "broken.py").write_text("raise RuntimeError('not today')\n")
    done = kl_audit("audit", f"{tmp_path}/broken.py:f", "--quantity", "k3", code=2)
    (said,) = done.stderr.strip().splitlines()
    assert said == f"kl-audit: '{tmp_path}/broken.py' cannot be imported: RuntimeError: not today."


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--expr", "d/2*d", "--quantity", "k2"), 0),
        (("--expr", NAIVE, "--quantity", "k3"), 1),
        (("--expr", NAIVE, "--quantity", "k3", "--at", "d=1"), 0),
        (("--expr", NAIVE, "--quantity", "k3", "--at", "d=1", "--max-ulp", "0.01"), 1),
        (("--expr", NAIVE, "--quantity", "k3", "--at", "d=1e-3", "--max-rel", "1"), 0),
        (("--expr", NAIVE, "--quantity", "k3", "--only", "gradient", "--at", "d=1"), 1),
    ],
)
def test_exit_codes(args, code):
    """0 where all bounds hold, 1 where one fails or nothing was measured (NumPy has no gradient)."""
    kl_audit("audit", *args, *QUICK, "--no-explain", code=code)


def test_the_report_validates_against_the_printed_schema(tmp_path):
    """Fail, pass and skipped rows, thresholds, input rounding, remedy and stock rows: all in the schema."""
    schema = json.loads(kl_audit("schema", "report").stdout)
    found = report("--expr", "d = ref - policy; exp(d) - d - 1", "--quantity", "k3",
                   "--dtype", "bf16", "--against", "hybrid-poly", "--per-decade", "20",
                   "--grid", "decades", *QUICK, code=1)  # fmt: skip
    jsonschema.validate(found, schema)
    mine, stock, slope = (
        next(r for r in found["results"] if (r["role"], r["output"]) == key)
        for key in (("audited", "value"), ("stock", "value"), ("audited", "gradient"))
    )
    assert (mine["verdict"], stock["verdict"]) == ("fail", "pass")
    assert mine["thresholds"]
    assert len(mine["input_rounding"]) == 7
    assert mine["remedy"]["verdict"] == "pass"
    assert (slope["verdict"], slope["reason"]) == ("skipped", "numpy has no automatic differentiation")
    assert found["command"][:2] == ["kl-audit", "audit"]
    assert found["summary"]["fail"] >= 1
    assert found["subject"]["name"] == "expr"
    assert sum(found["summary"].values()) == len(found["results"])


def test_infinite_and_vector_inputs_are_strict_json():
    """Infinities and NaN are strings in the report, inputs by name; the naive form is inf - inf at inf."""
    found = report(
        "--expr", NAIVE, "--quantity", "k3", "--at", "d=inf,-inf,1", "--only", "value", *QUICK, code=1
    )
    (row,) = found["results"]
    assert row["nan"] == 1
    assert [(f["code"], f["witness"]["got"], f["witness"]["truth"]) for f in row["findings"]] == [
        ("KLA201", "nan", "inf")
    ]
    assert row["grid"]["kind"] == "cases"
    assert row["worst"]["x"]["d"] == ["inf", "-inf", 1.0]
    found = report(
        "--expr", "log(sum(exp(x)))", "--truth", "logsumexp(x)", "--at", "x=1000,999", *QUICK, code=1
    )
    row = found["results"][0]
    codes = {f["code"]: f for f in row["findings"]}
    assert codes["KLA202"]["witness"]["got"] == "inf"


def test_only_and_against_choose_rows():
    """--only value leaves gradients out; --against adds a stock row."""
    found = report("--expr", NAIVE, "--quantity", "k3", "--only", "value", "--against", "expm1", "--grid",
                   "0.1:1:9", "--no-explain", *QUICK, code=0)  # fmt: skip
    assert [(r["output"], r["formulation"], r["role"]) for r in found["results"]] == [
        ("value", "expr", "audited"), ("value", "expm1", "stock"),
    ]  # fmt: skip


def test_several_dtypes_and_backends():
    """Each dtype and back end has its rows; gradients of torch are measured."""
    found = report("--expr", NAIVE, "--quantity", "k3", "--dtype", "fp32", "--dtype", "fp64", "--backend",
                   "torch", "--backend", "numpy", "--mode", "eager", "--at", "d=0.5,-2", "--no-progress",
                   code=0)  # fmt: skip
    seen = {(r["backend"], r["dtype"], r["output"], r["verdict"]) for r in found["results"]}
    assert seen == {
        (b, f, o, "skipped" if (b, o) == ("numpy", "gradient") else "pass")
        for b in ("torch", "numpy") for f in ("float32", "float64") for o in ("value", "gradient")
    }  # fmt: skip


def test_at_takes_hexadecimal_repetition_and_a_dtype_of_its_own():
    """--at x=0x1.8p-3,2*3 is four numbers; x:bf16=0.1 is 0.1 in bfloat16; lists of ints and bools too."""
    found = report("--expr", "sum(x)", "--at", "x=0x1.8p-3,2*3", "--only", "value", *QUICK, code=0)
    assert found["results"][0]["worst"]["x"]["x"] == [0.1875, 2.0, 2.0, 2.0]
    assert found["results"][0]["worst"]["got"] == 6.1875
    found = report(
        "--expr", "float32(x) * y", "--at", "x:bf16=0.1", "--at", "y=1", "--only", "value", *QUICK, code=0
    )
    assert found["results"][0]["worst"]["x"]["x"] == [0.10009765625]
    found = report("--expr", "log_softmax(z)", "--at", "z:fp64=1,2", "--only", "value", *QUICK, code=0)
    assert found["results"][0]["verdict"] == "pass"


def test_a_printing_function_does_not_spoil_the_report(tmp_path):
    """What a function prints is a fact of the report and not part of stdout."""
    (tmp_path / "loud.py").write_text("def k2(d):\n    print('loud')\n    return d / 2 * d\n")
    found = report(
        f"{tmp_path}/loud.py:k2", "--quantity", "k2", "--only", "value", "--grid", "0.1:1:9", *QUICK, code=0
    )
    assert "prints: loud" in found["subject"]["facts"]
    assert found["subject"]["file"].endswith("loud.py")
    assert found["subject"]["line"] == 1


def test_text_tells_what_breaks_where_and_what_to_do():
    """The text has the findings, with -v the notes, the thresholds and the remedy."""
    done = kl_audit("audit", "--expr", CLAMP_OUT, "--quantity", "k3", "--only", "value", "-v", *QUICK, code=1)
    for words in ("KLA601", "KLA101", "off by more than 1%", "passes here", "d clipped to [-11, 2.6109]"):
        assert words in " ".join(done.stdout.split()), words
    assert "\x1b" not in done.stdout


def test_the_error_beside_a_remedy_is_over_the_same_inputs():
    """ "relative error 1.0e-7, expr 1.2e5": both over |d| of 1e-6 or more, as --max-rel is."""
    done = kl_audit("audit", "--expr", NAIVE, "--quantity", "k3", "--only", "value", *QUICK, code=1)
    shown = float(re.search(r"relative error \S+, expr (\S+)", done.stdout)[1])
    judged = float(re.search(r"relative error (\S+) > 0.01", done.stdout)[1])
    assert shown == pytest.approx(judged, rel=0.05)


def test_markdown_and_jsonl(tmp_path):
    """The other formats are written beside each other."""
    files = {name: tmp_path / f"r.{name}" for name in ("markdown", "jsonl", "json")}
    options = [x for name, file in files.items() for x in ("--output-format", f"{name}={file}")]
    kl_audit("audit", "--expr", NAIVE, "--quantity", "k3", "--grid", "0.1:1:9", *QUICK, *options, code=0)
    head, *rows = [json.loads(line) for line in files["jsonl"].read_text().splitlines()]
    assert len(rows) == sum(head["summary"].values()) == 2
    assert "expr" in files["markdown"].read_text()
    assert json.loads(files["json"].read_text())["schema_version"] == 1


def test_the_same_command_gives_the_same_results():
    """Command and seed make the results again, bit for bit."""
    args = ("--expr", "policy - reference", "--per-decade", "10", "--seed", "3", "--only", "value", *QUICK)
    first, second = report(*args), report(*args)
    assert first["results"] == second["results"]
    assert first["seed"] == 3


def test_nothing_measured_is_exit_1():
    """Rows that are all skipped are no success, and stderr says so."""
    done = kl_audit(
        "audit", "--expr", NAIVE, "--quantity", "k3", "--only", "gradient", "--at", "d=1", *QUICK, code=1
    )
    assert done.stderr.strip() == "kl-audit: nothing was measured: every row is skipped (see the report)."


SLEEPY = """
import pathlib
import time

def k2(d):
    with pathlib.Path(__file__).with_name("calls").open("a") as calls:
        calls.write("x")
    time.sleep(0.25)
    return d / 2 * d
"""


def interrupted_after(tmp_path, calls):
    """Press Ctrl-C once a function has been called so many times; return the exit code and stderr."""
    (tmp_path / "sleepy.py").write_text(SLEEPY)
    made = tmp_path / "calls"
    process = subprocess.Popen(
        [sys.executable, "-m", "kl_audit", "audit", f"{tmp_path}/sleepy.py:k2", "--quantity", "k2",
         "--clamp", "none", *QUICK],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while (not made.exists() or len(made.read_text()) < calls) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    return process.returncode, err


def test_interruption_while_measuring(tmp_path):
    """Ctrl-C while a slow function is measured: exit 130 and one line, no traceback."""
    code, err = interrupted_after(tmp_path, 12)
    assert code == 130
    assert err.startswith("kl-audit: interrupted")


def test_interruption_while_a_function_is_tried_out(tmp_path):
    """Ctrl-C during the first calls is told as well."""
    code, err = interrupted_after(tmp_path, 1)
    assert code == 130
    assert err.startswith("kl-audit: interrupted")


def test_interruption_before_the_first_row_does_not_speak_of_rows(tmp_path):
    """With no row finished there are none above."""
    _, err = interrupted_after(tmp_path, 12)
    assert "rows above" not in err


def test_help_explains_every_option():
    """--help names every option."""
    done = kl_audit("audit", "--help", code=0)
    for option in ("--expr", "--quantity", "--truth", "--args", "--with", "--output", "--at", "--only",
                   "--against", "--backend", "--mode", "--dtype", "--grid",
                   "--per-decade", "--size", "--clamp",
                   "--max-rel", "--max-ulp", "--seed", "--top", "--explain"):  # fmt: skip
        assert option in done.stdout


def test_flushed_points_are_no_disagreement_of_the_oracles():
    """JAX flushes exp(-90): a note of the back end (KLA204), and never KLA902 or a failure."""
    found = report("--expr", "exp(d)", "--quantity", "ratio", "--backend", "jax", "--mode", "eager", "--at",
                   "d=-90,-89", "--only", "value", "--no-progress")  # fmt: skip
    codes = {f["code"] for f in found["results"][0]["findings"]}
    assert "KLA204" in codes
    assert "KLA902" not in codes
    assert found["results"][0]["verdict"] == "pass"
