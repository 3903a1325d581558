"use strict";

// Times in the reader's own zone, on pointing at them.
function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    time.title = new Date(time.dateTime).toLocaleString();
  }
}

localise(document);
