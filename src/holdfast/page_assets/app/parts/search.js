// Holds the text of a search field and writes it into the address, a moment after the last key.

import { useEffect, useLayoutEffect, useRef, useState } from "../ui.js";
import { change } from "../route.js";

const PAUSE_MS = 250;

// `search` is the search in the address. The text follows it only where it was changed elsewhere (Back, a link): what was typed
// since the field wrote the address is kept.
export function useSearch(search) {
  const [text, set] = useState(search), written = useRef(search), timer = useRef(0);
  useLayoutEffect(() => {
    if (search === written.current) return;
    written.current = search;
    set(search);
  }, [search]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const write = (value, replace) => {
    clearTimeout(timer.current);
    written.current = value.trim();
    change({ search: written.current, cursor: null }, replace);
  };
  const type = (value) => {
    set(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => write(value, true), PAUSE_MS);
  };
  return { text, type, write };
}

// Whether the document of a list has been shown: from then on its search field stays, also while the document of another
// search loads. Without that the field would lose the focus after the first letters.
export function useKept(doc) {
  const kept = useRef(false);
  kept.current ||= Boolean(doc);
  return kept.current;
}
