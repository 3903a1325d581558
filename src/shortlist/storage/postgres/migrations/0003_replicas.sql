-- Legacy HTTP sessions, so that every gateway can serve them.
CREATE TABLE client_sessions (
  id text PRIMARY KEY,          -- a hash of it
  owner text NOT NULL,
  handshake text NOT NULL,
  level text NOT NULL DEFAULT '',
  subscriptions text[] NOT NULL DEFAULT '{}',
  used timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX client_sessions_by_use ON client_sessions (used);

-- The gateways that run now.
CREATE TABLE replicas (id text PRIMARY KEY, url text NOT NULL, seen timestamptz NOT NULL);

-- Random keys that all gateways share.
CREATE TABLE keys (purpose text PRIMARY KEY, key bytea NOT NULL);

-- Other gateways hear of every change; the payload names the table, and the row where that is of use.
CREATE FUNCTION tell_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('shortlist', TG_TABLE_NAME);
  RETURN NULL;
END $$;
CREATE TRIGGER tokens_changed AFTER INSERT OR DELETE OR UPDATE OF document ON tokens
FOR EACH STATEMENT EXECUTE FUNCTION tell_change();
CREATE TRIGGER decisions_changed AFTER INSERT ON decisions FOR EACH STATEMENT EXECUTE FUNCTION tell_change();
CREATE TRIGGER programs_changed AFTER INSERT OR DELETE OR UPDATE ON programs
FOR EACH STATEMENT EXECUTE FUNCTION tell_change();
CREATE TRIGGER experiments_changed AFTER INSERT OR UPDATE ON experiments
FOR EACH STATEMENT EXECUTE FUNCTION tell_change();

CREATE FUNCTION tell_row_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  changed text := coalesce(to_jsonb(NEW) ->> TG_ARGV[0], to_jsonb(OLD) ->> TG_ARGV[0]);
BEGIN
  PERFORM pg_notify('shortlist', TG_TABLE_NAME || ' ' || left(changed, 1500));
  RETURN NULL;
END $$;
CREATE TRIGGER workspaces_changed AFTER INSERT OR UPDATE OF loaded ON workspaces
FOR EACH ROW EXECUTE FUNCTION tell_row_change('key');
CREATE TRIGGER client_sessions_changed AFTER DELETE OR UPDATE OF level, subscriptions ON client_sessions
FOR EACH ROW EXECUTE FUNCTION tell_row_change('id');
