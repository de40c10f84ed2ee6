// Requests to the REST API beside which the page was loaded. The token, if the server asks for one,
// is kept for this tab only; a link may bring it behind `#token=`, which no server sees.

import { secrets } from "./store.js";

const KEY = "strom-token";
const PATIENCE_MS = 15_000;

export const root = new URL("v1/", document.baseURI);

export class Answer extends Error {
  // status: 0 where there was none at all.
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  // A server that says no (404, 409) is there; one that cannot be reached, or cannot ask, is not.
  get gone() {
    return this.status === 0 || this.status >= 500;
  }
}

export function takeTokenFromAddress() {
  const found = /^#token=([^&]+)(?:&(.*))?$/.exec(location.hash);
  if (!found) return;
  setToken(decodeURIComponent(found[1]));
  history.replaceState(null, "", `#${found[2] || "/jobs"}`);
}

export const setToken = (token) => secrets.set(KEY, token);

export async function ask(path, { method = "GET", body } = {}) {
  const headers = { Accept: "application/json" };
  const token = secrets.get(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(path, root), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "same-origin",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
  } catch (error) {
    const late = error.name === "TimeoutError";
    throw new Answer(0, late ? "the server does not answer in time" : "the server cannot be reached");
  }
  const said = await response.json().catch(() => null);
  if (response.ok && said !== null) return said;
  if (response.ok) return {};
  const reasons = said?.errors ?? (said?.detail ? [String(said.detail)] : []);
  throw new Answer(response.status, reasons.join("; ") || `the server answers ${response.status}`);
}
