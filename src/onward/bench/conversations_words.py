# ruff: noqa: E501 (tables are read as tables)
"""What the made-up conversations are about: tables of things, their properties, and the ways to say and to ask for them.

Everything a person would put in other words later has other words here. A statement says ``timeout``; a question says
``give up waiting``. A statement names the ``billing worker``; a question may name ``the job behind billing``. The words that
both share are therefore few, and they stand in many other events too (``conversations.py`` sees to that).

Each table is dealt out in two halves, every other entry to each. Constants of the ranking are chosen on the one half and
reported on the other, so that no subject, statement and question is met twice. It is deliberately no natural text:
nothing is copied from anywhere, and what is measured on it is comparable with itself only.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Property(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a subject has, as it is said and as it is asked for."""

    name: str
    values: tuple[str, ...]
    asks: tuple[str, ...]
    """Questions, ``{s}`` being the subject. The first two say it in other words, the last two in another form of the
    word."""


class NativeProperty(msgspec.Struct, frozen=True, kw_only=True):
    """A property in another script, with its values and how it is asked for."""

    name: str
    values: tuple[str, ...]
    asks: tuple[str, ...]


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """What is said in one other script."""

    subjects: tuple[str, ...]
    properties: tuple[NativeProperty, ...]
    statements: tuple[str, ...]
    chatter: tuple[str, ...]
    chatter_each: int = 12
    """Small talk that shares the words, each session."""


MODIFIERS: Final = (
    "billing", "search", "invoice", "audit", "label", "tariff", "image", "mail", "session", "payroll", "ledger", "catalog",
    "shipping", "refund", "survey", "telemetry", "coupon", "roster", "archive", "voucher", "playlist", "parcel", "consent",
    "forecast",
)  # fmt: skip
"""What a subject is for."""

HEADS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("worker", ("job behind {m}", "{m} background process")),
    ("gateway", ("entry point for {m}", "{m} front door")),
    ("exporter", ("{m} export", "thing that writes {m} files out")),
    ("importer", ("{m} import", "step that reads {m} files in")),
    ("scheduler", ("{m} planner", "part that plans {m} work")),
    ("relay", ("{m} forwarder", "thing forwarding {m} traffic")),
)
"""What a subject is, and what else it may be called."""

PROPERTIES: Final = (
    Property(
        name="timeout",
        values=("45 seconds", "90 seconds", "12 seconds", "3 minutes", "240 ms", "75 seconds"),
        asks=(
            "how long does the {s} wait until it gives up",
            "when would the {s} stop waiting for an answer",
            "the {s} and its timeouts",
            "timeouts that the {s} works with",
        ),
    ),
    Property(
        name="port",
        values=("8417", "9032", "7210", "6181", "5544", "9906"),
        asks=(
            "where do clients of the {s} connect to",
            "where does the {s} listen",
            "ports used by the {s}",
            "the {s} is behind which of our ports",
        ),
    ),
    Property(
        name="owner",
        values=("Marta Quint", "Ilya Bront", "Sefa Okur", "Ana Lind", "Piet Vos", "Noor Hale"),
        asks=(
            "who looks after the {s}",
            "who is responsible when the {s} breaks",
            "owners: the {s}",
            "the {s} has which of our people as owners",
        ),
    ),
    Property(
        name="region",
        values=("eu-west-9", "ap-south-7", "us-mid-4", "sa-east-8", "eu-north-6", "af-coast-2"),
        asks=(
            "where in the world does the {s} run",
            "which data centre hosts the {s}",
            "the {s} is deployed to which regions",
            "regions in which we keep the {s}",
        ),
    ),
    Property(
        name="retry limit",
        values=("4 attempts", "7 attempts", "2 attempts", "9 attempts", "11 attempts", "6 attempts"),
        asks=(
            "how often does the {s} try again",
            "how many times will the {s} repeat a failed call",
            "limits on retrying for the {s}",
            "the {s}: retries and their limits",
        ),
    ),
    Property(
        name="database",
        values=("Postgrid 15", "Marlin 11", "Cobalt 4", "Rowan 9", "Hexa 2", "Tundra 7"),
        asks=(
            "what does the {s} keep its rows in",
            "storage engine under the {s}",
            "which databases does the {s} write to",
            "databases behind the {s}",
        ),
    ),
    Property(
        name="release date",
        values=("the 14th of May", "the 2nd of August", "the 29th of March", "the 7th of June", "the 21st of July", "the 9th of April"),
        asks=(
            "when is the {s} going live",
            "launch day agreed for the {s}",
            "on which date do we go on releasing the {s}",
            "dates on which the {s} is released",
        ),
    ),
    Property(
        name="batch size",
        values=("250 records", "64 records", "1200 records", "32 records", "800 records", "500 records"),
        asks=(
            "how many items does the {s} handle at once",
            "the amount that the {s} takes in one go",
            "how large are batches of the {s}, sizes",
            "sizes of a batch in the {s}",
        ),
    ),
    Property(
        name="log level",
        values=("debug", "warning", "trace", "error", "notice", "critical"),
        asks=(
            "how verbose is the {s}",
            "how much detail does the {s} write down",
            "levels of logging in the {s}",
            "the {s} logs at which of the levels",
        ),
    ),
    Property(
        name="memory limit",
        values=("512 MB", "3 GB", "768 MB", "6 GB", "1536 MB", "2 GB"),
        asks=(
            "how much RAM may the {s} use",
            "the {s} gets killed above which footprint",
            "what limits the memory of the {s}",
            "memory: limits for the {s}",
        ),
    ),
    Property(
        name="schedule",
        values=("03:15 every night", "each Monday at 06:40", "every 20 minutes", "hourly at minute 5", "02:50 on Sundays", "every 4 hours"),
        asks=(
            "when does the {s} start by itself",
            "at what hour is the {s} triggered",
            "how is the {s} scheduled",
            "scheduling of the {s}",
        ),
    ),
    Property(
        name="alert channel",
        values=("#night-watch", "#pager-blue", "#ops-lagoon", "#duty-amber", "#calls-east", "#signal-room"),
        asks=(
            "where do alarms of the {s} go",
            "who gets told, and in which room, when the {s} is down",
            "channels receiving alerts about the {s}",
            "alerting for the {s}, which of the channels",
        ),
    ),
)  # fmt: skip

