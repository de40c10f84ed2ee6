"""User functions, under PyFlink's names, and early checks of what users hand in."""
