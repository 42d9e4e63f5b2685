"""The catalogue: every command of ``onward``, what it takes and what it is for, as data.

Nothing is carried out here and nothing heavy is imported: help, the reference in the docs and the parser read this, and
the module that a command names is loaded when it is called. What each prints with ``--json`` is a contract.
"""

from __future__ import annotations

from typing import Final

from onward.surfaces.cli.catalogue_serving import SERVING
from onward.surfaces.cli.grammar import Argument, Command, Option

SES: Final = Argument(
    "SES", "A session: its id, the beginning of its id if no other begins so, or @last for the newest."
)
REASONS: Final = ("topic_change", "phase_change", "refocus", "context_pressure", "user_request", "other")
SCOPES: Final = ("lineage", "workspace", "account")
MODES: Final = ("auto", "replay", "native", "none")
MEMORIES: Final = ("engine", "platform")

ENGINE: Final = Option(
    "--engine", "The engine that answers. Default: the session's own, then ONWARD_ENGINE.", "ENGINE"
)
MODEL: Final = Option(
    "--model", "The model that the engine should use, by the name its provider gives it.", "MODEL"
)
ENGINE_OPTION: Final = Option(
    "--engine-option",
    "An option of the engine; the value is JSON where it reads as JSON, else text.",
    "KEY=VALUE",
    many=True,
)
BUDGET: Final = Option(
    "--budget", "Tokens that the projection and the initiating message may cost.", "N", kind="number"
)
TOKENS: Final = Option("--tokens", "What counts the tokens: chars/4 (default) or o200k.", "COUNTER")

PERMISSIONS: Final = (
    "default",
    "accept_edits",
    "plan",
    "full_auto",
    "dangerously_skip_permissions",
)
GOVERNING: Final = (
    Option("--permissions", "How much the engine may do by itself.", "MODE", choices=PERMISSIONS),
    Option("--ask", "Let its questions wait so many seconds for a person.", "SECONDS", kind="number"),
    Option(
        "--allow", "A tool that it may use, and no others; * stands for parts of a name.", "TOOL", many=True
    ),
    Option("--deny", "A tool that it may not use.", "TOOL", many=True),
    Option("--limit", "calls=N, tokens=N, seconds=N or cost=DOLLARS.", "LIMIT", many=True),
    Option(
        "--beyond",
        "What happens beyond them: cancel (default), ask a person, or warn.",
        "ACTION",
        choices=("cancel", "ask", "warn"),
    ),
    Option("--policy", "A policy as JSON, or several in an array.", "FILE", many=True, kind="path"),
    Option(
        "--require",
        "A capability without which nothing is begun, KIND or KIND:NAME.",
        "CAPABILITY",
        many=True,
    ),
    Option("--wish", "A capability whose absence is only said.", "CAPABILITY", many=True),
)

