import { pageHead } from "./dom.js";

export async function show(main) {
  main.append(pageHead("Usage"));
}
