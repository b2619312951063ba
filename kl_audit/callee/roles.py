"""What the name of a parameter says of its role, by the names that public trainers use.

Seen in TRL, verl, OpenRLHF, NeMo-RL, tunix, slime, miles, SkyRL, AReaL, ROLL, prime-rl, unsloth-zoo,
Liger-Kernel, torchtune, torchforge, torchrl, compose-rl, open-instruct and marin: ``log_probs``, ``logprob``,
``per_token_logps``, ``new_logps``, ``ref_per_token_logps``, ``log_probs_base``, ``logprobs_reference``,
``old_log_probs``, ``action_mask``, ``student_logits``, ``labels`` and their like.
"""

from __future__ import annotations

import re

REFERENCE = frozenset({"ref", "reference", "base", "initial", "init", "sft", "target", "teacher"})
OLD = frozenset({"old", "behaviour", "behavior", "rollout", "sampling", "sampler", "generation",
                 "inference", "vllm", "prev", "previous"})  # fmt: skip
NEW = frozenset({"new", "policy", "current", "curr", "cur", "actor", "student", "online", "trainer"})
#: Words that may stand beside a log-probability without changing whose it is.
NEUTRAL = frozenset({
    "logp", "log", "per", "token", "tokens", "seq", "sequence", "selected", "action", "actions", "response",
    "responses", "completion", "completions", "model", "pi",
})  # fmt: skip
#: Role words that say enough without ``logp``.
BARE = frozenset({"ref", "reference", "old", "behaviour", "behavior", "new", "policy", "student",
                  "teacher", "p", "pi"})  # fmt: skip
#: What ``classify`` answers.
ROLES = frozenset(
    {"d", "policy", "reference", "old", "mask", "logits", "student", "teacher", "index", "weights"}
)
#: Words that make a parameter *about* a mask, not a mask.
NOT_A_MASK = frozenset({"value", "fn", "id", "type", "mode", "use", "is", "with", "truncated", "coef"})
INDEX = frozenset({"labels", "label", "index", "indices", "idx", "ids", "tokens", "actions", "targets"})
DIFFERENCE = frozenset({"diff", "difference", "delta"})

_LOGP = re.compile(r"log_?(probs?|ps?|pis?|probabilit(y|ies))(?![a-z])")
_LOG_RATIO = re.compile(r"^(log_?ratios?|log_?r)$")


def classify(name: str) -> frozenset[str]:
    """Return the roles that a parameter of this name may have; none if it says nothing.

    ``log_p`` beside ``log_q`` says nothing (some trainers call the reference p, some the policy);
    see ``unclear_pair``.
    """
    name = name.lower().strip("_")
    words = [w for w in re.split(r"[_\d]+", _LOGP.sub("_logp_", name)) if w]
    said = frozenset(words)
    if "mask" in said or "masks" in said:
        return frozenset() if said & NOT_A_MASK else frozenset({"mask"})
    if said & {"logits", "logit"}:
        return _logits(said)
    if name in ("d", "x") or _LOG_RATIO.match(name) or _is_difference(said):
        return frozenset({"d"})
    whose = said & (REFERENCE | OLD | NEW | {"pi"})
    if "logp" in said or (whose and ("log" in said or said <= BARE)):
        return _log_probability(said)
    if words and words[-1] in INDEX:
        return frozenset({"index"})
    return frozenset({"weights"}) if name in ("weight", "weights") else frozenset()


def _logits(said: frozenset[str]) -> frozenset[str]:
    if said & (REFERENCE | {"t"}):
        return frozenset({"teacher"})
    if said & OLD:
        return frozenset()
    return frozenset({"student", "logits"})


def _is_difference(said: frozenset[str]) -> bool:
    if said & DIFFERENCE and said <= DIFFERENCE | NEUTRAL | REFERENCE:
        return True
    return {"log", "ratio"} <= said <= {"log", "ratio"} | NEUTRAL | REFERENCE


def _log_probability(said: frozenset[str]) -> frozenset[str]:
    if not said <= REFERENCE | OLD | NEW | NEUTRAL | BARE:
        return frozenset()  # log_prob_threshold
    if said & REFERENCE:
        return frozenset({"reference", "teacher"} if "teacher" in said else {"reference"})
    if said & OLD:
        return frozenset({"old"})
    return frozenset({"policy", "student"} if "student" in said else {"policy"})


def unclear_pair(names: list[str]) -> frozenset[str]:
    """Return the parameters of a pair called p and q, of which names do not say which is the policy.

    Liger-Kernel and compose-rl call the reference ``log_p``; elsewhere it is the policy.
    """
    plain = {n.lower().replace("_", "").replace("log", ""): n for n in names}
    return frozenset({plain["p"], plain["q"]}) if {"p", "q"} <= plain.keys() else frozenset()


def find_role(word: str, inputs: tuple[str, ...]) -> str | None:
    """Return the input that a word on the command line means: itself, or an alias (ref, new, logratio).

    ``mask`` is always known.  None if the word means none of the inputs.
    """
    word = word.strip()
    if word in inputs:
        return word
    meant = classify(word)
    found = [i for i in inputs if i in meant]
    if len(found) == 1:
        return found[0]
    return "mask" if "mask" in meant else None
