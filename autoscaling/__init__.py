"""A job's parallelism follows its load: figures in, decisions with reasons out. It knows no clock,
thread or Ray, and changes no job: whoever feeds it carries out what it decides."""
