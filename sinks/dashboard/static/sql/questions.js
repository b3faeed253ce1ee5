// Questions in SQL: those that come with the page, and the reader's own, which the browser keeps.

import * as storage from "../base/storage.js";
import { get } from "../base/stream.js";

const KEY = "spazio-questions";
export const OWN = "Your own";

// Lists of {group, question, sql}.
export const given = () => get("/static/sql/questions.json");

export function own() {
  try {
    const found = JSON.parse(storage.read(KEY) ?? "[]");
    return found.filter(({ question, sql }) => typeof question === "string" && typeof sql === "string").map(({ question, sql }) => ({ group: OWN, question, sql }));
  } catch {
    return []; // what another version or program has left there
  }
}

const put = (questions) => storage.write(KEY, JSON.stringify(questions.map(({ question, sql }) => ({ question, sql }))));

// Keeps a question in place of one of the same name; tells whether the browser does keep it, as `remove` does.
export const save = (question, sql) => put([...own().filter((each) => each.question !== question), { question, sql }]);

export const remove = (question) => put(own().filter((each) => each.question !== question));
