-- One row for every fact, in the order of writing; never changed, only deleted when its time is over.
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,          -- milliseconds since 1970, by the clock of the gateway
  kind TEXT NOT NULL,           -- opened, listed, searched, described, called, loaded, ... (telemetry/events.py)
  caller TEXT,                  -- the name of a token, or 'local'
  workspace TEXT,               -- a keyed hash
  subject TEXT,                 -- the tool, toolset, server or experiment it is about; a search's query
  outcome TEXT,                 -- a call's outcome, a search's confidence, a server's state, a variant
  search INTEGER,               -- the earlier search that a call, a load or a rephrased search belongs to
  rank INTEGER,                 -- the tool's rank in that search
  miss TEXT,                    -- why a call or a search counts as a retrieval miss: unfound, unknown, rephrased, empty
  milliseconds REAL,
  tokens INTEGER,
  data TEXT NOT NULL            -- everything else, as JSON
);
CREATE INDEX events_by_time ON events (at);
CREATE INDEX events_by_workspace ON events (workspace, id) WHERE workspace IS NOT NULL;
CREATE INDEX events_by_subject ON events (subject, id) WHERE kind = 'called';
CREATE INDEX events_by_search ON events (search) WHERE search IS NOT NULL;
CREATE INDEX events_missed ON events (id) WHERE miss IS NOT NULL;

-- What each workspace did, kept up by the writer in the transaction of its events.
CREATE TABLE sessions (
  workspace TEXT PRIMARY KEY,
  caller TEXT NOT NULL,
  mode TEXT,
  opened INTEGER NOT NULL,
  last INTEGER NOT NULL,
  initial_tools INTEGER NOT NULL DEFAULT 0,
  tools INTEGER NOT NULL DEFAULT 0,           -- listed now: initial, plus loaded, less unloaded
  toolsets TEXT NOT NULL DEFAULT '[]',        -- JSON: names of toolsets loaded so far
  searches INTEGER NOT NULL DEFAULT 0,
  calls INTEGER NOT NULL DEFAULT 0,
  errors INTEGER NOT NULL DEFAULT 0,          -- calls that ended in error, failed or invalid_arguments
  loads INTEGER NOT NULL DEFAULT 0,
  load_milliseconds REAL NOT NULL DEFAULT 0,
  misses INTEGER NOT NULL DEFAULT 0,
  circles INTEGER NOT NULL DEFAULT 0,
  tokens INTEGER NOT NULL DEFAULT 0,          -- shown: lists, searches, descriptions, loads
  upfront INTEGER NOT NULL DEFAULT 0,         -- what listing everything once would have cost
  completed INTEGER NOT NULL DEFAULT 0,       -- tasks that the caller reported as done
  abandoned INTEGER NOT NULL DEFAULT 0        -- … as not done
) WITHOUT ROWID;
CREATE INDEX sessions_by_time ON sessions (last);

-- Sums, kept up likewise: every figure is computed from these four alone (telemetry/figures.py).
CREATE TABLE tallies (
  hour INTEGER NOT NULL,        -- hours since 1970
  name TEXT NOT NULL,
  key TEXT NOT NULL,            -- an outcome, a rank, …; '' where the name says it all
  value REAL NOT NULL,
  PRIMARY KEY (hour, name, key)
) WITHOUT ROWID;

CREATE TABLE times (
  hour INTEGER NOT NULL,
  step TEXT NOT NULL,
  buckets TEXT NOT NULL,        -- JSON: how many in each bucket of milliseconds
  PRIMARY KEY (hour, step)
) WITHOUT ROWID;

CREATE TABLE tools (
  day INTEGER NOT NULL,         -- days since 1970: there are too many tools for every hour
  tool TEXT NOT NULL,
  shown INTEGER NOT NULL, called INTEGER NOT NULL, failed INTEGER NOT NULL, refused INTEGER NOT NULL,
  found INTEGER NOT NULL, reciprocal REAL NOT NULL, unfound INTEGER NOT NULL, milliseconds REAL NOT NULL,
  PRIMARY KEY (day, tool)
) WITHOUT ROWID;

CREATE TABLE pairs (
  one TEXT NOT NULL,
  other TEXT NOT NULL,
  workspaces INTEGER NOT NULL,  -- that called both
  hour INTEGER NOT NULL,        -- the last time
  PRIMARY KEY (one, other)
) WITHOUT ROWID;

CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- For people who ask in SQL; the shape of these three stays as it is.
CREATE VIEW ab_test_sessions AS
SELECT workspace AS id, mode, initial_tools AS initial_tool_count, tools AS final_tool_count,
       toolsets AS toolsets_loaded, calls AS total_tool_calls, loads AS total_load_events
FROM sessions;

CREATE VIEW ab_tool_events AS
SELECT workspace AS session_id,
       CASE WHEN miss IS NOT NULL THEN 'miss' WHEN kind = 'loaded' THEN 'load' WHEN kind = 'unloaded' THEN 'unload'
            ELSE 'discovery_suggestion' END AS event_type,
       CASE kind WHEN 'searched' THEN NULL WHEN 'called' THEN substr(subject, 1, instr(subject, '/') - 1)
            ELSE subject END AS toolset_name,
       milliseconds AS latency_ms
FROM events
WHERE kind IN ('loaded', 'unloaded', 'suggested') OR miss IS NOT NULL;

CREATE VIEW tool_call_log AS
SELECT workspace AS session_id, subject AS tool, outcome AS result_status FROM events WHERE kind = 'called';
