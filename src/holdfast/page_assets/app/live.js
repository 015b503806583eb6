// Listens to the server's events, and says since when it cannot.
// The browser resumes a stream by itself; where it gave up, the page opens a new one at the last event it got.

import { makeStore, useEffect, useRef } from "./ui.js";
import { root, saved } from "./boot.js";
import { queryText } from "./route.js";

const SILENT_S = 40; // the server beats every 15 s
const AGAIN_S = [1, 2, 5, 10, 20];
const HIDDEN_S = 60;
const KINDS = ["job", "incident", "log", "output", "reset", "end", "beat"];

// state: none (nothing is asked for), open, lost. since_s: of a loss.
export const connection = makeStore({ state: "none", since_s: null });

function opened() {
  if (connection.get().state !== "open") connection.set({ state: "open", since_s: null });
}

function lost() {
  if (connection.get().state !== "lost") connection.set({ state: "lost", since_s: Date.now() / 1000 });
}

class Stream {
  constructor(query, onEvent) {
    Object.assign(this, { query, onEvent, lastId: "", tries: 0, beats: false, heard_s: 0, broken: false });
    this.open();
    this.watch = setInterval(() => this.check(), 5000);
    this.onVisible = () => this.visible();
    document.addEventListener("visibilitychange", this.onVisible);
  }

  open() {
    const query = this.lastId ? { ...this.query, last_event_id: this.lastId } : this.query;
    const source = (this.source = new EventSource(root + "/api/v1/events" + queryText(query)));
    source.onopen = () => this.alive(true);
    for (const kind of KINDS) source.addEventListener(kind, (event) => this.got(kind, event));
    source.onerror = () => {
      if (this.source !== source) return;
      this.broken = true;
      lost();
      if (source.readyState === EventSource.CLOSED) this.again();
    };
  }

  alive(fresh) {
    this.heard_s = Date.now() / 1000;
    this.tries = 0;
    opened();
    if (fresh && this.broken) {
      this.broken = false;
      this.onEvent("reset", {}); // what was missed is read anew, whatever the server could send again
    }
  }

  got(kind, event) {
    if (event.lastEventId) this.lastId = event.lastEventId;
    this.alive(false);
    if (kind === "beat") this.beats = true;
    else if (kind === "end") this.again();
    else this.onEvent(kind, JSON.parse(event.data));
  }

  again() {
    this.source?.close();
    this.source = null;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), AGAIN_S[Math.min(this.tries++, AGAIN_S.length - 1)] * 1000);
  }

  check() {
    if (this.source && this.beats && Date.now() / 1000 - this.heard_s > SILENT_S) {
      this.broken = true;
      lost();
      this.again();
    }
  }

  // A page that nobody looks at does not hold a connection.
  visible() {
    clearTimeout(this.sleep);
    if (document.hidden) {
      this.sleep = setTimeout(() => {
        this.source?.close();
        this.source = null;
        this.broken = true;
        clearTimeout(this.timer);
      }, HIDDEN_S * 1000);
    } else if (!this.source) {
      this.open();
    }
  }

  close() {
    this.source?.close();
    clearInterval(this.watch);
    clearTimeout(this.timer);
    clearTimeout(this.sleep);
    document.removeEventListener("visibilitychange", this.onVisible);
    connection.set({ state: "none", since_s: null });
  }
}

// Calls `onEvent(kind, data)` for as long as the view is shown. `query` null: not now.
export function useLive(query, onEvent) {
  const call = useRef(onEvent);
  call.current = onEvent;
  const key = query === null ? null : queryText(query);
  useEffect(() => {
    if (key === null || saved || !globalThis.EventSource) return undefined;
    const stream = new Stream(query, (kind, data) => call.current(kind, data));
    return () => stream.close();
  }, [key]);
}

// At most one call in `gap_s`, and one after the last: documents are not read for each of a hundred events.
export function useThrottled(call, gap_s = 1) {
  const state = useRef({ last_s: 0, timer: null });
  useEffect(() => () => clearTimeout(state.current.timer), []);
  const latest = useRef(call);
  latest.current = call;
  return () => {
    const one = state.current;
    if (one.timer) return;
    const wait_s = Math.max(0, one.last_s + gap_s - Date.now() / 1000);
    one.timer = setTimeout(() => {
      one.timer = null;
      one.last_s = Date.now() / 1000;
      latest.current();
    }, wait_s * 1000);
  };
}
