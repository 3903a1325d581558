-- One row for every experiment; at most one of them runs.
CREATE TABLE experiments (
  name TEXT PRIMARY KEY,
  plan TEXT NOT NULL,           -- variants, metric, guardrails, level, minimum: JSON (telemetry/experiments/plan.py)
  started INTEGER NOT NULL,     -- milliseconds since 1970
  stopped INTEGER
) WITHOUT ROWID;
CREATE UNIQUE INDEX one_experiment_runs ON experiments (stopped IS NULL) WHERE stopped IS NULL;

-- The first time a workspace was served a variant. While it counts, the counts are less what it had done before;
-- when it counts no more, they are its outcome.
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
CREATE INDEX exposures_counting ON exposures (workspace) WHERE counting;

-- What each exposed workspace has done since.
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

-- What an exposed workspace did outlives its own row.
CREATE TRIGGER workspace_forgotten BEFORE DELETE ON sessions
BEGIN
  UPDATE exposures SET
    (tools, searches, calls, errors, misses, loads, load_milliseconds, tokens, completed, abandoned) =
    (SELECT tools, searches, calls, errors, misses, loads, load_milliseconds, tokens, completed, abandoned
     FROM outcomes WHERE outcomes.id = exposures.id),
    counting = 0
  WHERE workspace = OLD.workspace AND counting;
END;