CAUSES: Final = (
    ("the bank answers slowly on Mondays", ("slow answers of banks", "a bank answering slowly")),
    ("the auditors visit in autumn", ("auditor visits", "visiting auditors")),
    (
        "two customers complained about duplicates",
        ("complaints on duplicated entries", "customers complaining"),
    ),
    ("the old printers cannot keep up", ("printer keeping up", "older printers")),
    ("the cluster is patched every Thursday", ("patching clusters", "cluster patches")),
    ("warehouse staff start before dawn", ("staff in warehouses", "starting before dawn")),
    ("the partner throttles foreign addresses", ("throttled by a partner", "throttling of addresses abroad")),
    ("the holiday rush doubles everything", ("rushing before holidays", "holidays doubling the load")),
    ("the lawyers want proof of deletion", ("proving deletions", "a lawyer who wanted it proven")),
    ("translators work in three zones", ("translator zones", "translating in other zones")),
    ("the license counts every connection", ("licensed connections", "counting connections")),
    ("monthly statements are large", ("statement size per month", "large statement")),
    ("the sensor network drops packets", ("dropping packets", "sensors that dropped a packet")),
    ("replicas lag after a restore", ("lagging replica", "restored replicas")),
    ("the vendor bills by the hour", ("vendor billing hours", "hourly vendors")),
    ("a failed import must be repeatable", ("repeating imports that failed", "repeatable imports")),
)
"""Why something is as it is, and how that is mentioned by somebody who asks later."""

STATEMENTS: Final = (
    "The {p} of the {s} is {v}, because {c}.",
    "For the {s} we settled on {v} as the {p}, since {c}.",
    "I have set the {p} of the {s} to {v}; {c}.",
    "{v} it is, then: that is the {p} which the {s} gets, as {c}.",
    "Please note that the {s} has {v} as its {p} while {c}.",
    "Given that {c}, {v} is what the {s} gets for its {p}.",
)

UPDATES: Final = (
    "The {p} of the {s} is now {v}.",
    "We changed the {p} of the {s} from {o} to {v}.",
    "Correction: the {p} of the {s} is {v}, no longer {o}.",
    "The {p} of the {s} was raised from {o} to {v} today.",
    "Actually, the {p} of the {s} is {v}.",
    "The {s} uses {v} instead of {o} as its {p}.",
)

NOW_ASKS: Final = (
    "what is the current {p} of the {s}",
    "the latest {p} for the {s}",
    "which {p} does the {s} have at the moment",
    "{p} as it stands today, {s}",
)

PROMPTS: Final = (
    "What should the {p} of the {s} be, given that {c}?",
    "Which {p} do we want for the {s} if {c}?",
    "Can you look up the {p} of the {s} for me? They say that {c}.",
    "I forgot the {p} of the {s}, what was it? It had to do with this: {c}.",
)

SHORT_ANSWERS: Final = (
    "{v}. That is what operations agreed to last week.",
    "It should be {v}, judging by the numbers we have.",
    "I found it in the old notes: {v}.",
    "{v}, and nobody objected when it came up.",
)

