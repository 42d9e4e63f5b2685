"""Search: from a question to the events that answer it, best first.

The store names matches (newest first, bounded), ``core.pooling`` says which questions to put to it and which matches to
load, ``core.ranking`` orders what was loaded. Around the best of them the events beside are loaded as well: an answer
often shares no word with the question that stands before it.

``complete`` is a promise: every event that has any of the words was ranked. Where it is false, ``notes`` say why in words
that somebody can act on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from onward.core import pooling, words
from onward.core.bodies import Body, Message
from onward.core.codec import body_of, searched
from onward.core.events import Event, iso
from onward.core.lines import said, who
from onward.core.pooling import Place
from onward.core.ranking import Candidate, Scored, counted, excerpt, is_asking, rank
from onward.core.similarity import blended, cosine
from onward.core.stemming import stem
from onward.errors import InvalidInput, LimitExceeded
from onward.service import embedding, sessions
from onward.service.embedding import Embedder
from onward.service.platform import Platform
from onward.service.superseded import Superseded, superseded

Scope = Literal["lineage", "workspace", "account"]
SCOPES: Final = ("lineage", "workspace", "account")

MOST_HITS: Final = 100
CANDIDATES: Final = 500
"""Matches that one question to the store names at most."""
LOADED: Final = 300
"""Of the matches that were named, how many are loaded and scored in full, the weightiest first."""
LOADED_ALONE: Final = 200
"""For a question of one word, how many of its newest matches are named, loaded and scored: they all weigh alike."""
ASKING: Final = 40
"""Of the best candidates that ask something, how many have the events behind them loaded too."""
AFTER: Final = 4
"""Events behind such a candidate that are loaded, for its reply is among them."""
RERANKED: Final = 50
"""Of the best hits, how many an embedder looks at again, where one is configured."""
SUPERSEDED_SHARE: Final = 0.75
"""What is left of the score of a hit that a later event supersedes: it is still shown, behind what is true now."""
HIT_CHARS: Final = 400
"""Characters of a hit's text in an answer of a search."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One event that a search found."""

    session: str
    seq: int
    event: str
    at: str
    who: str
    text: str
    score: float
    superseded_by: str | None = None
    """A later event that replaces what this one says, where that is known."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a search, best first."""

    hits: tuple[Hit, ...]
    complete: bool
    """Whether every event that has any of the words was ranked."""
    notes: tuple[str, ...] = ()
    """Why it is not complete, and what to do about it."""


class _Pool(msgspec.Struct, kw_only=True):
    """The matches of a question, and what is known about them."""

    held: dict[Place, set[str]]
    named: int
    """How many matches each question to the store names at most."""
    weights: dict[str, float] | None = None
    full: tuple[str, ...] = ()
    """The words that stand in more events than were named."""
    lagging: bool = False


