/** Draws a conversation: one article an entry, changed in place. */

/** @typedef {import("./conversation.js").Entry} Entry */

const NEAR = 80;
const NAMES = { user: "You", assistant: "M*" };

export class Transcript {
  /** @param {HTMLElement} list the log @param {HTMLElement} scroller what scrolls with it */
  constructor(list, scroller) {
    this.list = list;
    this.scroller = scroller;
    /** @type {Map<string, HTMLElement>} */
    this.articles = new Map();
    /** Whether the reader follows the end. */
    this.following = true;
    scroller.addEventListener("scroll", () => {
      this.following = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR;
    });
    new ResizeObserver(() => this.follow()).observe(scroller);
  }

  follow() {
    if (this.following) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  /** @param {Entry} entry */
  show(entry) {
    const gone = entry.done && !entry.text && !entry.note;
    let article = this.articles.get(entry.id);
    if (!article) {
      if (gone) return;
      article = this.make(entry);
    }
    article.hidden = entry.role === "assistant" && (gone || !entry.text);
    article.setAttribute("aria-busy", String(!entry.done));
    article.dataset["role"] = entry.role;
    const words = /** @type {HTMLElement} */ (article.querySelector(".words"));
    words.replaceChildren(...content(entry));
    const note = /** @type {HTMLElement} */ (article.querySelector(".note"));
    note.textContent = entry.note;
    note.hidden = !entry.note;
    this.follow();
  }

  /** @param {Entry} entry */
  make(entry) {
    const article = document.createElement("article");
    article.className = "entry";
    const who = document.createElement("h3");
    who.textContent = NAMES[entry.role];
    const words = document.createElement("p");
    words.className = "words";
    const note = document.createElement("p");
    note.className = "note";
    article.append(who, words, note);
    this.articles.set(entry.id, article);
    this.list.append(article);
    return article;
  }
}

/** @param {Entry} entry @returns {Node[]} */
function content(entry) {
  if (!entry.text) return [mark("span", "pending", entry.done ? "(nothing was understood)" : "listening …")];
  if (entry.role === "user" || !entry.aloud) return [document.createTextNode(entry.text)];
  if (entry.heard !== null) {
    const rest = entry.text.startsWith(entry.heard) ? entry.text.slice(entry.heard.length) : "";
    return [document.createTextNode(entry.heard), mark("s", "unheard", rest)];
  }
  const coming = entry.text.slice(entry.spoken);
  return [document.createTextNode(entry.text.slice(0, entry.spoken)), mark("span", "coming", coming)];
}

/** @param {string} tag @param {string} name @param {string} text */
function mark(tag, name, text) {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = text;
  return element;
}
