"""The leaf everything may import: data model, identifiers, errors, clock, configuration."""
