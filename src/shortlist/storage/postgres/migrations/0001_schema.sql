-- One row for every fact, in the order of writing. A partition is a day; a day whose time is over is dropped whole.
CREATE SEQUENCE event_ids;
CREATE TABLE events (
  id bigint NOT NULL,
  at bigint NOT NULL,           -- milliseconds since 1970, by the clock of the gateway
  kind text NOT NULL,
  caller text,
  workspace text,               -- a keyed hash
  subject text,
  outcome text,
  search bigint,
  rank integer,
  miss text,
  milliseconds double precision,
  tokens bigint,
  data text NOT NULL            -- everything else, as JSON
) PARTITION BY RANGE (at);
CREATE TABLE events_other PARTITION OF events DEFAULT;
CREATE INDEX events_by_id ON events (id);
CREATE INDEX events_by_time ON events (at);
CREATE INDEX events_by_workspace ON events (workspace, id) WHERE workspace IS NOT NULL;
CREATE INDEX events_by_subject ON events (subject, id) WHERE kind = 'called';
CREATE INDEX events_missed ON events (id) WHERE miss IS NOT NULL;

-- What each workspace did, kept up by the writer in the transaction of its events.
CREATE TABLE sessions (
  workspace text PRIMARY KEY,
  caller text NOT NULL,
  mode text,
  opened bigint NOT NULL,
  last bigint NOT NULL,
  initial_tools bigint NOT NULL DEFAULT 0,
  tools bigint NOT NULL DEFAULT 0,
  toolsets text NOT NULL DEFAULT '[]',
  searches bigint NOT NULL DEFAULT 0,
  calls bigint NOT NULL DEFAULT 0,
  errors bigint NOT NULL DEFAULT 0,
  loads bigint NOT NULL DEFAULT 0,
  load_milliseconds double precision NOT NULL DEFAULT 0,
  misses bigint NOT NULL DEFAULT 0,
  circles bigint NOT NULL DEFAULT 0,
  tokens bigint NOT NULL DEFAULT 0,
  upfront bigint NOT NULL DEFAULT 0,
  completed bigint NOT NULL DEFAULT 0,
  abandoned bigint NOT NULL DEFAULT 0
);
CREATE INDEX sessions_by_time ON sessions (last);

-- Sums, kept up likewise: every figure is computed from these four alone.
CREATE TABLE tallies (
  hour bigint NOT NULL, name text NOT NULL, key text NOT NULL, value double precision NOT NULL,
  PRIMARY KEY (hour, name, key)
);
CREATE TABLE times (hour bigint NOT NULL, step text NOT NULL, buckets text NOT NULL, PRIMARY KEY (hour, step));
CREATE TABLE tools (
  day bigint NOT NULL, tool text NOT NULL,
  shown double precision NOT NULL, called double precision NOT NULL, failed double precision NOT NULL,
  refused double precision NOT NULL, found double precision NOT NULL, reciprocal double precision NOT NULL,
  unfound double precision NOT NULL, milliseconds double precision NOT NULL,
  PRIMARY KEY (day, tool)
);
CREATE TABLE pairs (
  one text NOT NULL, other text NOT NULL, workspaces bigint NOT NULL, hour bigint NOT NULL, PRIMARY KEY (one, other)
);
CREATE TABLE notes (name text PRIMARY KEY, value text NOT NULL);

-- One row for every experiment; at most one of them runs.
CREATE TABLE experiments (name text PRIMARY KEY, plan text NOT NULL, started bigint NOT NULL, stopped bigint);
CREATE UNIQUE INDEX one_experiment_runs ON experiments ((stopped IS NULL)) WHERE stopped IS NULL;

-- The first time a workspace was served a variant. While it counts, the counts are less what it had done before.
CREATE TABLE exposures (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  experiment text NOT NULL,
  workspace text NOT NULL,
  variant text NOT NULL,
  at bigint NOT NULL,
  counting boolean NOT NULL DEFAULT true,
  tools bigint NOT NULL DEFAULT 0,
  searches bigint NOT NULL DEFAULT 0,
  calls bigint NOT NULL DEFAULT 0,
  errors bigint NOT NULL DEFAULT 0,
  misses bigint NOT NULL DEFAULT 0,
  loads bigint NOT NULL DEFAULT 0,
  load_milliseconds double precision NOT NULL DEFAULT 0,
  tokens bigint NOT NULL DEFAULT 0,
  completed bigint NOT NULL DEFAULT 0,
  abandoned bigint NOT NULL DEFAULT 0,
  UNIQUE (experiment, workspace)
);
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

