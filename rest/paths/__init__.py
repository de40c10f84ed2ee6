"""The paths of the API, a module for each kind, and what their functions share (`parameters`,
`long_work`). Those that Flink has are as Flink has them."""
