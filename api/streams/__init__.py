"""What programs are written with: the environment and the streams."""
