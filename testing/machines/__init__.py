"""Several machines on one: networks that are slow, narrow, cut or silent, and Ray on them."""
