// The start of the console: the session, the header, the navigation, the live status, and then the view that the address names.

import { showSession } from "./account.js";
import { currentSession, whenRightsChange, whenSessionEnds } from "./api.js";
import { errorState, fill, h, pageHead, setText } from "./dom.js";
import { onLive, startLive, stopLive } from "./live.js";
import { offerUndoAgain } from "./deletes.js";
import { drawNavigation, showAlarms } from "./navigation.js";
import { startPalette } from "./palette.js";
import { followRights, navigation, startRouter } from "./router.js";
import { mayManage, firstPage } from "./rights.js";
import { renewSession, signIn } from "./sign-in.js";
import { shell } from "./strings-shell.js";
import { zoneName } from "./format.js";

async function start() {
  whenSessionEnds({ over: signIn, replaced: renewSession });
  const main = document.getElementById("main");
  try {
    // It came with the page, so that the view need not wait for it.
    const session = JSON.parse(document.getElementById("session").textContent);
    drawShell(session);
    onLive(showLive());
    offerUndoAgain();
    whenRightsChange(() => {
      showSession(currentSession());
      drawRights();
      followRights();
    });
    await startRouter();
    // Another page of the browser may have signed in with another key meanwhile.
    window.addEventListener("focus", () => renewSession().catch(() => {}));
  } catch (error) {
    fill(main, pageHead(shell.console), errorState(error, () => location.reload()));
  }
}

function drawShell(session) {
  setText(document.getElementById("service"), session.title);
  showSession(session);
  drawRights();
  startPalette();
  fill(document.getElementById("foot"), h("span", null, shell.version(session.version)), h("span", null, shell.zone(zoneName())));
}

/** Draws what depends on the rights of the key: the pages, and for an admin the live status. */
function drawRights() {
  document.getElementById("service").closest("a").href = firstPage();
  document.getElementById("live").hidden = !mayManage();
  drawNavigation(navigation());
  if (mayManage()) {
    startLive();
  } else {
    stopLive();
  }
}

/** How many alarms stand. */
const alarmsOf = (status) => status?.alarms.filter((alarm) => alarm.cleared === null).length ?? 0;

/** The state of the connection, and how many alarms stand. */
function showLive() {
  const live = document.getElementById("live");
  return ({ state, status }) => {
    showAlarms(alarmsOf(status));
    if (live.dataset.state === state) {
      return;
    }
    live.dataset.state = state;
    // On a phone, there is no room for more.
    live.dataset.short = shell.liveShort[state] ?? "";
    // A new dot for each state: browsers keep the colour of one behind a dialog.
    fill(live, h("i", { class: `${state}-dot`, "aria-hidden": "true" }), shell.live[state]);
  };
}

start();
