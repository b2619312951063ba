"""kl-audit: the numerical-precision audit of the KL and log-ratio code in RL trainers."""

__version__ = "0.1.0"
