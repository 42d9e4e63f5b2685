"""The server: sessions, runs and machines over HTTP, as JSON.

``table`` lists every route as data (method, path, scope, types, handler); ``app`` makes an application of that list, and
what is said about the routes elsewhere (documentation, tests of who may do what) is made of the same list. A handler
reads what was asked, calls one verb in a worker thread and says what came of it: nothing is decided here. ``guarding``
is around everything: who may speak to this server at all, how much, and in which shape it refuses.
"""
