// Requests to the server that this page came from.

const PATIENCE = 30_000;
const KEY = "offramp-key";

export class Refused extends Error {
  constructor(status, words) { super(words); this.status = status; }
}

/** Kept for this tab: a reload does not ask again, another tab does. */
export const key = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (value) => sessionStorage.setItem(KEY, value),
};

const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}${/[.!?]$/.test(words) ? "" : "."}`;

/** JSON from the server; Refused with words for the reader where there is none. */
export async function ask(path, body, signal) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  if (/[^!-~]/.test(key.get())) throw new Refused(401, "The API key is not accepted: it is one word of printable ASCII.");
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  const limits = [AbortSignal.timeout(PATIENCE), ...(signal ? [signal] : [])];
  let response;
  try {
    response = await fetch(path, {
      method: body === undefined ? "GET" : "POST", headers, body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store", credentials: "same-origin", signal: AbortSignal.any ? AbortSignal.any(limits) : limits.at(-1),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0, "The server does not answer.");
  }
  const said = await response.json().catch(() => null);
  if (!response.ok) throw new Refused(response.status, sentence(said?.error || `the server answered with status ${response.status}`));
  if (said === null) throw new Refused(response.status, "The server's answer could not be read.");
  return said;
}
