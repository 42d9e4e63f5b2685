"""The console: pages for people, rendered here and readable without script.

``pages`` lists every page as data, like the table of the API. A handler reads what was asked, calls verbs, and hands plain
views (``reading`` makes them, purely) to a template; nothing is decided here, and nothing is shown that the API would not
answer to the same token. Script adds what needs it (new events as they come, loading in place, following) and nothing that
reading needs.

Whatever the log holds is text: templates escape everything, ``rendering`` makes control characters visible everywhere, and
``markdown`` is the one place where a text becomes markup.
"""

from onward.surfaces.http.console.answering import or_else, routes

__all__ = ["or_else", "routes"]
