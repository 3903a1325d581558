-- One row for every experiment; at most one of them runs.
CREATE TABLE experiments (
  name TEXT PRIMARY KEY,
  plan TEXT NOT NULL,           -- variants, metric, guardrails, level, minimum: JSON (telemetry/experiments/plan.py)
  started INTEGER NOT NULL,     -- milliseconds since 1970
  stopped INTEGER
) WITHOUT ROWID;
CREATE UNIQUE INDEX one_experiment_runs ON experiments (stopped IS NULL) WHERE stopped IS NULL;

-- The first time a workspace was served a variant, and its counts then; `after` once they count no more.
CREATE TABLE exposures (
  id INTEGER PRIMARY KEY,       -- in the order of exposure
  experiment TEXT NOT NULL,
  workspace TEXT NOT NULL,
  variant TEXT NOT NULL,
  at INTEGER NOT NULL,
  before TEXT NOT NULL,
  after TEXT,
  UNIQUE (experiment, workspace)
);
CREATE INDEX exposures_counting ON exposures (workspace) WHERE after IS NULL;

CREATE VIEW session_counts AS
SELECT workspace, json_object(
  'tools', tools, 'searches', searches, 'calls', calls, 'errors', errors, 'misses', misses, 'loads', loads,
  'load_milliseconds', load_milliseconds, 'tokens', tokens, 'completed', completed, 'abandoned', abandoned
) AS counts
FROM sessions;

CREATE TRIGGER workspace_exposed AFTER INSERT ON events
WHEN NEW.kind = 'exposed' AND EXISTS (SELECT 1 FROM experiments WHERE name = NEW.subject AND stopped IS NULL)
BEGIN
  INSERT OR IGNORE INTO exposures (experiment, workspace, variant, at, before)
  VALUES (NEW.subject, NEW.workspace, NEW.outcome, NEW.at,
          coalesce((SELECT counts FROM session_counts WHERE workspace = NEW.workspace), '{}'));
END;

-- What an exposed workspace did outlives its own row.
CREATE TRIGGER workspace_forgotten BEFORE DELETE ON sessions
BEGIN
  UPDATE exposures SET after = (SELECT counts FROM session_counts WHERE workspace = OLD.workspace)
  WHERE workspace = OLD.workspace AND after IS NULL;
END;
