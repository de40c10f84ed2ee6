"""The REST API: jobs as Flink's REST describes them, and what may be done with them.

catalogs   what is served: the jobs of a session, one job, an archive
paths      what may be asked: a function for each path
shapes     what is answered: jobs as Flink's REST describes them
programs   programs that are uploaded and run
servers    who listens, and who may ask
"""