CHOICES: Final = (
    ("queue", "Pellet", "Wicker", "it keeps its order when a node restarts", "survives restarts in order"),
    ("cache", "Ember", "Quartzite", "it evicts without stopping the world", "eviction pauses"),
    ("template engine", "Larch", "Mossy", "its errors name the line", "error messages point at lines"),
    ("date parser", "Solstice", "Tidemark", "it knows leap seconds", "leap second handling"),
    ("lock service", "Hasp", "Toggle", "its leases expire by themselves", "expiry of leases"),
    ("metrics store", "Plumb", "Gauge9", "old points are thinned for free", "thinning of old data points"),
    ("mail library", "Postbag", "Swift5", "it signs without a second pass", "signing in a single pass"),
    ("config format", "Tern", "Yolk", "comments survive a rewrite", "preserving comments on rewriting"),
    ("http client", "Heron", "Curlew", "it streams uploads in both directions", "bidirectional upload streaming"),
    ("job runner", "Capstan", "Winch", "a cancelled task frees its slot at once", "freeing slots on cancellation"),
    ("image codec", "Fresco", "Dither", "its decoder is fuzzed upstream", "fuzzing of decoders"),
    ("search index", "Loam", "Silt", "deletes are visible at once", "immediately visible deletions"),
)  # fmt: skip
"""What was chosen, over what, why, and how one would ask about the reason."""

CHOSEN: Final = (
    "We went with {a} over {b} as the {w}, because {r}.",
    "{a} beats {b} here: {r}. So that is the {w}.",
    "Decision: {w} = {a}. {b} is out, since {r}.",
    "For the {w} I picked {a} and dropped {b}; {r}.",
)

WHY_ASKS: Final = (
    "why did we choose {a} rather than {b}",
    "what spoke for {a} as our {w}",
    "reason that {b} was rejected",
    "the argument about {r} when choosing the {w}",
)

VERBS: Final = (
    "compute",
    "parse",
    "load",
    "merge",
    "format",
    "resolve",
    "encode",
    "trim",
    "collect",
    "validate",
    "rotate",
    "split",
)
NOUNS: Final = (
    "Tariff",
    "Header",
    "Cursor",
    "Window",
    "Batch",
    "Token",
    "Segment",
    "Address",
    "Receipt",
    "Margin",
    "Socket",
    "Quota",
)
PARTS: Final = ("Bands", "Stream", "Table", "Range", "Index", "Buffer", "Chain", "Prefix", "Totals", "Policy", "Frame", "Digest")  # fmt: skip

BUGS: Final = (
    ("`{f}` rounds twice when the amount is negative.", ("{w} rounding wrong for negative amounts", "{w} negative rounds")),
    ("`{f}` forgets the last element if the input ends early.", ("{w} loses the final element", "{w} missing element at the end")),
    ("The leak comes from `{f}`, which never closes its handle.", ("{w} leaking handles", "handle not closed in {w}")),
    ("`{f}` takes the lock in the wrong order.", ("deadlock order of locks in {w}", "{w} locking order")),
    ("I traced the slow start to `{f}`: it reads the table once a row.", ("{w} slows down starting", "{w} reading tables per row")),
    ("`{f}` accepts an empty name, which it should refuse.", ("{w} empty names accepted", "{w} should have refused an empty name")),
)  # fmt: skip

ERRORS: Final = (
    ("stale lock held by process {n}", ("a lock that went stale in {m}", "{m} stale locks")),
    ("checksum mismatch at block {n}", ("{m} blocks whose checksums did not match", "{m} checksum failing")),
    ("column total_{n} does not exist", ("missing column total_{n}", "total {n} column unknown in {m}")),
    ("certificate expired {n} days ago", ("{m} expired certificates", "certificates expiring for {m}")),
    ("address already in use: {n}", ("{m} could not bind its address", "address of {m} in use already")),
    ("quota exceeded: {n} of 1000 writes", ("{m} ran over its quota", "too many writes, {m} quota")),
)  # fmt: skip

