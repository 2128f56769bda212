// The start of the console: the session, the header, the navigation, the live status, and then the view that the address names.

import { showSession } from "./account.js";
import { get, whenSessionEnds } from "./api.js";
import { errorState, fill, h, pageHead, setText } from "./dom.js";
import { onLive, startLive } from "./live.js";
import { offerUndoAgain } from "./deletes.js";
import { drawNavigation, showAlarms } from "./navigation.js";
import { startPalette } from "./palette.js";
import { navigation, startRouter } from "./router.js";
import { mayManage, firstPage } from "./rights.js";
import { renewSession, signIn } from "./sign-in.js";
import { shell } from "./strings-shell.js";
import { zoneName } from "./format.js";

async function start() {
  whenSessionEnds({ over: signIn, replaced: renewSession });
  const main = document.getElementById("main");
  try {
    const session = await get("/admin/api/session");
    drawShell(session);
    // Only an admin may see the status.
    if (mayManage()) {
      startLive();
      onLive(showLive());
    }
    offerUndoAgain();
    await startRouter();
  } catch (error) {
    fill(main, pageHead(shell.console), errorState(error, () => location.reload()));
  }
}

function drawShell(session) {
  setText(document.getElementById("service"), session.title);
  document.getElementById("service").closest("a").href = firstPage();
  document.getElementById("live").hidden = !mayManage();
  showSession(session);
  drawNavigation(navigation());
  startPalette();
  fill(document.getElementById("foot"), h("span", null, shell.version(session.version)), h("span", null, shell.zone(zoneName())));
}

/** The state of the connection, and how many alarms stand. */
function showLive() {
  const live = document.getElementById("live");
  return ({ state, status }) => {
    live.dataset.state = state;
    setText(live, shell.live[state]);
    showAlarms(status?.alarms.filter((alarm) => alarm.cleared === null).length ?? 0);
  };
}

start();
