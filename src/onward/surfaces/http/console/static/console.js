// The console's script: what reading does not need. New events as they come, text as it is written, and a few keys.
//
// Everything is a hint that something is to be fetched: the server says up to which number there are events, the page asks
// for what follows the last it has, and puts each article where its number belongs. So nothing is lost and nothing comes twice,
// whatever connection breaks and however often. No markup is ever made of text here.
"use strict";

(() => {
  const main = document.getElementById("main");
  const news = document.getElementById("news");
  const csrf = () => document.querySelector('meta[name="csrf"]')?.content ?? "";

  // Told to whoever cannot see it, at most once a second, the newest word last.
  let waiting = "";
  let telling = 0;
  function tell(text) {
    waiting = text;
    if (telling) return;
    telling = setTimeout(() => { news.textContent = waiting; telling = 0; }, 1000);
  }

  // Ages, as they pass.
  const AGES = [[120, 1, "s"], [7200, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "d"]];
  function ages() {
    const now = Date.now();
    for (const time of document.querySelectorAll("time[data-ago]")) {
      const seconds = Math.max(0, Math.floor((now - Date.parse(time.dateTime)) / 1000));
      if (Number.isNaN(seconds)) continue;
      const [, size, unit] = AGES.find(([limit]) => seconds < limit);
      const told = `${Math.floor(seconds / size)} ${unit} ago`;
      if (time.textContent !== told) time.textContent = told;
    }
  }
  setInterval(ages, 20_000);

  // Ctrl+Enter (or Cmd) sends; a form that was sent is not sent again by a second press.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea")) {
      event.preventDefault();
      event.target.form?.requestSubmit();
    }
    if (event.key === "Escape") {
      for (const menu of document.querySelectorAll("details.menu[open], details.start[open]")) {
        menu.open = false;
        menu.querySelector("summary").focus();
      }
    }
  });
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) {
      delete form.dataset.sent;
      // Whoever came back and sends again means another message.
      if (form.elements.once) form.elements.once.value = crypto.randomUUID?.() ?? `${Date.now()}${Math.random()}`;
    }
  });
  document.addEventListener("submit", (event) => {
    if (event.target.dataset.sent) event.preventDefault();
    else event.target.dataset.sent = "1";
  });

  const timeline = document.getElementById("timeline");
  if (!timeline || !main.dataset.session) return;
  const base = `/sessions/${encodeURIComponent(main.dataset.session)}`;
  const end = document.getElementById("end");
  const column = timeline.closest(".timeline-column");
  const draft = document.getElementById("draft");
  const below = document.getElementById("new-below");
  const offline = document.getElementById("offline");
  const live = main.dataset.last !== "0" || main.dataset.head === "0";
  let last = Number(main.dataset.last);

  // Whether the newest is in view: only then does the page move along.
  function atEnd() {
    const top = end.getBoundingClientRect().top;
    return top > 0 && top < innerHeight + 80;
  }
  // What was never in view has a height that is only guessed, so the way is gone until the end has stayed the end for a
  // few frames. Whoever moves meanwhile is let go.
  let going = 0;
  function toEnd() {
    below.hidden = true;
    const mine = going += 1;
    let still = 0;
    const step = (tries) => {
      if (mine !== going || still > 3 || !tries) return;
      const left = Math.round(column.getBoundingClientRect().bottom + 16 - innerHeight);
      const before = scrollY;
      scrollBy({ top: left, behavior: "instant" });
      still = scrollY === before ? still + 1 : 0;
      requestAnimationFrame(() => step(tries - 1));
    };
    step(120);
  }
  for (const moved of ["wheel", "touchmove", "pointerdown", "keydown"]) {
    addEventListener(moved, () => { going += 1; }, { passive: true });
  }
  addEventListener("scroll", () => { if (atEnd()) below.hidden = true; }, { passive: true });
  below.addEventListener("click", (event) => { event.preventDefault(); toEnd(); });

  // One article a number. One that is there already is only replaced by one into which more was folded.
  function place(article, anew = false) {
    const there = document.getElementById(article.id);
    if (there && there.closest(".event") === there) {
      if (!anew && Number(there.dataset.upto) >= Number(article.dataset.upto)) return false;
      const open = [...there.querySelectorAll("details")].map((one) => one.open);
      const focused = there.contains(document.activeElement) ? document.activeElement.tagName : "";
      there.replaceWith(article);
      [...article.querySelectorAll("details")].forEach((one, number) => { one.open = Boolean(open[number]); });
      if (focused) article.querySelector(focused)?.focus({ preventScroll: true });
      return true;
    }
    if (there) return false;
    const seq = Number(article.dataset.seq);
    let before = null;
    for (let one = timeline.lastElementChild; one; one = one.previousElementSibling) {
      if (one.dataset.seq && Number(one.dataset.seq) > seq) before = one;
      else if (one.dataset.seq) break;
    }
    timeline.querySelector(":scope > .empty")?.remove();
    timeline.insertBefore(article, before);
    return true;
  }

  function announce(name, detail) {
    document.dispatchEvent(new CustomEvent(name, { detail }));
  }

  function lowest() {
    return timeline.querySelector(":scope > [data-seq]")?.dataset.seq ?? last + 1;
  }

  // One fetch at a time; whoever asks meanwhile waits for the one that is under way, which goes as far as anybody asked.
  let fetching = null;
  let wanted = last;
  function catchUp(seq) {
    wanted = Math.max(wanted, seq);
    fetching ??= fetchNew().finally(() => { fetching = null; });
    return fetching;
  }
  async function fetchNew() {
    let fresh = 0;
    const follow = atEnd();
    try {
      while (last < wanted) {
        const answer = await fetch(`${base}/timeline?after=${last}&from=${lowest()}`, { headers: { "HX-Request": "true" } });
        if (!answer.ok) throw new Error(`status ${answer.status}`);
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const reached = page.querySelector("template.reached");
        for (const article of page.querySelectorAll("article[data-seq]")) {
          const made = document.importNode(article, true);
          if (place(made)) { fresh += 1; globalThis.htmx?.process?.(made); }
        }
        for (const gone of page.querySelectorAll("template.erased")) await forget(Number(gone.dataset.seq));
        const now = Number(reached?.dataset.last ?? last);
        if (now <= last) break;
        last = now;
        main.dataset.last = String(last);
      }
    } catch {
      setTimeout(() => catchUp(wanted), 2000);
    }
    if (!fresh) return;
    tell(fresh === 1 ? "1 new event" : `${fresh} new events`);
    ages();
    if (follow) toEnd();
    else below.hidden = false;
    announce("onward:grown", { last });
  }

  // What was erased is shown no longer: its words go at once, and what is left of it takes their place.
  async function forget(seq) {
    const there = document.getElementById(`e${seq}`);
    const article = there?.closest(".event");
    if (!article) return;
    there.replaceChildren();
    const left = [];
    for (const number of new Set([Number(article.dataset.seq), seq])) {
      const answer = await fetch(`${base}/timeline?after=${number - 1}`, { headers: { "HX-Request": "true" } });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      left.push(page.querySelector(`article[data-seq="${number}"]`));
    }
    for (const one of left) if (one) place(document.importNode(one, true), true);
  }

  // What stands beside the timeline, fetched again when the server says that it changed, not more often than every second.
  let asked = 0;
  function freshFacts() {
    if (asked) return;
    asked = setTimeout(async () => {
      asked = 0;
      const facts = document.getElementById("facts");
      if (facts.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) return;
      const answer = await fetch(`${base}/facts`, { headers: { "HX-Request": "true" } }).catch(() => null);
      if (!answer?.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const follow = atEnd();
      for (const name of ["state", "queued"]) {
        const now = page.getElementById(`${name}-now`);
        const there = document.getElementById(name);
        if (now && there) there.replaceChildren(document.importNode(now.content, true));
      }
      if (follow) toEnd();
      const focused = document.activeElement?.closest("#facts a, #facts button, #facts summary");
      if (focused) return;
      facts.replaceChildren(...[...page.body.childNodes].map((node) => document.importNode(node, true)));
    }, 1000);
  }

  // Text as it is written. A piece that does not begin where the last one ended begins anew: nothing is guessed.
  let writing = { run: "", text: "" };
  function show(run, offset, piece) {
    const follow = atEnd();
    const kept = offset > 0 && run === writing.run ? writing.text : "";
    writing = { run, text: offset <= kept.length ? kept.slice(0, offset) + piece : piece };
    draft.querySelector(".draft-text").textContent = writing.text;
    draft.hidden = !writing.text;
    if (follow) toEnd();
  }

  // What was above stays above: the article at the top keeps its place while earlier ones are put before it.
  let kept = null;
  document.addEventListener("htmx:before:swap", (event) => {
    const first = timeline.querySelector(":scope > [data-seq]");
    kept = first && event.target.closest?.(".earlier") ? { first, top: first.getBoundingClientRect().top } : null;
  });
  document.addEventListener("htmx:after:swap", () => {
    if (!kept) return;
    const { first, top } = kept;
    kept = null;
    const mine = going += 1;
    const step = (tries) => {
      if (mine !== going || !tries) return;
      scrollBy({ top: first.getBoundingClientRect().top - top, behavior: "instant" });
      requestAnimationFrame(() => step(tries - 1));
    };
    step(6);
    (timeline.querySelector(".earlier a") ?? timeline.querySelector(".seq"))?.focus({ preventScroll: true });
    ages();
  });

  // One stream a page, and none while it is put away: a page that somebody comes back to goes on where it stood.
  let current = null;
  function listen() {
    current?.close();
    const stream = current = new EventSource(`${base}/live?after=${last}`);
    const data = (event) => { try { return JSON.parse(event.data); } catch { return {}; } };
    stream.addEventListener("open", () => {
      offline.hidden = true;
      // A stream begins by saying what is being written. What was written before it may be over without its having been told.
      if (writing.text) show("", 0, "");
    });
    stream.addEventListener("error", () => {
      offline.textContent = "The connection is interrupted. What is shown here is as of then; it goes on by itself.";
      offline.hidden = false;
      if (stream.readyState === EventSource.CLOSED) setTimeout(() => { if (stream === current) listen(); }, 3000);
    });
    stream.addEventListener("upto", (event) => { catchUp(Number(data(event).seq) || 0); freshFacts(); });
    stream.addEventListener("draft", (event) => {
      const { run, offset, text } = data(event);
      show(String(run ?? ""), Number(offset) || 0, String(text ?? ""));
    });
    stream.addEventListener("draft-end", () => show("", 0, ""));
    stream.addEventListener("state", (event) => { freshFacts(); announce("onward:state", data(event)); });
    stream.addEventListener("session-continued", async (event) => {
      const detail = data(event);
      await catchUp(Number(detail.seq) || 0);
      freshFacts();
      announce("onward:continued", detail);
    });
    stream.addEventListener("end", (event) => {
      stream.close();
      offline.textContent = data(event).message || "You are not signed in here any more.";
      offline.hidden = false;
    });
  }

  globalThis.onward = { tell, catchUp, atEnd, toEnd, csrf };
  if (!live || !draft) return;
  if (!location.hash || location.hash === "#end") toEnd();
  addEventListener("pagehide", () => { current?.close(); current = null; });
  addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
  listen();
})();