def find(
    platform: Platform,
    query: str,
    *,
    session_id: str | None = None,
    scope: str | None = None,
    limit: int = 20,
    embedder: Embedder | None = None,
) -> Found:
    """Search the log without recording it, see ``recalling.search``. ``embedder`` stands in for the configured one."""
    chosen = scope or ("lineage" if session_id else "account")
    if chosen not in SCOPES:
        raise InvalidInput(what=f"scope {chosen!r}", why=f"there are {', '.join(SCOPES)}")
    if not 1 <= limit <= MOST_HITS:
        raise LimitExceeded(what="the number of hits", limit=f"1 to {MOST_HITS}", found=limit)
    if chosen != "account" and session_id is None:
        raise InvalidInput(what=f"scope {chosen!r}", why="it needs a session to start from")
    # Words that differ only in their ending are one word to the index.
    terms = list({stem(term): term for term in words.query_terms(query)}.values())
    if not terms:
        raise InvalidInput(what="the query", why="it has no words to look for")
    view, within = _within(platform, session_id, chosen)
    lineage = view if chosen == "lineage" else {}
    pool = _pool(platform, terms, within)
    held = {place: terms for place, terms in pool.held.items() if _in_view(lineage, *place)}
    # Where more events hold all the words than were named, nothing tells the named ones apart yet.
    places = list(held) if pool.weights is None else pooling.chosen(held, pool.weights, LOADED)
    shelf = _Shelf(platform, terms, lineage)
    shelf.load(places)
    distance = {name: seen.distance for name, seen in view.items()}
    ranked = rank(shelf.candidates(), terms, distance, pool.weights)
    if replies := _replies(ranked):
        shelf.load(replies)
        ranked = rank(shelf.candidates(), terms, distance, pool.weights)
    best = _reranked(query, ranked, shelf, embedder or embedding.configured())[:limit]
    replaced = superseded(platform, [(event, body) for event, body, _ in best], seen_from=session_id)
    hits = [
        Hit(
            session=event.session_id,
            seq=event.seq,
            event=event.id,
            at=iso(event.at),
            who=who(event, body),
            text=excerpt(said(event, body), terms, HIT_CHARS),
            score=round(score * _share(replaced.get(event.id)), 6),
            superseded_by=replaced[event.id].by if event.id in replaced else None,
        )
        for event, body, score in best
    ]
    hits.sort(key=lambda hit: -hit.score)
    notes = _notes(platform, pool, len(held) - len(places))
    return Found(hits=tuple(hits), complete=not notes, notes=notes)


def _reranked(
    query: str, ranked: Sequence[Scored], shelf: _Shelf, embedder: Embedder | None
) -> list[tuple[Event, Body, float]]:
    """Return events, bodies and scores; with an embedder the best of them ordered again."""
    found = [(*shelf.events[s.candidate.session, s.candidate.seq], s.score) for s in ranked]
    if embedder is None or len(found) < 2:
        return found
    best = found[:RERANKED]
    asked, *vectors = embedder.embed([query, *(said(event, body) for event, body, _ in best)])
    scores = blended([score for _, _, score in best], [cosine(asked, vector) for vector in vectors])
    again = [(event, body, score) for (event, body, _), score in zip(best, scores, strict=True)]
    return sorted(again, key=lambda hit: -hit[2]) + found[RERANKED:]


def _share(replaced: Superseded | None) -> float:
    """Return what is left of a score. What a file held once is no less of an answer for having been read again."""
    return 1.0 if replaced is None or replaced.rule == "file" else SUPERSEDED_SHARE


def _pool(platform: Platform, terms: Sequence[str], within: Sequence[str] | None) -> _Pool:
    """Put the questions to the store that ``core.pooling`` asks for."""
    pool = _Pool(held={}, named=CANDIDATES if len(terms) > 1 else LOADED_ALONE)

    def ask(wanted: tuple[str, ...]) -> tuple[list[Place], bool]:
        matches = platform.store.search(
            wanted, account_id=platform.account_id, sessions=within, limit=pool.named
        )
        places: list[Place] = [(match.session_id, match.seq) for match in matches.found]
        for place in places:
            pool.held.setdefault(place, set()).update(wanted)
        # Fewer than were asked for, and still not complete: then it is the index that lags.
        pool.lagging |= not matches.complete and len(places) < pool.named
        return places, not matches.complete and len(places) >= pool.named

    _, more = ask(tuple(terms))
    if len(terms) == 1 or more:
        pool.full = tuple(terms) if more else ()
        return pool
    single = pooling.alone(terms)
    answers = {term: ask((term,)) for term in single}
    found = {term: places for term, (places, _) in answers.items()}
    pool.full = tuple(term for term, (_, more) in answers.items() if more)
    pool.weights = pooling.weights(found, pool.full)
    common = sorted(pool.full, key=lambda term: -pool.weights[term])  # type: ignore[index]
    asked = len(single)
    pairs = pooling.together(common, asked)
    crowded = [pair for pair in pairs if ask(pair)[1]]
    for triple in pooling.wider(crowded, common, asked + len(pairs)):
        ask(triple)
    pool.weights.update({term: pooling.FLOOR for term in terms if term not in pool.weights})
    return pool


