"""Functions of the user's: found by name, called as candidates, and tried out before they are audited."""

from __future__ import annotations

from kl_audit.callee.arguments import Binding, bind, show, wants, wants_d, wants_pair
from kl_audit.callee.call import ShapePlan, candidate
from kl_audit.callee.capture import Heard, quiet
from kl_audit.callee.detect import detect_backends, result_formats
from kl_audit.callee.facts import Detection, Fact, Probe
from kl_audit.callee.load import Loaded, load
from kl_audit.callee.probe import ordinary, probe

__all__ = [
    "Binding",
    "Detection",
    "Fact",
    "Heard",
    "Loaded",
    "Probe",
    "ShapePlan",
    "bind",
    "candidate",
    "detect_backends",
    "load",
    "ordinary",
    "probe",
    "quiet",
    "result_formats",
    "show",
    "wants",
    "wants_d",
    "wants_pair",
]
