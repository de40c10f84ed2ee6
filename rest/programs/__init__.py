"""Programs that are uploaded and run beside the server."""