def _replies(best: Iterable[Scored]) -> list[Place]:
    """Return the places behind candidates that ask something: a reply need not repeat a word of its question."""
    asking = [scored.candidate for scored in best if scored.candidate.asks][:ASKING]
    return [(c.session, c.seq + step) for c in asking for step in range(1, AFTER + 1)]


class _Shelf:
    """What was loaded: each event read and decoded once, its words counted once."""

    def __init__(self, platform: Platform, terms: Sequence[str], lineage: dict[str, sessions.Reach]) -> None:
        self._platform = platform
        self._terms = terms
        self._lineage = lineage
        self._candidates: dict[Place, Candidate] = {}
        self._looked: set[Place] = set()
        self._copies: list[tuple[str, Place]] = []
        self.events: dict[Place, tuple[Event, Body]] = {}

    def load(self, places: Sequence[Place]) -> None:
        """Read these events in one call."""
        wanted = [place for place in places if place not in self._looked and _in_view(self._lineage, *place)]
        self._looked.update(wanted)
        for event in self._platform.store.events_at(wanted):
            self._take(event)

    def _take(self, event: Event) -> None:
        if event.erased:
            return
        place = (event.session_id, event.seq)
        body = body_of(event)
        self.events[place] = (event, body)
        text = searched(event.kind, body)
        if not text:
            return  # what no search finds is nobody's neighbour either
        self._candidates[place] = Candidate(
            session=event.session_id,
            seq=event.seq,
            at=event.at,
            kind=event.kind,
            words=counted(text, self._terms),
            length=len(text),
            actor=event.actor,
            asks=isinstance(body, Message) and is_asking(text),
        )
        if isinstance(body, Message) and body.continued_from:
            self._copies.append((body.continued_from.event, place))

    def candidates(self) -> list[Candidate]:
        """Return what can be ranked: not a successor's copy of a message that is here itself."""
        ids = {event.id for event, _ in self.events.values()}
        copies = {place for original, place in self._copies if original in ids}
        return [c for place, c in self._candidates.items() if place not in copies]


def _notes(platform: Platform, pool: _Pool, unloaded: int) -> tuple[str, ...]:
    notes = []
    if pool.lagging:
        behind = platform.store.index_lag()
        told = f"{behind:,} events behind the log" if behind else "still being read"
        notes.append(f"The index is {told}: search again in a moment.")
    if pool.full:
        names = ", ".join(repr(term) for term in pool.full[:5])
        notes.append(
            f"More than {pool.named} events hold {names}; of older ones only those with other words of the query were "
            "ranked: add a rarer word, or look in fewer sessions."
        )
    elif unloaded > 0:
        notes.append(
            f"{unloaded:,} events with fewer of the words were not ranked: add a rarer word, or look in fewer sessions."
        )
    return tuple(notes)


def _in_view(lineage: dict[str, sessions.Reach], session: str, seq: int) -> bool:
    """Whether an event is part of a lineage: what was said in a source after the branch was taken is not."""
    seen = lineage.get(session)
    return seen is None or seen.upto is None or seq <= seen.upto


def _within(
    platform: Platform, session_id: str | None, scope: str
) -> tuple[dict[str, sessions.Reach], Sequence[str] | None]:
    """Return the lineage of the session, and the sessions to search, or None for the whole account."""
    if session_id is None:
        return {}, None
    session = platform.session(session_id)
    view = sessions.reach(platform, session_id)
    if scope == "account":
        return view, None
    if scope == "workspace":
        here: list[str] = []
        cursor: str | None = None
        while session.workspace_id is not None:
            page, cursor = sessions.listed_in(platform, session.workspace_id, cursor)
            here += [s.id for s in page]
            if cursor is None:
                break
        return view, sorted({*here, session_id})
    return view, sorted(view, key=lambda name: (view[name].distance, name))