CREATE FUNCTION expose_workspace() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO exposures
    (experiment, workspace, variant, at,
     searches, calls, errors, misses, loads, load_milliseconds, tokens, completed, abandoned)
  SELECT NEW.subject, NEW.workspace, NEW.outcome, NEW.at,
         -coalesce(s.searches, 0), -coalesce(s.calls, 0), -coalesce(s.errors, 0), -coalesce(s.misses, 0),
         -coalesce(s.loads, 0), -coalesce(s.load_milliseconds, 0), -coalesce(s.tokens, 0), -coalesce(s.completed, 0),
         -coalesce(s.abandoned, 0)
  FROM experiments x LEFT JOIN sessions s ON s.workspace = NEW.workspace
  WHERE x.name = NEW.subject AND x.stopped IS NULL
  ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
CREATE TRIGGER workspace_exposed AFTER INSERT ON events FOR EACH ROW WHEN (NEW.kind = 'exposed')
EXECUTE FUNCTION expose_workspace();

CREATE FUNCTION settle_exposures(which_experiment text, which_workspace text) RETURNS void LANGUAGE sql AS $$
  UPDATE exposures SET
    tools = o.tools, searches = o.searches, calls = o.calls, errors = o.errors, misses = o.misses, loads = o.loads,
    load_milliseconds = o.load_milliseconds, tokens = o.tokens, completed = o.completed, abandoned = o.abandoned,
    counting = false
  FROM outcomes o
  WHERE o.id = exposures.id AND exposures.counting
    AND (which_experiment IS NULL OR exposures.experiment = which_experiment)
    AND (which_workspace IS NULL OR exposures.workspace = which_workspace)
$$;
CREATE FUNCTION stop_experiment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM settle_exposures(NEW.name, NULL);
  RETURN NULL;
END $$;
CREATE TRIGGER experiment_stopped AFTER UPDATE OF stopped ON experiments FOR EACH ROW WHEN (NEW.stopped IS NOT NULL)
EXECUTE FUNCTION stop_experiment();

-- What an exposed workspace did outlives its own row.
CREATE FUNCTION forget_workspace() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM settle_exposures(NULL, OLD.workspace);
  RETURN OLD;
END $$;
CREATE TRIGGER workspace_forgotten BEFORE DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION forget_workspace();

-- Queries that led to calls, added up from the events by whichever gateway learns.
CREATE TABLE exemplars (
  caller text NOT NULL, tool text NOT NULL, query text NOT NULL,
  successes bigint NOT NULL, errors bigint NOT NULL, last bigint NOT NULL,
  PRIMARY KEY (caller, tool, query)
);

CREATE TABLE catalogs (key text PRIMARY KEY, format integer NOT NULL, document bytea NOT NULL);
CREATE TABLE vectors (key bytea PRIMARY KEY, scale double precision NOT NULL, codes bytea NOT NULL, used date NOT NULL);
CREATE INDEX vectors_by_use ON vectors (used);

-- Pins, and what people decided about them.
CREATE TABLE pinned_servers (server text PRIMARY KEY, listing text NOT NULL);
CREATE TABLE pinned_definitions (
  server text NOT NULL, held boolean NOT NULL, kind text NOT NULL, name text NOT NULL, text text NOT NULL,
  cause text NOT NULL, reasons text NOT NULL, before text NOT NULL, before_name text NOT NULL,
  PRIMARY KEY (server, held, kind, name)
);
CREATE TABLE decisions (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  server text NOT NULL, kind text NOT NULL, name text NOT NULL, hash text NOT NULL, approved boolean NOT NULL,
  by text NOT NULL, at double precision NOT NULL
);
CREATE INDEX decisions_of ON decisions (server);

CREATE TABLE tokens (name text PRIMARY KEY, document jsonb NOT NULL, last_used double precision);
CREATE TABLE workspaces (key text PRIMARY KEY, loaded text NOT NULL, used double precision NOT NULL);
CREATE INDEX workspaces_by_use ON workspaces (used);
CREATE TABLE results (
  handle text PRIMARY KEY,      -- a hash of it
  id bigint GENERATED ALWAYS AS IDENTITY,
  owner text NOT NULL, pages text[] NOT NULL, bytes bigint NOT NULL,
  expires timestamptz NOT NULL
);
CREATE INDEX results_by_age ON results (id);
