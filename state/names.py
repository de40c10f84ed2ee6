"""Names of columns in snapshots of the column face."""

NAMESPACE, KEY_PREFIX, ACC_PREFIX = "namespace", "key.", "acc."
