"""The command `strom`: one module for each group of commands, `main` puts them together."""