CJK: Final = (
    Script(
        subjects=("计费服务", "搜索网关", "邮件转发", "标签打印", "库存同步", "报表导出", "会员积分", "退款队列"),
        properties=(
            NativeProperty(name="超时时间", values=("四十五秒", "九十秒", "十二秒"), asks=("{s}多久超时", "{s}要等多长时间")),
            NativeProperty(name="负责人", values=("林晓", "周岚", "何平"), asks=("谁负责{s}", "{s}该找谁，由谁负责")),
            NativeProperty(name="部署区域", values=("华东二区", "西南一区", "华北三区"), asks=("{s}部署在哪里", "{s}在哪个区域")),
            NativeProperty(name="发布日期", values=("五月十四日", "八月二日", "三月九日"), asks=("{s}什么时候发布", "发布{s}是哪天")),
        ),
        statements=("{s}的{p}是{v}。", "我们把{s}的{p}定为{v}。"),
        chatter=("刚才看了一下{s}的日志，没有异常。", "{p}这个话题下次再谈。", "{s}的测试都通过了。", "有人问{p}是怎么定的。"),
    ),
    Script(
        subjects=("請求処理", "検索窓口", "郵便転送", "帳票出力", "在庫同期", "会員管理", "返金処理", "翻訳補助"),
        properties=(
            NativeProperty(name="制限時間", values=("四十五秒", "九十秒", "十二秒"), asks=("{s}の時間の制限は", "{s}は何秒で諦めるか、制限")),
            NativeProperty(name="担当者", values=("森さん", "原さん", "岸さん"), asks=("{s}の担当は誰", "誰が{s}を担当しているか")),
            NativeProperty(name="配置先", values=("東部二区", "西部一区", "北部三区"), asks=("{s}の配置はどこ", "どこに{s}を配置したか")),
            NativeProperty(name="公開日", values=("五月十四日", "八月二日", "三月九日"), asks=("{s}はいつ公開される", "公開はいつか、{s}")),
        ),
        statements=("{s}の{p}は{v}です。", "{s}については{p}を{v}にしました。"),
        chatter=("{s}のログを見ましたが問題ありません。", "{p}の話はまた今度。", "{s}のテストは通りました。", "{p}の決め方を聞かれました。"),
    ),
    Script(
        subjects=("청구작업", "검색관문", "우편중계", "장부출력", "재고동기", "회원관리", "환불처리", "번역보조"),
        properties=(
            NativeProperty(name="제한시간", values=("사십오초", "구십초", "십이초"), asks=("{s} 제한시간이 얼마지", "{s}의 시간 제한")),
            NativeProperty(name="담당자", values=("김하늘", "이서진", "박도윤"), asks=("{s} 담당은 누구", "누가 {s}을 담당하나")),
            NativeProperty(name="배치지역", values=("동부이구", "서부일구", "북부삼구"), asks=("{s}은 어느 지역에 있나", "어디에 {s}을 배치했지")),
            NativeProperty(name="공개일", values=("오월십사일", "팔월이일", "삼월구일"), asks=("{s} 공개 날짜", "언제 {s}을 공개하지")),
        ),
        statements=("{s}의 {p}은 {v}입니다.", "{s}에 대해 {p}을 {v}로 정했습니다."),
        chatter=("{s} 기록을 보았지만 문제는 없습니다.", "{p} 이야기는 다음에 하죠.", "{s} 시험이 모두 통과했습니다.", "{p}을 어떻게 정하는지 물었습니다."),
    ),
)  # fmt: skip
"""Three languages whose words are not separated, or only in part."""

CHATTER: Final = (
    "I restarted the {s} and its logs look quiet.",
    "The {p} came up again in the meeting, nothing was decided.",
    "Let us look at the {s} after lunch.",
    "Could you check whether the tests of the {s} still pass?",
    "The dashboard shows the {s} in green.",
    "Somebody asked what a {p} is good for; I sent them the handbook.",
    "I moved two files of the {s} into another folder.",
    "Tests pass. I will go on with the next step.",
    "That is done; the change is small and easy to take back.",
    "The review of the {s} found only a typo.",
    "We should write down how a {p} is chosen, one day.",
    "Nothing new about the {s} so far.",
    "I read the code again and it is clearer now.",
    "The build took longer than yesterday, waiting for a free machine.",
    "Which of the two do you prefer? I would start with the smaller one.",
    "The number of open questions is going down.",
    "Where does this run at night? I do not see it in the list.",
    "It gives up too early on my machine, but that may be the network.",
    "The export of the {m} report works again.",
    "How long does the whole suite take at the moment?",
    "It is true that {c}, but that is not new.",
    "Remember that {c}; the {s} may feel it.",
    "Does it matter for us that {c}?",
    "They told me again that {c}.",
    "`{f}` has a longer docstring now.",
    "I gave two variables in `{f}` better names.",
    "Please look at the tests of `{f}` as well.",
    "The types around `{f}` are stricter now.",
    "{a} is installed on the second machine too.",
    "The manual of {a} is better than that of {b}.",
    "I updated {b} in the playground, only to compare.",
    "We had a long talk about the {w} and about {a}.",
)

FILLS: Final = (
    "Thanks.", "One more thing.", "As discussed.", "This matters for the next release.", "I checked it myself.",
    "Let me know if you see it otherwise.", "The rest stays as it is.", "It took a while to find out.",
    "We can come back to it later.", "Nobody had written it down before.",
)  # fmt: skip
