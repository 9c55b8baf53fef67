// Commands for a shell that read what a view shows. The token is not in them.

// A word of a command line. Control characters are escaped: in a terminal they could end the quotes, or run something.
export function quoted(text) {
  if (/^[\w./:@%+=,-]+$/.test(text)) return text;
  if (!/[\u0000-\u001f\u007f-\u009f]/.test(text)) return `'${text.replaceAll("'", "'\\''")}'`;
  const escaped = text.replace(/[\\']/g, "\\$&").replace(/[\u0000-\u001f\u007f-\u009f]/g,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `$'${escaped}'`;
}

export function curlCommand(url, guarded) {
  const bearer = guarded ? '-H "Authorization: Bearer $TISTREAM_TOKEN" ' : "";
  return `curl -sS --fail-with-body ${bearer}'${url.replaceAll("'", "%27")}'`;
}

// What the command takes as DATABASE.TABLE; null if it cannot name this table, because it cuts at the first point.
export const tableWord = (database, table) => (database.includes(".") ? null : `${database}.${table}`);

// `tistream` with its words and options; `root` is the base URL of the API. An option that is null is left out.
export function tistream(words, options, root) {
  const all = { ...options, url: root.replace(/\/$/, "") };
  const given = Object.entries(all).filter(([, value]) => value !== null && value !== undefined).map(([name, value]) =>
    `--${name}${value.startsWith("-") ? "=" : " "}${quoted(value)}`);
  const [command, ...others] = words;
  const plain = others.every((word) => !word.startsWith("-"));
  const rest = others.map(quoted);
  return (plain ? ["tistream", command, ...rest, ...given] : ["tistream", command, ...given, "--", ...rest]).join(" ");
}
