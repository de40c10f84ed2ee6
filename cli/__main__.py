"""`python -m strom.cli`."""

from .main import main

main()
