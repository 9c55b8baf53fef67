// Elements by hand. Whatever is data becomes text or an attribute, never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, props, children) {
  node.handlers = {};
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) {
      node.handlers[name] = value;
      node[name] = value;
    } else if (name === "style") {
      for (const [property, to] of Object.entries(value)) node.style.setProperty(property, to);
    } else if (name === "key") {
      node.key = value;
    } else {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

export const h = (tag, props, ...children) => filled(document.createElement(tag), props, children);
export const s = (tag, props, ...children) => filled(document.createElementNS(SVG, tag), props, children);

// Makes `old` what `fresh` is, and leaves alone what is the same: focus, selection and scrolling stay.
// What bears data-own fills itself.
function morph(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "style" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style && old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  for (const name of Object.keys(old.handlers ?? {})) old[name] = null;
  Object.assign(old, fresh.handlers);
  old.handlers = fresh.handlers;
  if (!old.hasAttribute("data-own")) fill(old, [...fresh.childNodes]);
}

const alike = (one, other) => one.nodeName === other.nodeName && one.key === other.key;

// Makes the children of `parent` these.
export function fill(parent, children) {
  const fresh = children.flat(3).filter((child) => child !== null && child !== undefined && child !== false);
  let at = parent.firstChild;
  for (const child of fresh) {
    const node = child instanceof Node ? child : document.createTextNode(String(child));
    if (at && at !== node && alike(at, node)) {
      morph(at, node);
      at = at.nextSibling;
    } else if (at === node) {
      at = at.nextSibling;
    } else {
      if (at) at.replaceWith(node);
      else parent.append(node);
      at = node.nextSibling;
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}
