"""The command line as a stranger uses it: outputs, exit codes, and one clear line for bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import jsonschema
import pytest

from kl_audit.report.schema import report_json_schema

FAST = ["--backend", "numpy", "--no-progress"]


def kl_audit(*args, env=None, cwd=None):
    """Run the tool in a process of its own; stderr must never hold a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "kl_audit", *args],
        capture_output=True, text=True, check=False, cwd=cwd,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", **(env or {})},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--dtype", "float8"], ["unknown dtype 'float8'", "fp64, fp32, fp16, bf16"]),
        (["--quantity", "k9"], ["unknown quantity 'k9'", "k3"]),
        (["--formulation", "nave"], ["unknown formulation of k3 'nave'", "naive"]),
        (["--backend", "tf"], ["unknown backend 'tf'", "numpy, torch, jax"]),
        (["--mode", "fast"], ["unknown mode 'fast'", "eager, compile, jit"]),
        (["--backend", "numpy", "--mode", "jit"], ["no such mode", "numpy: eager"]),
        (["--output", "hessian"], ["unknown output 'hessian'", "value, gradient"]),
        (["--grid", "1:0:10"], ["grid '1:0:10'", "LO must be below HI"]),
        (["--grid", "0:1:0"], ["empty", "at least 1"]),
        (["--grid", "-1:1:9:log"], ["one sign"]),
        (["--grid", "a:b:c"], ["bad grid 'a:b:c'", "LO:HI:N"]),
        (["--grid", "nosuchfile"], ["no grid or file 'nosuchfile'", "exhaustive"]),
        (["--per-decade", "1"], ["--per-decade 1", "at least 2"]),
        (["--max-ulp", "-1"], ["--max-ulp -1", "0 or more"]),
        (["--output-format", "yaml"], ["unknown output format 'yaml'", "json"]),
        (["--output-format", "json="], ["no file after '='"]),
        (["--output-format", "json", "--output-format", "text"], ["one place", "json=FILE"]),
        (["-o", "/no/such/dir/x"], ["cannot write", "does not exist"]),
        (["--device", "foo"], ["unknown device 'foo'", "cpu, cuda"]),
        (["--grid", ""], ["no grid or file ''"]),
        (["--grid", "a" * 300], ["no grid or file 'aaa"]),
        (["--grid", "/"], ["is a directory"]),
        (["--grid", "1_000"], ["no grid or file '1_000'"]),
        (["--grid", "0:1:99999999999999"], ["N is beyond"]),
        (["--per-decade", "1000000000000"], ["at most"]),
        (
            ["--quantity", "k1", "--quantity", "k3", "--formulation", "negat"],
            ["formulation of k1, k3 'negat'", "negate", "naive"],
        ),
        (
            ["--output-format", "json=/tmp/same", "--output-format", "text=/tmp/same"],
            ["two reports", "/tmp/same"],
        ),
        (["--dtype", "fp16", "--grid", "1e6"], ["beyond float16", "65504"]),
    ],
)
def test_bad_input_is_one_line_and_exit_2(args, words):
    """Wrong use gets one line that says what was wrong and what is expected, and exit code 2."""
    done = kl_audit("sweep", *args)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("kl-audit: ")
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["audti"], ["no such command 'audti'", "'audit'", "See"]),
        (["audit", "--formt", "json"], ["no such option: --formt", "--output-format", "audit --help"]),
        (["sweep", "--per-decade", "x"], ["invalid value for '--per-decade'", "integer", "sweep --help"]),
        (["sweep", "--dtype"], ["'--dtype' requires an argument"]),
        (["sweep", "a"], ["unexpected extra argument", "sweep --help"]),
        (["schema"], ["missing argument 'name'", "schema --help"]),
        (["audit", "--expr", "d", "--truth", "d", "--clamp", "in:-1,1"], ["--clamp needs a --quantity"]),
    ],
)  # fmt: skip
def test_what_cannot_be_parsed_is_one_line_too(args, words):
    """A typo in a command or an option is one line as well, not a box and a second line."""
    done = kl_audit(*args)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("kl-audit: ")
    assert line.endswith(".")
    for word in words:
        assert word in line


def test_without_arguments_there_is_the_help():
    """kl-audit alone lists the commands and has exit code 2; stderr is silent."""
    done = kl_audit()
    assert (done.returncode, done.stderr.strip()) == (2, "")
    assert "sweep" in done.stdout
    assert "audit" in done.stdout


