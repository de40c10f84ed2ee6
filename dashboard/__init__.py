"""The dashboard: pages for a browser over the REST API that is served beside them."""
