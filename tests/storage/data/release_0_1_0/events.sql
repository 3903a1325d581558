BEGIN TRANSACTION;
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,          -- milliseconds since 1970, by the clock of the gateway
  kind TEXT NOT NULL,           -- opened, listed, searched, described, called, loaded, ... (telemetry/rows.py)
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
INSERT INTO "events" VALUES(1,1790000001000,'opened','ben','45a5c9867b845f90',NULL,'search',NULL,NULL,NULL,NULL,100,'{"tools":4}');
INSERT INTO "events" VALUES(2,1790000002000,'listed','ben','45a5c9867b845f90',NULL,NULL,NULL,NULL,NULL,NULL,500,'{"tools":4,"upfront":9000}');
INSERT INTO "events" VALUES(3,1790000003000,'exposed','ben','45a5c9867b845f90','modes','as configured',NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "events" VALUES(4,1790000004000,'searched','ben','45a5c9867b845f90','tell me the weather','high',NULL,NULL,NULL,0.5,80,'{"hits":[{"tool":"sky/forecast","rank":1,"score":5.0,"signals":{}}],"probability":0.9,"limit":5,"mode":"hybrid","steps":{"lexical":0.5}}');
INSERT INTO "events" VALUES(5,1790000005000,'called','ben','45a5c9867b845f90','sky/forecast','error',4,1,NULL,12.0,NULL,'{"size":0}');
INSERT INTO "events" VALUES(6,1790000006000,'opened','anna','8849662d32f428ef',NULL,'search',NULL,NULL,NULL,NULL,100,'{"tools":4}');
INSERT INTO "events" VALUES(7,1790000007000,'listed','anna','8849662d32f428ef',NULL,NULL,NULL,NULL,NULL,NULL,500,'{"tools":4,"upfront":9000}');
INSERT INTO "events" VALUES(8,1790000008000,'exposed','anna','8849662d32f428ef','modes','mode=dynamic,limit=10',NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "events" VALUES(9,1790000009000,'searched','anna','8849662d32f428ef','tell me the weather','high',NULL,NULL,NULL,0.5,80,'{"hits":[{"tool":"sky/forecast","rank":1,"score":5.0,"signals":{}}],"probability":0.9,"limit":5,"mode":"hybrid","steps":{"lexical":0.5}}');
INSERT INTO "events" VALUES(10,1790000010000,'called','anna','8849662d32f428ef','sky/forecast','ok',9,1,NULL,12.0,NULL,'{"size":0}');
INSERT INTO "events" VALUES(11,1790000011000,'opened','ben','0e9d0aa6fbf6c706',NULL,'search',NULL,NULL,NULL,NULL,100,'{"tools":4}');
INSERT INTO "events" VALUES(12,1790000012000,'listed','ben','0e9d0aa6fbf6c706',NULL,NULL,NULL,NULL,NULL,NULL,500,'{"tools":4,"upfront":9000}');
INSERT INTO "events" VALUES(13,1790000013000,'exposed','ben','0e9d0aa6fbf6c706','modes','as configured',NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "events" VALUES(14,1790000014000,'searched','ben','0e9d0aa6fbf6c706','tell me the weather','high',NULL,NULL,NULL,0.5,80,'{"hits":[{"tool":"sky/forecast","rank":1,"score":5.0,"signals":{}}],"probability":0.9,"limit":5,"mode":"hybrid","steps":{"lexical":0.5}}');
INSERT INTO "events" VALUES(15,1790000015000,'called','ben','0e9d0aa6fbf6c706','sky/forecast','ok',14,1,NULL,12.0,NULL,'{"size":0}');
INSERT INTO "events" VALUES(16,1790000016000,'opened','anna','bbedf48a78f51e1f',NULL,'search',NULL,NULL,NULL,NULL,100,'{"tools":4}');
INSERT INTO "events" VALUES(17,1790000017000,'listed','anna','bbedf48a78f51e1f',NULL,NULL,NULL,NULL,NULL,NULL,500,'{"tools":4,"upfront":9000}');
INSERT INTO "events" VALUES(18,1790000018000,'exposed','anna','bbedf48a78f51e1f','modes','mode=dynamic,limit=10',NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "events" VALUES(19,1790000019000,'searched','anna','bbedf48a78f51e1f','tell me the weather','high',NULL,NULL,NULL,0.5,80,'{"hits":[{"tool":"sky/forecast","rank":1,"score":5.0,"signals":{}}],"probability":0.9,"limit":5,"mode":"hybrid","steps":{"lexical":0.5}}');
INSERT INTO "events" VALUES(20,1790000020000,'called','anna','bbedf48a78f51e1f','sky/forecast','ok',19,1,NULL,12.0,NULL,'{"size":0}');
CREATE TABLE exemplars (
  caller TEXT NOT NULL,
  tool TEXT NOT NULL,
  query TEXT NOT NULL,
  successes INTEGER NOT NULL,
  errors INTEGER NOT NULL,
  last INTEGER NOT NULL,        -- milliseconds since 1970, of the last call
  PRIMARY KEY (caller, tool, query)
) WITHOUT ROWID;
INSERT INTO "exemplars" VALUES('anna','sky/forecast','tell me the weather',2,0,1790000020000);
INSERT INTO "exemplars" VALUES('ben','sky/forecast','tell me the weather',1,1,1790000015000);
CREATE TABLE experiments (
  name TEXT PRIMARY KEY,
  plan TEXT NOT NULL,           -- variants, metric, guardrails, level, minimum: JSON (telemetry/experiments/plan.py)
  started INTEGER NOT NULL,     -- milliseconds since 1970
  stopped INTEGER
) WITHOUT ROWID;
INSERT INTO "experiments" VALUES('modes','{"name": "modes", "variants": [{}, {"mode": "dynamic", "limit": 10}], "metric": "misses", "guardrails": ["errors"], "alpha": 0.05, "minimum": 2, "started": 1794796512226, "stopped": null}',1794796512226,NULL);
CREATE TABLE exposures (
  id INTEGER PRIMARY KEY,       -- in the order of exposure
  experiment TEXT NOT NULL,
  workspace TEXT NOT NULL,
  variant TEXT NOT NULL,
  at INTEGER NOT NULL,
  counting INTEGER NOT NULL DEFAULT 1,
  tools INTEGER NOT NULL DEFAULT 0,           -- listed now, whatever was before
  searches INTEGER NOT NULL DEFAULT 0,
  calls INTEGER NOT NULL DEFAULT 0,
  errors INTEGER NOT NULL DEFAULT 0,
  misses INTEGER NOT NULL DEFAULT 0,
  loads INTEGER NOT NULL DEFAULT 0,
  load_milliseconds REAL NOT NULL DEFAULT 0,
  tokens INTEGER NOT NULL DEFAULT 0,
  completed INTEGER NOT NULL DEFAULT 0,
  abandoned INTEGER NOT NULL DEFAULT 0,
  UNIQUE (experiment, workspace)
);
INSERT INTO "exposures" VALUES(1,'modes','45a5c9867b845f90','as configured',1790000003000,1,0,0,0,0,0,0,0.0,0,0,0);
INSERT INTO "exposures" VALUES(2,'modes','8849662d32f428ef','mode=dynamic,limit=10',1790000008000,1,0,0,0,0,0,0,0.0,0,0,0);
INSERT INTO "exposures" VALUES(3,'modes','0e9d0aa6fbf6c706','as configured',1790000013000,1,0,0,0,0,0,0,0.0,0,0,0);
INSERT INTO "exposures" VALUES(4,'modes','bbedf48a78f51e1f','mode=dynamic,limit=10',1790000018000,1,0,0,0,0,0,0,0.0,0,0,0);
CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "notes" VALUES('learned until','20');
CREATE TABLE pairs (
  one TEXT NOT NULL,
  other TEXT NOT NULL,
  workspaces INTEGER NOT NULL,  -- that called both
  hour INTEGER NOT NULL,        -- the last time
  PRIMARY KEY (one, other)
) WITHOUT ROWID;
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
INSERT INTO "sessions" VALUES('0e9d0aa6fbf6c706','ben','search',1790000011000,1790000015000,4,4,'[]',1,1,0,0,0.0,0,0,680,9000,0,0);
INSERT INTO "sessions" VALUES('45a5c9867b845f90','ben','search',1790000001000,1790000005000,4,4,'[]',1,1,1,0,0.0,0,0,680,9000,0,0);
INSERT INTO "sessions" VALUES('8849662d32f428ef','anna','search',1790000006000,1790000010000,4,4,'[]',1,1,0,0,0.0,0,0,680,9000,0,0);
INSERT INTO "sessions" VALUES('bbedf48a78f51e1f','anna','search',1790000016000,1790000020000,4,4,'[]',1,1,0,0,0.0,0,0,680,9000,0,0);
CREATE TABLE tallies (
  hour INTEGER NOT NULL,        -- hours since 1970
  name TEXT NOT NULL,
  key TEXT NOT NULL,            -- an outcome, a rank, …; '' where the name says it all
  value REAL NOT NULL,
  PRIMARY KEY (hour, name, key)
) WITHOUT ROWID;
INSERT INTO "tallies" VALUES(497222,'calls','error',1.0);
INSERT INTO "tallies" VALUES(497222,'calls','ok',3.0);
INSERT INTO "tallies" VALUES(497222,'found_at','1',4.0);
INSERT INTO "tallies" VALUES(497222,'searches','',4.0);
INSERT INTO "tallies" VALUES(497222,'searches_picked','',4.0);
INSERT INTO "tallies" VALUES(497222,'sessions','search',4.0);
INSERT INTO "tallies" VALUES(497222,'tokens','instructions',400.0);
INSERT INTO "tallies" VALUES(497222,'tokens','list',2000.0);
INSERT INTO "tallies" VALUES(497222,'tokens','search',320.0);
INSERT INTO "tallies" VALUES(497222,'upfront','',36000.0);
CREATE TABLE times (
  hour INTEGER NOT NULL,
  step TEXT NOT NULL,
  buckets TEXT NOT NULL,        -- JSON: how many in each bucket of milliseconds
  PRIMARY KEY (hour, step)
) WITHOUT ROWID;
INSERT INTO "times" VALUES(497222,'call','{"26":4}');
INSERT INTO "times" VALUES(497222,'search','{"-8":4}');
INSERT INTO "times" VALUES(497222,'search/lexical','{"-8":4}');
CREATE TABLE tools (
  day INTEGER NOT NULL,         -- days since 1970: there are too many tools for every hour
  tool TEXT NOT NULL,
  shown INTEGER NOT NULL, called INTEGER NOT NULL, failed INTEGER NOT NULL, refused INTEGER NOT NULL,
  found INTEGER NOT NULL, reciprocal REAL NOT NULL, unfound INTEGER NOT NULL, milliseconds REAL NOT NULL,
  PRIMARY KEY (day, tool)
) WITHOUT ROWID;
INSERT INTO "tools" VALUES(20717,'sky/forecast',4,4,1,0,4,4.0,0,48.0);
CREATE INDEX events_by_time ON events (at);
CREATE INDEX events_by_workspace ON events (workspace, id) WHERE workspace IS NOT NULL;
CREATE INDEX events_by_subject ON events (subject, id) WHERE kind = 'called';
CREATE INDEX events_by_search ON events (search) WHERE search IS NOT NULL;
CREATE INDEX events_missed ON events (id) WHERE miss IS NOT NULL;
CREATE INDEX sessions_by_time ON sessions (last);
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
CREATE UNIQUE INDEX one_experiment_runs ON experiments (stopped IS NULL) WHERE stopped IS NULL;
CREATE INDEX exposures_counting ON exposures (workspace) WHERE counting;
CREATE VIEW outcomes AS
SELECT e.id, e.experiment, e.workspace, e.variant, e.at,
       e.tools + coalesce(s.tools, 0) AS tools,
       e.searches + coalesce(s.searches, 0) AS searches,
       e.calls + coalesce(s.calls, 0) AS calls,
       e.errors + coalesce(s.errors, 0) AS errors,
       e.misses + coalesce(s.misses, 0) AS misses,
       e.loads + coalesce(s.loads, 0) AS loads,
       e.load_milliseconds + coalesce(s.load_milliseconds, 0) AS load_milliseconds,
       e.tokens + coalesce(s.tokens, 0) AS tokens,
       e.completed + coalesce(s.completed, 0) AS completed,
       e.abandoned + coalesce(s.abandoned, 0) AS abandoned
FROM exposures e LEFT JOIN sessions s ON e.counting AND s.workspace = e.workspace;
CREATE TRIGGER workspace_exposed AFTER INSERT ON events
WHEN NEW.kind = 'exposed' AND EXISTS (SELECT 1 FROM experiments WHERE name = NEW.subject AND stopped IS NULL)
BEGIN
  INSERT OR IGNORE INTO exposures
    (experiment, workspace, variant, at,
     searches, calls, errors, misses, loads, load_milliseconds, tokens, completed, abandoned)
  SELECT NEW.subject, NEW.workspace, NEW.outcome, NEW.at,
         -coalesce(searches, 0), -coalesce(calls, 0), -coalesce(errors, 0), -coalesce(misses, 0), -coalesce(loads, 0),
         -coalesce(load_milliseconds, 0), -coalesce(tokens, 0), -coalesce(completed, 0), -coalesce(abandoned, 0)
  FROM (SELECT 1) LEFT JOIN sessions ON workspace = NEW.workspace;
END;
CREATE TRIGGER experiment_stopped AFTER UPDATE OF stopped ON experiments WHEN NEW.stopped IS NOT NULL
BEGIN
  UPDATE exposures SET
    (tools, searches, calls, errors, misses, loads, load_milliseconds, tokens, completed, abandoned) =
    (SELECT tools, searches, calls, errors, misses, loads, load_milliseconds, tokens, completed, abandoned
     FROM outcomes WHERE outcomes.id = exposures.id),
    counting = 0
  WHERE experiment = NEW.name AND counting;
END;
CREATE TRIGGER workspace_forgotten BEFORE DELETE ON sessions
BEGIN
  UPDATE exposures SET
    (tools, searches, calls, errors, misses, loads, load_milliseconds, tokens, completed, abandoned) =
    (SELECT tools, searches, calls, errors, misses, loads, load_milliseconds, tokens, completed, abandoned
     FROM outcomes WHERE outcomes.id = exposures.id),
    counting = 0
  WHERE workspace = OLD.workspace AND counting;
END;
CREATE TRIGGER exemplars_expire AFTER INSERT ON notes WHEN NEW.name = 'purged before'
BEGIN
  DELETE FROM exemplars WHERE last < 1000 * CAST(NEW.value AS REAL);
END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',20);
COMMIT;
PRAGMA user_version = 3;