def test_a_grid_file_with_text_names_file_and_line(tmp_path):
    """Text in a grid file is refused with file:line and what was expected."""
    path = tmp_path / "grid.txt"
    path.write_text("1e-6  # fine\n\n0x1.8p-20\nhello\n")
    done = kl_audit("sweep", "--grid", str(path), *FAST)
    assert done.returncode == 2
    assert f"{path}:4: 'hello'" in done.stderr
    assert "hex float" in done.stderr


def test_an_empty_grid_file_is_refused(tmp_path):
    """A file without values is refused."""
    path = tmp_path / "grid.txt"
    path.write_text("# nothing\n")
    done = kl_audit("sweep", "--grid", str(path), *FAST)
    assert done.returncode == 2
    assert "no values" in done.stderr


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--formulation", "naive"], 0),
        (["--formulation", "naive", "--check"], 1),
        (["--formulation", "hybrid-poly", "--check"], 0),
        (["--formulation", "hybrid-poly", "--check", "--max-ulp", "0.5"], 1),
        (["--device", "cuda"], 0),
        (["--device", "cuda", "--check"], 1),
        (["--output", "gradient", "--check"], 1),
    ],
)
def test_exit_codes(args, code):
    """Without --check a measured sweep exits 0; with it 1 for a failing row, or for none measured."""
    done = kl_audit("sweep", "--grid", "1e-6:1:200:log", *FAST, *args)
    assert done.returncode == code, done.stdout + done.stderr


