"""The conversations that ``onward bench --quality`` asks about: five pieces of coding work, written by hand.

A scene is a list of beats in the order in which they are told: a fact that is asked for later, or a remark that holds a
value like it and is asked for by nobody. ``quality_talk`` spreads them evenly over a conversation and fills the space
between with work, so the facts lie early, in the middle and late. Each answer is a value that stands in one event of its
conversation only; the values it is easily mistaken for are listed with it. A purpose names what somebody wants to go on
with, and never what will be asked: several questions share one.

It is deliberately small and plain: the model that answers has 135 million parameters. Nothing here may be changed because a
condition fails on it.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Who = Literal["user", "agent", "tool"]


class Beat(msgspec.Struct, frozen=True):
    """Something that is said in a conversation."""

    who: Who
    text: str
    """What is said; of a tool, its output."""
    command: str = ""
    """Of a tool: what was run."""


class Fact(Beat, frozen=True, kw_only=True):
    """Something that is said and asked for later."""

    topic: str
    asks: str
    answers: tuple[str, ...]
    """The value, in every way in which it may be written."""
    wrong: tuple[str, ...]
    """Values of the same conversation that it may be mistaken for."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation."""

    name: str
    title: str
    purposes: dict[str, str]
    """What somebody who continues would say the work is now, by topic."""
    parts: tuple[str, ...]
    """Modules that the work between the facts is about."""
    exchanges: int
    """Exchanges of work: how long the conversation gets."""
    beats: tuple[Beat, ...]

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What is asked for."""
        return tuple(beat for beat in self.beats if isinstance(beat, Fact))


PARCELS: Final = Scene(
    name="parcels",
    title="Parcel tracker",
    purposes={
        "deploy": "Prepare the deployment of the parcel tracker.",
        "tests": "Make the tests of the parcel tracker reliable.",
        "data": "Plan the next database change of the parcel tracker.",
    },
    parts=("routes", "labels", "carriers", "scanner", "notices"),
    exchanges=26,
    beats=(
        Fact(
            "user",
            "Good morning. Before we start: staging runs on the server heron-2. The old box, heron-1, goes away soon.",
            topic="deploy",
            asks="What is the name of the staging server?",
            answers=("heron-2",),
            wrong=("heron-1",),
        ),
        Fact(
            "agent",
            "The migration that adds the customs column is 0017_customs_code. The one before, 0016_weights, is untouched.",
            topic="data",
            asks="Which migration brings the customs column?",
            answers=("0017_customs_code", "0017"),
            wrong=("0016_weights", "0016"),
        ),
        Beat(
            "agent",
            "The old box still answers on port 8080, and the metrics of the scanner are on port 9102.",
        ),
        Fact(
            "agent",
            "I moved the tracker itself to port 7443 in settings.toml, because the other one was taken.",
            topic="deploy",
            asks="On which port does the tracker listen?",
            answers=("7443",),
            wrong=("8080", "9102"),
        ),
        Fact(
            "tool",
            "tests/test_labels.py::test_label_size PASSED\ntests/test_routes.py::test_reroute_twice FAILED\n"
            "E   AssertionError: one stop is missing",
            "pytest tests/test_routes.py tests/test_labels.py",
            topic="tests",
            asks="Which test failed?",
            answers=("test_reroute_twice",),
            wrong=("test_label_size",),
        ),
        Fact(
            "user",
            "Let the carrier client wait for 45 seconds. With 20 seconds the slow carriers never answer in time.",
            topic="tests",
            asks="How many seconds does the carrier client wait?",
            answers=("45",),
            wrong=("20",),
        ),
        Beat(
            "user",
            "The archive of scans is in the bucket parcel-attic. Leave it alone, it is read by the auditors.",
        ),
        Fact(
            "user",
            "Backups of the database go to the bucket parcel-vault, every night.",
            topic="data",
            asks="Which bucket holds the database backups?",
            answers=("parcel-vault",),
            wrong=("parcel-attic",),
        ),
        Fact(
            "user",
            "The release is on 14 May. Support asked for it, since 30 April was too early for them.",
            topic="deploy",
            asks="On which date is the release?",
            answers=("14 May", "May 14", "14th of May", "May 14th"),
            wrong=("30 April", "April 30"),
        ),
        Fact(
            "user",
            "By the way, the release has a codename: Quillback. The last one was Sandpiper.",
            topic="deploy",
            asks="What is the codename of the release?",
            answers=("Quillback",),
            wrong=("Sandpiper",),
        ),
    ),
)

INVOICES: Final = Scene(
    name="invoices",
    title="Invoice reader",
    purposes={
        "parser": "Finish the parser of the invoice reader.",
        "quality": "Check the quality of the invoice reader before it goes out.",
        "people": "Write to the people who wait for the invoice reader.",
    },
    parts=("lexer", "totals", "vendors", "currency", "archive"),
    exchanges=26,
    beats=(
        Fact(
            "user",
            "We read amounts with the library decimal-lite. I tried moneta first and it rounds in the wrong direction.",
            topic="parser",
            asks="Which library reads the amounts?",
            answers=("decimal-lite",),
            wrong=("moneta",),
        ),
        Fact(
            "user",
            "The person who signs off the reader is Ingrid Falk from accounting. Tomas Brandt only gets a copy.",
            topic="people",
            asks="Who signs off the reader?",
            answers=("Ingrid Falk", "Ingrid"),
            wrong=("Tomas Brandt", "Tomas"),
        ),
        Fact(
            "agent",
            "The parser failed on a vendor that writes its dates backwards: Olmec Supplies. Northgate writes them normally.",
            topic="parser",
            asks="Which vendor writes dates backwards?",
            answers=("Olmec Supplies", "Olmec"),
            wrong=("Northgate",),
        ),
        Beat("agent", "The file vendors/northgate.json has 118 samples, which is plenty."),
        Fact(
            "tool",
            "checked 640 invoices\nwrong totals: 23\nwrong vendors: 61\ndone",
            "python -m reader.check samples/",
            topic="quality",
            asks="How many invoices had wrong totals?",
            answers=("23",),
            wrong=("61", "640"),
        ),
        Fact(
            "agent",
            "The rounding fault was in the function fold_cents. Its neighbour split_cents is correct.",
            topic="quality",
            asks="In which function was the rounding fault?",
            answers=("fold_cents",),
            wrong=("split_cents",),
        ),
        Fact(
            "user",
            "An invoice may have at most 88 pages. Anything longer goes to the queue for people, which holds 300.",
            topic="parser",
            asks="How many pages may an invoice have?",
            answers=("88",),
            wrong=("300",),
        ),
        Beat("user", "The weekly call about this is on Tuesday, as always."),
        Fact(
            "user",
            "The demonstration for accounting is on Thursday in the room Linden. The room Maple was taken.",
            topic="people",
            asks="In which room is the demonstration?",
            answers=("Linden",),
            wrong=("Maple",),
        ),
        Fact(
            "agent",
            "I pinned the language of the scanner to nb_NO, since the default en_GB reads commas as thousands.",
            topic="quality",
            asks="To which language is the scanner pinned?",
            answers=("nb_NO",),
            wrong=("en_GB",),
        ),
    ),
)

ALERTS: Final = Scene(
    name="alerts",
    title="Alert bot",
    purposes={
        "rules": "Go on with the alert rules of the bot.",
        "outage": "Write the report about the outage.",
        "access": "Hand the alert bot over to the night shift.",
    },
    parts=("router", "silences", "pager", "digest", "threads"),
    exchanges=26,
    beats=(
        Fact(
            "user",
            "Alerts about disks go to the channel ops-basement. The channel ops-attic is for people only.",
            topic="rules",
            asks="To which channel do alerts about disks go?",
            answers=("ops-basement",),
            wrong=("ops-attic",),
        ),
        Fact(
            "agent",
            "I found what caused the outage: the certificate of the relay had expired. The queue was full only for that.",
            topic="outage",
            asks="What caused the outage?",
            answers=("certificate",),
            wrong=("queue was full", "full queue"),
        ),
        Fact(
            "user",
            "The outage lasted 52 minutes. The one in spring lasted 17 minutes, do not mix them up.",
            topic="outage",
            asks="How many minutes did the outage last?",
            answers=("52",),
            wrong=("17",),
        ),
        Fact(
            "agent",
            "A disk raises an alert at 93 percent now. At 75 percent it only shows a warning in the digest.",
            topic="rules",
            asks="At how many percent does a disk raise an alert?",
            answers=("93",),
            wrong=("75",),
        ),
        Beat("agent", "The token of the bot is kept in the file bot.env, as the deployment notes say."),
        Fact(
            "user",
            "The password of the pager is kept in the safe called Thimble. The safe called Bobbin has the spare keys.",
            topic="access",
            asks="Which safe has the password of the pager?",
            answers=("Thimble",),
            wrong=("Bobbin",),
        ),
        Fact(
            "tool",
            "rule disk_full     ok\nrule relay_silent  ok\nrule clock_drift   BROKEN unknown field 'host'\n",
            "bot rules check",
            topic="rules",
            asks="Which rule is broken?",
            answers=("clock_drift",),
            wrong=("disk_full", "relay_silent"),
        ),
        Fact(
            "user",
            "At night call Marguerite first. Only if she does not answer, call Desmond.",
            topic="access",
            asks="Who is called first at night?",
            answers=("Marguerite",),
            wrong=("Desmond",),
        ),
        Fact(
            "agent",
            "The report about the outage is in docs/reports/relay.md. The template is docs/reports/blank.md.",
            topic="outage",
            asks="In which file is the report about the outage?",
            answers=("relay.md",),
            wrong=("blank.md",),
        ),
    ),
)

TILES: Final = Scene(
    name="tiles",
    title="Map tile renderer",
    purposes={
        "speed": "Make the tile renderer faster.",
        "format": "Settle the file format of the tiles.",
        "release": "Publish the tile renderer.",
    },
    parts=("raster", "contours", "glyphs", "cache", "projection"),
    exchanges=56,
    beats=(
        Fact(
            "user",
            "Tiles are stored as webp. We dropped png last year because the files were three times larger.",
            topic="format",
            asks="In which image format are tiles stored?",
            answers=("webp",),
            wrong=("png",),
        ),
        Fact(
            "user",
            "The map covers Lapland for now. Jutland comes with the next version.",
            topic="release",
            asks="Which region does the map cover now?",
            answers=("Lapland",),
            wrong=("Jutland",),
        ),
        Fact(
            "agent",
            "Most of the time is lost in the module hillshade. The module coastline, which I suspected, is fast.",
            topic="speed",
            asks="In which module is most of the time lost?",
            answers=("hillshade",),
            wrong=("coastline",),
        ),
        Beat("agent", "The cache keeps 256 megabytes by default, which nobody has changed so far."),
        Fact(
            "tool",
            "render contours   31 ms\nrender glyphs     12 ms\nrender forests    77 ms\n",
            "cargo bench --bench render",
            topic="speed",
            asks="How many milliseconds does rendering forests take?",
            answers=("77",),
            wrong=("31", "12"),
        ),
        Fact(
            "user",
            "A tile is 384 pixels wide. The old ones were 256 pixels and looked blurred on phones.",
            topic="format",
            asks="How many pixels wide is a tile?",
            answers=("384",),
            wrong=("256",),
        ),
        Fact(
            "agent",
            "The crash on Windows came from the crate fontdust. The crate inkwell is not to blame.",
            topic="release",
            asks="Which crate caused the crash on Windows?",
            answers=("fontdust",),
            wrong=("inkwell",),
        ),
        Fact(
            "user",
            "We publish version 4.2 on Monday. Version 4.1 was withdrawn, please never mention it.",
            topic="release",
            asks="Which version is published on Monday?",
            answers=("4.2",),
            wrong=("4.1",),
        ),
        Fact(
            "agent",
            "The renderer uses 6 worker threads. With 14 it was slower, since the disk could not follow.",
            topic="speed",
            asks="How many worker threads does the renderer use?",
            answers=("6", "six"),
            wrong=("14", "fourteen"),
        ),
    ),
)

LESSONS: Final = Scene(
    name="lessons",
    title="School timetable",
    purposes={
        "solver": "Improve the solver of the school timetable.",
        "school": "Prepare the visit to the school.",
        "site": "Bring the timetable site online.",
    },
    parts=("rooms", "teachers", "solver", "exports", "calendar"),
    exchanges=56,
    beats=(
        Fact(
            "user",
            "The first school that uses it is Birkenau Primary. Stillwater High waits until autumn.",
            topic="school",
            asks="Which school uses the timetable first?",
            answers=("Birkenau Primary", "Birkenau"),
            wrong=("Stillwater High", "Stillwater"),
        ),
        Fact(
            "user",
            "A lesson lasts 40 minutes there. Everywhere else it is 55 minutes.",
            topic="school",
            asks="How many minutes does a lesson last at the first school?",
            answers=("40", "forty"),
            wrong=("55",),
        ),
        Fact(
            "agent",
            "The solver uses tabu search now. Simulated annealing left two teachers without a free day.",
            topic="solver",
            asks="Which search does the solver use?",
            answers=("tabu",),
            wrong=("annealing",),
        ),
        Beat("agent", "The test data has 29 teachers and 18 rooms, made up from the example file."),
        Fact(
            "tool",
            "class 3a  ok\nclass 4b  ok\nclass 5c  CONFLICT two teachers at once\nclass 6a  ok\n",
            "python -m timetable solve example.json",
            topic="solver",
            asks="Which class has a conflict?",
            answers=("5c",),
            wrong=("3a", "4b", "6a"),
        ),
        Fact(
            "user",
            "The site gets the domain lessonloom.example. We lost klassplan.example to somebody else.",
            topic="site",
            asks="Which domain does the site get?",
            answers=("lessonloom",),
            wrong=("klassplan",),
        ),
        Fact(
            "agent",
            "Pages are cached in Valkey. I removed Memcached, as nothing else needed it.",
            topic="site",
            asks="In what are the pages cached?",
            answers=("Valkey",),
            wrong=("Memcached",),
        ),
        Fact(
            "agent",
            "The solver gives up on a solution after 90 seconds. The 15 seconds of before were too short for big schools.",
            topic="solver",
            asks="After how many seconds does the solver give up?",
            answers=("90", "ninety"),
            wrong=("15", "fifteen"),
        ),
        Fact(
            "user",
            "Please ask for Mrs Okonkwo at the entrance. Mr Halvorsen is on leave that week.",
            topic="school",
            asks="For whom should one ask at the entrance?",
            answers=("Okonkwo",),
            wrong=("Halvorsen",),
        ),
    ),
)

SCENES: Final = (PARCELS, INVOICES, ALERTS, TILES, LESSONS)
"""In the order in which they are asked about. The first three are short enough for the window of a small model."""
