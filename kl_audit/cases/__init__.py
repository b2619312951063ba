"""Public reports as executable cases: files of data, run on the versions that are here.

A case file is TOML (``model`` says what is in it, ``kl-audit schema case`` is its JSON Schema).  Nothing
in it is executed but formulas of the safe grammar, stock formulations, and functions of installed packages
that it names, the latter of built-in cases or where the reader allows it.
"""
