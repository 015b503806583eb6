// Reads what came with the page: where the server is, who reads, and the documents of the first view.

function read() {
  const element = document.getElementById("first");
  return element ? JSON.parse(element.textContent) : {};
}

export const boot = read();
export const root = boot.base ?? "";
export const assets = (boot.assets ?? "") + "/";
export const version = boot.version ?? "";
// When the page was saved; null: it came from a server.
export const saved = boot.saved_at_s ?? null;
