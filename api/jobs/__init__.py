"""What a program becomes: its settings, its graphs, the host it is handed to, its results."""