_ALL: Final = (
    Command(
        "import",
        "importing:import_",
        "Import native session files of coding agents.",
        "Every record of a file is accounted for: mapped to an event, kept raw, or broken with the reason. Importing "
        "again reads only what is new. Without a PATH, the folders where the engines keep their sessions are read.\n\n"
        "Exit 1 when any file is empty or failed; the others are imported all the same.\n\n"
        "JSON: {files: [{path, engine, version, status, reason, sessions, records: {read, mapped, raw, broken}, "
        "messages: {user, assistant, tool_calls, tool_results}}], totals}; status is imported, unchanged, empty or failed.",
        arguments=(
            Argument("PATH", "A native file, or a folder of them.", required=False, many=True, kind="path"),
        ),
        options=(
            Option("--from", "Whose files these are, where they do not say it themselves.", "ENGINE"),
            Option("--progress", "Show progress on standard error even where that is no terminal."),
        ),
        examples=("onward import ~/.claude/projects", "onward import rollout.jsonl --from codex --json"),
    ),
    Command(
        "list",
        "reading:list_",
        "List sessions, newest activity first.",
        "Delegated sessions (subagents, and those that an engine opened to compact itself) are left out unless you ask for "
        "them; a line says how many there are. Times are UTC.\n\n"
        "JSON: {sessions: [{id, title, …}], next}; next is the cursor of the next page, or null.",
        options=(
            Option("--query", "Only sessions with this in their title or id.", "TEXT"),
            Option("--workspace", "Only sessions about this folder.", "DIR"),
            Option("--children", "Delegated sessions too."),
            Option("--limit", "Sessions on a page (default 50, at most 1000).", "N", kind="number"),
            Option("--cursor", "Go on where an earlier page ended.", "CURSOR"),
        ),
        examples=("onward list", "onward list --query parser --json"),
    ),
    Command(
        "show",
        "reading:show",
        "Show how a session stands: links, plan, pins and runs.",
        "JSON: {session, links, state: {plan, pins}, runs, pressure}; pressure is {tokens, window, share} of the newest "
        "model request that was measured, or null.",
        arguments=(SES,),
        examples=("onward show @last",),
    ),
    Command(
        "read",
        "reading:read",
        "Read exact events of a session.",
        "On a page of several events, long tool input, tool output and contexts are shortened and imported records without "
        "a counterpart are counted; each says so. A single event, --full and --json show everything.\n\n"
        "Control characters of logged text are shown as escapes, so that nothing in a log can act on the terminal. With "
        "--json, bodies are the JSON that was logged; one that cannot be read is shown as such with its raw text.\n\n"
        "JSON: {session, events: [{id, session, seq, at, kind, actor, run, source, body, digest, chain}], next}.",
        arguments=(Argument("SES[:SEQ[-SEQ]]", "A session, and the event or the range of events to read."),),
        options=(
            Option("--full", "Shorten nothing."),
            Option("--tail", "The newest N events.", "N", kind="number"),
            Option("--limit", "Events to read (default 200, at most 1000).", "N", kind="number"),
        ),
        examples=("onward read @last --tail 20", "onward read @last:12", "onward read @last:12-18 --json"),
    ),
    Command(
        "search",
        "searching:search",
        "Search what was said, called and answered.",
        "With --session the search covers that session and its lineage, else everything. Every word counts; events with "
        "all of them come first.\n\n"
        "JSON: {hits: [{session, seq, event, at, who, text, score, superseded_by}], complete}; complete is false when there "
        "were more matches than are ranked, or the index lags behind the log.",
        arguments=(Argument("QUERY", "What to look for.", many=True),),
        options=(
            Option("--scope", "How far to look from the session.", "SCOPE", choices=SCOPES),
            Option("--session", "Where to look from.", "SES"),
            Option("--limit", "Hits (default 20, at most 100).", "N", kind="number"),
        ),
        examples=(
            "onward search parse_dates",
            "onward search 'flaky test' --session @last --scope workspace",
        ),
    ),
    Command(
        "run",
        "running:run",
        "Say something in a session and let an engine answer.",
        "The answer is printed as it is produced. Sessions that TEXT mentions, @[label](onward-session:…), are quoted with "
        "it (see `onward candidates`). Without TEXT, what waits in the session is taken up, for instance the "
        "first run of a fresh successor. TEXT - reads standard input.\n\n"
        "With --workspace and no SES, the conversation that goes on in that folder is meant, or a new one there: nobody "
        "has to know which it was.\n\n"
        "--continuation: auto lets the engine go on in its own memory where that can be relied on, and otherwise gives it "
        "a reconstruction from the record; replay always gives the reconstruction; native only goes on, and fails when "
        "there is nothing to go on with; none is a clean slate. How it came out is told, with the reason.\n\n"
        "--engine a,b lets b answer when a cannot for a reason that will pass and has done nothing yet; each is a run of "
        "its own. --allow, --deny and --limit hold the run to a policy: beyond it the engine is stopped. What an engine "
        "asks before it acts is answered by --permissions, or with --ask by a person (`onward approve`).\n\n"
        "JSON: {session, run, opening, opening_facts: {opening, reason, engine, branch, asked, native, seed, fault, told, "
        "tone}, reply, usage, pressure, approval, code, retryable, warnings}. A run that fails is an error (exit 1) whose "
        "details hold the same.",
        usage="(SES | --new TITLE | --workspace DIR) [TEXT]",
        arguments=(
            Argument("SES", SES.help, required=False),
            Argument("TEXT", "What to say; - reads standard input.", required=False),
        ),
        options=(
            Option("--new", "Open a new session with this title.", "TITLE"),
            ENGINE,
            Option("--continuation", "How the engine gets what was said before.", "MODE", choices=MODES),
            Option("--clean-slate", "Give the engine nothing of it, as with --continuation none."),
            Option(
                "--memory",
                "Whose memory comes first, what the engine holds or the record. Default: ONWARD_MEMORY, then engine.",
                "WHOSE",
                choices=MEMORIES,
            ),
            Option(
                "--window",
                "How long the engine's own memory is relied on: 4d, 36h, unlimited. Default: ONWARD_WINDOW, then 4d.",
                "TIME",
            ),
            Option("--workspace", "The folder the work is about.", "DIR"),
            MODEL,
            ENGINE_OPTION,
            *GOVERNING,
        ),
        examples=(
            "onward run --new 'Fix the parser' 'Which test fails?' --engine local",
            "onward run --workspace . 'Where were we?'",
            "git diff | onward run @last - --engine model",
        ),
    ),
    Command(
        "watch",
        "watching:watch",
        "Print events of a session as they are added.",
        "Starts with what comes next; with --after N, with the event that follows number N (0: with the first). Nothing is "
        "lost or repeated between two calls that pass the number on. Ends with --for SECONDS, or when it is interrupted.\n\n"
        "JSON (only with --for): {session, events, next}. --lines prints each event as a JSON document on its own line.",
        arguments=(SES,),
        options=(
            Option("--after", "The number after which to start.", "N", kind="number"),
            Option("--kind", "Only events of this kind.", "KIND", many=True),
            Option("--run", "Only events of this run.", "RUN"),
            Option("--for", "End after so many seconds.", "SECONDS", kind="number"),
            Option("--lines", "One JSON document an event."),
        ),
        examples=("onward watch @last", "onward watch @last --after 0 --kind tool_call --lines"),
    ),
    Command(
        "usage",
        "watching:used",
        "Show what the runs of a session used and cost.",
        "As their engines said. With --rates, what they did not say is computed: a JSON object from a model (or the "
        "beginning of its name, or an engine) to {input, output, cache_read, cache_write}, in dollars for a million "
        "tokens.\n\n"
        "JSON: {session, total, engines, complete, runs: [{run, engine, state, usage, cost_usd}]}.",
        arguments=(SES,),
        options=(Option("--rates", "What tokens cost.", "FILE", kind="path"),),
        examples=("onward usage @last", "onward usage @last --rates rates.json --json"),
    ),
    Command(
        "draft",
        "drafts:draft",
        "Draft a handoff from the log, without a model.",
        "Recommends, for the purpose, what ranks highest in the session's history: decisions and corrections, what a person "
        "said must or must never be, open plan steps, failures, files, resources, the agent's last words; first of all what "
        "earlier successors had to go back for. Every statement is a quotation with its event. It says what each source and "
        "each section would cost, what would not fit, which facts cite nothing or are replaced by a later event, and which "
        "rest on the agent's own words. Nothing is written. Keep the JSON, edit it, and give it to `onward continue "
        "--handoff`; with --handoff, an edited one is weighed again.\n\n"
        "JSON: {session, title, reason, handoff, sources, recommended, estimated_tokens, budget, counter, costs, estimates: "
        "[{source, tokens, fits, note}], left_out, claims: [{heading, text, cites, verified, superseded_by}], warnings}.",
        usage="SES (--purpose TEXT | --handoff FILE)",
        arguments=(SES,),
        options=(
            Option("--purpose", "What the successor is for.", "TEXT"),
            Option("--handoff", "Weigh this edited draft; - reads standard input.", "FILE", kind="path"),
            Option("--title", "The successor's title. Default: the purpose.", "TITLE"),
            Option("--reason", "Why the conversation goes on elsewhere.", "REASON", choices=REASONS),
            BUDGET,
            TOKENS,
        ),
        examples=(
            "onward draft @last --purpose 'Write the release notes' --json > handoff.json",
            "onward draft @last --handoff handoff.json",
        ),
    ),
    Command(
        "continue",
        "continuing:continue_",
        "Continue a session in a fresh one that is linked to it.",
        "The predecessor keeps every byte. The successor starts from a projection of the sources that the handoff names, "
        "within the budget, and a manifest records what is in it and what is not. With --purpose the handoff is drafted "
        "as by `onward draft` and sent. When an engine is known, the successor answers at once.\n\n"
        "TEXT is what you say now: it becomes the predecessor's newest message, in the same transaction, and the successor "
        "answers it. Without TEXT, the successor answers the newest message that is there, even one that was answered.\n\n"
        "A source is 12, 12-18, ses_…:12-18, evt_…, memory:PATH or a URL, then, if you like, =why it matters.\n\n"
        "JSON: {successor, predecessor, origin, link, manifest, run, reply}; reply is null when nothing was run.",
        usage="SES [TEXT] --reason REASON --title TITLE (--handoff FILE | --purpose TEXT)",
        arguments=(
            SES,
            Argument(
                "TEXT", "What the successor should do, in your words; - reads standard input.", required=False
            ),
        ),
        options=(
            Option("--reason", "Why; may stand in the handoff file instead.", "REASON", choices=REASONS),
            Option("--title", "The successor's title; may stand in the handoff file instead.", "TITLE"),
            Option("--handoff", "The handoff as JSON; - reads standard input.", "FILE", kind="path"),
            Option("--purpose", "Draft the handoff for this purpose and send it.", "TEXT"),
            Option("--source", "Another source to load or link.", "SPEC", many=True),
            Option(
                "--plan",
                "What becomes of the plan. Default: carry it if a step is open.",
                "WAY",
                choices=("carry", "close", "omit"),
            ),
            ENGINE,
            MODEL,
            ENGINE_OPTION,
            BUDGET,
            TOKENS,
            Option("--key", "Makes this repeat-safe: the same key gives the same successor.", "KEY"),
            Option("--no-run", "Leave the successor's first run waiting."),
        ),
        examples=(
            "onward continue @last 'Write the release notes' --reason topic_change --title Release --purpose Releasing",
            "onward continue @last --handoff handoff.json --source 12-18='the failing test' --no-run",
        ),
    ),
    Command(
        "reference",
        "referencing:reference",
        "Quote one session in another, with a message.",
        "What was said in the first session is quoted as it stands now, read-only and within 64 KiB: the oldest messages go "
        "first, then the longest are cut, and what is missing is counted. The second session's log gets the quotation, "
        "marked as data, and then TEXT, under @label unless it mentions the session itself. When an engine is "
        "known, it answers at once.\n\n"
        "Any message may mention up to three sessions, as `onward candidates` prints them; this command is for one.\n\n"
        "JSON: {session, run, text, references: [{source, label, captured_seq, checkpoint, original, retained, omitted, "
        "omitted_bytes, truncated}], opening, reply, usage, pressure, approval}; reply is null when nothing was run.",
        usage="SES --to SES TEXT",
        arguments=(
            Argument("SES", "The session to quote."),
            Argument("TEXT", "What to say; - reads standard input."),
        ),
        options=(
            Option("--to", "The session to say it in (required).", "SES"),
            ENGINE,
            MODEL,
            ENGINE_OPTION,
            Option("--no-run", "Leave the message waiting."),
        ),
        examples=("onward reference ses_01J8 --to @last 'How did we parse dates there?' --engine local",),
    ),
    Command(
        "candidates",
        "referencing:candidates",
        "List the sessions that a message could mention.",
        "First those about the same folder, then those about none, then the others; newest first. Each is printed as it is "
        "mentioned in a message.\n\n"
        "JSON: {session, candidates: [{session, label, folder, created_at, archived, mention}]}.",
        arguments=(SES,),
        options=(
            Option("--query", "Only those with this in their id, folder or title.", "TEXT"),
            Option("--limit", "How many (default 50).", "N", kind="number"),
        ),
        examples=("onward candidates @last --query parser",),
    ),
    Command(
        "fork",
        "lineage:fork",
        "Branch from an earlier point of a session.",
        "The branch shares the log up to that event by reference. JSON: {session, link}.",
        arguments=(
            Argument("SES[:SEQ]", "The session, and the last event the branch shares (default: the newest)."),
        ),
        options=(Option("--title", "The branch's title. Default: that of its source.", "TITLE"),),
        examples=("onward fork @last:12 --title 'Another way'",),
    ),
    Command(
        "lineage",
        "lineage:lineage",
        "Show where a session comes from and what came of it.",
        "JSON: {session, path, links, sessions}; path runs from the origin to the session, sessions holds every session of "
        "the tree by id, null where it may not be read.",
        arguments=(SES,),
        examples=("onward lineage @last",),
    ),
    Command(
        "manifest",
        "manifests:manifest",
        "Show what a projection holds, what it left out and why; compile it again; sign it.",
        "It is shown with what became of its sources since: what can no longer be shown, and what stands elsewhere by now. "
        "--verify compiles the projection again from the log and names each section and source that differs. --sign adds a "
        "signature (Ed25519, beside the manifest), and --verify --public-key checks one; docs/manifests.md shows how to do "
        "that without Onward.\n\n"
        "JSON: the whole manifest, and {manifest_digest, sources_now, lost, signatures}. With --verify: {manifest, digest, "
        "recompiled, ok, differences, signature?}, exit 1 when anything differs. With --sign: {manifest, manifest_digest, "
        "public_key, event}.",
        arguments=(Argument("SES|MAN", "A successor, or a manifest's id."),),
        options=(
            Option("--verify", "Compile the projection again from the log and compare."),
            Option(
                "--public-key",
                "With --verify: whose signature must be there, in base64 or a file.",
                "KEY",
                kind="path",
            ),
            Option("--sign", "Sign the manifest."),
            Option(
                "--key", "With --sign: the private key. Default: ONWARD_SIGNING_KEY.", "FILE", kind="path"
            ),
            Option("--raw", "Print the manifest's bytes as they are stored and signed."),
        ),
        examples=(
            "onward manifest @last",
            "onward manifest @last --verify",
            "onward manifest @last --sign --key ~/.onward-key",
        ),
    ),
    Command(
        "key",
        "manifests:key",
        "Make a key that signs manifests, or show its public half.",
        "new makes a private key in a file that only you can read, and prints the public key; public prints it again, pem "
        "as openssl reads it. JSON: {file, public_key, pem}.",
        usage="new|public|pem FILE",
        arguments=(
            Argument("ACTION", "new, public or pem."),
            Argument("FILE", "The key file; never overwritten.", kind="path"),
        ),
        examples=("onward key new ~/.onward-key",),
    ),
    Command(
        "recalls",
        "lineage:recalls",
        "Show what a session read again, and what of that its projection had left out.",
        "Without SES: how often that happened in all continuations, per version of the compiler and reason.\n\n"
        "JSON: {session, recalls, of_omitted, asked_again, compiler, reason}; without SES {rates: [{compiler, reason, "
        "continuations, recalls, of_omitted, rate}]}, rate being of_omitted a continuation.",
        arguments=(Argument("SES", SES.help, required=False),),
        examples=("onward recalls @last", "onward recalls --json"),
    ),
    Command(
        "approvals",
        "approvals:approvals",
        "List what waits for a person: continuations, and permissions.",
        "Besides continuations: what an engine that is working asks before it acts, and runs that went beyond a policy "
        "whose action is ask. Without SES, those of the 200 sessions with the newest activity. The command of a request, as "
        "JSON, can be edited and given to `onward approve --handoff`.\n\n"
        "JSON: {approvals: [{id, session, state, at, actor, command, engine, budget, text, note, successor}], "
        "permissions: [{id, session, run, at, subject, tool, input, beyond, state, note, retried}]}; state is requested, "
        "granted, denied or, for a question whose run has ended, lapsed.",
        arguments=(Argument("SES", SES.help, required=False),),
        options=(Option("--all", "Those that were answered too."),),
        examples=("onward approvals",),
    ),
    Command(
        "approve",
        "approvals:approve",
        "Accept what waits: a continuation, as it is or changed, or a permission.",
        "Everything is checked again as it stands now; what fails is refused and the request waits on. Approving again "
        "gives the same successor. When an engine is known, the successor answers at once. A permission is granted; for "
        "a run that went beyond its policy, another attempt is queued in which that policy only warns.\n\n"
        "JSON: that of `onward continue`, or the permission as `onward approvals` shows it.",
        arguments=(Argument("ID", "The request, evt_…."),),
        options=(
            Option("--handoff", "The changed command or handoff as JSON; - reads it.", "FILE", kind="path"),
            ENGINE,
            MODEL,
            ENGINE_OPTION,
            TOKENS,
            Option("--no-run", "Leave the successor's first run waiting."),
        ),
        examples=("onward approve evt_01J8… --no-run",),
    ),
    Command(
        "decline",
        "approvals:decline",
        "Decline what waits: a continuation or a permission.",
        "The session goes on where it is.\n\n"
        "JSON, of a continuation: {id, session, state, at, actor, command, engine, budget, text, note, successor}.",
        arguments=(Argument("ID", "The request, evt_…."),),
        options=(Option("--note", "Why; it is kept in the log.", "TEXT"),),
    ),
    Command(
        "policy",
        "approvals:policy",
        "Show whose continuations wait for a person.",
        "ONWARD_APPROVAL says so for every process that is started with it: never (default), agent or always.\n\n"
        "JSON: {continuation.approval, source}.",
    ),
    Command(
        "verify",
        "upkeep:verify",
        "Re-derive every digest and chain value.",
        "Names the first event that fails. Exit 1 when one does. JSON: {sessions, events, ok, first_failure}.",
        arguments=(Argument("SES", "Only this session.", required=False),),
        examples=("onward verify",),
    ),
    Command(
        "erase",
        "upkeep:erase",
        "Erase what one event says, for good.",
        "The digest stays, so the chain still verifies; the text leaves the log and the search index, and the erasure is "
        "itself an event. This cannot be undone. What was quoted elsewhere before stays there: in projections, "
        "briefs and references, which are events of their own, and in the handoffs of manifests."
        "\n\nJSON: {session, seq, event, erasure}.",
        usage="SES:SEQ --yes",
        arguments=(Argument("SES:SEQ", "The event to erase."),),
        options=(
            Option("--yes", "Yes, erase it for good."),
            Option("--reason", "Why; it is kept in the log.", "TEXT"),
        ),
        examples=("onward erase @last:14 --yes --reason 'a leaked key'",),
    ),
    *SERVING,
    Command(
        "mcp",
        "starting:mcp",
        "Offer Onward's tools to an agent, by the Model Context Protocol.",
        "For an agent that you run yourself: it starts this program and speaks to it over standard input and output. It can "
        "then search and read what was said before, and hand over to a fresh session. Claude Code tells it which "
        "conversation it is in; for others set ONWARD_SESSION, or let the agent name the session.",
        examples=("claude mcp add onward -- onward mcp", "codex mcp add onward -- onward mcp"),
    ),
    Command(
        "doctor",
        "doctor:doctor",
        "Check this machine: Python, SQLite, the store, engines, native sessions.",
        "Changes nothing and imports nothing. Exit 1 when something is broken.\n\n"
        "JSON: {ok, problems, onward, python, sqlite, store, engines, counters, model, native}.",
    ),
    Command(
        "demo",
        "starting:demo",
        "First contact: a conversation, continued, on this machine.",
        "Uses a store of its own and leaves yours alone.",
    ),
    Command(
        "bench",
        "starting:bench",
        "Measure the speed goals, each against a baseline of the same run.",
        arguments=(
            Argument("NAME", "A measurement; all of them without a name.", required=False, many=True),
        ),
        options=(
            Option("--quick", "Smaller sizes: minutes become seconds, figures become rough."),
            Option(
                "--quality",
                "Instead: questions about earlier work, put to the local model (contexts, waking).",
            ),
        ),
    ),
)

COMMANDS: Final[dict[str, Command]] = {command.name: command for command in _ALL}
"""By name, in the order in which help shows them."""