def test_every_report_validates_and_is_strict_json(tmp_path):
    """Value, gradient, pair, skipped and failing rows all validate against the printed schema."""
    schema = json.loads(kl_audit("schema", "report").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema == json.loads(json.dumps(report_json_schema()))
    path = tmp_path / "report.json"
    args = ["--quantity", "k3", "--quantity", "k3-pair", "--quantity", "weighted-k3-pair",
            "--dtype", "fp16", "--dtype", "fp64", "--output", "all", "--per-decade", "10",
            "--grid", "decades"]  # fmt: skip
    done = kl_audit("sweep", *args, "--backend", "numpy", "--backend", "torch", "--mode", "eager",
                    "--output-format", f"json={path}")  # fmt: skip
    assert done.returncode == 0, done.stderr

    def refuse(text):
        raise ValueError(text)

    report = json.loads(path.read_text(), parse_constant=refuse)
    jsonschema.validate(report, schema)
    verdicts = {r["verdict"] for r in report["results"]}
    assert {"pass", "fail", "skipped"} <= verdicts
    assert sum(report["summary"].values()) == len(report["results"])
    skipped = [r for r in report["results"] if r["verdict"] == "skipped"]
    assert all(r["reason"] for r in skipped)
    pair = next(r for r in report["results"] if r["quantity"] == "k3-pair" and r["worst"])
    assert set(pair["worst"]["x"]) == {"policy", "reference"}
    assert report["command"][1] == "sweep"


def test_the_report_can_be_made_again(tmp_path):
    """The command and seed in a report give the same results bit for bit."""
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    args = ["sweep", "--grid", "decades", "--per-decade", "50", "--seed", "7", *FAST]
    kl_audit(*args, "--output-format", f"json={first}")
    kl_audit(*args, "--output-format", f"json={second}")
    a, b = json.loads(first.read_text()), json.loads(second.read_text())
    assert a["results"] == b["results"]
    assert a["seed"] == 7
    other = json.loads(kl_audit(*args, "--seed", "8", "--output-format", "json").stdout)
    assert a["results"] != other["results"]


def test_jsonl_and_markdown(tmp_path):
    """jsonl is one object a line; markdown has well-formed tables."""
    done = kl_audit("sweep", "--grid", "0.1:1:50", *FAST, "--output-format", "jsonl",
                    "--output-format", f"markdown={tmp_path / 'r.md'}")  # fmt: skip
    head, *rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert head["schema_version"] == 1
    assert len(rows) == sum(head["summary"].values())
    lines = (tmp_path / "r.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) > 5
    assert {line.replace("\\|", "").count("|") for line in table} == {10}


def test_text_fits_80_columns_without_colour():
    """Tables stay within 80 columns, piped and without colour, and nothing is cut off."""
    done = kl_audit("sweep", "--dtype", "fp32", "--backend", "numpy", "--backend", "torch",
                    "--mode", "eager", "--per-decade", "20")  # fmt: skip
    assert "\x1b" not in done.stdout
    tables = done.stdout.split("hybrid-upcast float32: skipped")[0]
    assert "…" not in tables
    assert max(map(len, tables.splitlines())) <= 80
    assert "again: kl-audit" in done.stdout or "again: " in done.stdout
    assert "seed 0" in done.stdout


def test_verbose_shows_histogram_and_witnesses():
    """-v shows the signed histogram, the worst points and the notes."""
    done = kl_audit("sweep", "--grid", "1e-6:1:500:log", "--formulation", "expm1", "-v", *FAST)
    assert "within 1/2 ulp" in done.stdout
    assert "truth" in done.stdout
    assert "Notes" in done.stdout


def test_quiet_prints_nothing_and_still_checks():
    """-q leaves stdout empty; the exit code still speaks."""
    done = kl_audit("sweep", "--grid", "1e-6:1:50:log", "--formulation", "naive", "-q", "--check", *FAST)
    assert done.stdout == ""
    assert done.returncode == 1


def test_all_quantities_run():
    """Every quantity, value and gradient, gives a row of some verdict and no failure of the oracle."""
    done = kl_audit("sweep", "--quantity", "all", "--output", "all", "--grid", "0.1:1:20",
                    "--backend", "torch", "--mode", "eager", "--output-format", "json")  # fmt: skip
    report = json.loads(done.stdout)
    from kl_audit.quantities import QUANTITIES

    assert {r["quantity"] for r in report["results"]} == set(QUANTITIES)
    codes = {f["code"] for r in report["results"] for f in r["findings"]}
    assert not any(c.startswith("KLA9") for c in codes)


def test_a_missing_framework_is_a_skipped_row(tmp_path):
    """A framework that is not installed or is broken gives rows with the reason, no traceback."""
    for package, body in (
        ("jax", "raise ModuleNotFoundError(\"No module named 'jax'\", name='jax')"),
        ("torch", "raise OSError('libcudart.so: no such file')"),
    ):
        fake = tmp_path / package
        fake.mkdir()
        (fake / "__init__.py").write_text(body)
    env = {"PYTHONPATH": str(tmp_path)}
    done = kl_audit("sweep", "--grid", "0.1:1:20", env=env)
    assert done.returncode == 0
    assert "jax-eager, jax-jit: skipped, jax is not installed (pip install 'kl-audit[jax]')" in done.stdout
    assert "torch-eager, torch-compile: skipped, torch is installed but cannot be imported" in done.stdout
    backends = kl_audit("backends", env=env)
    assert "torch: not available: torch is installed but cannot be imported" in backends.stdout


def test_a_missing_compiler_is_a_skipped_row(tmp_path):
    """Without a C++ compiler torch.compile is skipped with that reason."""
    done = kl_audit("sweep", "--grid", "0.1:1:20", "--backend", "torch", "--mode", "compile",
                    env={"PATH": str(tmp_path)})  # fmt: skip
    assert "no C++ compiler found (g++ or clang++ on PATH)" in done.stdout


@pytest.mark.parametrize(
    ("variable", "args", "reason"),
    [
        ("TORCHDYNAMO_DISABLE", ["--backend", "torch", "--mode", "compile"], "torch.compile is switched off"),
        ("JAX_DISABLE_JIT", ["--backend", "jax", "--mode", "jit"], "jax.jit is switched off"),
    ],
)
def test_a_switched_off_compiler_is_not_passed_off_as_compiled(variable, args, reason):
    """A mode that would silently run eagerly is skipped, and under --check that is no success."""
    done = kl_audit("sweep", "--grid", "0.1:1:20", *args, "--check", env={variable: "1"})
    assert reason in done.stdout
    assert done.returncode == 1


def test_interruption_keeps_what_is_finished():
    """Ctrl-C prints the finished blocks, says where it stopped, and exits 130 without a traceback."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kl_audit", "sweep", "--dtype", "fp32", "--dtype", "fp64", "--per-decade",
         "40000", "--formulation", "expm1", *FAST, "--grid", "decades"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "kl-audit: interrupted in k3" in err
    assert "finished: " in err


def test_every_command_has_help_and_readme_text():
    """Each command explains itself, and the README names it."""
    from pathlib import Path

    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    for name in ("sweep", "backends", "formulations", "schema"):
        done = kl_audit(name, "--help")
        assert done.returncode == 0
        assert len(done.stdout) > 200
        assert f"kl-audit {name}" in readme


def test_formulations_lists_laws():
    """Every formulation is listed with its law, and -v shows the derivation."""
    from kl_audit.formulations import FORMULATIONS

    plain, verbose = kl_audit("formulations"), kl_audit("formulations", "-v")
    for f in FORMULATIONS:
        assert f.name in plain.stdout
    assert "Sterbenz" in verbose.stdout
    assert len(verbose.stdout) > 2 * len(plain.stdout)


def test_printed_truths_have_all_their_digits():
    """The 30 digits of a truth in a report are those of mpmath at 3000 bits, in every dtype."""
    import mpmath

    done = kl_audit("sweep", "--dtype", "all", "--grid", "0.1,1e-3,2,-5", "--formulation", "naive",
                    "--quantity", "k3", *FAST, "--output-format", "json", "--top", "20")  # fmt: skip
    seen = 0
    with mpmath.workprec(3000):
        for result in json.loads(done.stdout)["results"]:
            for w in result["top"]:
                x = mpmath.mpf(w["x"])
                truth = mpmath.exp(x) - x - 1
                assert abs(mpmath.mpf(w["truth"]) / truth - 1) < mpmath.mpf("1e-29")
                seen += 1
    assert seen == 16


@pytest.mark.parametrize("args", [["--formulation", "naive"], ["--quantity", "k3-pair"]])
def test_float64_is_silent_on_stderr(args):
    """No warning escapes from the extremes of float64, where powers and products overflow."""
    done = kl_audit("sweep", "--dtype", "fp64", "--per-decade", "4", *args, *FAST)
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_range_over_all_of_float64():
    """A range whose extent overflows is still a range."""
    done = kl_audit("sweep", "--dtype", "fp64", "--grid=-1.7e308:1.7e308:5", *FAST)
    assert done.returncode == 0, done.stderr


def test_a_torch_that_is_no_torch_is_a_skipped_row(tmp_path):
    """A package that imports and is not the framework is told, as one that exits at import."""
    for body in ("x = 1", "raise SystemExit(3)"):
        fake = tmp_path / "torch"
        fake.mkdir(exist_ok=True)
        (fake / "__init__.py").write_text(body)
        env = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        done = kl_audit("sweep", "--grid", "0.1", "--backend", "torch", env=env)
        assert done.returncode == 0
        assert "torch is installed but cannot be imported" in done.stdout


def test_a_reader_that_goes_away_does_not_change_the_exit_code():
    """``| head -1`` under --check still exits 1 for a failing row, silently."""
    command = (
        f"{sys.executable} -m kl_audit sweep --backend numpy --grid 1e-6:1:900:log -v --check"
        " | head -1 > /dev/null; echo ${PIPESTATUS[0]}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
    assert done.stderr == ""


def test_dash_is_stdout():
    """-o - and json=- mean stdout."""
    for args in (["-o", "-", "--output-format", "json"], ["--output-format", "json=-"]):
        done = kl_audit("sweep", "--grid", "0.1", *FAST, *args)
        assert json.loads(done.stdout)["schema_version"] == 1


def test_readme_examples_are_valid_commands():
    """Every kl-audit sweep in the README parses, and plans rows."""
    import re
    import shlex
    from pathlib import Path

    from typer.main import get_command

    from kl_audit.cli import app
    from kl_audit.cli.sweep import plan

    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(?:.*&& )?kl-audit sweep( .*)$", readme, flags=re.M)
    assert len(lines) >= 8
    command = get_command(app).commands["sweep"]
    for line in lines:
        args = shlex.split(line, comments=True)
        p = command.make_context("sweep", args).params
        blocks = plan(
            p["quantity"] or ["k3"], p["output"] or ["value"], p["formulation"] or [],
            p["backend"] or ["all"], p["mode"] or ["all"], p["device"], p["dtype"] or ["fp32"],
            p["grid"], p["per_decade"],
        )  # fmt: skip
        assert blocks, line
