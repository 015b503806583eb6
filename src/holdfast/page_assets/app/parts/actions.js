// Asks before an action, says what it will do, and says in the same place what came of it.

import { html, speak, useLayoutEffect, useRef, useState } from "../ui.js";
import { t } from "../language.js";
import { may, post } from "../load.js";
import { CopyButton } from "./pieces.js";

// An answer's first line says what was done; what follows it is for copying (the test line of a new signature).
function Answer({ text }) {
  const [first, ...rest] = text.split("\n"), block = rest.join("\n").trim();
  return html`<p>${first}</p>${block ? html`<pre class="mono block" tabindex="0">${block}</pre><${CopyButton} text=${block} label=${t("copy")} />` : null}`;
}

function Field({ field, value, set }) {
  const id = "field-" + field.name;
  const input = { id, name: field.name, value, required: field.required, onInput: (event) => set(event.target.value) };
  if (field.kind === "check")
    return html`<label class="check"><input type="checkbox" checked=${value} onChange=${(event) => set(event.target.checked)} /> ${field.label}</label>`;
  return html`<label for=${id}>${field.label}</label>
    ${field.long ? html`<textarea rows="3" ...${input} />` : html`<input type="text" autocomplete="off" autocapitalize="none" list=${field.options ? id + "-list" : undefined} pattern=${field.pattern} ...${input} />`}
    ${field.options ? html`<datalist id=${id + "-list"}>${field.options.map((option) => html`<option value=${option} />`)}</datalist>` : null}`;
}

// `says`: what will happen. `path`, `body(values)`: what is sent. `fields`: {name, label, required, long, options, pattern}.
function Dialog({ action, close }) {
  const box = useRef(null);
  const [values, setValues] = useState(() => Object.fromEntries((action.fields ?? []).map((field) => [field.name, field.value ?? ""])));
  const [state, set] = useState({});
  useLayoutEffect(() => {
    if (!box.current.open) box.current.showModal();
  }, []);
  const send = async (event) => {
    event.preventDefault();
    set({ busy: true });
    try {
      const result = await post(action.path, action.body ? action.body(values) : {});
      set({ result });
      speak(result.text);
      action.after?.();
    } catch (error) {
      set({ error });
    }
  };
  return html`<dialog ref=${box} onClose=${close} aria-labelledby="dialog-title">
    <form onSubmit=${send}>
      <h2 id="dialog-title">${action.title}</h2>
      ${state.result ? html`<div role="status"><${Answer} text=${state.result.text} /></div>` : html`<p>${action.says}</p>
        ${(action.fields ?? []).map((field) => html`<${Field} key=${field.name} field=${field} value=${values[field.name]} set=${(value) => setValues((old) => ({ ...old, [field.name]: value }))} />`)}`}
      ${state.error ? html`<p class="lost" role="alert">${state.error.message}</p>` : null}
      <div class="buttons">
        ${state.result ? null : html`<button type="submit" class=${action.harsh ? "harsh" : "main"} disabled=${state.busy}>${state.busy ? t("Sending …") : action.verb}</button>`}
        <button type="button" onClick=${() => box.current.close()}>${state.result ? t("Close") : t("Cancel")}</button>
      </div>
    </form>
  </dialog>`;
}

// A button that opens the question. Whoever may not act does not see it.
export function ActionButton({ action, role = "operator", label }) {
  const [open, set] = useState(false);
  if (!may(role)) return null;
  return html`<button type="button" onClick=${() => set(true)}>${label ?? action.verb}</button>
    ${open ? html`<${Dialog} action=${action} close=${() => set(false)} />` : null}`;
}
