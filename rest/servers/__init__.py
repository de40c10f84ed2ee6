"""Who listens: the application and its guard (`api`, `guard`, `tokens`, `errors`), a port
(`listener`), and those who open one: `session_server`, `job_server`."""
