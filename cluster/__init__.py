"""The session cluster: one dispatcher on a Ray cluster, to which programs give their jobs.

decided, pure      session, of which room, slot_pool and succession are parts; told as actions
carried out        dispatcher, the actor: agenda, runs, ledger and its registry, slots_there
known of a job     records, savepoints
programs' side     dispatcher_client: start, find and ask it
                   session_host and new_jobs: give it a job; saved_graphs: one from a file
                   session_client and following: follow a job through its runs
with or without    account: the jobs of a cluster, those of no session by their coordinators
"""
