// Names what the vendored scripts offer: templates, hooks, and a value that several views can watch.

import { plain } from "./control.js";

const { preact, preactHooks, htm } = globalThis;
export const render = preact.render;
export const useEffect = preactHooks.useEffect;
export const useLayoutEffect = preactHooks.useLayoutEffect;
export const useMemo = preactHooks.useMemo;
export const useRef = preactHooks.useRef;
export const useState = preactHooks.useState;

// All text of the page goes through here: nothing from outside can hide or reorder what stands beside it.
function clean(child) {
  return typeof child === "string" ? plain(child) : Array.isArray(child) ? child.map(clean) : child;
}

export const html = htm.bind((type, props, ...children) => preact.h(type, props, ...children.map(clean)));

// A value outside of any view. `hear` calls back on each change and returns how to stop that.
export function makeStore(value) {
  const heard = new Set();
  return {
    get: () => value,
    set(next) {
      value = next;
      for (const call of [...heard]) call(next);
    },
    hear(call) {
      heard.add(call);
      return () => heard.delete(call);
    },
  };
}

export function useStore(store) {
  const [value, set] = useState(() => store.get());
  useEffect(() => {
    set(() => store.get()); // it may have changed between the first drawing and now
    return store.hear((next) => set(() => next));
  }, [store]);
  return value;
}

// The reader's clock, updated every 5 s, so that shown ages stay true.
export const clock = makeStore(Date.now() / 1000);
setInterval(() => clock.set(Date.now() / 1000), 5000);

// What screen readers announce without moving the focus.
export const spoken = makeStore("");
export function speak(text) {
  spoken.set(text);
}

export function classes(...names) {
  return names.filter(Boolean).join(" ");
}

// Settings of the reader, kept by the browser where it allows that (not from file://, not in private windows).
export function kept(name) {
  try {
    return localStorage.getItem("holdfast-" + name);
  } catch {
    return null;
  }
}

export function keep(name, value) {
  try {
    localStorage.setItem("holdfast-" + name, value);
  } catch {
    // It holds for this page only.
  }
}
