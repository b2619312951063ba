"""``python -m kl_audit``."""

from kl_audit.cli import main

if __name__ == "__main__":
    main()
